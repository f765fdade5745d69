"""The residual stream is the sum of what its parts wrote: nothing overwrites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.norm_placement import Placement, decoder_with_norms
from clearhead.claims.ingredients.small_models import new_model
from clearhead.lens import Seen, look
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_LAYERS, D_MODEL, VOCABULARY = 6, 48, 32
TEXT = "The people of the United States have reason to be grateful for the peace and the plenty of another year."


def measure(run: Run) -> Measured:
    tokens_BT = torch.randint(VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(run.seed))
    small = {placement: _small(placement, run.seed) for placement in ("pre", "post")}
    shipped = load("clear-gpt")
    text_BT = torch.tensor([shipped.tokenizer.encode(TEXT)])
    seen = look_at_parts(shipped, text_BT)
    return Measured(
        values={
            "random, float64": off_the_sum(small["pre"], look_at_parts(small["pre"], tokens_BT)),
            "random, float64, logits": off_the_head(small["pre"], tokens_BT),
            "clear-gpt, float32": off_the_sum(shipped, seen),
            "clear-gpt, float32, logits": off_the_head(shipped, text_BT),
            "clear-gpt, float64": off_the_sum(shipped.double(), look_at_parts(shipped, text_BT)),
            "Post-LN, the sum against the stream": off_the_sum(small["post"], look_at_parts(small["post"], tokens_BT)),
            "Post-LN, norm of the sum within a layer": off_the_last_norm(small["post"], tokens_BT),
        },
        series={"parts": [[name, _size(part)] for name, part in parts(shipped, seen)], "stream": _sizes(shipped, seen)},
    )


def _small(placement: Placement, seed: int) -> Transformer:
    return new_model(decoder_with_norms(placement, N_LAYERS, d_model=D_MODEL, vocab_size=VOCABULARY), seed).double()


def look_at_parts(model: Transformer, tokens_BT: Tensor) -> Seen:
    """All that is written to the stream, and the stream at the beginning and the end of every layer."""
    wanted = ("embed", "layers.*.mixer.out", "layers.*.ffn.out", "layers.*.resid_pre", "layers.*.resid_post")
    return look(model, tokens_BT, *wanted, "final")


def parts(model: Transformer, seen: Seen) -> list[tuple[str, Tensor]]:
    """The embedding and every correction, in the order in which they are written."""
    written = [("embed", seen["embed"])]
    for i in range(len(model.layers)):
        written += [(f"{part} {i}", seen[f"layers.{i}.{part}.out"]) for part in ("mixer", "ffn")]
    return written


def off_the_sum(model: Transformer, seen: Seen) -> float:
    """How far the stream is, at the end of any layer, from the sum of all that was written so far: as a share of its
    largest number.
    """
    sum_BTD, far = torch.zeros_like(seen["embed"]), 0.0
    for i, (_, part_BTD) in enumerate(parts(model, seen)):
        sum_BTD = sum_BTD + part_BTD
        if i % 2 == 0:
            layer = i // 2 - 1
            stream_BTD = seen["layers.0.resid_pre" if layer < 0 else f"layers.{layer}.resid_post"]
            far = max(far, off(sum_BTD, stream_BTD))
    return far


def off_the_head(model: Transformer, tokens_BT: Tensor) -> float:
    """How far the scores are from those of a norm and a matrix, applied to the sum of the parts."""
    with torch.no_grad():
        seen = look_at_parts(model, tokens_BT)
        assert model.norm is not None
        final_BTD = model.norm(torch.stack([part for _, part in parts(model, seen)]).sum(dim=0))
        return off(final_BTD @ model.unembedding.T, model(tokens_BT))


def off_the_last_norm(model: Transformer, tokens_BT: Tensor) -> float:
    """What holds of Post-LN: a layer ends with the norm of its middle and the feed-forward's correction."""
    seen = look(model, tokens_BT, "layers.*.resid_mid", "layers.*.ffn.out", "layers.*.resid_post")
    with torch.no_grad():
        return max(
            off(
                model.get_submodule(f"layers.{i}.ffn_norm.after")(
                    seen[f"layers.{i}.resid_mid"] + seen[f"layers.{i}.ffn.out"]
                ),
                seen[f"layers.{i}.resid_post"],
            )
            for i in range(len(model.layers))
        )


def off(a: Tensor, b: Tensor) -> float:
    """The largest difference, as a share of the largest number of `b`."""
    return float((a - b).abs().max() / b.abs().max())


def _size(x_BTD: Tensor) -> float:
    """The mean length of a token's vector."""
    return float(x_BTD.double().norm(dim=-1).mean())


def _sizes(model: Transformer, seen: Seen) -> list[float]:
    starts = [_size(seen[f"layers.{i}.resid_pre"]) for i in range(len(model.layers))]
    return [*starts, _size(seen[f"layers.{len(model.layers) - 1}.resid_post"])]


def draw(results: Sequence[Measured]) -> Figure:
    figure, (sizes, errors) = figures.panels(2, width=6.0, height=4.2)
    parts, stream = results[0].series["parts"], results[0].series["stream"]
    colours = {"embed": 2, "mixer": 0, "ffn": 1}
    hatches = {"embed": "..", "mixer": "", "ffn": "//"}
    named = {"embed": "embedding", "mixer": "attention", "ffn": "MLP"}
    for i, (name, size) in enumerate(parts):
        kind = name.split()[0]
        sizes.bar(
            i, size, color=figures.COLOURS[colours[kind]], hatch=hatches[kind], alpha=0.75, label=named.pop(kind, None)
        )
    sizes.plot(range(0, len(parts), 2), stream, color=figures.INK, marker="o", label="the stream, their sum")
    sizes.set_xticks(range(len(parts)), ["", *(name.split()[1] for name, _ in parts[1:])])
    sizes.set(
        xlabel="layer", ylabel="length of a token's vector (mean)", title="What writes to the stream of clear-gpt"
    )
    sizes.legend()
    names = [name for name in results[0].values if "Post-LN" not in name]
    for i, name in enumerate(reversed(names)):
        error = max(float(result.values[name]) for result in results)  # type: ignore[arg-type]
        errors.plot([1e-18, max(error, 1e-18)], [i, i], color=figures.COLOURS[0], marker="o", linewidth=3)
    errors.set_yticks(range(len(names)), reversed(names))
    errors.set(xscale="log", xlim=(1e-18, 1), xlabel="distance (share of the largest number; 1e-18: none)")
    figures.mark(errors, 1e-12, "float64", across=False)
    figures.mark(errors, 1e-5, "float32", across=False)
    errors.set_title("How far the stream is from the sum")
    return figure


_EXACT = "Only the rounding of a dozen additions may be left."
CLAIM = Claim(
    says="A model is a stack of blocks, each an attention and an MLP, with a norm and an addition for either. They "
    "share a stream: each reads it and adds a correction, and nothing overwrites. So the stream at any layer is the "
    "embedding plus all corrections before it, and a last norm and a linear layer make the scores of the vocabulary "
    "from that sum.",
    source=Source(
        statements=(40, 41, 43),
        paper="Vaswani 2017, section 3.1; Elhage 2021, A Mathematical Framework for Transformer Circuits, "
        "'Virtual Weights and the Residual Stream as a Communication Channel'",
    ),
    how="What every sub-layer wrote is recorded, added up outside the model and compared with the stream at the end of "
    "every layer, and the scores with those made of the sum; the largest difference is given as a share of the largest "
    "number: in a random six-layer decoder in float64, and in clear-gpt in float32 and float64. In a Post-LN model the "
    "sum is not the stream, as each addition is normalised: what holds there is that a layer ends with the norm of "
    "stream plus correction, and both are reported.",
    marks=(
        Mark(of="random, float64", why=_EXACT, high=1e-12),
        Mark(of="random, float64, logits", why=_EXACT, high=1e-12),
        Mark(of="clear-gpt, float32", why=_EXACT, high=1e-5),
        Mark(of="clear-gpt, float32, logits", why="Rounding, and a product over 256 numbers.", high=1e-4),
        Mark(of="clear-gpt, float64", why=_EXACT, high=1e-12),
        Mark(
            of="Post-LN, the sum against the stream",
            why="With norms after the addition the stream is another than the sum, by as much as itself; a difference "
            "near zero would say that the measurement can't tell.",
            low=0.1,
        ),
        Mark(of="Post-LN, norm of the sum within a layer", why=_EXACT, high=1e-12),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.05),
)
