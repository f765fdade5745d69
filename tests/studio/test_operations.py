"""An operation takes what its annotations say, and tells of anything else which argument is wrong."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

import clearhead.studio.catalogue
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.operations import OPERATIONS, Answer, ask, operation

STUDIO: Any = object()


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    before = dict(OPERATIONS)

    @operation("test.plain")
    def plain(
        *, factor: Annotated[float, Field(ge=0.5, le=1.5)] = 0.9, mask: Literal["none", "causal"] = "none"
    ) -> Answer:
        return Answer(data={"factor": factor, "mask": mask})

    @operation("test.studio")
    def studio(given: Any, *, text: Annotated[str, Field(max_length=5)]) -> Answer:
        return Answer(data={"is": given is STUDIO, "text": text})

    @operation("test.long")
    def long(*, to: int) -> Iterator[Answer]:
        for number in range(to):
            yield Answer(data={"number": number})

    yield
    OPERATIONS.clear()
    OPERATIONS.update(before)


def asked(name: str, **args: Any) -> dict[str, Any]:
    answer = ask(STUDIO, name, args)
    assert isinstance(answer, Answer)
    return dict(answer.data)


def test_defaults_and_arguments() -> None:
    assert asked("test.plain") == {"factor": 0.9, "mask": "none"}
    assert asked("test.plain", factor=1, mask="causal") == {"factor": 1.0, "mask": "causal"}


def test_the_studio_is_given_to_those_that_take_it() -> None:
    assert asked("test.studio", text="abc") == {"is": True, "text": "abc"}


def test_a_long_one_gives_one_answer_after_another() -> None:
    answers = ask(STUDIO, "test.long", {"to": 3})
    assert not isinstance(answers, Answer)
    assert [one.data["number"] for one in answers] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "args", "why"),
    [
        ("test.plain", {"factor": 2}, "test.plain: factor: input should be less than or equal to 1.5"),
        ("test.plain", {"factor": "much"}, "factor: input should be a valid number"),
        ("test.plain", {"factor": float("nan")}, "factor"),
        ("test.plain", {"mask": "full"}, "mask: input should be 'none' or 'causal'"),
        ("test.plain", {"faktor": 1}, "faktor: unexpected keyword argument"),
        ("test.studio", {}, "text: missing"),
        ("test.studio", {"text": "abcdef"}, "text: string should have at most 5 characters"),
        ("test.studio", {"text": "\ud800"}, "text"),
        ("test.studio", {"text": "abc", "given": 1}, "given"),
        ("test.plan", {}, "there is no operation 'test.plan'; perhaps test.plain"),
        ("__class__", {}, "there is no operation"),
    ],
)
def test_what_is_refused(name: str, args: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        ask(STUDIO, name, args)


def test_what_an_operation_refuses_itself_passes() -> None:
    @operation("test.refuse")
    def refuse() -> Answer:
        raise ClearheadError("no")

    with pytest.raises(ClearheadError, match="no"):
        ask(STUDIO, "test.refuse", {})


def test_one_name_one_operation() -> None:
    with pytest.raises(ValueError, match="two operations"):
        operation("test.plain")(lambda: Answer())


def test_the_catalogue_forgets_no_module() -> None:
    """A module with an operation that nobody imports is one that no page can ask."""
    root = Path(clearhead.studio.catalogue.__file__).parent
    written = {
        ".".join(path.relative_to(root.parents[1]).with_suffix("").parts).removesuffix(".__init__")
        for path in root.rglob("*.py")
        if "\n@operation(" in path.read_text()
    }
    assert written and not written - set(sys.modules)


REAL = sorted(name for name in OPERATIONS if not name.startswith("test."))


@pytest.mark.parametrize("name", REAL)
def test_every_operation_takes_keywords_alone_and_bounds_what_it_takes(name: str) -> None:
    """A text, a list or a number without a bound is how a page would be made to hang a server."""
    signature = inspect.signature(inspect.unwrap(OPERATIONS[name].ask))
    first, *_ = [*signature.parameters.values(), None]
    for parameter in signature.parameters.values():
        if parameter is first and OPERATIONS[name].needs_studio:
            continue
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, f"{name}: {parameter.name}"
