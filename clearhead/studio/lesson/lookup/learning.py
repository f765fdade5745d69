"""Gradient descent moves the keys and queries of a lookup until each question finds its value."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearhead.claims.ingredients.fitting import fit
from clearhead.claims.ingredients.one_head import one_head, scale_of
from clearhead.ops.attention import Trace
from clearhead.studio.lesson.lookup.winds import VALUES
from clearhead.studio.operations import Answer, operation

STEPS, RATE = 120, 0.08
SEEDS = 20

PYTHON = """\
from clearhead.studio.lesson.lookup.learning import learned

# Five questions and five keys begin at random places of a plane; Adam moves both.
seen = learned({seed})
print("loss", seen.loss[{step}])
for name, weight in zip(seen.names, seen.weights[{step}].diagonal().tolist()):
    print(name, weight)
"""


class Store(nn.Module):
    """A query and a key on the plane for each value, all at random places; values stay as they are."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        q_S2, k_S2 = (torch.randn(len(VALUES), 2, generator=draw, dtype=torch.float64) for _ in range(2))
        self.q_S2, self.k_S2 = nn.Parameter(q_S2), nn.Parameter(k_S2)
        self.v_S2 = torch.tensor(list(VALUES.values()), dtype=torch.float64) / 10

    def ask(self) -> Trace:
        """The library's attention, from every query to all keys."""
        return one_head(self.q_S2[None], self.k_S2[None], self.v_S2[None], scale=scale_of(2))

    def loss(self, step: int) -> Tensor:
        """How far the answers are from the values asked for: squares, which know nothing of weights."""
        return F.mse_loss(self.ask().z_BHTV[0, 0], self.v_S2)


class Learned(NamedTuple):
    """What was seen at each step, from before the first to after the last."""

    names: list[str]
    loss: list[float]
    queries: Tensor
    """(steps, 5, 2)"""
    keys: Tensor
    weights: Tensor
    """(steps, 5, 5), a row a query."""
    scores: Tensor
    answers: Tensor
    """(steps, 5, 2)"""


@lru_cache(maxsize=SEEDS)
def learned(seed: int) -> Learned:
    """Train a store by Adam, all five questions a step."""
    store = Store(seed)
    losses: list[float] = []
    seen: dict[str, list[Tensor]] = {"q": [], "k": [], "w": [], "s": [], "z": []}

    def see() -> None:
        with torch.no_grad():
            losses.append(float(store.loss(0)))
            trace = store.ask()
        for name, kept in zip("wsz", (trace.pattern_BHTS, trace.scores_BHTS, trace.z_BHTV), strict=True):
            seen[name].append(kept[0, 0])
        seen["q"].append(store.q_S2.detach().clone())
        seen["k"].append(store.k_S2.detach().clone())

    see()
    fit(store, store.loss, STEPS, lr=RATE, tick=see)
    return Learned(list(VALUES), losses, *(torch.stack(seen[name]) for name in "qkwsz"))


@operation("lookup.learn")
def learn(
    *,
    seed: Annotated[int, Field(ge=0, lt=SEEDS)] = 1,
    step: Annotated[int, Field(ge=0, le=STEPS)] = 0,
) -> Answer:
    """Where queries and keys are at every step of a training, and the weight that each question gives its own key."""
    seen = learned(seed)
    own = seen.weights[step].diagonal().tolist()
    return Answer(
        data={
            "step": step,
            "names": seen.names,
            "steps": STEPS,
            "loss": seen.loss[step],
            "first_loss": seen.loss[0],
            "last_loss": seen.loss[-1],
            "own": own,
            "mean": sum(own) / len(own),
            "found": found(seen, step),
            "last_found": found(seen, STEPS),
        },
        arrays={
            "queries": seen.queries,
            "keys": seen.keys,
            "weights": seen.weights,
            "losses": torch.tensor(seen.loss),
            "scores": seen.scores[step],
            "answers": seen.answers[step],
            "values": torch.tensor(list(VALUES.values()), dtype=torch.float64) / 10,
        },
        python=PYTHON.format(seed=seed, step=step),
        printed=(seen.loss[step], *own),
    )


def found(seen: Learned, step: int) -> int:
    """How many questions give most weight to their own key."""
    best_S = seen.weights[step].argmax(-1)
    return int((best_S == torch.arange(len(best_S))).sum())
