"""The Studio in a notebook: figures of the lesson, results of `clearhead.lens`, and the explorer with all its views.

    from clearhead.studio import widgets

    widgets.figure("attention.stepper", beta=1.4)            # computed by this kernel as it is touched
    widgets.view(clearhead.look(model, "The cat sat").grid())
    widgets.explore(model, "The cat sat", "lens")            # asks the model as it is explored
    widgets.compare("clear-gpt", model, "The cat sat")

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
    from clearhead.inputs.open_image import Picture
    from clearhead.lens.views.drawn import Drawn
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio
    from clearhead.studio.widgets.explorer import ExplorerWidget
    from clearhead.studio.widgets.kernel import FigureWidget, ViewWidget

BUILT = Path(__file__).parent.parent / "widget"
"""What `npm run build` makes for notebooks: loader.js, bundle.js, bundle.css, figures.json."""
VIEWS = (
    "attention",
    "predict",
    "lens",
    "heads",
    "ablate",
    "patch",
    "generate",
    "picture",
    "experts",
    "state",
    "shapes",
)
"""The views of the explorer, by the names that its addresses have."""
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


def explore(
    model: str | Transformer,
    text: str | None = None,
    view: str | None = None,
    *,
    source: str | None = None,
    picture: Picture | None = None,
    sound: str | Path | None = None,
    **state: Any,
) -> ExplorerWidget:
    """A model opened up on a text, as under Explore in the Studio: the model is asked as the view is touched.

    model: a name or folder that `clearhead.load` takes, or a model that is there, which is looked at as it is.
    text: what it reads, and what a decoder beside an encoder answers; of a model without a tokenizer, its token ids as
        words. Left out: an example. The reader may write another.
    view: one of `VIEWS`; all of them, under tabs, where it is left out.
    source: what the encoder beside a decoder reads.
    picture, sound: a file, which of sounds is WAV, or the name of a sample; a picture may be one that is there.
    state: where the controls stand, by the names that a link has: `l=2, h=1, pos=5`. Of a view by itself they have no
        prefix: `explore(model, text, "lens", n=24)`; under tabs they do: `**{"lens.n": 24}`.

    Raises:
        ClearheadError: anywidget is not installed, or the widgets are not built; or the model is in training.
        UsageError: there is no such view.
    """
    if view is not None and view not in VIEWS:
        near = difflib.get_close_matches(view, VIEWS, n=2)
        told = f"perhaps {' or '.join(near)}" if near else f"there are {', '.join(VIEWS)}"
        raise UsageError(f"there is no view {view!r} of a model; {told}")
    kernel, shared = _explorer()
    given = {
        "model": shared.models.offer(model),
        "text": text,
        "source": source,
        "picture": picture if picture is None else _picture(shared, picture),
        "sound": sound if sound is None else _sound(shared, sound),
    }
    named = {key: written(key, value) for key, value in (given | state).items() if value is not None}
    held = () if isinstance(model, str) else (model,)
    return kernel("explore" if view is None else f"explore.{view}", named, held)


def compare(
    first: str | Transformer,
    second: str | Transformer,
    text: str | None = None,
    *,
    source: str | None = None,
    off: tuple[str, str] = ("", ""),
    **state: Any,
) -> ExplorerWidget:
    """Two models on one text, or one with parts of it switched off: what each token cost, and what either expects next.

    first, second: names, folders or models, as `explore` takes them. text and source: what they read.
    off: what is switched off in either: `("", "3.1, 2.mlp")` is head 1 of layer 3 and layer 2's MLP, in the second.
    state: where the controls stand, by the names that a link has.

    Raises:
        ClearheadError: anywidget is not installed, or the widgets are not built; or a model is in training.
        UsageError: what is to be switched off can't be read.
    """
    from clearhead.studio.widgets.off import ablations

    for one in off:
        ablations(one)
    kernel, shared = _explorer()
    given = {
        "a": shared.models.offer(first),
        "b": shared.models.offer(second),
        "aoff": off[0],
        "boff": off[1],
        "text": text,
        "source": source,
    }
    named = {key: written(key, value) for key, value in (given | state).items() if value is not None}
    return kernel("compare", named, tuple(one for one in (first, second) if not isinstance(one, str)))


def _explorer() -> tuple[type[ExplorerWidget], Studio]:
    """The widget's class, and what all explorers of this kernel share."""
    built("loader.js")
    try:
        from clearhead.studio.widgets.explorer import ExplorerWidget
        from clearhead.studio.widgets.kernel import studio
    except ImportError as problem:
        raise ClearheadError(f"{HOW_TO_INSTALL} ({problem})") from None
    return ExplorerWidget, studio()


def _picture(shared: Studio, picture: Picture) -> str:
    """The name of a picture in the Studio."""
    from clearhead.inputs.open_image import open_image
    from clearhead.studio.explore.samples import PICTURES

    if isinstance(picture, str) and picture in PICTURES:
        return picture
    return shared.runs.uploads.hold_picture(open_image(picture))


def _sound(shared: Studio, sound: str | Path) -> str:
    """The name of a sound in the Studio."""
    from clearhead.studio.explore.samples import SOUNDS

    if sound in SOUNDS:
        return str(sound)
    try:
        data = Path(sound).read_bytes()
    except OSError as problem:
        raise ClearheadError(f"{sound} can't be read: {problem.strerror}") from None
    return shared.runs.uploads.add_sound(data)


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
