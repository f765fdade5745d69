"""Parts of a model by patterns of their addresses."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from clearhead.errors import ClearheadError


def matching(names: Iterable[str], patterns: Sequence[str], setting: str, what: str) -> list[str]:
    """Those of `names` that a pattern names, in their order. * stands for anything, and what names a module names all
    within it.

    Raises:
        ClearheadError: a pattern names nothing; the message has the nearest.
    """
    known = list(names)
    found: set[str] = set()
    for pattern in patterns:
        hits = [name for name in known if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not hits:
            near = difflib.get_close_matches(pattern, known, n=3, cutoff=0.0)
            raise ClearheadError(
                f"{setting}: no {what} of this model is called {pattern!r}; the nearest are {', '.join(near)}"
            )
        found.update(hits)
    return [name for name in known if name in found]
