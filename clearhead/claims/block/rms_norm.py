"""RMSNorm is a cheaper LayerNorm, and SwiGLU a gate that costs no parameters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import attention, decoder, new_model
from clearhead.config import BlockConfig, FeedForwardConfig, NormConfig, SublayerConfig, TransformerConfig
from clearhead.costs import counts
from clearhead.costs.names import FEED_FORWARD, NORMS
from clearhead.lens import look
from clearhead.nn.norm import Norm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, ROWS = 768, 512
LAYER = NormConfig(kind="layer", eps=1e-5, bias=True)
RMS = NormConfig(kind="rms", eps=1e-5)
PLAIN = FeedForwardConfig(d_ff=4 * WIDTH, activation="gelu", gated=False)
SWIGLU = FeedForwardConfig(d_ff=8 * WIDTH // 3, activation="silu", gated=True)
TAKEN_APART: Any = get_decompositions([torch.ops.aten.native_layer_norm])
"""By torch's own account of its kernel."""
READ_ONCE = ("add", "sub", "mul", "div", "pow", "rsqrt", "sqrt", "mean", "sum", "neg", "square")
"""Operations that take one step a number: of those they read, where they sum them, or else of those they give."""
VARIANCE = 4
"""Steps a number of mean and variance together: sum, difference, square, sum."""


def measure(run: Run) -> Measured:
    x_ND = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(run.seed)) + 0.5
    norms = {"LayerNorm": Norm(WIDTH, LAYER), "RMSNorm": Norm(WIDTH, RMS)}
    steps = {name: steps_per_number(norm, x_ND) for name, norm in norms.items()}
    times = {name: nanoseconds(norm, x_ND, 50 if run.quick else 500) for name, norm in norms.items()}
    numbers = {name: part(model_with(norm, PLAIN), NORMS) for name, norm in (("LayerNorm", LAYER), ("RMSNorm", RMS))}
    with torch.no_grad():
        rms = norms["RMSNorm"](x_ND).square().mean(dim=-1).sqrt()
        shifted = float((norms["RMSNorm"](x_ND + 1) - norms["RMSNorm"](x_ND)).abs().max())
    return Measured(
        values={
            "steps of arithmetic, RMSNorm to LayerNorm": steps["RMSNorm"] / steps["LayerNorm"],
            "parameters, RMSNorm to LayerNorm": numbers["RMSNorm"] / numbers["LayerNorm"],
            "root mean square after RMSNorm, farthest from 1": float((rms - 1).abs().max()),
            "change of RMSNorm when 1 is added to all": shifted,
            "nanoseconds a number, LayerNorm": times["LayerNorm"],
            "nanoseconds a number, RMSNorm": times["RMSNorm"],
            "parameters, SwiGLU of 8/3 d to an MLP of 4 d": part(model_with(RMS, SWIGLU), FEED_FORWARD)
            / part(model_with(RMS, PLAIN), FEED_FORWARD),
            "with the gate shut": off_the_gate(0.0, run.seed),
            "with twice the gated": off_the_gate(2.0, run.seed),
        },
        series={"steps": steps, "parameters": numbers, "nanoseconds": times},
    )


def steps_per_number(norm: Norm, x_ND: Tensor) -> float:
    """Additions, multiplications and the like that a norm takes, from the graph of what it does."""
    with torch.no_grad():
        graph = make_fx(lambda x: norm(x), decomposition_table=TAKEN_APART)(x_ND)
    total = 0
    for node in graph.graph.nodes:
        kind = str(getattr(node.target, "overloadpacket", node.target)).rpartition(".")[2]
        if kind == "var_mean":
            total += VARIANCE * node.args[0].meta["val"].numel()
        elif kind in READ_ONCE:
            read = node.args[0].meta["val"].numel() if kind in ("mean", "sum") else 0
            total += max(read, node.meta["val"].numel())
    return total / x_ND.numel()


def nanoseconds(norm: Norm, x_ND: Tensor, n_times: int) -> float:
    """Processor time for each number; shown, and not judged."""
    with torch.no_grad():
        norm(x_ND)
        start = time.process_time_ns()
        for _ in range(n_times):
            norm(x_ND)
    return (time.process_time_ns() - start) / n_times / x_ND.numel()


def model_with(norm: NormConfig, feed_forward: FeedForwardConfig, width: int = WIDTH) -> TransformerConfig:
    """One block with these parts."""
    block = BlockConfig(
        mixer=SublayerConfig(op=attention(4, width // 4), pre=norm), ffn=SublayerConfig(op=feed_forward, pre=norm)
    )
    return decoder((block,), d_model=width, vocab_size=16, norm=norm)


def part(config: TransformerConfig, name: str) -> int:
    """How many parameters a part of a model has."""
    return counts(config).parameters.parts[name]


def off_the_gate(factor: float, seed: int) -> float:
    """What the gate lets through is a product: with `factor` times its other side, how far SwiGLU's correction is from
    `factor` times itself. With 0 it is the gate that is shut.
    """
    small = replace(SWIGLU, d_ff=64)
    model = new_model(model_with(RMS, small, width=24), seed).double()
    tokens_BT = torch.randint(16, (1, 8), generator=torch.Generator().manual_seed(seed))
    out, gate = "layers.0.ffn.out", "layers.0.ffn.pre"
    before = look(model, tokens_BT, out)[out].clone()
    if factor == 0.0:
        # So far below zero, silu is 0 to the last bit.
        after = look(model, tokens_BT, out, edits={gate: lambda x_BTF: torch.full_like(x_BTF, -1e4)})[out]
    else:
        with torch.no_grad():
            model.get_parameter("layers.0.ffn.up_proj.weight").mul_(factor)
        after = look(model, tokens_BT, out)[out]
    return float((after - factor * before).abs().max() / before.abs().max())


def draw(results: Sequence[Measured]) -> Figure:
    figure, panels = figures.panels(3, width=3.6, height=4.2)
    labels = {
        "steps": "steps of arithmetic for each number",
        "parameters": "parameters of a block's norms and the last",
        "nanoseconds": "nanoseconds for each number",
    }
    for axes, (key, label) in zip(panels, labels.items(), strict=True):
        numbers = results[0].series[key]
        figures.bars(axes, list(numbers), [list(numbers.values())], say="{:,.0f}" if key == "parameters" else "{:.3g}")
        axes.set_ylabel(label)
        axes.margins(y=0.1)
    figures.mark(panels[0], 0.75 * results[0].series["steps"]["LayerNorm"], "mark")
    panels[1].axhline(
        0.5 * results[0].series["parameters"]["LayerNorm"], color=figures.INK, linestyle=(0, (6, 3)), lw=1.2
    )
    panels[1].set_xlabel("dashes: the mark, half")
    panels[2].set_xlabel("one thread of a CPU; not judged")
    return figure


CLAIM = Claim(
    says="RMSNorm is a cheaper variant of LayerNorm: it leaves out the mean and the bias, and only brings the root "
    "mean square to one. SwiGLU is an activation with a gate: one side of it multiplies the other, so what the gate "
    "shuts is gone; with 8/3 d units in place of 4 d it has as many parameters as a plain MLP.",
    source=Source(
        statements=(45,),
        paper="Zhang 2019, Root Mean Square Layer Normalization, equation 4; Shazeer 2020, GLU Variants Improve "
        "Transformer, equation 6 and section 2",
    ),
    how="Steps of arithmetic are counted in the graph of what the library's norms do (768 wide), LayerNorm's kernel "
    "taken apart as torch's own decomposition has it; parameters by `cost`. Time is reported, and not judged: on a CPU "
    "LayerNorm is one fused kernel, and RMSNorm several, so fewer steps need not be quicker. The gate is tested in a "
    "model: shut by an edit, and with its other side doubled, how far what comes out is from nothing, and from twice "
    "what it was, as a share of the largest number.",
    marks=(
        Mark(
            of="steps of arithmetic, RMSNorm to LayerNorm",
            why="Without mean, difference and bias, about 4 steps of 8 are left; three quarters would still be "
            "cheaper.",
            high=0.75,
        ),
        Mark(of="parameters, RMSNorm to LayerNorm", why="A weight and no bias.", low=0.5, high=0.5),
        Mark(of="root mean square after RMSNorm, farthest from 1", why="That is what it does, to rounding.", high=1e-4),
        Mark(
            of="change of RMSNorm when 1 is added to all", why="It does not take out the mean, so it sees it.", low=0.1
        ),
        Mark(
            of="parameters, SwiGLU of 8/3 d to an MLP of 4 d",
            why="3 x 8/3 is 2 x 4.",
            low=0.99,
            high=1.01,
        ),
        Mark(of="with the gate shut", why="Zero times anything.", high=0.0),
        Mark(
            of="with twice the gated", why="Doubling is exact in floating point; a sum may round otherwise.", high=1e-12
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.05),
)
