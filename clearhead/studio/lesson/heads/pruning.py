"""Heads cut off, the least important first, and what the loss says to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims.heads.pruned_heads import CHECKED_ON, RANKED_ON, text_of
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.lens.pruning.choice import Cut, choose
from clearhead.lens.pruning.examples import Examples, examples_of, loss_on
from clearhead.lens.pruning.importance import By, HeadLayer, head_layers, importance, masks_without
from clearhead.model.transformer import Transformer
from clearhead.studio.operations import Answer, operation

Name = Literal["clear-gpt", "clear-2l"]
ORDERS: tuple[By, ...] = ("gradient", "ablation", "random")
MAX_TOKENS = 512
_working = Lock()
"""The slider and the curve want the same numbers: who comes second takes what the first has found."""


@dataclass(frozen=True)
class Subject:
    """A model, what its heads are ranked on, and what its loss is measured on."""

    ranked_on: str
    checked_on: str
    layers: tuple[HeadLayer, ...]
    ranking: tuple[Examples, ...]
    checking: tuple[Examples, ...]

    @property
    def n_heads(self) -> int:
        return sum(layer.n_heads for layer in self.layers)

    @property
    def most(self) -> int:
        """How many can go: each layer keeps one."""
        return self.n_heads - len(self.layers)


TEXTS: dict[Name, tuple[str, str]] = {
    "clear-gpt": (f"text_of({RANKED_ON!r})", f"text_of({CHECKED_ON!r})"),
    "clear-2l": ('"\\n".join(SENTENCES[::2])', '"\\n".join(SENTENCES[1::2])'),
}
"""As code: files of torch that clear-gpt never read, and fifty sentences."""


def texts(name: Name) -> tuple[str, str]:
    """To rank on, and to check on."""
    if name == "clear-gpt":
        return text_of(RANKED_ON), text_of(CHECKED_ON)
    return "\n".join(SENTENCES[::2]), "\n".join(SENTENCES[1::2])


@cache
def model_of(name: Name) -> Transformer:
    return load(name)


@cache
def subject(name: Name) -> Subject:
    model, (ranked_on, checked_on) = model_of(name), texts(name)
    both = (tuple(examples_of(model, text, MAX_TOKENS)) for text in (ranked_on, checked_on))
    return Subject(ranked_on, checked_on, tuple(head_layers(model.config)), *both)


def scores(name: Name, by: By) -> tuple[Tensor, ...]:
    """How much each head matters, a layer at a time."""
    with _working:
        return _scores(name, by)


@cache
def _scores(name: Name, by: By) -> tuple[Tensor, ...]:
    return tuple(importance(model_of(name), subject(name).ranking, by))


@cache
def cut_of(name: Name, by: By, n: int) -> Cut:
    """Which heads go where n do."""
    return choose(subject(name).layers, scores(name, by), n) if n else {}


def loss_after(name: Name, by: By, n: int) -> float:
    """Nats a token without them."""
    gone = tuple(cut_of(name, by, n).items())
    with _working:
        return _loss_without(name, gone)


@cache
def _loss_without(name: Name, cut: tuple[tuple[str, tuple[int, ...]], ...]) -> float:
    """Orders often agree on which heads go: each choice is measured once."""
    one = subject(name)
    return loss_on(model_of(name), one.checking, masks_without(dict(cut), one.layers))


@operation("heads.pruning")
def pruning(*, model: Name = "clear-gpt") -> Iterator[Answer]:
    """The loss with 0, 1, 2 ... heads cut off, for each order; an answer for each number."""
    one = subject(model)
    losses: dict[By, list[float]] = {by: [] for by in ORDERS}
    for n in range(one.most + 1):
        for by in ORDERS:
            losses[by].append(loss_after(model, by, n))
        yield Answer(
            data={
                "model": model,
                "orders": ORDERS,
                "heads": one.n_heads,
                "most": one.most,
                "losses": losses,
                "done": n + 1,
                "of": one.most + 1,
            },
            python=curve_code(model, one.most, one.n_heads),
            printed=tuple(x for by in ORDERS for x in losses[by]) if n == one.most else (),
        )


def curve_code(model: Name, most: int, n_heads: int) -> str:
    return (
        _start(model, "pruning_curve")
        + f"curve = pruning_curve(\n    model, text={TEXTS[model][0]}, held_out={TEXTS[model][1]},\n"
        f"    fractions=[n / {n_heads} for n in range({most + 1})], max_tokens={MAX_TOKENS},\n)\n"
        "for losses in curve.values.tolist():  # by gradient, by ablation, at random\n    print(*losses)\n"
    )


def _start(model: Name, function: str) -> str:
    ingredient = (
        "from clearhead.claims.heads.pruned_heads import text_of"
        if model == "clear-gpt"
        else "from clearhead.claims.ingredients.sentences import SENTENCES"
    )
    return (
        f"import clearhead\n{ingredient}\n"
        f"from clearhead.lens.pruning.prune import {function}\n\nmodel = clearhead.load({model!r})\n"
    )


@operation("heads.cut")
def cut(*, model: Name = "clear-gpt", by: By = "gradient", n: Annotated[int, Field(ge=0, le=1024)] = 4) -> Answer:
    """The model without n of its heads: which went, how much each mattered, and the loss before and after."""
    one = subject(model)
    n = min(n, one.most)
    gone = cut_of(model, by, n)
    before, after = loss_after(model, by, 0), loss_after(model, by, n)
    start = _start(model, "prune" if n else "pruning_curve")
    data_of = f"text={TEXTS[model][0]}, held_out={TEXTS[model][1]}, max_tokens={MAX_TOKENS}"
    body = (
        f'smaller = prune(\n    model, {n}, by="{by}",\n    {data_of},\n)\nprint(*smaller.losses)\n'
        if n
        else f"curve = pruning_curve(model, fractions=[0.0], orders=[{by!r}], {data_of})\n"
        "print(curve.values[0, 0].item(), curve.values[0, 0].item())\n"
    )
    return Answer(
        data={
            "model": model,
            "by": by,
            "n": n,
            "heads": one.n_heads,
            "most": one.most,
            "before": before,
            "after": after,
            "risen": after / before - 1,
            "layers": [layer.addresses[0] for layer in one.layers],
            "gone": [list(gone.get(layer.addresses[0], ())) for layer in one.layers],
            "importance": [scores_H.tolist() for scores_H in scores(model, by)],
        },
        python=start + body,
        printed=(before, after),
    )
