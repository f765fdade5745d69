"""Sound as tokens: a spectrogram through convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import FramesConfig
from clearhead.errors import ClearheadError
from clearhead.ops.activations import activation


def n_frame_tokens(config: FramesConfig, n_frames: int) -> int:
    """How many tokens a spectrogram becomes: each convolution keeps one position in `stride`."""
    for stride in config.strides:
        n_frames = (n_frames + 2 * (config.kernel // 2) - config.kernel) // stride + 1
    return n_frames


class Convolution(nn.Module):
    """A convolution along time with half a kernel of zeros at either end."""

    def __init__(self, n_in: int, n_out: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.weight = nn.Parameter(torch.empty(n_out, n_in, kernel))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x_BCT: Float[Tensor, "B C T"]) -> Float[Tensor, "B D t"]:
        return F.conv1d(x_BCT, self.weight, self.bias, stride=self.stride, padding=self.weight.shape[-1] // 2)


class Frames(nn.ModuleList):
    """act(convolution(.)), once a stride (Radford 2022, section 2.2)."""

    def __init__(self, width: int, config: FramesConfig) -> None:
        widths = [config.n_mels, *(width for _ in config.strides)]
        super().__init__(
            Convolution(n_in, width, config.kernel, stride)
            for n_in, stride in zip(widths, config.strides, strict=False)
        )
        self.config = config
        self.act = activation(config.activation)

    def forward(self, frames_BMF: Float[Tensor, "B M F"]) -> Float[Tensor, "B T d"]:
        """A spectrogram of M bands and F frames to one token every few frames."""
        if frames_BMF.shape[1] != self.config.n_mels:
            raise ClearheadError(
                f"the spectrogram has {frames_BMF.shape[1]} bands, and this model reads {self.config.n_mels}; its "
                "shape must be (batch, bands, frames)"
            )
        x_BDT = frames_BMF.to(next(self.parameters()).dtype)
        for convolution in self:
            x_BDT = self.act(convolution(x_BDT))
        return x_BDT.transpose(1, 2)
