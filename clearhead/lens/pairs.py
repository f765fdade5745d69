"""A clean text and a corrupted one: two runs that differ in one thing, and are the same length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Arguments, Inputs, arguments
from clearhead.lens.metrics import Metric, measured
from clearhead.lens.record import labels
from clearhead.lens.targets import check_whole
from clearhead.lens.views.labels import visible

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class TwoRuns:
    """Of two texts, what the model is called with."""

    clean: Arguments
    corrupted: Arguments


def two_runs(model: Transformer, clean: Inputs, corrupted: Inputs) -> TwoRuns:
    """Both as calls, held to one shape: what one run computed is put in the same place of the other.

    Raises:
        ClearheadError: they differ in length, in rows, or in what is given.
    """
    runs = TwoRuns(arguments(model, clean), arguments(model, corrupted))
    ours, theirs = given(runs.clean), given(runs.corrupted)
    if ours.keys() != theirs.keys():
        raise ClearheadError(f"the clean run is given {', '.join(ours)}, and the corrupted one {', '.join(theirs)}")
    for name in ours:
        _check_alike(name, ours[name], theirs[name])
    for run in (runs.clean, runs.corrupted):
        check_whole(run)
    return runs


def _check_alike(name: str, clean: Any, corrupted: Any) -> None:
    if not isinstance(clean, Tensor) or not isinstance(corrupted, Tensor) or clean.shape == corrupted.shape:
        return
    if name in ("tokens", "source") and clean.shape[0] == corrupted.shape[0]:
        raise ClearheadError(
            f"the clean {name} are {clean.shape[1]} long and the corrupted {corrupted.shape[1]}: a sweep puts values "
            "of one run at the same places of the other, so reword one to have as many tokens"
        )
    raise ClearheadError(
        f"{name} is {tuple(clean.shape)} clean and {tuple(corrupted.shape)} corrupted; make them alike"
    )


def given(run: Arguments) -> dict[str, Any]:
    """What a call gives, by name."""
    own = {} if run.tokens_BT is None else {"tokens": run.tokens_BT}
    return {**own, **{name: value for name, value in run.others.items() if value is not None}}


def repeated(run: Arguments, n: int) -> dict[str, Any]:
    """The same call with all its rows `n` times, one batch after another."""
    return {
        name: value.repeat(n, *[1] * (value.dim() - 1)) if isinstance(value, Tensor) else value
        for name, value in given(run).items()
    }


def n_rows(run: Arguments) -> int:
    """How many rows a call has."""
    return next(value.shape[0] for value in given(run).values() if isinstance(value, Tensor))


def token_labels(model: Transformer, runs: TwoRuns, n: int, of_source: bool = False) -> list[str]:
    """The tokens of the first row, both where the two differ; numbers where there are none, or another number."""
    pair = [run.others.get("source") if of_source else run.tokens_BT for run in (runs.clean, runs.corrupted)]
    texts = [labels(model, tokens_BT) for tokens_BT in pair]
    if not texts[0] or len(texts[0][0]) != n:
        return [str(i) for i in range(n)]
    both = zip(texts[0][0], texts[1][0], strict=True)
    return [visible(a) if a == b else f"{visible(a)}/{visible(b)}" for a, b in both]


@dataclass(frozen=True)
class Scale:
    """The metric of both runs: what 1 and 0 stand for."""

    clean: float
    corrupted: float

    def share(self, value: float) -> float:
        """How much of the way from corrupted to clean."""
        return (value - self.corrupted) / (self.clean - self.corrupted)


def scale_of(metric: Metric, clean: Any, corrupted: Any) -> Scale:
    """The metric of two outputs.

    Raises:
        ClearheadError: it is the same for both, so that there is nothing to explain.
    """
    scale = Scale(float(measured(metric, clean)), float(measured(metric, corrupted)))
    if abs(scale.clean - scale.corrupted) < 1e-6 * max(1.0, abs(scale.clean)):
        raise ClearheadError(
            f"the metric is {scale.clean:.4g} of the clean text and of the corrupted one: there is no difference to "
            "find the cause of; choose texts or answers that differ"
        )
    return scale
