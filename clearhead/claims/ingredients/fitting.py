"""Small trainings inside a claim: a model, batches made by a function, and no files.

What the library's own trainer gives (checkpoints, shards, reports) is not needed for a minute's training whose data
come from a rule; where a claim is about a recipe, it calls `clearhead.train`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Step = Callable[[int], Tensor]
"""The loss of a step, by its number."""


def fit(
    model: nn.Module,
    loss: Step,
    steps: int,
    *,
    lr: float,
    warmup: int = 0,
    decay: bool = False,
    clip: float | None = 1.0,
    betas: tuple[float, float] = (0.9, 0.99),
    tick: Callable[[], None] = lambda: None,
    seen: Callable[[int, float], None] = lambda step, loss: None,
) -> list[float]:
    """Train with Adam; the losses, a step each.

    Args:
        loss: the loss of step i, with its graph.
        lr: the highest rate, reached after `warmup` steps, and with `decay` brought down to nothing along a line.
        clip: the longest gradient.
        tick: called after each step (a bar's).
        seen: told each step's number and loss, before the next begins, with the model in training.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=lr, betas=betas)
    model.train()
    losses = []
    for step in range(steps):
        share = min(1.0, (step + 1) / warmup) if warmup else 1.0
        if decay:
            share = min(share, (steps - step) / max(1, steps - warmup))
        for group in optimiser.param_groups:
            group["lr"] = lr * share
        optimiser.zero_grad(set_to_none=True)
        value = loss(step)
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        losses.append(value.item())
        seen(step, losses[-1])
        tick()
    model.eval()
    return losses


def next_token_loss(logits_BTV: Tensor, tokens_BT: Tensor) -> Tensor:
    """The mean loss of every token after the first, in nats."""
    return F.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), tokens_BT[:, 1:].flatten())
