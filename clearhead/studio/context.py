"""What operations may use: the models of this machine, the runs kept of them, and the folders the user named."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.studio.explore.runs import Runs
    from clearhead.studio.models import Models


@dataclass(frozen=True, kw_only=True)
class Studio:
    """One Studio, as long as its server lives."""

    models: Models
    runs: Runs
    folders: tuple[Path, ...] = field(default=())
    """Folders of training runs that were named when the Studio was started; a browser can name none."""
    claims: Path | None = None
    """Where the reports of `clearhead claim` are."""
