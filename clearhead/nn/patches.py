"""Pictures as tokens: one a square of pixels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import PatchesConfig
from clearhead.errors import ClearheadError


def patch_grid(config: PatchesConfig, height: int, width: int) -> tuple[int, int]:
    """How many patches a picture has, down and across.

    Raises:
        ClearheadError: it can't be cut into whole patches.
    """
    patch = config.patch
    if min(height, width) < patch or height % patch or width % patch:
        fits = " x ".join(str(max(patch, size // patch * patch)) for size in (height, width))
        raise ClearheadError(
            f"a picture of {height} x {width} pixels can't be cut into squares of {patch}; resize or crop it, "
            f"to {fits} for example"
        )
    return height // patch, width // patch


def n_patch_tokens(config: PatchesConfig, height: int, width: int) -> int:
    """How many tokens a picture becomes: the learned ones, and its patches."""
    down, across = patch_grid(config, height, width)
    return config.n_prefix + down * across


class Patches(nn.Module):
    """Each square of pixels, flattened, times one matrix (Dosovitskiy 2020, eq. 1): a convolution that never overlaps.

    The learned tokens that go before are the caller's: they are not made of pixels.
    """

    def __init__(self, width: int, config: PatchesConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(width, config.channels, config.patch, config.patch))
        self.bias = nn.Parameter(torch.zeros(width)) if config.bias else None

    def forward(
        self, pixels_BCHW: Float[Tensor, "B C H W"], prefix_ND: Float[Tensor, "N d"] | None = None
    ) -> Float[Tensor, "B T d"]:
        """Tokens row by row from the top left, behind the learned ones."""
        _, channels, height, width = pixels_BCHW.shape
        if channels != self.config.channels:
            raise ClearheadError(f"pictures have {channels} channels, and this model reads {self.config.channels}")
        patch_grid(self.config, height, width)
        pixels_BCHW = pixels_BCHW.to(self.weight.dtype)
        grid_BDhw = F.conv2d(pixels_BCHW, self.weight, self.bias, stride=self.config.patch)
        x_BTD = grid_BDhw.flatten(2).transpose(1, 2)
        if prefix_ND is None:
            return x_BTD
        return torch.cat([prefix_ND.expand(x_BTD.shape[0], -1, -1), x_BTD], dim=1)
