"""Looking inside, in every family: nothing changes by it, and what is seen is what the `transformers` package returns.

Hidden states are held in test_parity.py, routers in test_router.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.lens.generating import look_generating
from clearhead.taps import catalogue
from tests import tiny
from tests.families.figures import note
from tests.families.pairs import N_TOKENS, Inputs, Pair, named
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]

every = pytest.mark.parametrize("pair", tiny.cases(), indirect=True, ids="-".join)
writers = pytest.mark.parametrize("pair", tiny.cases("decoder", "seq2seq", "audio"), indirect=True, ids="-".join)
BY_THE_REFERENCE = ("scores", "pattern")


def fitting(pair: Pair) -> Inputs:
    """As many tokens as the model was made for: more are refused by `look` and `edit`."""
    x = pair.inputs
    context = getattr(pair.ours.config, "context", None)  # two towers have one each
    return x if x.tokens is None or context is None else x.slots(slice(0, context))


def same_bits(a: Any, b: Any) -> bool:
    a, b = named(a), named(b)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@every
def test_recording_everything_changes_no_bit_of_the_output(pair: Pair) -> None:
    everything, x = catalogue(pair.ours), fitting(pair)
    seen = clearhead.look(pair.ours, x.given(), *everything)
    assert list(seen) == list(everything), "every place is reached, in the order of the catalogue"
    assert same_bits(seen.output, pair.ask(x))
    assert all(value.isfinite().all() for name, value in seen.items() if not name.endswith("scores"))


@every
def test_writing_back_what_was_read_changes_no_bit(pair: Pair) -> None:
    """Scores and patterns are edited in the reference, so it is the reference's bits that stay."""
    everything = dict.fromkeys(catalogue(pair.ours), lambda value: value)
    rest = {name: f for name, f in everything.items() if not name.endswith(BY_THE_REFERENCE)}
    x = fitting(pair)
    inputs = x.given()
    assert same_bits(clearhead.edit(pair.ours, inputs, rest), pair.ask(x))
    plain = pair.ask(x, backend="reference")
    assert same_bits(clearhead.edit(pair.ours, inputs, everything, backend="reference"), plain)
    assert same_bits(pair.ask(x), clearhead.edit(pair.ours, inputs, {}))


@every
def test_patterns_are_their_attentions(pair: Pair) -> None:
    theirs = type(pair.theirs).from_pretrained(pair.folder, attn_implementation="eager").eval()
    out = pair.ask_them(pair.inputs, theirs, output_attentions=True)
    addresses = [name for name in catalogue(pair.ours) if name.endswith(".pattern")]
    seen = pair.record(pair.inputs, *addresses)
    compared = set()
    for part, attentions in their_attentions(pair, out):
        mine = [name for name in addresses if name.startswith(part[0]) and f".{part[1]}." in name]
        assert len(mine) == len(attentions), (part, mine)
        for name, pattern in zip(mine, attentions, strict=True):
            found = error(seen[name], pattern)
            note(pair.family, "pattern", found)
            assert found <= F32, name
        compared |= set(mine)
    assert compared == set(addresses)


def their_attentions(pair: Pair, out: Any) -> Iterator[tuple[tuple[str, str], list[Tensor]]]:
    """Their attentions by the beginning of our addresses and the part of the block; of layers that have some."""

    def there(found: Any) -> list[Tensor]:
        return [pattern for pattern in found or () if pattern is not None]

    match pair.tiny.kind:
        case "seq2seq" | "audio":
            yield ("layers.", "mixer"), there(out.decoder_attentions)
            yield ("layers.", "cross"), there(out.cross_attentions)
            yield ("encoder.", "mixer"), there(out.encoder_attentions)
        case "towers":
            yield ("text.", "mixer"), there(out.text_model_output.attentions)
            yield ("image.", "mixer"), there(out.vision_model_output.attentions)
        case _:
            yield ("layers.", "mixer"), there(out.get("attentions"))


@every
def test_parts_of_one_kind_have_the_same_places_in_every_family(pair: Pair) -> None:
    places: dict[str, set[str]] = {}
    for address in catalogue(pair.ours):
        part, _, name = address.rpartition(".")
        places.setdefault(part, set()).add(name)
    for part, names in places.items():
        kind = part.rpartition(".")[2]
        if kind.isdecimal():
            assert {"resid_pre", "resid_mid", "resid_post"} <= names <= {*names, "resid_cross"}
            assert ("resid_cross" in names) == (f"{part}.cross" in places)
        if kind == "cross" or (kind == "mixer" and "delta" not in names):
            assert names == {"q_raw", "k_raw", "q", "k", "v", "scores", "pattern", "z", "out"}
        if kind == "mixer" and "delta" in names:
            assert names == {"delta", "state", "out"}
        if kind == "ffn":
            assert names in ({"pre", "post", "out"}, {"router_logits", "chosen", "out"})


@writers
def test_steps_put_together_are_the_whole_pass(pair: Pair) -> None:
    model, x = pair.ours, pair.inputs.row(0)
    if model.head is None:  # nothing to write with
        return
    everything = list(catalogue(model))
    if x.source is None and x.frames is None:
        assert x.tokens is not None
        prompt, begin = x.tokens[0, : N_TOKENS // 2].tolist(), {}
    else:
        assert x.tokens is not None
        prompt = x.source[0].tolist() if x.source is not None else x.frames[0]
        begin = {"decoder_prompt": x.tokens[0, :3].tolist()}
    seen = look_generating(model, prompt, *everything, max_new_tokens=6, stop_tokens=(), follow_config=False, **begin)
    tokens = [int(token) for token in seen.tokens[0]]
    assert len(tokens) >= 8 and tokens[-5:] == seen.output.tokens[:-1]
    given = {name: value for name, value in x.given().items() if name in ("source", "frames")}
    whole = clearhead.look(model, {"tokens": tokens, **given}, *everything)
    assert list(seen) == list(whole)
    # Where rotary frequencies change on the way, earlier scores are those that it was written by.
    ops = [block.mixer.op for block in model.config.stack.blocks]
    reread = any(getattr(getattr(op, "positions", None), "depends_on_length", False) for op in ops)
    for name, value in whole.items():
        last = slice(-1, None) if reread and name == "logits" else slice(None)
        found = error(seen[name][:, last], value[:, last])
        note(pair.family, "steps", found)
        assert found <= F32, name
