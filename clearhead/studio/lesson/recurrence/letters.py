"""Small recurrent networks that guess a text's next letter: trained when they are first asked for, and then kept.

They read the English of Python's own documentation, which is on every machine, and have seconds to learn it: they know
which letters follow which, some endings and short words, and nothing of what they read.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clearhead.claims.ingredients.fitting import fit, next_token_loss
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.claims.ingredients.small_models import new_model
from clearhead.claims.ingredients.texts import rows
from clearhead.config import InitConfig
from clearhead.files import into_place
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer
from clearhead.recurrent import language_model
from clearhead.studio.lesson.drawing import DRAWING

Cell = Literal["simple", "lstm", "gru"]
SYMBOLS, UNITS = 128, 64
STEPS, ROWS, LENGTH = 600, 32, 64
RATES = {"simple": 2e-3, "lstm": 8e-3, "gru": 4e-3}
_TRAINED: dict[str, Transformer] = {}
_TRAINING = threading.Lock()


def ids_of(text: str) -> list[int]:
    """A number a character: ASCII, with anything else as a question mark."""
    return [ord(c) if " " <= c <= "~" else ord("?") for c in text]


@cache
def english() -> Tensor:
    """What they read, about 430,000 characters."""
    try:
        from pydoc_data.topics import topics

        texts = [topics[name] for name in sorted(topics)]
    except ImportError:  # some systems ship Python without its documentation
        texts = list(SENTENCES)
    return torch.tensor(ids_of(" ".join(" ".join(text.split()) for text in texts)))


def is_trained(cell: Cell) -> bool:
    """Whether it is at hand, here or in the user's cache."""
    return cell in _TRAINED or kept(cell).is_file()


def trained(cell: Cell, seen: Callable[[int, float], None] = lambda step, loss: None) -> Transformer:
    """The network with this cell. Where it is not at hand it is trained, which takes some seconds.

    Args:
        seen: told each step of the training and its loss in nats a letter; what it raises ends the training.
    """
    with _TRAINING:
        if cell not in _TRAINED:
            _TRAINED[cell] = _from_cache(cell) or _train(cell, seen)
        return _TRAINED[cell]


def _train(cell: Cell, seen: Callable[[int, float], None]) -> Transformer:
    model, text = _new(cell), english()
    draw = torch.Generator().manual_seed(0)

    def loss(step: int) -> Tensor:
        ids_BT = rows(text, ROWS, LENGTH, draw)
        return next_token_loss(model(ids_BT), ids_BT)

    fit(model, loss, STEPS, lr=RATES[cell], warmup=20, decay=True, seen=seen)
    try:
        kept(cell).parent.mkdir(parents=True, exist_ok=True)
        into_place(kept(cell), lambda path: save_file(dict(model.state_dict()), path))
    except OSError:
        pass  # it is trained again next time
    return model


def _new(cell: Cell) -> Transformer:
    """With letters' vectors of variance one, so that they reach the gates from the start."""
    with DRAWING:
        model = new_model(language_model(cell, vocab_size=SYMBOLS, d_model=UNITS), 0)
        initialise(model, InitConfig(std=None, tables=1.0))
    return model


def _from_cache(cell: Cell) -> Transformer | None:
    if not kept(cell).is_file():
        return None
    model = _new(cell)
    try:
        model.load_state_dict(load_file(kept(cell)))
    except Exception:
        return None
    return model.eval()


def kept(cell: Cell) -> Path:
    """Where its weights lie, under a name that what it reads and how it learns are part of."""
    made = hashlib.sha256(repr((cell, UNITS, STEPS, ROWS, LENGTH, RATES[cell])).encode())
    made.update(english().numpy().tobytes())
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearhead" / "studio"
    return folder / f"letters-{cell}-{made.hexdigest()[:16]}.safetensors"


def first_changed(text: str) -> str:
    """The text with another first letter."""
    return ("x" if text[:1] != "x" else "y") + text[1:]


def printable(ids: Sequence[int]) -> list[str]:
    """Each symbol as it is shown: a space as such, and a dot for what can't be seen."""
    return [chr(i) if 32 <= i < 127 else "·" for i in ids]
