"""What a model is called with, checked before anything is computed: kinds, shapes, ids."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.config import FramesConfig, PatchesConfig, TokensConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Inputs
from clearhead.nn.embedding import Embedding


def check_tokens(tokens_BT: Tensor, embed: Embedding, name: str) -> None:
    """Refuse token ids of a wrong shape or kind, or outside the vocabulary. `name` is what the caller calls them."""
    front = embed.config.front
    assert isinstance(front, TokensConfig)
    if tokens_BT.ndim != 2 or tokens_BT.numel() == 0:
        raise ClearheadError(f"{name} must be of shape (rows, length), not {tuple(tokens_BT.shape)}; give at least one")
    n = front.vocab_size
    check_ids(name, tokens_BT, n, f"in this model's vocabulary of {n}")


def check_ids(name: str, ids_BT: Tensor, n: int, known: str) -> None:
    """Refuse numbers that are not from 0 to n - 1. On an accelerator they are not looked at: that would wait for it."""
    if ids_BT.dtype not in (torch.int64, torch.int32):
        raise ClearheadError(f"{name} are whole numbers (int64), not {ids_BT.dtype}")
    if ids_BT.device.type == "cpu":
        low, high = ids_BT.aminmax()
        if int(low) < 0 or int(high) >= n:
            wrong = int(low) if int(low) < 0 else int(high)
            what = "type" if name == "token_types" else "token"
            raise ClearheadError(f"{what} {wrong} is not {known}: ids go from 0 to {n - 1}")


def check_kind(inputs: Inputs, embed: Embedding, tokens: str) -> None:
    """Refuse what is no tensor, or not what a stack reads. `tokens` is what its tokens are called."""
    reads = {TokensConfig: tokens, PatchesConfig: "pixels", FramesConfig: "frames"}[type(embed.config.front)]
    given = {tokens: inputs.tokens_BT, "pixels": inputs.pixels_BCHW, "frames": inputs.frames_BMF}
    for name, value in given.items():
        if value is None:
            continue
        check_tensor(name, value)
        if name != reads:
            raise ClearheadError(f"this model reads {reads}, and {name} were given")
        axes = {"pixels": "(rows, channels, height, width)", "frames": "(rows, bands, frames)"}.get(name)
        if axes is None:
            continue
        if value.ndim != axes.count(",") + 1 or not value.is_floating_point():
            raise ClearheadError(
                f"{name} must be real numbers of shape {axes}, not {value.dtype} of shape {tuple(value.shape)}; the "
                "model's processor makes them"
            )


def check_tensor(name: str, value: Any) -> None:
    """Refuse what is no tensor, such as a list of lists."""
    if not isinstance(value, Tensor):
        raise ClearheadError(
            f"{name} must be a tensor, not a {type(value).__name__}; rows of unequal lengths are padded to one length, "
            "and present= says where there is a token"
        )


def check_shape(name: str, value: Tensor | None, tokens_BT: Tensor, tokens: str = "tokens") -> None:
    """Refuse a companion of the tokens that has another shape."""
    if value is None:
        return
    check_tensor(name, value)
    if value.shape != tokens_BT.shape:
        raise ClearheadError(
            f"{name} has shape {tuple(value.shape)} and {tokens} {tuple(tokens_BT.shape)}; they must be the same"
        )


def check_rows(source_BSD: Tensor, tokens_BT: Tensor) -> None:
    """Refuse another number of sources than of texts."""
    if source_BSD.shape[0] != tokens_BT.shape[0]:
        raise ClearheadError(
            f"there are {source_BSD.shape[0]} sources and {tokens_BT.shape[0]} rows of tokens; give each row its own"
        )
