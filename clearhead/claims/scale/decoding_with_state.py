"""Keeping keys and values gives the same tokens for a fraction of the work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.config import InitConfig
from clearhead.costs import counts
from clearhead.costs.counter import count_flops
from clearhead.model.init import initialise
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONFIG = decoder((block(attention(4, 16), 128),) * 2, d_model=64, vocab_size=256)
LIVELY = InitConfig(std=0.2)
"""Ten times as wide as usual: such a model does not write one word for ever."""


def measure(run: Run) -> Measured:
    n_new = 48 if run.quick else 512
    model = new_model(CONFIG, run.seed)
    initialise(model, LIVELY)
    model.double().eval()
    tick = run.progress(4, f"{n_new} tokens")
    found: dict[bool, tuple[list[int], float, int]] = {}
    for with_state in (True, False):
        write = writer(model, n_new, with_state)
        start = time.process_time()
        tokens = write()
        seconds = time.process_time() - start
        tick()
        found[with_state] = tokens, seconds, count_flops(write)
        tick()
    kept, anew = found[True], found[False]
    each = {with_state: told(model, n_new, with_state) for with_state in (True, False)}
    ratio = anew[2] / kept[2]
    return Measured(
        values={
            "tokens that are the same": sum(a == b for a, b in zip(kept[0], anew[0], strict=True)) / n_new,
            "times the FLOPs without a state": ratio,
            "the same by formula": sum(each[False]) / sum(each[True]),
            "times the FLOPs, over half the tokens": ratio / (n_new / 2),
            "difference of count and formula": abs(anew[2] - sum(each[False])) + abs(kept[2] - sum(each[True])),
            "times the seconds without a state": anew[1] / kept[1],
            "tokens written": n_new,
            "different tokens among them": len(set(kept[0])),
        },
        series={"kept": each[True], "anew": each[False]},
    )


def writer(model: Transformer, n_new: int, with_state: bool) -> Callable[[], list[int]]:
    """What writes so many tokens, the likeliest each time."""

    @torch.no_grad()
    def write() -> list[int]:
        state = model.new_state(n_new) if with_state else None
        tokens = [0]
        for _ in range(n_new):
            read = torch.tensor([tokens[-1:] if with_state else tokens])
            tokens.append(int(model(read, state=state, last=1, backend="reference")[0, -1].argmax()))
        return tokens[1:]

    return write


def told(model: Transformer, n_new: int, with_state: bool) -> list[int]:
    """FLOPs of each token by formula."""
    cost = counts(model)
    if with_state:
        return [cost.flops(1, 1, n, last=1).total for n in range(n_new)]
    return [cost.flops(1, n + 1, last=1).total for n in range(n_new)]


def draw(results: Sequence[Measured]) -> Figure:
    figure, (left, right) = figures.panels(2, width=5.2)
    series, values = results[0].series, results[0].values
    n = list(range(1, len(series["kept"]) + 1))
    plain = figures.styles()
    for name, says in (("anew", "reading the whole text again"), ("kept", "with a state")):
        style = {**next(plain), "markevery": len(n) // 8}
        left.plot(n, series[name], label=says, **style)
    left.set_yscale("log")
    left.set_xlabel("token written")
    left.set_ylabel("FLOPs for it")
    left.legend()
    names = ("times the FLOPs without a state", "the same by formula", "times the seconds without a state")
    runs = [[result.values[name] for name in names] for result in results]
    figures.bars(right, ["FLOPs,\ncounted", "FLOPs,\nby formula", "seconds"], runs)  # type: ignore[arg-type]
    figures.mark(right, float(values["tokens written"]) / 2 * LEAST, "mark for FLOPs")  # type: ignore[arg-type]
    right.margins(y=0.1)
    right.set_ylabel("times as much without a state")
    return figure


LEAST = 0.7

CLAIM = Claim(
    says="A decoder writes one token at a time, each fed back to it; where it keeps the keys and values of what it has "
    "read, the same tokens take a fraction of the work.",
    source=Source(statements=(51, 58), paper="Vaswani 2017, section 3 (auto-regressive); Llama 3 2024, section 3.2"),
    how="A small decoder in float64 (2 layers, 4 heads of 16, random weights wide enough that its text does not settle "
    "on one word) writes 512 tokens (48 in a quick run) after a first one, the likeliest each time: with a state, "
    "which is given one token a pass, and without, which reads the whole text at each. Tokens are compared one by one, "
    "FLOPs counted by torch's counter and by formula. The ratio of seconds of the processor is told and not judged, as "
    "it depends on the machine: for so small a model most of a pass over one token is not arithmetic.",
    marks=(
        Mark(of="tokens that are the same", low=1, high=1, why="a state is a memory and not an approximation"),
        Mark(
            of="difference of count and formula",
            low=0,
            high=0,
            unit="FLOPs",
            why="both count the same products, so they agree to the last one",
        ),
        Mark(
            of="times the FLOPs, over half the tokens",
            low=LEAST,
            why="token n costs n tokens without a state and one with it, on average N/2 times as much; the mark leaves "
            "three tenths for what is the same both ways, such as scoring the vocabulary",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.5),
)
