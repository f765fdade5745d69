"""Integrated gradients over the tokens that go in (Sundararajan 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Arguments, Inputs, arguments
from clearhead.lens.edit import edit
from clearhead.lens.metrics import Metric
from clearhead.lens.pairs import given, repeated
from clearhead.lens.record import labels, look
from clearhead.lens.rollout import place_names, stack_of
from clearhead.lens.table import Table
from clearhead.lens.targets import check_whole, logits_of
from clearhead.lens.views.labels import visible
from clearhead.taps import address

if TYPE_CHECKING:
    from clearhead.model.stack import Stack
    from clearhead.model.transformer import Transformer

AT_ONCE = 2**23
"""Numbers of output computed at a time: with what their gradient needs, a few hundred MB."""


@dataclass(frozen=True, eq=False)
class IntegratedGradients(Table):
    """A row a text, a column a token: how much of `difference` each token accounts for."""

    by_dimension: Tensor
    """(B, T, D); `values` is its sum over the last."""
    difference: Tensor
    """The metric of the text less that of the baseline, (B,)."""
    steps: int

    @property
    def gap(self) -> float:
        """How far the sum is from the difference, in the worst row: what more steps would take away (section 3)."""
        return float((self.values.sum(-1) - self.difference).abs().max())

    def to_json(self) -> dict[str, Any]:
        """Everything but the dimensions as plain lists and numbers, ready for `json.dumps`."""
        own = {"difference": self.difference.tolist(), "gap": self.gap, "steps": self.steps}
        return {**super().to_json(), **own}


def integrated_gradients(
    model: Transformer,
    inputs: Inputs,
    metric: Metric,
    *,
    baseline: Inputs | None = None,
    part: str = "",
    steps: int = 32,
    most_steps: int = 512,
    tolerance: float = 1e-3,
) -> IntegratedGradients:
    """(x - x') times the mean gradient on the way from the baseline x' to x, where x is what the embedding gives to the
    first layer (eq. 1).

    metric: one number a row, of the logits (see `logit_difference`). baseline: a text of as many tokens, or what
    `model(...)` takes; without one, the average token of the vocabulary in every place, or a picture or a sound of
    zeros. (Zeros in place of tokens would not do: a norm makes the same of a vector however small it is, so that all
    change would be in the first instant of the way.) part: "encoder" for the tokens of a source. The integral is by
    Gauss and Legendre's rule; `steps` are doubled up to `most_steps` until the sum is as close to the difference as
    `tolerance` of it (completeness): `gap` says how close it came.

    Raises:
        ClearheadError: a baseline of another length, a part that is not there, or a metric that gives other than one
            number a row.
    """
    stack = stack_of(model, part)
    where = address(stack.path, "embed")
    call = arguments(model, inputs)
    check_whole(call)
    seen = look(model, given(call), where)
    end_BTD = seen[where]
    start_BTD = look(model, baseline, where)[where] if baseline is not None else _nothing(model, stack, call, where)
    if start_BTD.shape != end_BTD.shape:
        counts = end_BTD.shape[1], start_BTD.shape[1]
        raise ClearheadError(f"the text becomes {counts[0]} tokens, and the baseline {counts[1]}; make it as long")
    n_rows = end_BTD.shape[0]
    outputs = [seen.output, edit(model, given(call), {where: lambda _: start_BTD})]
    ends = [_per_row(metric, output, n_rows).double() for output in outputs]
    difference_B = ends[0] - ends[1]
    at_once = max(1, AT_ONCE // logits_of(seen.output).numel())
    while True:
        way = _Way(model, call, metric, where, start_BTD, end_BTD, at_once)
        by_dimension = (end_BTD - start_BTD).double() * way.mean_gradient(steps)
        gap_B = (by_dimension.sum((1, 2)) - difference_B).abs()
        if bool((gap_B <= tolerance * difference_B.abs().clamp(min=1e-3)).all()) or 2 * steps > most_steps:
            break
        steps *= 2
    tokens_BT = call.others.get("source") if part == "encoder" else call.tokens_BT
    texts = labels(model, tokens_BT)
    n_tokens = end_BTD.shape[1]
    single = n_rows == 1 and bool(texts) and len(texts[0]) == n_tokens
    names = (
        [visible(label) for label in texts[0]] if single else place_names(stack, n_tokens, call.others.get("pixels"))
    )
    return IntegratedGradients(
        title="Integrated gradients from " + ("nothing" if baseline is None else "the baseline"),
        values=by_dimension.sum(-1),
        row_labels=["text"] if n_rows == 1 else [f"text {row}" for row in range(n_rows)],
        column_labels=names,
        by_dimension=by_dimension,
        difference=difference_B,
        steps=steps,
    )


@dataclass(frozen=True)
class _Way:
    """The straight line from a baseline to a text, in what goes into the first layer."""

    model: Transformer
    call: Arguments
    metric: Metric
    where: str
    start_BTD: Tensor
    end_BTD: Tensor
    at_once: int
    """How many places of the way go into one pass."""

    def mean_gradient(self, steps: int) -> Tensor:
        """The mean of the gradient over the line, (B, T, D), from `steps` places on it; in float64."""
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        places, shares = torch.from_numpy(nodes + 1) / 2, torch.from_numpy(weights) / 2
        total_BTD = torch.zeros_like(self.start_BTD, dtype=torch.float64)
        for few, share in zip(places.split(self.at_once), shares.split(self.at_once), strict=True):
            gradient_NBTD = self._gradients(few.to(self.start_BTD))
            total_BTD += torch.einsum("n,nbtd->btd", share.to(total_BTD), gradient_NBTD.double())
        return total_BTD

    def _gradients(self, places_N: Tensor) -> Tensor:
        """The gradient at each place, (n, B, T, D)."""
        step_NBTD = places_N[:, None, None, None] * (self.end_BTD - self.start_BTD)
        x_MTD = (self.start_BTD + step_NBTD).flatten(0, 1).requires_grad_()
        inputs = repeated(self.call, len(places_N))
        output = edit(self.model, inputs, {self.where: lambda _: x_MTD}, grad=True)
        n_rows = self.start_BTD.shape[0]
        parts = logits_of(output).chunk(len(places_N))
        total = torch.stack([_per_row(self.metric, part, n_rows).sum() for part in parts]).sum()
        (gradient_MTD,) = torch.autograd.grad(total, x_MTD)
        gradient_NBTD: Tensor = gradient_MTD.unflatten(0, (len(places_N), -1))
        return gradient_NBTD


def _nothing(model: Transformer, stack: Stack, call: Arguments, where: str) -> Tensor:
    """What goes into the first layer (B, T, D) of a text that says nothing: the average token, where each stands; or of
    pixels or frames of zeros.
    """
    table = stack.embed.tokens
    if table is None:
        empty = {name: torch.zeros_like(value) for name, value in given(call).items() if name in ("pixels", "frames")}
        return look(model, {**given(call), **empty}, where)[where]
    mean_D = table.weight.detach().mean(0) * stack.embed.config.scale
    front = address(stack.embed.path, "front")
    return look(model, given(call), where, edits={front: lambda value: mean_D.to(value).expand_as(value)})[where]


def _per_row(metric: Metric, output: Any, n_rows: int) -> Tensor:
    value = metric(logits_of(output))
    if not isinstance(value, Tensor) or value.shape != (n_rows,):
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ClearheadError(f"the metric must give one number a row, a tensor ({n_rows},), and it gave {shape}")
    return value
