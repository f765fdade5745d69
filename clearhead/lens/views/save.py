"""Writing a report to a file whose ending says how."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    from clearhead.lens.report import AttentionReport


def _svg(report: AttentionReport) -> bytes:
    from clearhead.lens.views import sheet, svg

    return svg.draw(sheet.lay_out(report)).encode()


def _png(report: AttentionReport) -> bytes:
    from clearhead.lens.views import png, sheet

    return png.draw(sheet.lay_out(report))


def _html(report: AttentionReport) -> bytes:
    from clearhead.lens.views import webpage

    return webpage.draw(report).encode()


def _json(report: AttentionReport) -> bytes:
    return (json.dumps(report.to_json(), ensure_ascii=True, indent=1) + "\n").encode()


WRITERS: dict[str, Callable[[AttentionReport], bytes]] = {".svg": _svg, ".png": _png, ".html": _html, ".json": _json}


def check_extension(path: str | Path) -> Path:
    """The path, if a report can be written to it: call this before the work that leads to the report."""
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise UsageError(f"{path} {ending}; an attention map is saved as {', '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise ClearheadError(f"{path}: there is no folder {path.parent}; make it first, or name another")
    return path


def save(report: AttentionReport, path: str | Path) -> Path:
    """Write `report` whole or not at all: to a name beside it first, then into place."""
    path = check_extension(path)
    content = WRITERS[path.suffix.lower()](report)
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
