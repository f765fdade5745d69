"""Quick runs of claims, for their tests."""

from __future__ import annotations

import io
import json

from clearhead.claims import figures
from clearhead.claims.catalogue import find
from clearhead.claims.claim import Measured
from clearhead.claims.running import Measuring
from clearhead.claims.verdict import FAILS, Verdict, judge

DRAWN: set[str] = set()


def measured(name: str, seed: int = 0) -> Measured:
    """What a quick run of one seed gives. Where it is as it should be, its figure is drawn too, once a process."""
    claim = find(name)
    result = claim.measure(Measuring(seed=seed, quick=True))
    if name not in DRAWN and judge(claim.marks, [result], quick=True) != FAILS:
        DRAWN.add(name)
        draw(name, result)
    return result


def verdict(name: str, seed: int = 0) -> Verdict:
    """The verdict of a quick run of one seed."""
    return judge(find(name).marks, [measured(name, seed)], quick=True)


def draw(name: str, result: Measured) -> None:
    """Its figure comes out, also from what is kept, which is JSON."""
    kept = json.loads(json.dumps({"values": dict(result.values), "series": dict(result.series)}))
    with figures.style(), io.BytesIO() as file:
        find(name).draw([Measured(values=result.values, series=kept["series"])]).savefig(file, format="svg")
        assert b"<svg" in file.getvalue()
