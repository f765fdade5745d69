"""Models that lie in this package, trained by its own recipes: folders in the Hub's layout, each with a card.

The weights along a training are beside those at its end, as `snapshots/0000.safetensors` and so on, and are named
"clear-2l@0000". They share all else; the last is the model itself, and has no file of its own.
"""

from __future__ import annotations

from pathlib import Path

import torch

from clearhead.checkpoints.checkpoint import Checkpoint
from clearhead.checkpoints.folder import open_folder
from clearhead.errors import ClearheadError

MODELS = Path(__file__).parents[1] / "assets" / "models"
SNAPSHOTS = "snapshots"
AT = "@"


def own_names() -> list[str]:
    """The models there are."""
    return sorted(path.parent.name for path in MODELS.glob("*/config.json"))


def is_own(text: str) -> bool:
    """Whether a name is one of them, or a snapshot of one."""
    return text.partition(AT)[0] in own_names()


def snapshots_of(folder: Path) -> list[str]:
    """What the snapshots of a model are called, in order; none where its training left none."""
    before = sorted(path.stem for path in (folder / SNAPSHOTS).glob("*.safetensors"))
    return [*before, f"{len(before):04}"] if before else []


def open_own(text: str) -> Checkpoint:
    """Open a model of this package, as float32 if nothing else is asked for: bfloat16 is only what it is stored in, and
    most processors can't multiply it.

    Raises:
        ClearheadError: there is no such snapshot; the message has those there are.
    """
    name, at, number = text.partition(AT)
    folder = MODELS / name
    known = snapshots_of(folder)
    if at and number not in known:
        have = f"the snapshots are {known[0]} to {known[-1]}" if known else "the model has no snapshots"
        raise ClearheadError(f"there is no {text}: {have}. {name} alone is the end of its training")
    weights = folder / SNAPSHOTS / f"{number}.safetensors" if at and number != known[-1] else None
    checkpoint = open_folder(folder, weights)
    checkpoint.usual = torch.float32
    return checkpoint
