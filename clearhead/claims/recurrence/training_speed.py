"""Recurrence goes token after token; a transformer trains all positions at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.fitting import next_token_loss
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.config import TransformerConfig
from clearhead.costs import counts
from clearhead.costs.time import sequential_steps
from clearhead.model.transformer import Transformer
from clearhead.recurrent.models import CellName, language_model
from clearhead.taps import Recorder, resolve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VOCABULARY, WIDTH = 64, 64
TOKENS = 4096
"""Of a batch: more rows where texts are shorter."""
TRANSFORMER = decoder((block(attention(4, WIDTH // 4), 2 * WIDTH),) * 2, d_model=WIDTH, vocab_size=VOCABULARY)


def as_large(cell: CellName) -> TransformerConfig:
    """The network of two layers whose number of parameters is nearest to the transformer's."""
    wanted = counts(TRANSFORMER).parameters.total
    widths = range(WIDTH // 2, 3 * WIDTH)
    made = [language_model(cell, vocab_size=VOCABULARY, d_model=width, n_layers=2) for width in widths]
    return min(made, key=lambda config: abs(counts(config).parameters.total - wanted))


MODELS = {"RNN": as_large("simple"), "LSTM": as_large("lstm"), "transformer": TRANSFORMER}


def texts(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def chain(model: Transformer, length: int) -> int:
    """How many operations of a training step's graph stand one behind the other, at the most.

    A recurrent network is looked at, so that it takes its steps one by one: torch's kernel hides them.
    """
    looked = [address for address in resolve(model, ["*"]) if address.endswith("mixer.hidden")]
    tokens_BT = texts(1, length, 0)
    taps = Recorder(looked, keep_graph=True) if looked else None
    return longest(next_token_loss(model(tokens_BT, taps=taps, backend="reference"), tokens_BT))


def longest(value: Tensor) -> int:
    """The longest path from what made a value back to a parameter."""
    depth: dict[Any, int] = {}
    waiting: list[Any] = [value.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [other for other, _ in node.next_functions if other is not None]
        unknown = [other for other in before if other not in depth]
        if unknown:
            waiting.extend(unknown)
        else:
            depth[node] = 1 + max((depth[other] for other in before), default=0)
            waiting.pop()
    return depth[value.grad_fn]


def speed(model: Transformer, length: int, seed: int, repeats: int) -> float:
    """Tokens a second of forward and backward, the best of several."""
    tokens_BT = texts(max(1, TOKENS // length), length, seed)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        next_token_loss(model(tokens_BT), tokens_BT).backward()

    step()
    return tokens_BT.numel() / min(seconds(step) for _ in range(repeats))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(run: Run) -> Measured:
    lengths = (64, 256) if run.quick else (64, 128, 256, 512, 1024, 2048)
    at = (8, 16, 32) if run.quick else (64, 256, 512)
    tick = run.progress(len(MODELS) * (len(lengths) + 1), "training")
    values: dict[str, float] = {}
    speeds: dict[str, list[float]] = {}
    chains: dict[str, list[int]] = {}
    for name, config in MODELS.items():
        model = new_model(config, run.seed)
        chains[name] = [chain(model, n) for n in at]
        tick()
        speeds[name] = []
        for n in lengths:
            speeds[name].append(speed(model, n, run.seed, 1 if run.quick else 5))
            tick()
        values |= {
            f"chain added by each token, {name}": (chains[name][-1] - chains[name][0]) / (at[-1] - at[0]),
            f"steps that wait at {at[-1]} tokens by formula, {name}": sequential_steps(counts(config), at[-1]),
            f"parameters, {name}": counts(config).parameters.total,
            f"tokens a second at {lengths[-1]:,}, {name}": speeds[name][-1],
        }
    for name in ("RNN", "LSTM"):
        values[f"speed at {lengths[-1]:,}, transformer over {name}"] = speeds["transformer"][-1] / speeds[name][-1]
    series = {"lengths": list(lengths), "speeds": speeds, "chains": chains, "at": list(at)}
    return Measured(values=values, series=series)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (chains, speeds) = figures.panels(2, width=5.6)
    series = results[0].series
    for name, style in zip(MODELS, figures.styles(), strict=False):
        chains.plot(series["at"], series["chains"][name], label=name, **style)
        figures.curve(speeds, series["lengths"], [result.series["speeds"][name] for result in results], name, style)
    flat = series["chains"]["transformer"][0]
    figures.mark(chains, flat, "a transformer's mark: flat")
    speeds.set_xscale("log", base=2)
    for axes, ticks in ((chains, series["at"]), (speeds, series["lengths"])):
        axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("tokens of a text")
        axes.legend()
    chains.set_ylabel("operations one behind the other")
    speeds.set_ylabel("tokens a second, forward and backward")
    return figure


CLAIM = Claim(
    says="Recurrence must go token after token, so the longest chain of operations that wait for one another grows "
    "with the text; a transformer trains all positions at once, in a chain of one length.",
    source=Source(statements=(8, 10, 55), paper="Vaswani 2017, sections 1 and 4, table 1 (sequential operations)"),
    how="Two layers each of a simple RNN, an LSTM and a transformer 64 wide, the widths of the recurrent ones chosen "
    "for as many parameters (90 thousand). The graph that a training step leaves for its gradients is walked, and the "
    "longest path counted in operations, for texts of 64 to 512 tokens (8 to 32 in a quick run). Attention is taken in "
    "its plain steps, and recurrent layers take theirs one by one, as when their hidden vectors are looked at: torch's "
    "own kernels hide what waits. Tokens a second of forward and backward, by torch's own kernels, at 64 to 2,048 "
    "tokens (4,096 tokens a batch) are told and not judged. The statement is about hardware that does thousands of "
    "things at once: two cores are busy with the rows of a batch, so that what waits costs them little, and a "
    "transformer's pairs of tokens cost it more. Which is faster here is in the figure. That models grew because of it "
    "is not measured.",
    marks=(
        *(
            Mark(
                of=f"chain added by each token, {name}",
                low=2,
                unit="operations",
                why="A step can't begin before the one before it has ended, and layers run one after the other: a step "
                "a token in each of the two, of one operation at least.",
            )
            for name in ("RNN", "LSTM")
        ),
        Mark(
            of="chain added by each token, transformer",
            low=0,
            high=0,
            unit="operations",
            why="No position waits for another: the same operations are made of more tokens.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=1.2, alone=True, threads=2),
)
