"""Data that recipes learn from and that nobody has to look for: `corpus:NAME` in place of a path.

Each is a module here with `gather(folder, say)`, which makes its files: from a package of a registry, from what the
system has installed, or by a rule. It is made once, in the user's cache, when a run first asks for it.
"""

from __future__ import annotations

import difflib
import importlib
import os
import platform
import sys
from pathlib import Path

from clearhead.errors import UsageError

CORPUS = "corpus:"
CORPORA: dict[str, str] = {
    "digits": "1",
    "english": "1",
    "english_and_python": f"1-{platform.python_version()}",
    "number_words": "1",
    "fashion": "1",
    "spoken_numbers": "1",
}
"""By the name of the module: its version, which a change of what it makes moves on."""


def located(path: str) -> Path:
    """Where the data that `path` names lies; a corpus is made first where it is not there yet.

    Raises:
        UsageError: there is no corpus of that name.
        ClearheadError: it can't be made, for the reason that is named.
    """
    if not path.startswith(CORPUS):
        return Path(path).expanduser()
    name = path.removeprefix(CORPUS)
    if name not in CORPORA:
        near = difflib.get_close_matches(name, CORPORA, n=1, cutoff=0.0)
        raise UsageError(f"there is no corpus {name!r}; {f'the nearest is {near[0]}' if near else 'there are none'}")
    folder = cache() / f"{name}-{CORPORA[name]}"
    if not folder.is_dir():
        from clearhead.training.checkpoint import replacing

        with replacing(folder) as temporary:
            temporary.mkdir()
            importlib.import_module(f"{__name__}.{name}").gather(temporary, _say)
    return folder


def cache() -> Path:
    """Where corpora are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearhead" / "corpora"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
