"""The widgets themselves: what they are asked from the page, and what they answer. Imports anywidget."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.frames import pack, pack_end, pack_error
from clearhead.studio.operations import OPERATIONS, Answer, ask
from clearhead.studio.widgets import built
from clearhead.studio.widgets.static import Still, of_answer
from clearhead.studio.widgets.views import View, view_of

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Drawn
    from clearhead.studio.context import Studio


@cache
def studio() -> Studio:
    """What operations may use in this kernel: the models of this machine, each loaded when it is first asked for."""
    import clearhead.studio.catalogue  # noqa: F401 - registers the operations
    from clearhead.studio.context import Studio
    from clearhead.studio.explore.runs import Runs
    from clearhead.studio.models import Models

    models = Models()
    return Studio(models=models, runs=Runs(models))


@cache
def _code() -> tuple[bytes, bytes, str]:
    """The figures' code, their style, and a name that changes with either."""
    code, style = built("bundle.js"), built("bundle.css")
    return code, style, hashlib.sha256(code + style).hexdigest()[:16]


class Widget(anywidget.AnyWidget):
    """A figure in an output cell. Questions and answers travel as its messages; `state` is where its controls stand."""

    _esm = built("loader.js").decode()
    _bundle = traitlets.Unicode().tag(sync=True)
    figure = traitlets.Unicode().tag(sync=True)
    state: traitlets.Dict[str, str] = traitlets.Dict().tag(sync=True)

    def __init__(self, name: str, state: Mapping[str, str]) -> None:
        super().__init__(figure=name, state=dict(state), _bundle=_code()[2])
        self._newest: dict[str, int] = {}
        """By the place that asks: the last question. Answers to an older one are not sent."""
        self.on_msg(self._hear)

    def answer(self, op: str, args: Mapping[str, Any]) -> Answer | Iterator[Answer | None]:
        """What is said to a question. Raises a ClearheadError where it is refused."""
        raise NotImplementedError

    def still(self, *, quick: bool = False) -> Still:
        """The figure as it is shown where no widget can be. quick: without loading a model for it."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Write .html, .svg, .png or .json, by the file's ending."""
        return self.still().save(path)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """The widget, and beside it HTML for readers that have no kernel."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        still = self.still(quick=True)
        return {**data, "text/plain": still.plain(), "text/html": still.html()}, metadata

    def _hear(self, _: Any, content: Any, buffers: list[memoryview]) -> None:
        kind = content.get("kind") if isinstance(content, dict) else None
        if kind == "bundle":
            self.send({"kind": "bundle"}, [*_code()[:2]])
        elif kind == "cancel":
            self._newest.pop(str(content.get("id")), None)
        elif kind == "ask":
            self._ask(str(content.get("id")), content.get("seq"), content.get("op"), content.get("args"))

    def _ask(self, id: str, seq: Any, op: Any, args: Any) -> None:
        if not isinstance(seq, int) or not 0 <= seq < 2**32 or not isinstance(op, str) or not isinstance(args, dict):
            return
        self._newest[id] = seq
        began = time.perf_counter()
        try:
            found = self.answer(op, args)
            if isinstance(found, Answer):
                self._frame(pack(found, id=id, seq=seq, ms=_ms(began), last=True))
                return
        except Exception as error:
            self._fail(error, id, seq)
            return
        # A kernel hears nothing while it computes: what takes long is computed beside it, so that it can be stopped.
        threading.Thread(
            target=self._stream, args=(found, id, seq, began), name="clearhead-figure", daemon=True
        ).start()

    def _stream(self, answers: Iterator[Answer | None], id: str, seq: int, began: float) -> None:
        try:
            for answer in answers:
                if self._newest.get(id) != seq:
                    return
                if answer is not None:
                    self._frame(pack(answer, id=id, seq=seq, ms=_ms(began), last=False))
            self._frame(pack_end(id=id, seq=seq, ms=_ms(began)))
        except Exception as error:
            self._fail(error, id, seq)
        finally:
            close = getattr(answers, "close", None)
            if close is not None:
                close()

    def _fail(self, error: Exception, id: str, seq: int) -> None:
        """Tell what was refused. A defect is told too, so that the page does not wait, and goes on to Python."""
        expected = isinstance(error, ClearheadError)
        self._frame(pack_error(str(error) if expected else f"{type(error).__name__}: {error}", id=id, seq=seq))
        if not expected:
            raise error

    def _frame(self, frame: bytes) -> None:
        self.send({"kind": "frame"}, [frame])


def _ms(began: float) -> float:
    return 1000 * (time.perf_counter() - began)


class FigureWidget(Widget):
    """A figure of the lesson, computed by the operations of the Studio in this kernel."""

    def __init__(self, name: str, state: Mapping[str, str]) -> None:
        self._last: tuple[str, Answer] | None = None
        super().__init__(name, state)

    def answer(self, op: str, args: Mapping[str, Any]) -> Answer | Iterator[Answer | None]:
        found = ask(studio(), op, args)
        if isinstance(found, Answer):
            self._last = op, found
        return found

    def still(self, *, quick: bool = False) -> Still:
        """With the last answer that was shown, else with what the operation of the figure's name says by itself."""
        op, answer = self._last or (self.figure, self._by_itself(quick))
        return of_answer(self.figure, op, answer)

    def _by_itself(self, quick: bool) -> Answer | None:
        studio()  # registers the operations
        if quick and self.figure in OPERATIONS and OPERATIONS[self.figure].needs_studio:
            return None
        try:
            found = ask(studio(), self.figure, {})
        except UsageError:  # an operation of another name, or one that can't do without arguments
            return None
        return found if isinstance(found, Answer) else None


class ViewWidget(Widget):
    """A result of the lens."""

    def __init__(self, result: Drawn) -> None:
        self._view: View = view_of(result)
        super().__init__(self._view.name, {})

    def answer(self, op: str, args: Mapping[str, Any]) -> Answer:
        if op != "view" or args:
            raise UsageError(f"a view has no operation {op!r}")
        return self._view.answer

    def still(self, *, quick: bool = False) -> Still:
        return Still(self._view.result)
