"""Every family against the `transformers` package, with the same random weights: whole passes."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import clearhead
from clearhead.config import PatchesConfig, TransformerConfig
from tests import tiny
from tests.families.figures import note
from tests.families.pairs import N_SOURCE, N_TOKENS, Inputs, Pair, named, their_output, worst
from tests.families.routers import choosing_as_they_do
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]

every = pytest.mark.parametrize("pair", tiny.cases(), indirect=True, ids="-".join)
texts = pytest.mark.parametrize(
    "pair", tiny.cases("decoder", "encoder", "seq2seq", "audio", "towers"), indirect=True, ids="-".join
)
LENGTHS = (20, 13, 1)
SOURCE_LENGTHS = (5, 14, 9)
SIDES = ("left", "right", "middle")


@every
def test_outputs(pair: Pair) -> None:
    ours, theirs = pair.whole
    for name, value in theirs.items():
        assert value.std() > 0.2, f"{name or 'the output'} is not lively: a wrong option would not show"
    found = worst(ours, theirs)
    note(pair.family, "output", found)
    assert found <= F32


@every
def test_hidden_states_at_every_layer(pair: Pair) -> None:
    out = pair.ask_them(pair.inputs, output_hidden_states=True)
    for prefix, theirs in their_hidden_states(pair, out).items():
        n = len(theirs) - 1
        last = "final" if pair.tiny.normed_last else f"layers.{n - 1}.resid_post"
        addresses = ["embed", *(f"layers.{i}.resid_post" for i in range(n - 1)), last]
        if not pair.tiny.embed_first:
            addresses = [*(f"layers.{i}.resid_post" for i in range(n)), "final"]
        addresses = [prefix + address for address in addresses]
        values = pair.record(pair.inputs, *addresses)
        errors = {where: error(values[where], value) for where, value in zip(addresses, theirs, strict=True)}
        note(pair.family, "hidden", max(errors.values()))
        assert max(errors.values()) <= F32, errors


def their_hidden_states(pair: Pair, out: object) -> dict[str, tuple[Tensor, ...]]:
    """The stream after the embedding and after each layer, by the prefix of our addresses."""
    match pair.tiny.kind:
        case "seq2seq" | "audio":
            return {"": out.decoder_hidden_states, "encoder.": out.encoder_hidden_states}
        case "towers":
            texts, images = out.text_model_output, out.vision_model_output
            return {"text.": texts.hidden_states, "image.": images.hidden_states}
    return {"": out.hidden_states}


# ---- padding


@texts
def test_padded_rows_give_what_each_gives_alone(pair: Pair) -> None:
    """Their batches are asked row by row: not all of their families derive positions from a mask."""
    alone = [cut(pair.inputs.row(b), b) for b in range(3)]
    theirs = [pair.expected(x, pair.whole[0]) for x in alone]
    for side in SIDES:
        present, inputs = padded(pair, side)
        out = named(pair.ask(inputs, **present))
        for name, value in out.items():
            assert value.isfinite().all()
            for b in range(3):
                mine = value[b : b + 1]
                # An output of every token has the padded length; one of the whole text has not.
                if mine.ndim == 3 and mine.shape[1] == N_TOKENS:
                    mine = mine[:, present["present"][b]]
                if name.startswith("logits_per"):
                    mine = mine[:, b : b + 1]  # of every text with every picture, the pair that was asked for
                found = error(mine, theirs[b][name])
                note(pair.family, "padded", found)
                assert found <= F32, (side, b, name)


def cut(x: Inputs, b: int) -> Inputs:
    """Row `b` without what will be padding."""
    x = x.slots(slice(0, LENGTHS[b]))
    return x if x.source is None else replace(x, source=x.source[:, : SOURCE_LENGTHS[b]])


def padded(pair: Pair, side: str) -> tuple[dict[str, Tensor], Inputs]:
    """The rows' texts with padding among them, and where they are."""
    x = pair.inputs
    assert x.tokens is not None
    present = {"present": places(side, LENGTHS, N_TOKENS)}
    changes = {"tokens": spread(x.tokens, present["present"], pad_of(pair, "decoder"))}
    if x.token_types is not None:
        changes["token_types"] = spread(x.token_types, present["present"], 0)
    if x.source is not None:
        present["source_present"] = places(side, SOURCE_LENGTHS, N_SOURCE)
        changes["source"] = spread(x.source, present["source_present"], pad_of(pair, "encoder"))
    return present, replace(x, **changes)


def places(side: str, lengths: tuple[int, ...], width: int) -> Tensor:
    """True where the rows have their tokens."""
    present = torch.zeros(len(lengths), width, dtype=torch.bool)
    for b, n in enumerate(lengths):
        match side:
            case "left":
                present[b, width - n :] = True
            case "right":
                present[b, :n] = True
            case _:
                first = n // 2
                start = (width - n) // 3
                present[b, start : start + first] = True
                present[b, width - (width - n) // 3 - (n - first) : width - (width - n) // 3] = True
    return present


def spread(values: Tensor, present: Tensor, pad: int) -> Tensor:
    """Each row's first values, put where `present` says."""
    out = torch.full_like(values, pad)
    for b in range(len(values)):
        out[b, present[b]] = values[b, : int(present[b].sum())]
    return out


def pad_of(pair: Pair, stack: str) -> int:
    """What stands in padding: the family's own token where it counts positions by it, elsewhere any."""
    config = pair.ours.config
    if not isinstance(config, TransformerConfig):
        return 5
    part = getattr(config, stack) or config.stack
    pad = getattr(part.embed.positions, "pad_id", None)
    return 5 if pad is None else int(pad)


# ---- pictures of another size


@pytest.mark.parametrize("pair", tiny.cases("vision"), indirect=True, ids="-".join)
def test_pictures_of_another_size(pair: Pair) -> None:
    front = pair.ours.config.stack.embed.front
    assert isinstance(front, PatchesConfig)
    height, width = front.image[0] + 2 * front.patch, front.image[1] + front.patch
    x = Inputs(pixels=torch.randn(2, front.channels, height, width))
    out = named(pair.ask(x))
    there = pair.ask_them(x, interpolate_pos_encoding=True)
    found = worst(out, {name: their_output(there, name) for name in out})
    note(pair.family, "output", found)
    assert found <= F32


# ---- half precision


@every
def test_bfloat16(pair: Pair) -> None:
    """Rounded weights on both sides: what differs is only where each rounds on the way."""
    theirs = type(pair.theirs).from_pretrained(pair.folder, dtype=torch.bfloat16).eval()
    ours = clearhead.load(pair.folder, dtype="bfloat16")
    floats = {k: v.to(torch.bfloat16) for k, v in pair.inputs.given().items() if v.is_floating_point()}
    x = replace(pair.inputs, **floats)
    out = named(pair.ask(x, ours, taps=choosing_as_they_do(pair, x, theirs, ours)))
    for name, b in pair.expected(x, out, theirs).items():
        a = out[name]
        assert a.dtype == torch.bfloat16
        # Rounding once is 2^-9; through three to seven layers the two drift apart by a few such steps on average.
        found = float((a - b).float().pow(2).mean().sqrt() / b.float().pow(2).mean().sqrt())
        note(pair.family, "bfloat16", found)
        assert found <= TOLERANCE[torch.bfloat16], name


# ---- what training sees


@every
def test_loss(pair: Pair) -> None:
    """Cross-entropy of our outputs is the loss they give for the same labels."""
    ours, _ = pair.whole
    labels = their_labels(pair, ours)
    if not labels:  # a model without a head
        return
    theirs = pair.ask_them(pair.inputs, **labels).loss
    found = error(our_loss(pair, ours, labels), theirs)
    note(pair.family, "loss", found)
    assert found <= F32


def their_labels(pair: Pair, ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Random labels for every head, under the names that `transformers` takes them by."""
    heads = getattr(pair.ours.config, "heads", None)
    generator = torch.Generator().manual_seed(7)
    if heads is None:
        return {}
    labels: dict[str, Tensor] = {}
    if heads.tokens is not None:
        assert pair.inputs.tokens is not None
        labels["labels"] = pair.inputs.tokens
    named_heads = dict(heads.labels)
    if "next" in named_heads and heads.tokens is not None:
        labels[next_label(pair)] = torch.randint(2, (3,), generator=generator)
        return labels
    if "spans" in named_heads:
        return {key: torch.randint(N_TOKENS, (3,), generator=generator) for key in ("start_positions", "end_positions")}
    if len(named_heads) == 1 and heads.tokens is None:
        ((_, head),) = named_heads.items()
        shape = (3, N_TOKENS) if head.at == "every" else (3,)
        labels["labels"] = torch.randint(head.n_labels, shape, generator=generator)
    return labels


def next_label(pair: Pair) -> str:
    """What their model calls the label of two texts."""
    names = ("next_sentence_label", "sentence_order_label")
    return next(name for name in names if name in inspect.signature(pair.theirs.forward).parameters)


def our_loss(pair: Pair, ours: dict[str, Tensor], labels: dict[str, Tensor]) -> Tensor:
    """The mean cross-entropy; a decoder's output is held to the next token."""
    if "start_positions" in labels:
        (spans,) = ours.values()
        ends = (labels["start_positions"], labels["end_positions"])
        return torch.stack([F.cross_entropy(spans[..., i], end) for i, end in enumerate(ends)]).mean()
    first = next(ours[name] for name in ("", "tokens", "logits") if name in ours)
    target = labels["labels"]
    config = pair.ours.config
    if config.decoder is not None and config.encoder is None and config.heads.tokens is not None:
        first, target = first[:, :-1], target[:, 1:]
    loss = F.cross_entropy(first.flatten(0, -2), target.flatten())
    if "next" in ours:
        loss = loss + F.cross_entropy(ours["next"], labels[next_label(pair)])
    return loss
