"""The Studio's figures in a notebook: those of the lesson, and the results of `clearhead.lens`.

    from clearhead.studio import widgets

    widgets.figure("attention.stepper", beta=1.4)            # computed by this kernel as it is touched
    widgets.view(clearhead.look(model, "The cat sat").grid())

Each is a widget where the notebook can show one, and HTML where it can't: on GitHub, in a notebook without a kernel.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Drawn
    from clearhead.studio.widgets.kernel import FigureWidget, ViewWidget

BUILT = Path(__file__).parent.parent / "widget"
"""What `npm run build` makes for notebooks: loader.js, bundle.js, bundle.css, figures.json."""
HOW_TO_INSTALL = 'widgets are the work of the package `anywidget`. Run: pip install "clearhead[notebook]"'


def figures() -> list[str]:
    """The names that `figure` knows.

    Raises:
        ClearheadError: the figures are not built; the message says how they are.
    """
    names: list[str] = json.loads(built("figures.json"))
    return names


def figure(name: str, **state: Any) -> FigureWidget:
    """A figure of the lesson.

    state: where its controls stand, by the names that a link to the figure has: `beta=1.4`, `mask="causal"`. What is
    left out stands where the lesson has it, and what a control can't take is ignored, as it is in a link.

    Raises:
        ClearheadError: anywidget is not installed, or the figures are not built.
        UsageError: there is no such figure.
    """
    known = figures()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=2)
        told = f"perhaps {' or '.join(near)}" if near else f"there are {', '.join(known)}"
        raise UsageError(f"there is no figure {name!r}; {told}")
    try:
        from clearhead.studio.widgets.kernel import FigureWidget
    except ImportError as problem:
        raise ClearheadError(f"{HOW_TO_INSTALL} ({problem})") from None
    return FigureWidget(name, {key: written(key, value) for key, value in state.items()})


def view(result: Drawn) -> ViewWidget:
    """A result of `clearhead.lens` that answers to the pointer and the keys: one pattern (`seen.map(...)`), every head
    (`seen.grid()`), links (`seen.links()`), what was looked at (`seen`), the logit lens, and every table of numbers.

    Raises:
        ClearheadError: anywidget is not installed, or the views are not built.
        UsageError: this is no result of the lens.
    """
    from clearhead.lens.views.drawn import Drawn

    if not isinstance(result, Drawn):
        raise UsageError(f"{type(result).__name__} is no result of clearhead.lens, such as clearhead.look(...) gives")
    built("loader.js")
    try:
        from clearhead.studio.widgets.kernel import ViewWidget
    except ImportError as problem:
        raise ClearheadError(f"{HOW_TO_INSTALL} ({problem})") from None
    return ViewWidget(result)


def built(name: str) -> bytes:
    """A file that was built for notebooks.

    Raises:
        ClearheadError: it is not there.
    """
    try:
        return (BUILT / name).read_bytes()
    except FileNotFoundError:
        from clearhead.studio.settings import HOW_TO_BUILD

        raise ClearheadError(f"the widgets are not built ({BUILT / name} is missing): {HOW_TO_BUILD}") from None


def written(key: str, value: Any) -> str:
    """A value of a control as a link has it.

    Raises:
        UsageError: it is of no kind that a control has.
    """
    match value:
        case bool():
            return "1" if value else "0"
        case int() | float() | str():
            return str(value)
        case Sequence() if all(isinstance(one, int | float) and not isinstance(one, bool) for one in value):
            return ",".join(map(str, value))
        case Mapping() | _:
            raise UsageError(f"{key}={value!r} is neither a number, a word, true or false, nor a list of numbers")
