"""Each tiny model is made, saved and loaded once a worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import clearhead
from clearhead.model.transformer import Transformer
from tests import tiny


@dataclass
class Pair:
    """The same weights in the `transformers` package and here."""

    theirs: nn.Module
    ours: Transformer
    folder: Path
    tokens: torch.Tensor


_MADE: dict[tuple[str, str], Pair] = {}


@pytest.fixture
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    case: tuple[str, str] = request.param
    if case not in _MADE:
        folder = tmp_path_factory.mktemp("-".join(case))
        theirs = tiny.make(*case)
        theirs.save_pretrained(folder)
        tokens = torch.randint(3, 99, (3, 20), generator=torch.Generator().manual_seed(1))
        _MADE[case] = Pair(theirs, clearhead.load(folder), folder, tokens)
    return _MADE[case]
