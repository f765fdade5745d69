"""A view of the explorer without its widget: what it shows at first, as a picture and the Python that computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

import torch

from clearhead.errors import ClearheadError, UsageError
from clearhead.lens.logit_lens import logit_lens
from clearhead.lens.views.head_map import HeadMap
from clearhead.lens.views.heatmap import HeatMap
from clearhead.studio.explore.asked import AblationAsked, RunAsked
from clearhead.studio.explore.parts import record_of
from clearhead.studio.operations import Answer, ask
from clearhead.studio.widgets.off import ablations
from clearhead.studio.widgets.static import MOST, Still

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Drawn
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio
    from clearhead.studio.explore.runs import Run

SMALL = 20_000_000
"""Parameters up to which a sweep takes a moment, and is drawn unasked: as on the pages."""
FEW = 64
"""Tokens up to which a text is drawn."""
FIRST = "attention"


@dataclass(frozen=True)
class Seen:
    """A run that is drawn, and where the view's controls stand."""

    studio: Studio
    run: Run
    model: Transformer
    known: Mapping[str, Any]
    """The model as the pages have it."""
    state: Mapping[str, str]

    def ask(self, op: str, **args: Any) -> Answer:
        """The last answer of an operation on the run."""
        return whole(ask(self.studio, op, {"run": self.run.id, **args}))

    def code(self, *lines: str) -> str:
        """Python that begins with the model and what it reads."""
        return self.run.opening(self.model) + "".join(f"{line}\n" for line in lines)

    def number(self, key: str, below: int, otherwise: int = 0) -> int:
        held = self.state.get(key, "")
        return min(int(held), below - 1) if held.isdecimal() else otherwise

    @property
    def tokens(self) -> list[str]:
        return [token.text for token in self.run.tokens]


def still_of(studio: Studio, name: str, state: Mapping[str, str], *, quick: bool) -> Still:
    """The still form of "explore", "explore.lens" and the like, and of "compare".

    quick: without loading a large model for it.
    """
    slug = name.partition(".")[2] or (state.get("view", FIRST) if name == "explore" else name)
    title = f"{slug} of {state.get('model') or ' and '.join((state['a'], state['b']))} (clearhead studio)"
    try:
        ids = [state["a"], state["b"]] if name == "compare" else [state["model"]]
        if quick and not all(studio.models.holds(id) or studio.models.about(id)["params"] <= SMALL for id in ids):
            return Still(None, title)
        if name == "compare":
            return Still(*compared(studio, state, title))
        seen = read(studio, state)
        if max(len(seen.run.tokens), len(seen.run.sources)) > FEW:
            return Still(None, title)
        return Still(*DRAWN[slug](seen, title))
    except (ClearheadError, KeyError):
        # The widget says what is wrong, and this is what stands where it can't be.
        return Still(None, title)


def whole(found: Answer | Iterator[Answer | None]) -> Answer:
    """The last answer of an operation."""
    if isinstance(found, Answer):
        return found
    answers = [answer for answer in found if answer is not None]
    if not answers:
        raise UsageError("this operation has no answer")
    return answers[-1]


def read(studio: Studio, state: Mapping[str, str], off: str = "", **other: str) -> Seen:
    """A run of what the state of a view says, with `off` switched off and `other` in place of what it reads."""
    id = state["model"]
    model = studio.models.get(id)
    known = record_of(model, id)
    reads, defaults = known["reads"], known["defaults"]
    given: dict[str, Any] = {
        key: other.get(key) or state.get(key) or defaults[key]
        for key in ("text", "source", "picture", "sound")
        if reads[key]
    }
    if "text" in given and not known["tokenizer"]:
        given["ids"] = [int(word) for word in (given.pop("text") or "").split() if word.isdecimal()]
    run = RunAsked(model=id, ablate=[AblationAsked(**one) for one in ablations(off)], **given).make(
        studio.runs, Event()
    )
    return Seen(studio, run, model, known, state)


Drawing = tuple["Drawn | None", str, str]
"""What is drawn, its title, and the Python that computes it."""


def _attention(seen: Seen, title: str) -> Drawing:
    kinds = seen.known["attention"]
    kind = kinds[seen.number("kind", len(kinds))]
    place, head = 0, 0
    if not {"l", "h"} & set(seen.state):
        found = seen.ask("explore.striking", at=kind["at"]).data
        place, head = found["place"], found["head"]
    wanted = seen.number("l", 10_000, kind["layers"][place]["layer"])
    layer = next((one for one in kind["layers"] if one["layer"] == wanted), kind["layers"][0])
    head = seen.number("h", layer["heads"], head)
    address = f"{layer['at']}.pattern"
    pattern_TS = seen.studio.runs.exact(seen.run.id, address)[0, head]
    queries, keys = ([token.text for token in seen.run.slots(kind[end])] for end in ("queries", "keys"))
    drawn = HeadMap(f"Layer {layer['layer']}, head {head}", pattern_TS, queries, keys)
    look = seen.code(f"seen = {seen.run.look(address)}", f'seen.map("{address}", {head}).show()')
    return _few(drawn, pattern_TS), title, look


def _predict(seen: Seen, title: str) -> Drawing:
    answer = seen.ask("explore.predict")
    rows = answer.data["rows"]
    values = torch.tensor([[row["p"]] for row in rows])
    drawn = HeatMap(
        f"What comes after “{answer.data['here']}”", values, [row["text"] for row in rows], ["share"], kind="share"
    )
    return drawn, title, answer.python


def _lens(seen: Seen, title: str) -> Drawing:
    drawn = logit_lens(seen.model, seen.run.inputs(seen.model))
    return drawn, title, seen.code("from clearhead.lens import logit_lens", "", "logit_lens(model, inputs).show()")


def _heads(seen: Seen, title: str) -> Drawing:
    _check_small(seen)
    answer = whole(ask(seen.studio, "explore.heads", {"model": seen.run.model}))
    return _table(answer, "effect", "What each head does: its effect", "layer \\ head"), title, answer.python


def _ablate(seen: Seen, title: str) -> Drawing:
    _check_small(seen)
    answer = seen.ask("explore.ablate-grid")
    return _table(answer, "values", "Each part switched off in its turn", "layer \\ without"), title, answer.python


def _patch(seen: Seen, title: str) -> Drawing:
    _check_small(seen)
    other = read(
        seen.studio, seen.state, **{"source" if seen.known["reads"]["source"] else "text": seen.state["other"]}
    )
    answer = seen.ask("explore.patch-sweep", other_run=other.run.id)
    return _table(answer, "values", "Which places carry the answer", "layer \\ token"), title, answer.python


def _generate(seen: Seen, title: str) -> Drawing:
    found = ask(seen.studio, "explore.generate", {"run": seen.run.id})
    assert not isinstance(found, Answer)
    answers = [answer for answer in found if answer is not None]
    values = torch.tensor([[answer.data["p"]] for answer in answers])
    drawn = HeatMap(
        "Token after token", values, [answer.data["name"] for answer in answers], ["probability"], kind="share"
    )
    return drawn, title, answers[-1].python


def _picture(seen: Seen, title: str) -> Drawing:
    one = next(read for read in seen.run.reads if read.kind == "picture")
    assert one.grid is not None
    kind = next(kind for kind in seen.known["attention"] if kind["queries"] == kind["keys"] == one.stack)
    layer = kind["layers"][seen.number("l", len(kind["layers"]))]
    head = seen.number("h", layer["heads"])
    answer = seen.ask("explore.cell", at=layer["at"], head=head)
    row_S = torch.as_tensor(answer.arrays["row"])[one.n_prefix :].reshape(one.grid)
    rows, columns = ([str(i + 1) for i in range(n)] for n in one.grid)
    what = f"Layer {layer['layer']}, head {head}: from which patches the first slot reads"
    return HeatMap(what, row_S, rows, columns, corner="row \\ column", kind="share"), title, answer.python


def _experts(seen: Seen, title: str) -> Drawing:
    answer = seen.ask("explore.experts", query=len(seen.tokens) - 1)
    shares_TE = torch.as_tensor(answer.arrays["shares"])
    drawn = HeatMap(
        "Who went where", shares_TE, seen.tokens, [str(i) for i in range(shares_TE.shape[1])], corner="token \\ expert"
    )
    return _few(drawn, shares_TE), title, answer.python


def _state(seen: Seen, title: str) -> Drawing:
    answer = seen.ask("explore.states", query=len(seen.tokens) - 1)
    norms_LT = torch.as_tensor(answer.arrays["norms"])
    drawn = HeatMap(
        "Length of every layer’s state", norms_LT, answer.data["layers"], seen.tokens, corner="layer \\ token"
    )
    return _few(drawn, norms_LT), title, answer.python


def _shapes(seen: Seen, title: str) -> Drawing:
    answer = whole(ask(seen.studio, "explore.shapes", {"model": seen.run.model}))
    blocks = [block for stack in answer.data["stacks"] for block in stack["blocks"]]
    kinds = list(dict.fromkeys(part["kind"] for block in blocks for part in block["parts"]))
    values = torch.tensor(
        [
            [float(sum(part["parameters"] for part in block["parts"] if part["kind"] == kind)) for kind in kinds]
            for block in blocks
        ]
    )
    drawn = HeatMap("Parameters of each part", values, [block["path"] for block in blocks], kinds, kind="amount")
    return drawn, title, answer.python


def compared(studio: Studio, state: Mapping[str, str], title: str) -> Drawing:
    """What each piece of a text cost either of two models."""
    first, second = (read(studio, {**state, "model": state[side]}, state.get(f"{side}off", "")) for side in ("a", "b"))
    answer = whole(ask(studio, "explore.compare", {"run": first.run.id, "other_run": second.run.id}))
    pieces = [piece for piece in answer.data["pieces"] if None not in piece["loss"]]
    if not 0 < len(pieces) <= FEW:
        return None, title, answer.python
    values = torch.tensor([piece["loss"] for piece in pieces])
    drawn = HeatMap(
        "What each piece cost, in nats", values, [piece["text"] for piece in pieces], [state["a"], state["b"]]
    )
    return drawn, title, answer.python


def _table(answer: Answer, name: str, title: str, corner: str) -> HeatMap | None:
    values = torch.as_tensor(answer.arrays[name]).float()
    rows, columns = answer.data["rows"], answer.data["columns"]
    there = answer.arrays.get("there")
    if there is not None:
        values = values.where(torch.as_tensor(there).bool(), torch.nan)
    drawn = HeatMap(title, values, rows, columns, corner=corner)
    return drawn if values.numel() <= MOST else None


def _few(drawn: Drawn, values: torch.Tensor) -> Drawn | None:
    return drawn if values.numel() <= MOST else None


def _check_small(seen: Seen) -> None:
    if seen.known["parameters"] > SMALL:
        raise UsageError("that takes many passes over a large model: it is not done unasked")


DRAWN: dict[str, Callable[[Seen, str], Drawing]] = {
    "attention": _attention,
    "predict": _predict,
    "lens": _lens,
    "heads": _heads,
    "ablate": _ablate,
    "patch": _patch,
    "generate": _generate,
    "picture": _picture,
    "experts": _experts,
    "state": _state,
    "shapes": _shapes,
}
"""By the name of the view, as the pages have it."""
