"""The worst measured figures of each family, printed at the end of a run.

A plugin (see tests/conftest.py): with several processes, each worker hands its figures to the one that prints.
"""

from __future__ import annotations

from typing import Any

import pytest

WORST: dict[str, dict[str, float]] = {}
"""Family, then kind of figure: the largest error so far."""
LEAST: dict[str, tuple[float, str]] = {}
"""Family: the smallest movement that a flipped option has caused, and which it was."""
UNMOVED: dict[str, dict[str, str]] = {}
"""Family, then address: why flipping it can't show in its tiny models."""
COLUMNS = ("output", "hidden", "padded", "cached", "loss", "router", "bfloat16")


def note(family: str, kind: str, value: float) -> None:
    """Keep a figure if it is the worst of its kind."""
    kinds = WORST.setdefault(family, {})
    kinds[kind] = max(kinds.get(kind, 0.0), value)


def note_flip(family: str, moved: float, address: str) -> None:
    """Keep a movement if it is the least."""
    LEAST[family] = min(LEAST.get(family, (float("inf"), "")), (moved, address))


def note_unmoved(family: str, address: str, why: str) -> None:
    """Keep the reason why a flip can't show."""
    UNMOVED.setdefault(family, {})[address] = why


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["family_figures"] = [WORST, {f: list(pair) for f, pair in LEAST.items()}, UNMOVED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    worst, least, unmoved = getattr(node, "workeroutput", {}).get("family_figures", [{}, {}, {}])
    for family, kinds in worst.items():
        for kind, value in kinds.items():
            note(family, kind, value)
    for family, (moved, address) in least.items():
        note_flip(family, moved, address)
    for family, reasons in unmoved.items():
        for address, why in reasons.items():
            note_unmoved(family, address, why)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not WORST and not LEAST:
        return
    terminalreporter.section("families against transformers: the worst errors, and the least movement of a flip")
    families = sorted({*WORST, *LEAST})
    width = max(len(family) for family in families)
    terminalreporter.write_line(f"{'':<{width}}  " + "  ".join(f"{kind:>8}" for kind in COLUMNS) + "  least flip")
    for family in families:
        cells = [WORST.get(family, {}).get(kind) for kind in COLUMNS]
        line = "  ".join(f"{'' if cell is None else format(cell, '.1e'):>8}" for cell in cells)
        moved, address = LEAST.get(family, (0.0, ""))
        terminalreporter.write_line(f"{family:<{width}}  {line}  {f'{moved:.1e} {address}' if address else ''}")
    if terminalreporter.verbosity > 0:
        for family, reasons in sorted(UNMOVED.items()):
            for address, why in sorted(reasons.items()):
                terminalreporter.write_line(f"{family}: {address} can't show: {why}")
