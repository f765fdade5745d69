"""The MLP works on one token at a time: it mixes none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import NORM, attention, decoder, new_model
from clearhead.config import BlockConfig, ExpertsConfig, FeedForwardConfig, RouterConfig, SublayerConfig
from clearhead.lens import look, patch, steer
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT = "The MLP works on one token at a time."
VOCABULARY, LENGTH = 32, 12
EXPERTS = ExpertsConfig(
    n_experts=4, n_chosen=2, expert=FeedForwardConfig(d_ff=48), router=RouterConfig(renormalise=True, bias=True)
)
LAYER = 1


def measure(run: Run) -> Measured:
    shipped = load("clear-gpt").double()
    text_BT = torch.tensor([shipped.tokenizer.encode(TEXT)])
    routed = of_experts(run.seed)
    tokens_BT = torch.randint(VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(run.seed))
    mlp_TT, mixed_TT = (
        reach(shipped, text_BT, "resid_mid", "ffn.out"),
        reach(shipped, text_BT, "resid_pre", "mixer.out"),
    )
    experts_TT = reach(routed, tokens_BT, "resid_mid", "ffn.out")
    return Measured(
        values={
            "MLP, other tokens": others(mlp_TT),
            "MLP, its own token": float(mlp_TT.diagonal().min()),
            "experts, other tokens": others(experts_TT),
            "experts, its own token": float(experts_TT.diagonal().min()),
            "experts, all sent to the same two": crowded(routed, tokens_BT),
            "attention, other tokens": others(mixed_TT),
        },
        series={
            "MLP": mlp_TT.tolist(),
            "attention": mixed_TT.tolist(),
            "pieces": shipped.tokenizer.pieces(text_BT[0].tolist()),
        },
    )


def of_experts(seed: int) -> Transformer:
    """Two layers whose feed-forward is four experts, of which two work on each token."""
    block = BlockConfig(mixer=SublayerConfig(op=attention(2, 16), pre=NORM), ffn=SublayerConfig(op=EXPERTS, pre=NORM))
    return new_model(decoder((block, block), d_model=32, vocab_size=VOCABULARY), seed).double()


def reach(model: Transformer, tokens_BT: Tensor, read: str, written: str) -> Tensor:
    """The Jacobian of what a sub-layer writes, by what it reads: its length for each pair of tokens, (T, T). Row t is
    what token t's correction takes from each.
    """
    places = (f"layers.{LAYER}.{read}", f"layers.{LAYER}.{written}")
    seen = look(model, tokens_BT, *places, grad=True)
    x_BTD, out_BTD = seen[places[0]], seen[places[1]]
    # Eight random directions of each correction stand for all: exactly nothing is exactly nothing in each.
    directions_ND = torch.randn(8, out_BTD.shape[-1], dtype=out_BTD.dtype, generator=torch.Generator().manual_seed(0))
    rows = []
    for t in range(tokens_BT.shape[1]):
        along_N = directions_ND @ out_BTD[0, t]
        grads = [torch.autograd.grad(one, x_BTD, retain_graph=True)[0][0] for one in along_N]
        rows.append(torch.stack(grads).norm(dim=(0, 2)))
    return torch.stack(rows)


def others(reach_TT: Tensor) -> float:
    """The most that any token's correction takes from another."""
    return float((reach_TT - reach_TT.diagonal().diag()).max())


def crowded(model: Transformer, tokens_BT: Tensor) -> float:
    """With all tokens sent to the same two experts, how far each one's correction is from what it is alone, as a share
    of the largest number: were there a limit to how many an expert serves, some would be dropped.
    """
    middle, out = f"layers.{LAYER}.resid_mid", f"layers.{LAYER}.ffn.out"
    to_the_first = {f"layers.{LAYER}.ffn.router_logits": steer(torch.tensor([100.0, 50.0, 0.0, 0.0]))}
    together, far = look(model, tokens_BT, middle, out, edits=to_the_first), 0.0
    for t in range(tokens_BT.shape[1]):
        as_there = {middle: patch(together, positions={0: t})}
        alone = look(model, tokens_BT[:, t : t + 1], out, edits=[as_there, to_the_first])[out]
        far = max(far, float((alone[0, 0] - together[out][0, t]).abs().max()))
    return far / float(together[out].abs().max())


def draw(results: Sequence[Measured]) -> Figure:
    figure, panels = figures.panels(2, width=5.6, height=4.8)
    pieces = [piece.strip() or "·" for piece in results[0].series["pieces"]]
    for axes, part in zip(panels, ("attention", "MLP"), strict=True):
        reach_TT = torch.tensor(results[0].series[part])
        shown_TT = (reach_TT / reach_TT.max()).where(reach_TT > 0, torch.nan)
        image = axes.imshow(shown_TT.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(pieces)), pieces, rotation=60, ha="right")
        axes.set_yticks(range(len(pieces)), pieces)
        axes.set(xlabel="the token that is read", title=f"{part}, layer {LAYER} of clear-gpt")
        axes.set_ylabel("the token whose correction it is")
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, label="Jacobian (1: the largest; blank: exactly 0)")
    return figure


CLAIM = Claim(
    says="The MLP works on one token at a time: what it adds to a token depends on that token's vector alone. So it is "
    "with experts, whose router looks at each token by itself and turns none away. Only attention moves anything from "
    "token to token.",
    source=Source(
        statements=(42,),
        paper="Vaswani 2017, section 3.3 ('applied to each position separately and identically'); Shazeer 2017, "
        "Outrageously Large Neural Networks, section 2",
    ),
    how="The Jacobian of a sub-layer's correction by the stream it reads, for each pair of tokens, by autograd in "
    "float64 along eight random directions: of clear-gpt's second layer, and of a small random model of experts. Then "
    "all tokens are sent to the same two experts, and each one's correction is compared with what it gets when it is "
    "alone.",
    marks=(
        Mark(of="MLP, other tokens", why="It takes nothing from others, to the last bit.", high=0.0),
        Mark(of="MLP, its own token", why="A Jacobian of zeros everywhere would show nothing.", low=1e-3),
        Mark(of="experts, other tokens", why="It takes nothing from others, to the last bit.", high=0.0),
        Mark(of="experts, its own token", why="A token that was turned away would have a Jacobian of 0.", low=1e-6),
        Mark(
            of="experts, all sent to the same two",
            why="Only rounding may differ in products of other sizes.",
            high=1e-12,
        ),
        Mark(of="attention, other tokens", why="The same measurement finds what does mix.", low=1e-3),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.05),
)
