"""Two towers: a text model and a picture model that meet in one space."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from clearhead.config import TwoTowersConfig
from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.taps import Taps


class TowersOutput(NamedTuple):
    """Unit vectors of what was given, and where both were, how well each text fits each picture."""

    text: Tensor | None = None
    image: Tensor | None = None
    logits_per_text: Tensor | None = None
    logits_per_image: Tensor | None = None


class TwoTowers(nn.Module):
    """CLIP (Radford 2021, section 2.3): two encoders, and a learned factor on the cosines between them.

    Addresses begin with the tower: `text.layers.0.mixer.pattern`, `image.layers.*.ffn.post`.
    """

    def __init__(self, config: TwoTowersConfig) -> None:
        super().__init__()
        self.config = config
        self.text = Transformer(config.text)
        self.image = Transformer(config.image)
        self.logit_scale = nn.Parameter(torch.tensor(config.logit_scale))
        self.tokenizer: Any = None
        self.origin: Any = None
        for path, module in self.named_modules():
            if hasattr(module, "path"):
                module.path = path

    def forward(
        self,
        tokens_BT: Int[Tensor, "B T"] | None = None,
        *,
        pixels: Float[Tensor, "N C height width"] | None = None,
        present: Bool[Tensor, "B T"] | None = None,
        taps: Taps | None = None,
        backend: str = "auto",
    ) -> TowersOutput:
        """Vectors of texts and of pictures, of either or both; as many of one as of the other are not needed.

        Args:
            tokens_BT: token ids of texts, each with its end token.
            pixels: prepared pictures.
            present: True where there is a token; padding may be anywhere. None: everywhere.
            taps: who looks inside (see clearhead.taps).
            backend: the attention kernel; "auto" chooses.

        Raises:
            ClearheadError: neither texts nor pictures were given, or a tower has no answer to them.
        """
        if tokens_BT is None and pixels is None:
            raise ClearheadError("give texts (tokens), pictures (pixels=), or both")
        if tokens_BT is None and present is not None:
            raise ClearheadError("present says where there are tokens; give them too, or leave it out")
        text_BD = image_ND = None
        if tokens_BT is not None:
            text_BD = _unit(self.text(tokens_BT, present=present, taps=taps, backend=backend).pooled)
        if pixels is not None:
            image_ND = _unit(self.image(pixels=pixels, taps=taps, backend=backend).pooled)
        if text_BD is None or image_ND is None:
            return TowersOutput(text_BD, image_ND)
        logits_BN = text_BD @ image_ND.T * self.logit_scale.exp()
        return TowersOutput(text_BD, image_ND, logits_BN, logits_BN.T)

    @property
    def takes_tokens(self) -> bool:
        """Whether it reads text."""
        return True

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.text.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.text.device

    def describe(self) -> str:
        """Both towers, part by part."""
        return f"text\n{self.text.describe()}\n\nimage\n{self.image.describe()}"


def _unit(x_BD: Tensor) -> Tensor:
    return F.normalize(x_BD, dim=-1)
