"""The worked notebooks run from top to bottom, and what they claim comes out."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells_of(name: str) -> list[dict[str, Any]]:
    notebook = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells: list[dict[str, Any]] = notebook["cells"]
    return cells


def run(name: str) -> tuple[dict[str, Any], list[Any]]:
    """Each code cell in turn, in one namespace; gives that, and what cells end with, which a notebook would show."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, cell in enumerate(cells_of(name)):
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"{name}[{number}]", "exec"), namespace)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{name}[{number}]", "eval"), namespace)
                shown += [] if value is None else [value]
    return namespace, shown


def induction(found: dict[str, Any]) -> bool:
    gone, by_chance = found["no_induction"] - found["whole"], found["no_others"] - found["whole"]
    return gone > 1 and gone > 4 * by_chance and found["less_likely"] < found["likely"] / 2


def reference(found: dict[str, Any]) -> bool:
    left = found["left"]
    whole, by_verb = left["nothing forbidden"], left["the last token may not look at the verb"]
    others = [size for what, size in left.items() if "noun" in what]
    return found["with_it"] > 0 > found["with_they"] and abs(by_verb) < whole / 4 and min(others) > whole / 2


def fact(found: dict[str, Any]) -> bool:
    values, country = found["sweep"].values, found["country"]
    of_rome = found["paris_not_rome"](found["plain"])
    said = bool(of_rome < 0 < found["paris_not_rome"](found["patched"]))
    return bool(values[0, country] > 0.95 and values[-1, -1] > 0.9 and abs(values[0, -1]) < 0.05) and said


def halved(found: dict[str, Any]) -> bool:
    pruning, (whole, half) = found["pruning"], found["sizes"]
    before, after = pruning.losses
    return pruning.n_cut * 2 == pruning.n_heads and half < whole and found["same"] and before < after < before + 1.5


CLAIMS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "cut_half_the_heads.ipynb": halved,
    "induction_heads.ipynb": induction,
    "patch_a_fact.ipynb": fact,
    "what_it_refers_to.ipynb": reference,
}


def test_every_notebook_is_run() -> None:
    assert list(CLAIMS) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    cells = cells_of(name)
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            assert all(len(line.rstrip("\n")) <= 120 for line in cell["source"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_what_it_claims(name: str) -> None:
    found, shown = run(name)
    assert CLAIMS[name](found)
    assert shown
    for value in shown:
        bundle = value._repr_mimebundle_()
        assert bundle["text/html"].startswith("<iframe")
        assert set(bundle) == {"text/plain", "text/html", "image/png"}
