"""`clearhead.claim`: measure one claim."""

from __future__ import annotations

import time
from pathlib import Path

from clearhead.claims.catalogue import find
from clearhead.claims.claim import Claim
from clearhead.claims.display import Display
from clearhead.claims.extras import DRAWING, missing
from clearhead.claims.report import write
from clearhead.claims.result import Result
from clearhead.claims.running import bar_that_tells
from clearhead.claims.seeds import Size, check_folder, kept_seed, measure_seed
from clearhead.errors import ClearheadError, UsageError


def claim(
    name: str,
    *,
    quick: bool = False,
    seeds: int | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    progress: bool | None = None,
) -> Result:
    """Measure a claim of the lesson, and say whether it holds. `clearhead claim` lists them.

    Args:
        name: as it is listed, such as "knife-edge".
        quick: in under 30 seconds, at a smaller size or on a model that is shipped.
        seeds: how many; when not given, as many as the claim asks for, and one where it is quick.
        out: a folder; what is measured is kept in its folder NAME, seed by seed, and not measured again. None keeps
            and writes nothing.
        fresh: measure again what is kept there.
        progress: show a bar on standard error; None is when a person is watching.

    Raises:
        UsageError: there is no such claim, or no seed.
        ClearheadError: something that it needs is not installed, or the folder can't be written to.
    """
    name = name.replace("_", "-")
    found = find(name)
    size = Size(quick=quick, folder=None if out is None else Path(out).expanduser(), since=time.time() if fresh else 0)
    n = n_seeds(found, size, seeds)
    if problem := missing((*found.cost.needs, *(() if out is None else (DRAWING,)))):
        raise ClearheadError(f"the claim {name} {problem}")
    if size.folder is not None:
        check_folder(size.folder / name)
    done = []
    with Display(progress) as display:
        for seed in range(n):
            row = name if n == 1 else f"{name}, seed {seed + 1} of {n}"
            kept = kept_seed(name, seed, size)
            done.append(kept or measure_seed(name, seed, size, bar_that_tells(display.tells(row))))
            display.over(row)
    result = Result(name, found, quick, tuple(done))
    if size.folder is not None:
        write(result, size.folder / name)
    return result


def n_seeds(claim: Claim, size: Size, asked: int | None) -> int:
    """How many seeds are measured."""
    if asked is not None and asked < 1:
        raise UsageError(f"seeds is {asked}; it must be 1 or more")
    return asked or (1 if size.quick else claim.seeds)
