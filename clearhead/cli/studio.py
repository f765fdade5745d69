"""`clearhead studio`: the lesson and the explorer in a browser, computed by this machine."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Union

import tyro

from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    Sources = tuple[str, ...]
    Folders = tuple[str, ...]
else:
    Sources = Annotated[tuple, tyro.conf.UseAppendAction, tyro.conf.arg(metavar="SOURCE")]
    Folders = Annotated[tuple, tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FOLDER")]
OptionalFolder = Annotated[Union[str, None], tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")]  # noqa: UP007

NEEDED = ("fastapi", "uvicorn", "websockets")


@dataclass(frozen=True, kw_only=True)
class Options:
    model: Sources = ()
    """Explore this model too: a folder, a .gguf file, a name on the Hub; may be given several times. Shipped models
    are always there."""
    runs: Folders = ()
    """Watch the training run in this folder, or every run in it; may be given several times."""
    claims: OptionalFolder = None
    """Show the reports in this folder, which `clearhead claim` wrote."""
    port: int = 8765
    """Where the browser finds it; the next free one when it is taken, and any for 0."""
    open: bool = False
    """Open the browser."""
    json: bool = False
    """Print the link as JSON."""


def run(options: Options) -> None:
    _check(options)
    # Threads that wait for the next pass sleep; they would spin through the processor that the server answers with.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from clearhead.cli import console

    with console.busy("starting the Studio"):
        console.import_torch()
        from clearhead.studio.serve import Server, listen
        from clearhead.studio.settings import HOW_TO_BUILD, Settings, is_built

        if not is_built():
            raise ClearheadError(HOW_TO_BUILD)
        socket = listen(options.port)
        settings = Settings(
            port=socket.getsockname()[1],
            sources=options.model,
            folders=tuple(map(_folder, options.runs)),
            claims=None if options.claims is None else _folder(options.claims),
        )
        server = Server(settings, lambda: _tell(settings.link, options))
    try:
        server.run([socket])
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # below the ^C
        sys.stdout.flush()
        # At once: a pass in a thread must not wake up in an interpreter that is being taken down.
        os._exit(0)


def _check(options: Options) -> None:
    """What is wrong with the call, before the long import."""
    if not 0 <= options.port < 65536:
        raise UsageError(f"--port is {options.port}; a port is a number from 0 to 65535")
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ClearheadError(f'the Studio needs {", ".join(missing)}. Run: pip install "clearhead[studio]"')
    for folder in (*options.runs, *([options.claims] if options.claims is not None else [])):
        if not _folder(folder).is_dir():
            raise ClearheadError(f"there is no folder {folder}")


def _folder(name: str) -> Path:
    return Path(name).expanduser().absolute()


def _tell(link: str, options: Options) -> None:
    """Say where the Studio is, now that it can be reached."""
    if options.json:
        from clearhead.cli import console

        console.print_json({"url": link})
    else:
        from rich.console import Console

        # Not wrapped and not marked up: a link is copied whole.
        console_ = Console(highlight=False, soft_wrap=True)
        console_.print("The Studio is open at", link, markup=False)
        console_.print("It answers this machine alone. Ctrl-C ends it.", style="dim")
    if options.open:
        import webbrowser

        webbrowser.open(link)
