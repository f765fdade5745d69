"""Writing a result to a file whose ending says how."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.errors import ClearheadError, UsageError
from clearhead.files import write_whole

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
        write_whole(path, content)
    except OSError as problem:
        raise ClearheadError(f"{path} could not be written: {problem.strerror or problem}") from problem
    return path
