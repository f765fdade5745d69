"""Recurrent networks that several claims measure, and how much gradient reaches back in them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from clearhead.config import InitConfig
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer
from clearhead.recurrent import gradient_norms, language_model
from clearhead.recurrent.models import CellName

N_WORDS = 64


def network(cell: CellName, seed: int, *, n_units: int = 64, silent: bool = False, **first: Any) -> Transformer:
    """A language model in float64 whose token vectors have components of variance one; or zeros (`silent`), when a
    simple network stays at zero, where tanh is the line y = x: it is a linear network. `first`: forget_bias, gain.
    """
    torch.manual_seed(seed)
    model = Transformer(language_model(cell, vocab_size=N_WORDS, d_model=n_units, **first))
    initialise(model, InitConfig(std=None, tables=1.0))
    if silent:
        assert model.embed.tokens is not None
        torch.nn.init.zeros_(model.embed.tokens.weight)
    return model.double()


def gradient_by_lag(model: Transformer, longest: int, seed: int, n_texts: int = 8) -> list[float]:
    """The norm of dL/dh at every lag before the step of the loss, up to the longest, divided by that at lag 0; the mean
    over random texts.
    """
    draw = torch.Generator().manual_seed(seed)
    tokens_BT = torch.randint(model.config.vocab_size, (n_texts, longest + 2), generator=draw)
    norms_T = gradient_norms(model, tokens_BT)
    ratios: list[float] = (norms_T.flip(0) / norms_T[-1]).tolist()
    return ratios


def recurrent_matrix(model: Transformer) -> Tensor:
    """W of h_t = tanh(x_t + W h_{t-1})."""
    weight: Tensor = model.get_parameter("layers.0.mixer.cell.h_proj.weight")
    return weight
