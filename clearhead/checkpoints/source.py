"""From what a user names to an opened checkpoint: a folder, a .gguf file, a shipped name or a Hub id, in that order."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from clearhead.checkpoints.checkpoint import Checkpoint
from clearhead.checkpoints.folder import open_folder
from clearhead.checkpoints.gguf_checkpoint import GGUFCheckpoint
from clearhead.checkpoints.gguf_header import MAGIC
from clearhead.checkpoints.hub import hub_path, is_hub_id
from clearhead.checkpoints.mapped import LFS_POINTER, refuse_lfs_pointer
from clearhead.checkpoints.shipped import is_shipped, open_shipped, shipped_names
from clearhead.errors import ClearheadError, UsageError


def open_checkpoint(source: str | Path, revision: str | None = None, token: str | None = None) -> Checkpoint:
    """Open a model's files, reading headers only. `revision` and `token` are for the Hub.

    Raises ClearheadError when the source is unknown (naming the nearest) or its files are not as they should be.
    """
    text = os.fspath(source)
    if not text.strip():
        raise ClearheadError("the source is empty. Give a folder, a .gguf file, a Hub id, or one of: " + _names())
    path = Path(text).expanduser()
    if revision is not None and (path.exists() or is_shipped(text)):
        raise UsageError(f"a revision ({revision}) can only be given with a Hub id, and {text} is on this machine")
    if path.exists():
        return _open_path(path)
    if is_shipped(text):
        return open_shipped(text)
    if isinstance(source, Path) or not is_hub_id(text):
        raise ClearheadError(f"there is no file or folder {text}{_nearest(path) or '.'}")
    try:
        found = hub_path(text, revision, token)
    except ClearheadError as problem:
        here = f"there is no file, folder or shipped model {text}{_nearest(path) or '.'}"
        raise ClearheadError(f"{here} As a Hub id: {problem}") from problem
    return _open_path(found)


def _open_path(path: Path) -> Checkpoint:
    if path.is_dir():
        return open_folder(path)
    try:
        with path.open("rb") as file:
            start = file.read(len(LFS_POINTER))
    except OSError as problem:
        raise ClearheadError(f"{path} can't be read: {problem.strerror or problem}") from problem
    refuse_lfs_pointer(path, start)
    if path.suffix == ".gguf" or start.startswith(MAGIC):
        return GGUFCheckpoint(path)
    beside = path.resolve().parent
    if (beside / "config.json").exists():
        raise ClearheadError(f"{path} is one file of a checkpoint. Give its folder: {beside}")
    raise ClearheadError(f"{path} is not a GGUF file. Give a .gguf file, or a folder with config.json and weights")


def _names() -> str:
    return ", ".join(shipped_names())


def _nearest(path: Path) -> str:
    """The shipped names, and the files and folders beside a path, that are spelled most like it."""
    names = {name: name for name in shipped_names()}
    try:
        for other in path.parent.iterdir():
            if other.is_dir() or other.suffix == ".gguf":
                names[other.name] = str(other)
    except OSError:
        pass  # no such parent folder, so nothing is near
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    return f". Did you mean {' or '.join(names[name] for name in near)}?" if near else ""
