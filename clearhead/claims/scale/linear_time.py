"""A scan's work grows as the text, attention's as its square; and what a scan remembers does not grow at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import NORM, attention, block, decoder, new_model
from clearhead.claims.scale.square_and_line import exponent
from clearhead.config import BlockConfig, MambaConfig, SublayerConfig
from clearhead.costs import counts
from clearhead.costs.counter import count_flops
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, VOCAB = 64, 64
SCAN = BlockConfig(mixer=SublayerConfig(op=MambaConfig(d_inner=2 * WIDTH, d_state=16, dt_rank=4), pre=NORM))
LAYERS = {"scan": SCAN, "attention": block(attention(4, 16), None)}


def measure(run: Run) -> Measured:
    lengths = (128, 256, 512) if run.quick else (256, 512, 1024, 2048, 4096, 8192)
    tick = run.progress(len(LAYERS) * len(lengths), "lengths")
    series: dict[str, list[float]] = {"n": list(lengths)}
    apart = 0.0
    for name, layer in LAYERS.items():
        model = new_model(decoder((layer,) * 2, d_model=WIDTH, vocab_size=VOCAB), run.seed).eval()
        for n in lengths:
            row = read(model, torch.randint(VOCAB, (1, n), generator=torch.Generator().manual_seed(run.seed)))
            told = counts(model)
            apart += abs(row["FLOPs"] - told.flops(1, n).total) + abs(row["bytes"] - told.state(1, n, 4).total)
            for of, value in row.items():
                series.setdefault(f"{name}, {of}", []).append(value)
            tick()
    return Measured(
        values={
            "exponent of a scan's FLOPs": exponent(lengths, series["scan, FLOPs"]),
            "FLOPs of a scan beyond twice at twice the text": max(series["scan, beyond"]),
            "numbers of a scan beyond twice at twice the text": max(series["scan, numbers beyond"]),
            "numbers of attention beyond twice at twice the text": max(series["attention, numbers beyond"]),
            "exponent of attention's own FLOPs": exponent(lengths, series["attention, beyond"]),
            "bytes remembered, longest over shortest, scan": series["scan, bytes"][-1] / series["scan, bytes"][0],
            "exponent of the bytes attention remembers": exponent(lengths, series["attention, bytes"]),
            "counts that differ from the formula": apart,
            **{f"exponent of seconds, {name}": exponent(lengths, series[f"{name}, seconds"]) for name in LAYERS},
            "exponent of seconds, attention, last doubling": exponent(lengths[-2:], series["attention, seconds"][-2:]),
            "exponent of seconds, scan, last doubling": exponent(lengths[-2:], series["scan, seconds"][-2:]),
        },
        series=series,
    )


@torch.no_grad()
def read(model: Transformer, tokens_BT: torch.Tensor) -> dict[str, float]:
    """FLOPs of a pass, those that twice the text has beyond twice as many (halved: of a n + b n^2 this is b n^2),
    seconds of the processor, and the bytes that are kept.
    """

    def reading(tokens_BT: torch.Tensor) -> Callable[[], object]:
        return lambda: model(tokens_BT)

    once, twice = count_flops(reading(tokens_BT)), count_flops(reading(tokens_BT.repeat(1, 2)))
    state = model.new_state()
    model(tokens_BT, state=state)
    made, made_of_twice = numbers(reading(tokens_BT)), numbers(reading(tokens_BT.repeat(1, 2)))
    return {
        "FLOPs": once,
        "numbers beyond": made_of_twice / made / 2 - 1,
        "beyond": (twice - 2 * once) // 2,
        "seconds": min(seconds(reading(tokens_BT)) for _ in range(3)),
        "bytes": state.nbytes,
    }


class Numbers(TorchDispatchMode):
    """Counts the numbers that every operation gives: what a counter of products of matrices leaves out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: int = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = function(*args, **(kwargs or {}))
        self.made += sum(leaf.numel() for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor))
        return given


def numbers(run: Callable[[], object]) -> int:
    """That all operations give."""
    counter = Numbers()
    with counter:
        run()
    return counter.made


def seconds(run: Callable[[], object]) -> float:
    """Of the processor, so that what else runs does not count."""
    start = time.process_time()
    run()
    return time.process_time() - start


def draw(results: Sequence[Measured]) -> Figure:
    figure, panels = figures.panels(3, width=4.4)
    series = results[0].series
    n = series["n"]
    shown = (
        ("FLOPs", (("scan, FLOPs", "scan: the whole pass"), ("attention, beyond", "attention's own products"))),
        ("seconds of the processor, a pass", (("scan, seconds", "scan"), ("attention, seconds", "attention"))),
        ("bytes remembered", (("scan, bytes", "scan"), ("attention, bytes", "attention"))),
    )
    for axes, (label, curves) in zip(panels, shown, strict=True):
        for (of, says), style in zip(curves, figures.styles(), strict=False):
            axes.plot(n, series[of], label=f"{says}, slope {exponent(n, series[of]):.2f}", **style)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(n, [f"{x:,}" for x in n])
        axes.minorticks_off()
        axes.set_xlabel("tokens n")
        axes.set_ylabel(label)
        axes.margins(y=0.25)
        axes.legend(loc="upper left")
    for of, power in (("scan, FLOPs", 1), ("attention, beyond", 2)):
        line = [series[of][0] * 0.6 * (x / n[0]) ** power for x in n]
        says = "slopes 1 and 2, the marks" if power == 1 else ""
        panels[0].plot(n, line, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label=says)
    panels[0].legend(loc="upper left")
    return figure


EXACT = 1e-9

CLAIM = Claim(
    says="A selective scan (Mamba) reads a text in time that grows as its length, where attention's own products grow "
    "as its square; and what it remembers for the next token has one size however long the text is.",
    source=Source(statements=(63,), paper="Gu and Dao 2023, 'Mamba', sections 1, 3.3 and 4.5, figure 8"),
    how="Two layers of Mamba's mixer, and two of attention (4 heads of 16), 64 wide and without feed-forward, read "
    "texts of 256 to 8,192 random tokens on one thread. Torch's counter gives the FLOPs of a pass, which are those of "
    "products of matrices: the scan's own recurrence, number by number, is not among them, and is judged by how many "
    "numbers all operations of a pass give, and by the seconds of a full run. What twice the text has beyond twice as "
    "many is what grows faster than the length: attention's own products, and nothing in a scan. The bytes of the "
    "state are those of its tensors. FLOPs and bytes are held against the formulas of `clearhead cost`. Exponents are "
    "slopes of logarithms. Seconds of the processor are the least of three passes; the scan's exponent is judged, with "
    "room for what does not grow and for caches, and attention's is told: where texts are short, what is linear in it, "
    "its products with weights, takes most of the time.",
    marks=(
        Mark(
            of="exponent of a scan's FLOPs",
            low=1 - EXACT,
            high=1 + EXACT,
            why="lengths are powers of two, which need no filling up, so every token takes the same",
        ),
        Mark(of="FLOPs of a scan beyond twice at twice the text", low=0, high=0, why="nothing in it grows faster"),
        Mark(
            of="numbers of a scan beyond twice at twice the text",
            high=0.01,
            why="a share of all; the scan goes through a text of n in about the root of n chunks, whose ends take a "
            "little more; pairs of tokens would double what they take at each doubling",
        ),
        Mark(
            of="exponent of attention's own FLOPs",
            low=2 - EXACT,
            high=2 + EXACT,
            why="both products go through all n² pairs",
        ),
        Mark(
            of="bytes remembered, longest over shortest, scan",
            low=1,
            high=1,
            why="the state and the last inputs of the convolution, whatever came before",
        ),
        Mark(of="counts that differ from the formula", low=0, high=0, why="these are counts and not estimates"),
        Mark(
            of="exponent of seconds, scan",
            low=0.7,
            high=1.3,
            at="full",
            why="1 where nothing but the tokens took time; a pass has a fixed part, and a long text leaves the cache",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.5, alone=True),
)
