"""What is learnt: from a model and a batch to a sum of losses, and the number of targets that it is a sum over.

An objective gives sums, never means, and everything it adds is a sum over targets too. So a step's batch may be cut
into micro-batches in any way: sums and numbers are added up, and divided once (the mean over the real targets of the
whole step).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clearhead.config import AttentionConfig, HeadsConfig, LatentAttentionConfig
from clearhead.errors import ClearheadError
from clearhead.model.balance import balance_of_rows, router_sites
from clearhead.model.transformer import Transformer
from clearhead.ops.losses import AT_ONCE, IGNORE, cross_entropy_sum, distillation_sum, linear_cross_entropy_sum
from clearhead.taps import Chain, Recorder, Taps
from clearhead.training.config import ObjectiveConfig

if TYPE_CHECKING:
    from clearhead.training.data.batches import Batch


class Objective(Protocol):
    def loss(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        """The sum of the losses of all real targets, with its graph and in float32 at least, and their number.

        A model in training adds the balance of its experts. `taps` look into the pass.
        """
        ...


class Reading(NamedTuple):
    """What is to be scored: rows that have a target, their targets, and what makes scores (N, V) of rows."""

    rows_ND: Tensor
    targets_N: Tensor
    score: Callable[[Tensor], Tensor]
    balance: Tensor | None


class Classes(Objective, Protocol):
    """An objective whose targets are one of several: what can be distilled."""

    @property
    def label_smoothing(self) -> float: ...

    def read(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> Reading: ...


def from_config(config: ObjectiveConfig, teacher: Transformer | None = None) -> Objective:
    """The objective that a config names, with the teacher that it names."""
    if teacher is not None and config.teacher is not None:
        data: Any = from_config(config)
        if not hasattr(data, "read"):
            raise ClearheadError(
                f"objective.name is {config.name}, and a teacher can only tell one of several; set another"
            )
        said = config.teacher
        return Distil(teacher=teacher, of=data, temperature=said.temperature, weight=said.weight)
    head = config.head or None
    match config.name:
        case "next_token":
            return NextToken(label_smoothing=config.label_smoothing)
        case "masked_tokens":
            return MaskedTokens(label_smoothing=config.label_smoothing)
        case "source_to_target":
            return SourceToTarget(label_smoothing=config.label_smoothing)
        case "labels":
            return Labels(head=head, label_smoothing=config.label_smoothing)
        case "regress":
            return Regress(head=head)


# ---- tokens


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Cross-entropy of the token head, at every slot that has a target."""

    label_smoothing: float = 0.0

    def loss(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        rows_ND, targets_N, _, balance = self.read(model, batch, taps)
        head = model.head
        assert head is not None
        if head.transform is not None:
            rows_ND = head.transform(rows_ND)
        total, n = linear_cross_entropy_sum(
            rows_ND,
            model.unembedding,
            head.bias,
            targets_N,
            scale=head.config.scale,
            softcap=head.config.softcap,
            label_smoothing=self.label_smoothing,
        )
        return _with(balance, total), n

    def read(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> Reading:
        """The rows of the finished stream that have a target. No logits are made of the others."""
        self.check(model)
        head, unembedding = model.head, model.unembedding
        assert head is not None
        _check_classes(batch.targets, unembedding.shape[0], "tokens in the vocabulary")
        x_BTD, balance = _run(model, batch, taps, read=False)
        rows_ND, targets_N = _with_targets(x_BTD, batch.targets)
        return Reading(rows_ND, targets_N, lambda rows_ND: head(rows_ND[None], unembedding)[0], balance)

    def check(self, model: Transformer) -> None:
        """Refuse a model that can't learn this."""


@dataclass(frozen=True, kw_only=True)
class NextToken(Tokens):
    """Each token from those before it."""

    def check(self, model: Transformer) -> None:
        ops = [block.mixer.op for block in model.config.stack.blocks]
        sees = any(isinstance(op, AttentionConfig | LatentAttentionConfig) and op.mask.kind == "full" for op in ops)
        if sees:
            raise ClearheadError("this model sees the tokens it would predict: train it on masked tokens")


@dataclass(frozen=True, kw_only=True)
class MaskedTokens(Tokens):
    """Hidden tokens from those on either side (Devlin 2018, BERT). The batch has the masks; only they have targets."""


@dataclass(frozen=True, kw_only=True)
class SourceToTarget(NextToken):
    """Each token of the target from the source and those before it (Vaswani 2017; smoothing as in section 5.4)."""

    label_smoothing: float = 0.1

    def check(self, model: Transformer) -> None:
        if model.encoder is None:
            raise ClearheadError("this model has no encoder beside a decoder, so it reads no source")
        super().check(model)


# ---- labels


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Cross-entropy of a label head, one target a row, or a token where the head reads every one."""

    head: str | None = None
    """By name; None is the only one, or the mean of those that are averaged."""
    label_smoothing: float = 0.0

    def loss(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        rows_NL, targets_N, _, balance = self.read(model, batch, taps)
        total, n = cross_entropy_sum(rows_NL, targets_N, self.label_smoothing)
        return _with(balance, total), n

    def read(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> Reading:
        """The scores of rows that have a target."""
        scores, balance = label_scores(model, batch, self.head, taps)
        _check_classes(batch.targets, scores.shape[-1], "labels")
        rows_NL, targets_N = _with_targets(scores, batch.targets)
        return Reading(rows_NL, targets_N, lambda rows_NL: rows_NL, balance)


@dataclass(frozen=True, kw_only=True)
class Regress:
    """Squared error of a label head's numbers. A target that is no number (NaN) is none."""

    head: str | None = None

    def loss(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        scores, balance = label_scores(model, batch, self.head, taps)
        targets = batch.targets.to(scores.device)
        if not targets.is_floating_point():
            raise ClearheadError(f"numbers are regressed, and the targets are {targets.dtype}; make them floats")
        if scores.shape[-1] == 1 and targets.ndim == scores.ndim - 1:
            scores = scores[..., 0]
        _check_shape(targets, scores.shape)
        is_real = ~targets.isnan()
        wide = torch.promote_types(scores.dtype, torch.float32)
        off = scores[is_real].to(wide) - targets[is_real].to(wide)
        return _with(balance, off.square().sum()), is_real.sum()


def label_scores(model: Transformer, batch: Batch, name: str | None, taps: Taps | None) -> tuple[Tensor, Tensor | None]:
    """What the label head gives: (B, labels), or (B, T, labels)."""
    name = label_head(model.config.heads, name)
    # Logits of tokens, where there is a head for them, are made of no slot.
    outputs, balance = _run(model, batch, taps, last=0 if model.head is not None else None)
    scores: Tensor = outputs if isinstance(outputs, Tensor) else getattr(outputs, name)
    return scores, balance


def label_head(heads: HeadsConfig, name: str | None) -> str:
    """The head for labels of this name; of none, the only one, or the mean of all."""
    known = [known for known, _ in heads.labels] + ["logits"] * heads.average_labels
    if name is None and (len(known) == 1 or heads.average_labels):
        name = known[-1]
    if name is None or name not in known:
        asked = "several heads for labels" if name is None else f"no head {name!r}"
        raise ClearheadError(
            f"this model has {asked}; name one of {', '.join(known)}"
            if known
            else "this model has no head for labels; load it with one (new_head=)"
        )
    return name


# ---- a larger model as the teacher


@dataclass(frozen=True, kw_only=True)
class Distil:
    """`weight` of the teacher's distribution, at a temperature, and 1 - `weight` of the targets (Hinton 2015)."""

    teacher: Transformer
    """Of the same vocabulary or labels. It stays as it is."""
    of: Classes = field(default_factory=NextToken)
    temperature: float = 2.0
    weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1 or self.temperature <= 0:
            raise ClearheadError(
                f"distilling with weight {self.weight} at temperature {self.temperature}: the weight must be from 0 "
                "to 1, the temperature more than 0"
            )
        self.teacher.eval()

    def loss(self, model: Transformer, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        ours = self.of.read(model, batch, taps)
        with torch.no_grad():
            theirs = self.of.read(self.teacher, batch)
        n_rows, device = ours.targets_N.shape[0], ours.rows_ND.device
        total = ours.rows_ND.sum() * 0.0
        n_ours, n_theirs = (r.score(r.rows_ND[:1]).shape[-1] for r in (ours, theirs))
        if n_ours != n_theirs:
            raise ClearheadError(f"the teacher scores {n_theirs} and the student {n_ours}; both need the same ones")
        size = max(1, AT_ONCE // n_ours)

        def part(ours_CD: Tensor, theirs_CD: Tensor, targets_C: Tensor) -> Tensor:
            logits_CV = ours.score(ours_CD)
            hard, _ = cross_entropy_sum(logits_CV, targets_C, self.of.label_smoothing)
            with torch.no_grad():
                teacher_CV = theirs.score(theirs_CD).to(device)
            return (1 - self.weight) * hard + self.weight * distillation_sum(logits_CV, teacher_CV, self.temperature)

        for start in range(0, n_rows, size):
            # Logits of both are made again in the backward pass, so that those of all rows are never there at once.
            rows = [t[start : start + size] for t in (ours.rows_ND, theirs.rows_ND, ours.targets_N)]
            total = total + checkpoint(part, *rows, use_reentrant=False)
        return _with(ours.balance, total), torch.tensor(n_rows, device=device)


def of_data(objective: Objective) -> Objective:
    """What is learnt of the data alone, without a teacher: it can be compared."""
    return objective.of if isinstance(objective, Distil) else objective


# ---- parts


def _run(model: Transformer, batch: Batch, taps: Taps | None, **how: Any) -> tuple[Any, Tensor | None]:
    """The output of a pass, and in training the balance of the experts, where they have any to keep.

    Each row's balance counts as often as it has targets, so it is a sum over targets like the rest (by sequence, as in
    DeepSeek-AI 2024, DeepSeek-V3, section 2.1.2): the pooled balance of a batch would depend on how it is cut.
    """
    inputs = {name: value.to(model.device) for name, value in batch.inputs.items()}
    recorder = Recorder(router_sites(model) if model.training else (), keep_graph=True)
    if not recorder.addresses:
        return model(**inputs, taps=taps, **how), None
    output = model(**inputs, taps=recorder if taps is None else Chain(taps, recorder), **how)
    balance_B = balance_of_rows(model, recorder.values, inputs.get("present"), inputs.get("source_present"))
    if balance_B is None:
        return output, None
    targets = batch.targets.to(balance_B.device)
    is_real = ~targets.isnan() if targets.is_floating_point() else targets != IGNORE
    return output, (balance_B * is_real.flatten(1).sum(dim=1) if targets.ndim > 1 else balance_B * is_real).sum()


def _with(balance: Tensor | None, total: Tensor) -> Tensor:
    return total if balance is None else total + balance


def _with_targets(x: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of x (..., D) that have a target, and the targets."""
    _check_shape(targets, x.shape[:-1])
    slots_N = (targets.flatten() != IGNORE).nonzero()[:, 0]
    rows_ND, targets_N = x.reshape(-1, x.shape[-1]), targets.flatten().to(x.device)
    if len(slots_N) == len(rows_ND):
        return rows_ND, targets_N
    slots_N = slots_N.to(x.device)
    return rows_ND[slots_N], targets_N[slots_N]


def _check_shape(targets: Tensor, shape: torch.Size) -> None:
    if targets.shape != shape:
        raise ClearheadError(f"the targets have shape {tuple(targets.shape)}, and the model predicts {tuple(shape)}")


def _check_classes(targets: Tensor, n: int, what: str) -> None:
    if targets.is_floating_point():
        raise ClearheadError(f"the targets are {targets.dtype}; one of {n} {what} is a whole number (int64)")
    wrong = targets[((targets < 0) | (targets >= n)) & (targets != IGNORE)]
    if wrong.numel():
        raise ClearheadError(f"a target is {int(wrong[0])}, and there are {n} {what}")
