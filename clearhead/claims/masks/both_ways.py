"""What separates encoders, decoders and encoder-decoders is only which token may see which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import NORM, attention, block, decoder, new_model
from clearhead.config import AttentionConfig, MaskConfig, StackConfig, SublayerConfig, TransformerConfig
from clearhead.costs.source import read_config
from clearhead.lens import look
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH, N_SOURCE, VOCABULARY, D_MODEL = 10, 8, 32, 32
PUBLISHED = {"BERT base": "bert-base", "GPT-2": "gpt2", "Transformer 2017": "transformer-2017-base"}


def configs() -> dict[str, TransformerConfig]:
    """One block in three families: as it stands, seeing both ways, and once with each and a look at the other."""
    layer = block(attention(2, 16), 64)
    both_ways = replace(layer, mixer=seeing(layer.mixer, "full"))
    crossed = replace(layer, cross=SublayerConfig(op=replace(attention(2, 16, causal=False), positions=None), pre=NORM))
    causal = decoder((layer,) * 2, d_model=D_MODEL, vocab_size=VOCABULARY)
    assert causal.decoder is not None
    encoder: StackConfig = replace(causal.decoder, blocks=(both_ways,) * 2)
    return {
        "decoder": causal,
        "encoder": replace(causal, decoder=None, encoder=encoder),
        "encoder-decoder": replace(causal, decoder=replace(causal.decoder, blocks=(crossed,) * 2), encoder=encoder),
    }


def seeing(mixer: SublayerConfig, kind: str) -> SublayerConfig:
    """The same sub-layer with another mask."""
    assert isinstance(mixer.op, AttentionConfig)
    return replace(mixer, op=replace(mixer.op, mask=MaskConfig(kind=kind)))  # type: ignore[arg-type]


def measure(run: Run) -> Measured:
    models = {name: new_model(config, run.seed).double() for name, config in configs().items()}
    generator = torch.Generator().manual_seed(run.seed)
    tokens_BT = torch.randint(VOCABULARY, (1, LENGTH), generator=generator)
    source_BS = torch.randint(VOCABULARY, (1, N_SOURCE), generator=generator)
    both = models["encoder-decoder"]
    influences = {
        "encoder": influence(models["encoder"], {"tokens": tokens_BT}, "tokens", "final"),
        "decoder": influence(models["decoder"], {"tokens": tokens_BT}, "tokens", "final"),
        "encoder-decoder: source on source": influence(
            both, {"tokens": tokens_BT, "source": source_BS}, "source", "encoder.final"
        ),
        "encoder-decoder: target on target": influence(
            both, {"tokens": tokens_BT, "source": source_BS}, "tokens", "final"
        ),
        "encoder-decoder: source on target": influence(
            both, {"tokens": tokens_BT, "source": source_BS}, "source", "final"
        ),
    }
    values: dict[str, float] = {}
    for name, seen_TS in influences.items():
        if "target on target" in name or name == "decoder":
            values[f"{name}, back"] = float((seen_TS > 0)[torch.ones_like(seen_TS).tril() > 0].double().mean())
            values[f"{name}, ahead"] = float(seen_TS.triu(diagonal=1).max())
        else:
            values[name] = float((seen_TS > 0).double().mean())
    return Measured(
        values=values
        | {
            "weights that encoder and decoder do not share": different_weights(models["encoder"], models["decoder"]),
            "fields that differ, apart from the mask": different_fields(),
        },
        series={"influence": {name: seen.tolist() for name, seen in influences.items()}, "published": published()},
    )


def influence(model: Transformer, inputs: dict[str, Tensor], changed: str, at: str) -> Tensor:
    """What changes at each place when a token is changed: row t is what place t gets from each token, (T, S)."""
    before_TD = look(model, inputs, at)[at][0]
    columns = []
    for s in range(inputs[changed].shape[1]):
        other_BT = inputs[changed].clone()
        other_BT[0, s] = (other_BT[0, s] + 1) % VOCABULARY
        after_TD = look(model, {**inputs, changed: other_BT}, at)[at][0]
        columns.append((after_TD - before_TD).abs().amax(dim=-1))
    return torch.stack(columns, dim=1)


def different_weights(a: Transformer, b: Transformer) -> float:
    """How many tensors one has that the other has not, or has other numbers in: both began with one seed."""
    ours, theirs = a.state_dict(), b.state_dict()
    same = [name for name in ours if name in theirs and torch.equal(ours[name], theirs[name])]
    return float(len(ours.keys() | theirs.keys()) - len(same))


def different_fields() -> float:
    """How many of the encoder's blocks are another than the decoder's once the mask is put back."""
    families = configs()
    encoder, decoder = families["encoder"].encoder, families["decoder"].decoder
    assert encoder is not None and decoder is not None
    back = [replace(block, mixer=seeing(block.mixer, "causal")) for block in encoder.blocks]
    return float(sum(a != b for a, b in zip(back, decoder.blocks, strict=True)))


def published() -> dict[str, str]:
    """Which masks published models of the three families have."""
    found = {}
    for name, config in PUBLISHED.items():
        model = read_config(config).config
        assert isinstance(model, TransformerConfig)
        stacks = {"encoder": model.encoder, "decoder": model.decoder}
        found[name] = ", ".join(f"{part}: {kinds(stack)}" for part, stack in stacks.items() if stack is not None)
    return found


def kinds(stack: StackConfig) -> str:
    """The masks of a stack's layers."""
    ops = [block.mixer.op for block in stack.blocks]
    return " and ".join(sorted({op.mask.kind for op in ops if isinstance(op, AttentionConfig)}))


def draw(results: Sequence[Measured]) -> Figure:
    influences = results[0].series["influence"]
    from matplotlib.colors import LogNorm

    figure, panels = figures.panels(len(influences), across=3, width=4.0, height=3.6)
    for axes, (name, rows) in zip(panels, influences.items(), strict=True):
        seen_TS = torch.tensor(rows)
        shown = (seen_TS / seen_TS.max()).where(seen_TS > 0, torch.nan)
        image = axes.imshow(shown.numpy(), cmap="Blues", norm=LogNorm(1e-3, 1))
        on_source = "source on" in name
        axes.set(xlabel="source token" if on_source else "token that is changed", title=name)
        axes.set_ylabel("place in the source" if name.endswith("source on source") else "place")
        axes.grid(visible=False)
        figure.colorbar(image, ax=axes, shrink=0.85, label="change (1: the largest)")
    figure.suptitle("What changes when one token is changed: blank is exactly nothing")
    return figure


_ALL = "Every pair: with weights drawn at random no influence is exactly zero by chance."
_NONE = "What may not be seen changes nothing, to the last bit."
CLAIM = Claim(
    says="What separates the three families is only which token may see which: in an encoder every token sees every "
    "other, on both sides; in a decoder token i sees 0 to i; an encoder-decoder has one of each, and its decoder sees "
    "all of the source besides. The same block with the same weights is either, by its mask.",
    source=Source(
        statements=(48, 49),
        paper="Vaswani 2017, section 3.2.3; Devlin 2018, BERT, figure 3; Raffel 2020, T5, figure 3",
    ),
    how="Each token of a random text is changed in turn, in a random two-layer model in float64, and which places "
    "change is looked at. The encoder's config is the decoder's with another mask.kind and nothing else, as it is "
    "built here and checked, and its weights are the same numbers. Which masks BERT, GPT-2 and the Transformer of 2017 "
    "have is read from their configs and shown.",
    marks=(
        Mark(of="encoder", why=_ALL, low=1.0),
        Mark(of="decoder, back", why=_ALL, low=1.0),
        Mark(of="decoder, ahead", why=_NONE, high=0.0),
        Mark(of="encoder-decoder: source on source", why=_ALL, low=1.0),
        Mark(of="encoder-decoder: target on target, back", why=_ALL, low=1.0),
        Mark(of="encoder-decoder: target on target, ahead", why=_NONE, high=0.0),
        Mark(of="encoder-decoder: source on target", why=_ALL, low=1.0),
        Mark(of="weights that encoder and decoder do not share", why="The mask has no weights.", high=0.0),
        Mark(of="fields that differ, apart from the mask", why="Nothing else is another.", high=0.0),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.05),
)
