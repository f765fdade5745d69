"""Checkpoints of a run: folders `step-000200`, each a model in the Hub's layout that `clearhead.load` reads, and beside
the weights `training.pt`, with all else that going on takes. A folder takes its name when it is complete.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.checkpoints.load import load, save
from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer

STATE = "training.pt"
NAME = re.compile(r"step-(\d{6,})")
UNFINISHED = re.compile(r"\.+(step-\d{6,}|metrics\.jsonl)(\.[0-9a-f]{8}\.tmp)+")


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The complete checkpoints of a run, by step."""
    if not folder.is_dir():
        return []
    found = [(NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path) for match, path in found if match and (path / STATE).is_file())


def write(
    folder: Path, step: int, model: Transformer, family: str | None, state: dict[str, Any], **beside: Any
) -> Path:
    """Write the checkpoint of a step; until it is whole, what was there before is all there is. `beside`: what
    `clearhead.save` is told beside the family.

    Raises:
        ClearheadError: it can't be written, or the weights are not finite; earlier checkpoints are as they were.
    """
    final = folder / f"step-{step:06d}"
    with replacing(final) as temporary:
        odd = next((name for name, p in model.named_parameters() if not bool(p.isfinite().all())), None)
        if odd is not None:
            raise ClearheadError(f"{odd} has become infinite or no number at step {step}, so it is not saved")
        save(model, temporary, family=family, **beside)
        with (temporary / STATE).open("wb") as file:
            torch.save(state, file)
        for path in temporary.iterdir():
            _flush(path)
    return final


@contextmanager
def replacing(final: Path) -> Iterator[Path]:
    """A name for a folder beside `final`, that takes its place in the end; or goes, if something is wrong."""
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        if final.exists():
            aside = final.with_name(f".{final.name}.{secrets.token_hex(4)}.tmp")
            final.rename(aside)
            temporary.rename(final)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            temporary.rename(final)
        _flush(final.parent)
    except (OSError, RuntimeError) as problem:
        # torch's writer says RuntimeError where the disk said OSError.
        words = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        raise ClearheadError(f"{final} can't be written: {words.splitlines()[0]}") from problem
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _flush(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk and not only on the way there."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def tidy(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints, and what unfinished ones left."""
    for _, path in checkpoints(folder)[:-keep]:
        shutil.rmtree(path, ignore_errors=True)
    for path in folder.iterdir() if folder.is_dir() else ():
        if not UNFINISHED.fullmatch(path.name):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def read_state(folder: Path) -> dict[str, Any]:
    """What `training.pt` of a checkpoint holds."""
    try:
        state: dict[str, Any] = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ClearheadError(f"{folder} has no {STATE}: it is a model, and not a checkpoint of a run") from None
    except Exception as problem:  # damaged files raise whatever the unpickler stumbles over
        raise ClearheadError(f"{folder / STATE} can't be read ({str(problem).splitlines()[0]})") from problem
    return state


def read_weights(folder: Path, model: Transformer, place: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
    """Fill `model`, which has been checked to be of the same config, from the checkpoint's files. `place` lays a tensor
    out as another is.
    """
    saved = dict(load(folder).named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(saved[name] if place is None else place(saved[name], parameter))


def random_state() -> dict[str, Any]:
    """Where torch's, NumPy's and Python's own generators stand, in plain values."""
    kind, words, at, has_gauss, gauss = np.random.get_state()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [
            str(kind),
            torch.from_numpy(np.asarray(words).astype(np.int64)),
            int(at),
            int(has_gauss),
            float(gauss),
        ],
        "python": random.getstate(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_random_state(state: dict[str, Any]) -> None:
    """Have all generators go on from where `random_state` found them."""
    torch.set_rng_state(state["torch"])
    kind, words, *rest = state["numpy"]
    np.random.set_state((kind, words.numpy().astype(np.uint32), *rest))
    version, inner, gauss = state["python"]
    random.setstate((version, tuple(inner), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def seed_everything(seed: int) -> None:
    """Start every generator from one seed."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
