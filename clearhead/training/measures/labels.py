"""How well labels and values are told, of texts and pictures alike: from batches, whatever is in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.generation.prompts import window as context_of
from clearhead.model.transformer import Transformer
from clearhead.ops.losses import cross_entropy_sum
from clearhead.training.data.batches import Batch, collate, marks_around
from clearhead.training.data.rows import Marks, Row, framed
from clearhead.training.objectives import Labels, label_head, label_scores
from clearhead.training.trainer import evaluating

DEFAULT_WINDOW = 512
"""For models that name no length."""
BATCH_SLOTS = 4096


@dataclass(frozen=True)
class LabelScores:
    """How often the likeliest label was the right one."""

    n: int
    n_right: int
    nats: float
    """Minus the sum of the natural logarithms of the right labels' probabilities."""
    each: tuple[tuple[int, int], ...] = ()
    """Of each label in the order of the head, how often it was the right one, and how often it was found then."""

    @property
    def accuracy(self) -> float:
        return self.n_right / self.n

    @property
    def loss(self) -> float:
        """Nats a label."""
        return self.nats / self.n

    def summary(self) -> dict[str, Any]:
        """The numbers by name."""
        return {"labelled": self.n, "accuracy": self.accuracy, "loss": self.loss}

    def by_label(self, names: Sequence[str]) -> dict[str, float]:
        """The accuracy where each label was the right one, by its name; of those that there were."""
        return {name: found / n for name, (n, found) in zip(names, self.each, strict=False) if n}


@dataclass(frozen=True)
class ValueScores:
    """How near values came."""

    n: int
    squared: float
    """The sum of the squared differences."""
    correlation: float
    """Pearson's, of what was said with what is; no number where one of the two never changes."""

    def summary(self) -> dict[str, Any]:
        """The numbers by name."""
        said = {} if math.isnan(self.correlation) else {"correlation": self.correlation}
        return {"values": self.n, "mean_squared_error": self.squared / self.n, **said}


def measure_labels(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    head: str | None = None,
    progress: Callable[[int], Any] | None = None,
) -> LabelScores:
    """Have a label head label everything in these batches.

    Args:
        model: one with a head for labels.
        batches: with targets (B,), or (B, T) for a head that labels every token.
        head: by name; None is the only one.
        progress: told after each batch how many rows it had.

    Raises:
        ClearheadError: there is no such head, a target that is none of its labels, or nothing to label.
    """
    nats = 0.0
    objective = Labels(head=head)
    n_L = right_L = torch.zeros(0, dtype=torch.int64)
    with evaluating(model):
        for batch in batches:
            scores_NL, targets_N, _, _ = objective.read(model, batch)
            total, _ = cross_entropy_sum(scores_NL.float(), targets_N)
            nats += float(total)
            found_N = targets_N[scores_NL.argmax(dim=-1) == targets_N]
            counts = [torch.bincount(which_N.cpu(), minlength=scores_NL.shape[-1]) for which_N in (targets_N, found_N)]
            n_L, right_L = (counts[0] + n_L, counts[1] + right_L) if len(n_L) else (counts[0], counts[1])
            if progress is not None:
                progress(len(batch.targets))
    if not int(n_L.sum()):
        raise ClearheadError("there is nothing to label: no row has a label")
    each = tuple(zip(n_L.tolist(), right_L.tolist(), strict=True))
    return LabelScores(int(n_L.sum()), int(right_L.sum()), nats, each)


def measure_values(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    head: str | None = None,
    progress: Callable[[int], Any] | None = None,
) -> ValueScores:
    """Have a head tell the values of everything in these batches; arguments and errors as in `measure_labels`."""
    said: list[Tensor] = []
    true: list[Tensor] = []
    with evaluating(model):
        for batch in batches:
            scores, _ = label_scores(model, batch, head, None)
            said.append(scores.double().cpu().reshape(batch.targets.shape).flatten())
            true.append(batch.targets.double().flatten())
            if progress is not None:
                progress(len(batch.targets))
    said_N, true_N = torch.cat([torch.empty(0), *said]).double(), torch.cat([torch.empty(0), *true]).double()
    real_N = ~true_N.isnan()
    said_N, true_N = said_N[real_N], true_N[real_N]
    if not len(true_N):
        raise ClearheadError("there is nothing to tell: no row has a value")
    moves = len(true_N) > 1 and bool(said_N.std() > 0) and bool(true_N.std() > 0)
    correlation = float(torch.corrcoef(torch.stack([said_N, true_N]))[0, 1]) if moves else math.nan
    return ValueScores(len(true_N), float((said_N - true_N).square().sum()), correlation)


def labelled(model: Transformer, records: Sequence[tuple[str, str]], *, head: str | None = None) -> Iterator[Batch]:
    """Texts with their labels, in batches: longest first, cut to what the model reads.

    Labels are the model's names of them, or numbers counted from 0; for a head with one output, values.

    Raises:
        ClearheadError: the model reads no text or has no label head, or a label is none of its own.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text")
    n_labels = n_labels_of(model, head)
    targets = [_value(label) if n_labels == 1 else _number(label, names_of(model), n_labels) for _, label in records]
    before, after = marks_around(tokenizer)
    marks = Marks(before_row=before, after_row=after)
    length = context_of(model.config) or DEFAULT_WINDOW
    rows: list[Row] = []
    for (text, _), target in zip(records, targets, strict=True):
        ids = np.array(tokenizer.encode(text, bos=False), np.int64)
        rows.append({"tokens": framed(ids, marks, length), "targets": np.array(target)})
    rows.sort(key=lambda row: -len(row["tokens"]))
    while rows:
        n = max(1, BATCH_SLOTS // len(rows[0]["tokens"]))
        yield collate(rows[:n], tokenizer.pad_id or 0)
        rows = rows[n:]


def n_labels_of(model: Transformer, head: str | None = None) -> int:
    """How many labels a head tells apart."""
    heads = model.config.heads
    name = label_head(heads, head)
    return (dict(heads.labels).get(name) or heads.labels[0][1]).n_labels


def names_of(model: Transformer) -> dict[str, int]:
    """The number of each label by what the model's checkpoint calls it; empty where it does not say."""
    raw = {} if model.origin is None else model.origin.raw_config
    return {str(name): int(number) for number, name in (raw.get("id2label") or {}).items()}


def _number(label: str, names: dict[str, int], n_labels: int) -> int:
    if label in names:
        return names[label]
    if label.isdecimal() and int(label) < n_labels:
        return int(label)
    known = ", ".join(list(names)[:10]) if names else f"0 to {n_labels - 1}"
    raise ClearheadError(f"a text is labelled {label!r}, which is none of the model's labels: {known}")


def _value(label: str) -> float:
    try:
        return float(label)
    except ValueError:
        raise ClearheadError(f"a text is labelled {label!r}, which is no number") from None
