"""The code that a figure offers for copying is run, and has to print the numbers which the figure shows."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

import pytest

from clearhead.studio.operations import Answer

NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:inf|nan|\d+(?:_\d+)*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)(?![\w])"
)


def printed_by(python: str) -> list[float]:
    """All numbers which a piece of code prints, in their order."""
    output, names = io.StringIO(), {"__name__": "__main__"}
    with contextlib.redirect_stdout(output):
        exec(compile(python, "copied.py", "exec"), names)
    return [float(found) for found in NUMBER.findall(output.getvalue())]


def assert_prints(answer: Answer | Any, *, rel: float = 1e-6, least: int = 1) -> None:
    """That the answer's code prints the answer's numbers, of which there are at least so many."""
    assert len(answer.printed) >= least, "a figure shows at least one number that its code prints"
    assert printed_by(answer.python) == pytest.approx(list(answer.printed), rel=rel, abs=1e-6), answer.python
