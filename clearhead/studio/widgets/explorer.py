"""The explorer in a notebook: operations in this kernel, and what its pages ask a server for, asked by messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from clearhead.errors import UsageError
from clearhead.studio.explore.asked import PartAsked, RunAsked, told
from clearhead.studio.explore.tensors import Piece
from clearhead.studio.operations import Answer, ask
from clearhead.studio.widgets.explored import still_of
from clearhead.studio.widgets.kernel import Widget, studio
from clearhead.studio.widgets.static import Still

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

POLL = 0.05
"""Seconds between two looks whether somebody still waits."""
WAYS = {"u8": np.uint8, "f32": np.float32}


class ExplorerWidget(Widget):
    """One view of the explorer, or all of them under tabs, or two models compared."""

    def __init__(self, name: str, state: Mapping[str, str], models: tuple[Transformer, ...] = ()) -> None:
        self._models = models
        """Kept for as long as they may be asked about: the Studio does not keep what a notebook holds."""
        super().__init__(name, state)

    def answer(self, op: str, args: Mapping[str, Any]) -> Answer | Iterator[Answer | None]:
        runs = studio().runs
        try:
            match op:
                case "notebook.run":
                    wanted = RunAsked(**args)
                    return beside(lambda ended: Answer(data=told(wanted.make(runs, ended))))
                case "notebook.part":
                    part = PartAsked(**args)
                    return beside(lambda ended: _as_answer(part.find(runs, ended)))
                case "notebook.models":
                    return beside(lambda _: Answer(data={"models": runs.models.listing()}))
        except ValidationError as problem:
            raise UsageError(_wrong(problem)) from None
        return ask(studio(), op, args)

    def still(self, *, quick: bool = False) -> Still:
        return still_of(studio(), self.figure, self.state, quick=quick)


def beside(work: Callable[[threading.Event], Answer]) -> Iterator[Answer | None]:
    """What `work` gives, done in a thread of its own. Closing the iterator sets the event that the work is given."""
    ended, found = threading.Event(), _Found()
    thread = threading.Thread(target=found.by, args=(work, ended), name="clearhead-run", daemon=True)
    thread.start()
    try:
        while not found.there.wait(POLL):
            yield None
        if found.error is not None:
            raise found.error
        yield found.answer
    finally:
        ended.set()


class _Found:
    """What came of some work."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.answer: Answer | None = None
        self.error: BaseException | None = None

    def by(self, work: Callable[[threading.Event], Answer], ended: threading.Event) -> None:
        try:
            self.answer = work(ended)
        except BaseException as error:
            self.error = error
        finally:
            self.there.set()


def _as_answer(part: Piece) -> Answer:
    values = np.frombuffer(part.data, np.dtype(WAYS[part.kind])).reshape(part.shape)
    return Answer(data={"code": part.code}, arrays={"part": values})


def _wrong(problem: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'the question'}: {one['msg'][:1].lower()}{one['msg'][1:]}"
        for one in problem.errors(include_url=False, include_input=False)
    )
