"""From what the model reads to the first state of the residual stream."""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import (
    EmbedConfig,
    LearnedPositions,
    MaskDropout,
    PatchesConfig,
    SinusoidalPositions,
    TokensConfig,
)
from clearhead.errors import ClearheadError
from clearhead.forward import Inputs, Pass
from clearhead.nn.frames import Frames, n_frame_tokens
from clearhead.nn.linear import Linear
from clearhead.nn.norm import Norm
from clearhead.nn.patches import Patches, n_patch_tokens, patch_grid
from clearhead.ops.positions import resize_grid, sinusoids


class Embedding(nn.Module):
    """project(dropout(norm(scale * front(x) + position))). The front is one of three: tokens, patches, frames."""

    def __init__(self, d_model: int, config: EmbedConfig) -> None:
        super().__init__()
        self.path = ""
        self.config = config
        self.width = width = config.width or d_model
        front, places = config.front, config.positions
        self.tokens = self.types = self.patches = self.prefix = self.frames = None
        if isinstance(front, TokensConfig):
            self.tokens = _table(front.vocab_size, width)
            self.types = _table(front.n_types, width) if front.n_types else None
        elif isinstance(front, PatchesConfig):
            self.patches = Patches(width, front)
            self.prefix = nn.Parameter(torch.empty(front.n_prefix, width)) if front.n_prefix else None
        else:
            self.frames = Frames(width, front)
        self.positions = _table(places.n, width) if isinstance(places, LearnedPositions) else None
        self.norm = Norm(width, config.norm) if config.norm is not None else None
        self.project = Linear(width, d_model) if config.width is not None else None
        there = (True, self.types is not None, places is not None)
        shape = "B T D" if self.project is None else "B T W"
        self.sites = {name: shape for name, is_there in zip(taps.EMBEDDING, there, strict=True) if is_there}

    def n_slots(self, inputs: Inputs) -> int:
        """How many tokens of the stream the input becomes.

        Raises:
            ClearheadError: it is of another kind than this model reads.
        """
        front = self.config.front
        if isinstance(front, TokensConfig):
            return _given(inputs.tokens_BT, "tokens").shape[1]
        if isinstance(front, PatchesConfig):
            height, width = _given(inputs.pixels_BCHW, "a picture (pixels=)").shape[-2:]
            return n_patch_tokens(front, height, width)
        n_frames = _given(inputs.frames_BMF, "a spectrogram (frames=)").shape[-1]
        n_slots, places = n_frame_tokens(front, n_frames), self.config.positions
        if isinstance(places, LearnedPositions) and n_slots != places.n:
            # Silence is part of what such a model learned to hear: it is padded in the sound, not here.
            raise ClearheadError(
                f"the spectrogram has {n_frames} frames, and this model reads exactly "
                f"{places.n * prod(front.strides)}; clearhead.inputs.audio.AudioProcessor fills a sound up with silence"
            )
        return n_slots

    def forward(self, inputs: Inputs, p: Pass) -> Float[Tensor, "B T d"]:
        c = self.config
        x_BTD = self._front(inputs, p)
        if c.scale != 1.0:
            # The factor is rounded to the table's dtype first, as published models were trained.
            x_BTD = x_BTD * torch.tensor(c.scale, dtype=x_BTD.dtype).item()
        x_BTD = p.tap(self.path, "front", x_BTD)
        if self.types is not None:
            kinds_BT = inputs.token_types_BT
            types_BTD = self.types.weight[0] if kinds_BT is None else self.types(kinds_BT)
            x_BTD = x_BTD + p.tap(self.path, "types", types_BTD.expand_as(x_BTD))
        if c.positions is not None:
            positions_BTD = self._positions(c.positions, inputs, p).to(x_BTD.dtype)
            x_BTD = x_BTD + p.tap(self.path, "positions", positions_BTD.expand_as(x_BTD))
        if self.norm is not None:
            x_BTD = self.norm(x_BTD)
        if isinstance(c.front, TokensConfig) and c.front.zero_padding and p.positions.span is None:
            x_BTD = x_BTD * (p.positions.rows(p.device) >= 0)[..., None]
        x_BTD = F.dropout(x_BTD, c.dropout, self.training)
        return x_BTD if self.project is None else self.project(x_BTD)

    def _front(self, inputs: Inputs, p: Pass) -> Tensor:
        if self.tokens is not None:
            assert isinstance(self.config.front, TokensConfig)
            x_BTD: Tensor = self.tokens(inputs.tokens_BT)
            dropout = self.config.front.mask_dropout
            return x_BTD if dropout is None else _drop_masked(x_BTD, dropout, inputs, p)
        if self.patches is not None:
            patches_BTD: Tensor = self.patches(inputs.pixels_BCHW, self.prefix)
            return patches_BTD
        assert self.frames is not None
        frames_BTD: Tensor = self.frames(inputs.frames_BMF)
        return frames_BTD

    def _positions(self, config: LearnedPositions | SinusoidalPositions, inputs: Inputs, p: Pass) -> Tensor:
        if isinstance(config, SinusoidalPositions):
            place_BT = p.places.positions.rows(p.device).clamp(min=0)
            _check_length(p, place_BT, config.n)
            return sinusoids(place_BT, self.width, config.layout)
        assert self.positions is not None
        if config.grid is not None and isinstance(self.config.front, PatchesConfig):
            height, width = _given(inputs.pixels_BCHW, "a picture").shape[-2:]
            return resize_grid(self.positions.weight, config.grid, patch_grid(self.config.front, height, width))
        if config.pad_id is not None:
            row_BT = self._rows_without_padding(config.pad_id, inputs, p)
            _check_length(p, row_BT - config.pad_id - 1, config.n - config.pad_id - 1)
        else:
            row_BT = p.places.positions.rows(p.device).clamp(min=0)
            _check_length(p, row_BT, config.n - config.offset)
            row_BT = row_BT + config.offset
        table: Tensor = self.positions(row_BT)
        return table

    def _rows_without_padding(self, pad_id: int, inputs: Inputs, p: Pass) -> Tensor:
        """Rows counted over the tokens that are not padding, from `pad_id` + 1 on; padding has row `pad_id`."""
        place_BT = p.places.positions.rows(p.device)
        is_token_BT = (_given(inputs.tokens_BT, "tokens") != pad_id) & (place_BT >= 0)
        if p.state is None and not bool((is_token_BT == (place_BT >= 0)).all()):
            # Padding that nobody declared: it takes no position.
            place_BT = is_token_BT.cumsum(dim=1) - 1
        return torch.where(is_token_BT, place_BT + pad_id + 1, pad_id)


def _drop_masked(x_BTD: Tensor, config: MaskDropout, inputs: Inputs, p: Pass) -> Tensor:
    """Masked tokens are zeros, and the others grow by what they would have missed in training (Lin 2023, ESM-2)."""
    is_masked_BT = _given(inputs.tokens_BT, "tokens") == config.mask_id
    x_BTD = x_BTD.masked_fill(is_masked_BT[..., None], 0.0)
    there_BT = (p.positions.rows(p.device) >= 0).expand_as(is_masked_BT)
    # Each document by itself: places begin anew with one.
    begins_BT = there_BT & (p.places.positions.rows(p.device) == 0)
    run_BT = begins_BT.cumsum(dim=1)
    none_BR = run_BT.new_zeros(run_BT.shape[0], run_BT.shape[1] + 1)
    masked_BR = none_BR.scatter_add(1, run_BT, (is_masked_BT & there_BT).long())
    all_BR = none_BR.scatter_add(1, run_BT, there_BT.long())
    share_BT = (masked_BR / all_BR.clamp(min=1)).gather(1, run_BT)
    # Where all are masked there is nothing to grow.
    grown_BT = torch.where(share_BT < 1, (1 - config.trained) / (1 - share_BT), 0.0)
    return (x_BTD * grown_BT[..., None]).to(x_BTD.dtype)


def _check_length(p: Pass, place_BT: Tensor, n: int) -> None:
    span = p.places.positions.span
    longest = span[1] if span is not None else int(place_BT.max()) + 1
    if longest > n:
        raise ClearheadError(f"the text is {longest} tokens long, and this model has positions for {n}; shorten it")


def _given(value: Tensor | None, what: str) -> Tensor:
    if value is None:
        raise ClearheadError(f"this model reads {what}, and none were given")
    return value


def _table(n: int, width: int) -> nn.Embedding:
    """An embedding without values: drawing them here would be for nothing, and on the meta device slow."""
    return nn.Embedding(n, width, _weight=torch.empty(n, width))
