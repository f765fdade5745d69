"""How one Studio is started: what it serves, to whom, and how much it lets itself be asked."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

STATIC = Path(__file__).with_name("static")
"""Where the package's build puts the pages."""

HOW_TO_BUILD = (
    "the Studio's pages are not built. In a clone of the repository run `make studio`; elsewhere, with the network up, "
    'run: pip install --force-reinstall --no-deps "clearhead[studio]"'
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is refused, or stopped, with a message that says so."""

    message_bytes: int = 2 << 20
    """The most bytes of one request, over HTTP or the socket: 100,000 characters of any script, escaped, fit."""
    answer_bytes: int = 256 << 20
    """The most bytes of one answer."""
    sockets: int = 64
    lines: int = 64
    """How many questions of one socket may be open at once."""
    streams: int = 16
    """How many long computations may be under way at once, of all tabs together."""
    stream_seconds: float = 900.0
    """A long computation ends after this."""
    body_seconds: float = 20.0
    """A request must have arrived whole within this."""
    send_seconds: float = 20.0
    """A browser that takes nothing for so long is let go of."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one server is made from."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    """Who has it may ask. It is drawn anew at every start; tests and tools choose it."""
    static: Path = STATIC
    sources: tuple[str, ...] = ()
    """Models beside the shipped ones, as `clearhead.load` takes them."""
    folders: tuple[Path, ...] = ()
    """Folders of training runs."""
    claims: Path | None = None
    """The folder that `clearhead claim --out` wrote."""
    model_bytes: int = 4 << 30
    """Loaded models are kept up to so many bytes of weights; then the one used least recently goes."""
    limits: Limits = Limits()

    @property
    def link(self) -> str:
        """What a person opens."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def is_built(self) -> bool:
        """Whether there are pages to serve."""
        return is_built(self.static)


def is_built(static: Path = STATIC) -> bool:
    """Whether a folder has the pages."""
    return (static / "index.html").is_file()
