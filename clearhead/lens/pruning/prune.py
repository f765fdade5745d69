"""`prune`: a model without the heads that matter least, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import torch

from clearhead.costs.charts import Chart
from clearhead.costs.curves import Axes, Curve
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens.pruning.choice import Cut, choose, how_many
from clearhead.lens.pruning.examples import Examples, default_text, examples_of, loss_on
from clearhead.lens.pruning.importance import By, head_layers, importance, masks_without, passes_of
from clearhead.lens.views.chart import CurveFigure
from clearhead.lens.views.drawn import Drawn
from clearhead.lens.views.heatmap import HeatMap
from clearhead.model.pruned import without_heads

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Data = str | Sequence[Examples]
MAX_TOKENS = 8192
ORDERS: tuple[By, ...] = get_args(By)
EIGHTHS = tuple(i / 8 for i in range(7))


@dataclass(frozen=True)
class Pruning:
    """A smaller model, and how it came to be."""

    model: Transformer
    by: By
    cut: Cut
    """The heads that went, by their sub-layers' addresses, as they were counted in the whole model."""
    n_cut: int
    """How many: those of blocks that run with the same weights count once."""
    n_heads: int
    """Of how many."""
    losses: tuple[float, float]
    """Before and after, in nats a target, on what was held out."""
    parameters: tuple[int, int]
    """Before and after."""

    def to_json(self) -> dict[str, Any]:
        """All but the model."""
        (before, after), (more, fewer) = self.losses, self.parameters
        return {
            "by": self.by,
            "heads": {"cut": self.n_cut, "of": self.n_heads},
            "cut": {address: list(heads) for address, heads in self.cut.items()},
            "loss": {"before": before, "after": after},
            "parameters": {"before": more, "after": fewer, "removed": more - fewer},
        }


@dataclass(frozen=True)
class PruningCurve(Drawn):
    """The loss with more and more heads cut off, in several orders."""

    title: str
    values: torch.Tensor
    """(orders, fractions): nats a target, on what was held out."""
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    """The share of heads that is cut off."""

    def figure(self) -> CurveFigure:
        """A curve an order, and the numbers below."""
        shares = [float(label.removesuffix("%")) for label in self.column_labels]
        rows = zip(self.row_labels, self.values.tolist(), strict=True)
        curves = tuple(Curve(name, tuple(zip(shares, row, strict=True))) for name, row in rows)
        axes = Axes("{:.3f}".format, "{:g}%".format, x="of the heads cut off", from_zero=False)
        table = HeatMap(self.title, self.values, self.row_labels, self.column_labels, kind="amount")
        return CurveFigure(Chart(self.title, curves, axes), table)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers."""
        return {
            "title": self.title,
            "values": self.values.tolist(),
            "row_labels": list(self.row_labels),
            "column_labels": list(self.column_labels),
        }


def prune(
    model: Transformer,
    fraction: float,
    *,
    text: Data | None = None,
    held_out: Data | None = None,
    by: By = "gradient",
    seed: int = 0,
    max_tokens: int = MAX_TOKENS,
    progress: Callable[[float], Any] | None = None,
) -> Pruning:
    """A new model without the heads that matter least: smaller matrices, the same function as with those heads' output
    set to zero. `model` stays as it is. Every attention sub-layer keeps at least one head; see `choose` for heads that
    share key-value heads.

    Args:
        model: what `clearhead.load` gave.
        fraction: the share of heads that goes, 0.25; or how many, as a whole number.
        text: what heads are ranked on: a text, for a model of text, or batches (`Examples`) of what any model takes.
            None: the reference of the Python language, which comes with Python.
        held_out: what the loss is measured on, before and after; None is the second half of `text`, of which then only
            the first half ranks.
        by: how heads are ranked (see `importance`).
        seed: of a random order, and of which tokens are hidden from a model that sees both sides.
        max_tokens: at most so many of each text are read.
        progress: told after each pass which share of the whole it was.

    Raises:
        ClearheadError: the model has no heads, or no loss on such data; the text is too short.
        UsageError: a fraction that would cut off no head or too many, or an order that is not there.
    """
    _check_order(by)
    layers = head_layers(model.config)
    n = how_many(fraction, layers)
    ranking, checking = _data(model, text, held_out, max_tokens, seed)
    told = _share(progress, passes_of(by, layers, len(ranking)) + 2 * len(checking))
    scores = importance(model, ranking, by, seed=seed, told=told)
    cut = choose(layers, scores, n)
    n_cut = sum(len(cut.get(layer.addresses[0], ())) for layer in layers)
    if not n_cut:
        raise UsageError(
            f"{n} of these heads can't go alone: they share key-value heads. The fewest that can is "
            f"{min(min(layer.n_kv_heads, layer.n_heads // layer.n_kv_heads) for layer in layers)}"
        )
    smaller = without_heads(model, cut)
    before = loss_on(model, checking)
    told(len(checking))
    after = loss_on(smaller, checking)
    told(len(checking))
    n_heads = sum(layer.n_heads for layer in layers)
    return Pruning(smaller, by, cut, n_cut, n_heads, (before, after), (_numbers(model), _numbers(smaller)))


def pruning_curve(
    model: Transformer,
    *,
    text: Data | None = None,
    held_out: Data | None = None,
    orders: Sequence[By] = ORDERS,
    fractions: Sequence[float] = EIGHTHS,
    seed: int = 0,
    max_tokens: int = MAX_TOKENS,
    progress: Callable[[float], Any] | None = None,
) -> PruningCurve:
    """The loss on what was held out with each share of the heads cut off, the least important first, for each order.
    Shares that would leave a sub-layer without heads are left out. Arguments and errors are those of `prune`.
    """
    for by in orders:
        _check_order(by)
    layers = head_layers(model.config)
    n_heads = sum(layer.n_heads for layer in layers)
    shares = [share for share in fractions if share * n_heads <= n_heads - len(layers)]
    ranking, checking = _data(model, text, held_out, max_tokens, seed)
    passes = sum(passes_of(by, layers, len(ranking)) for by in orders)
    told = _share(progress, passes + len(orders) * len(shares) * len(checking))
    rows = []
    known: dict[str, float] = {}
    for by in orders:
        scores = importance(model, ranking, by, seed=seed, told=told)
        row = []
        for share in shares:
            cut = choose(layers, scores, int(share * n_heads + 1e-9))
            if str(cut) not in known:
                known[str(cut)] = loss_on(model, checking, masks_without(cut, layers))
            row.append(known[str(cut)])
            told(len(checking))
        rows.append(row)
    return PruningCurve(
        "Loss by the share of heads cut off, in nats a target",
        torch.tensor(rows, dtype=torch.float64),
        tuple(orders),
        tuple(f"{100 * share:.3g}%" for share in shares),
    )


def _check_order(by: str) -> None:
    if by not in ORDERS:
        raise UsageError(f"heads can't be ranked by {by!r}; there are {', '.join(ORDERS)}")


def _data(
    model: Transformer, text: Data | None, held_out: Data | None, max_tokens: int, seed: int
) -> tuple[list[Examples], list[Examples]]:
    """Batches to rank on, and others to check on."""
    if max_tokens < 2:
        raise UsageError(f"{max_tokens} tokens are too few to measure a loss on; give 2 or more")
    first = default_text() if text is None else text
    second = held_out
    if second is None:
        middle = len(first) // 2
        first, second = first[:middle], first[middle:]
    both = [
        examples_of(model, data, max_tokens, seed) if isinstance(data, str) else list(data) for data in (first, second)
    ]
    if not all(both):
        raise ClearheadError("heads are ranked on some batches and checked on others; give two, or held_out")
    return both[0], both[1]


def _share(progress: Callable[[float], Any] | None, total: int) -> Callable[[int], Any]:
    """What is told a number of passes is, of `total`."""
    return (lambda done: None) if progress is None else lambda done: progress(done / max(total, 1))


def _numbers(model: Transformer) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
