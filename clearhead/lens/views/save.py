"""Writing a result to a file whose ending says how."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Drawn


def _json(drawn: Drawn) -> bytes:
    return (json.dumps(drawn.to_json(), ensure_ascii=True, indent=1) + "\n").encode()


WRITERS: dict[str, Callable[[Drawn], bytes]] = {
    ".svg": lambda drawn: drawn.figure().svg().encode(),
    ".png": lambda drawn: drawn.figure().png(),
    ".html": lambda drawn: drawn.figure().page().encode(),
    ".json": _json,
}


def check_extension(path: str | Path) -> Path:
    """The path, if a result can be written to it: call this before the work that leads to the result."""
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise UsageError(f"{path} {ending}; a picture is saved as {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise ClearheadError(f"{path}: there is no folder {path.parent}; make it first, or name another")
    return path


def save(drawn: Drawn, path: str | Path) -> Path:
    """Write `drawn` whole or not at all: to a name beside it first, then into place."""
    path = check_extension(path)
    content = WRITERS[path.suffix.lower()](drawn)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as problem:
        raise ClearheadError(f"{path} could not be written: {problem.strerror or problem}") from problem
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
