"""Files that are whole or absent: written under another name first, then put in place."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any


def into_place(path: Path, write: Callable[[Path], object]) -> None:
    """The whole file or the one that was there before, never a part. `write` is given the name to write to.

    Raises:
        OSError: it can't be written; nothing is left of the attempt.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """`content` as a file, as `into_place` does it."""
    into_place(path, lambda temporary: temporary.write_bytes(content))


def read_json(path: Path) -> dict[str, Any]:
    """A file written by this library; {} when there is none, or another program wrote it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
