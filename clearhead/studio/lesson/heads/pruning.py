"""Heads cut off, the least important first, and what the loss says to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from torch import Tensor

from clearhead.claims.heads.pruned_heads import CHECKED_ON, RANKED_ON, text_of
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.lens.pruning.choice import Cut, choose
from clearhead.lens.pruning.examples import Examples, examples_of, loss_on
from clearhead.lens.pruning.importance import By, HeadLayer, head_layers, importance, masks_without
from clearhead.ops.losses import IGNORE
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

Name = Literal["clear-gpt", "clear-2l"]
ORDERS: tuple[By, ...] = ("gradient", "ablation", "random")
MAX_TOKENS = 512


@dataclass(frozen=True)
class Subject:
    """A model's heads, what they are ranked on, and what the loss is measured on."""

    layers: tuple[HeadLayer, ...]
    ranking: tuple[Examples, ...]
    checking: tuple[Examples, ...]

    @property
    def n_heads(self) -> int:
        return sum(layer.n_heads for layer in self.layers)

    @property
    def n_told(self) -> int:
        """How many tokens the loss is the mean of."""
        return sum(int((examples.targets != IGNORE).sum()) for examples in self.checking)

    @property
    def most(self) -> int:
        """How many can go: each layer keeps one."""
        return self.n_heads - len(self.layers)


TEXTS: dict[Name, tuple[str, str]] = {
    "clear-gpt": (f"text_of({RANKED_ON!r})", f"text_of({CHECKED_ON!r})"),
    "clear-2l": ('"\\n".join(SENTENCES[::2])', '"\\n".join(SENTENCES[1::2])'),
}
"""As code: files of torch that clear-gpt never read, and fifty sentences."""

CHECKED: dict[Name, str] = {"clear-gpt": CHECKED_ON, "clear-2l": "twenty-five sentences, every second of fifty"}


def texts(name: Name) -> tuple[str, str]:
    """To rank on, and to check on."""
    if name == "clear-gpt":
        return text_of(RANKED_ON), text_of(CHECKED_ON)
    return "\n".join(SENTENCES[::2]), "\n".join(SENTENCES[1::2])


_subjects: KeptResults[Subject] = KeptResults(4)
_scores: KeptResults[tuple[Tensor, ...]] = KeptResults(16)
_losses: KeptResults[float] = KeptResults(512)


def subject(studio: Studio, name: Name) -> Subject:
    return _subjects.of(studio.models, name, make=lambda model: _read(model, name))


def _read(model: Transformer, name: Name) -> Subject:
    ranked_on, checked_on = texts(name)
    ranking, checking = (tuple(examples_of(model, text, MAX_TOKENS)) for text in (ranked_on, checked_on))
    return Subject(tuple(head_layers(model.config)), ranking, checking)


def scores(studio: Studio, name: Name, by: By) -> tuple[Tensor, ...]:
    """How much each head matters, a layer at a time."""
    ranking = subject(studio, name).ranking
    return _scores.of(studio.models, name, by, make=lambda model: tuple(importance(model, ranking, by)))


def cut_of(studio: Studio, name: Name, by: By, n: int) -> Cut:
    """Which heads go where n do."""
    return choose(subject(studio, name).layers, scores(studio, name, by), n) if n else {}


def loss_after(studio: Studio, name: Name, by: By, n: int) -> float:
    """Nats a token without them. Orders often agree on which heads go: each choice is measured once."""
    one, cut = subject(studio, name), cut_of(studio, name, by, n)
    gone = tuple(sorted(cut.items()))
    return _losses.of(
        studio.models,
        name,
        gone,
        make=lambda model: loss_on(model, one.checking, masks_without(cut, one.layers)),
    )


def _is_kept(studio: Studio, name: Name, by: By, n: int) -> bool:
    """Whether the cut is known with its losses, so that telling of it runs nothing."""
    if any(
        kept.get(kept.key(studio.models, name, *more)) is None for kept, more in ((_subjects, ()), (_scores, (by,)))
    ):
        return False
    gone = (tuple(sorted(cut_of(studio, name, by, m).items())) for m in (0, n))
    return all(_losses.get(_losses.key(studio.models, name, one)) is not None for one in gone)


@operation("heads.pruning")
def pruning(studio: Studio, *, model: Name = "clear-gpt") -> Iterator[Answer]:
    """The loss with 0, 1, 2 ... heads cut off, for each order; an answer for each number."""
    one = subject(studio, model)
    losses: dict[By, list[float]] = {by: [] for by in ORDERS}
    for n in range(one.most + 1):
        for by in ORDERS:
            losses[by].append(loss_after(studio, model, by, n))
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
def cut(
    studio: Studio, *, model: Name = "clear-gpt", by: By = "gradient", n: Annotated[int, Field(ge=0, le=1024)] = 4
) -> Answer | Iterator[Answer]:
    """The model without n of its heads: which went, how much each mattered, and the loss before and after."""

    def told() -> Answer:
        one = subject(studio, model)
        some = min(n, one.most)
        gone = cut_of(studio, model, by, some)
        before, after = loss_after(studio, model, by, 0), loss_after(studio, model, by, some)
        return Answer(
            data={
                "model": model,
                "by": by,
                "n": some,
                "heads": one.n_heads,
                "most": one.most,
                "n_told": one.n_told,
                "checked_on": CHECKED[model],
                "before": before,
                "after": after,
                "risen": after / before - 1,
                "layers": [layer.addresses[0] for layer in one.layers],
                "gone": [list(gone.get(layer.addresses[0], ())) for layer in one.layers],
                "importance": [scores_H.tolist() for scores_H in scores(studio, model, by)],
            },
            python=cut_code(model, by, some),
            printed=(before, after),
        )

    return promptly(_is_kept(studio, model, by, n), told)


def cut_code(model: Name, by: By, n: int) -> str:
    data_of = f"text={TEXTS[model][0]}, held_out={TEXTS[model][1]}, max_tokens={MAX_TOKENS}"
    if n:
        body = f'smaller = prune(\n    model, {n}, by="{by}",\n    {data_of},\n)\nprint(*smaller.losses)\n'
        return _start(model, "prune") + body
    return (
        _start(model, "pruning_curve")
        + f"curve = pruning_curve(model, fractions=[0.0], orders=[{by!r}], {data_of})\n"
        + "print(curve.values[0, 0].item(), curve.values[0, 0].item())\n"
    )
