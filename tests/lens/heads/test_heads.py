"""Heads built by hand are found to do what they were built to do, an untrained model does nothing, and every family can
be asked.
"""

from __future__ import annotations

import json
import math

import pytest
import torch

import clearhead
from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    HeadsConfig,
    LearnedPositions,
    MaskConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokenIds,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.lens.heads import heads, measure
from clearhead.model.transformer import Transformer
from clearhead.taps import catalogue
from tests import tiny
from tests.lens.conftest import make_model

CONTEXT, TOKENS = 66, 80
"""One number of the stream for each place, and one for each token."""


def built_by_hand(kind: str = "causal") -> Transformer:
    """One layer that looks, by head, at the same token but not at itself, at the token before, at the first token, and
    everywhere alike.
    """
    d = CONTEXT + TOKENS
    attention = AttentionConfig(n_heads=4, n_kv_heads=4, d_head=d, mask=MaskConfig(kind=kind))  # type: ignore[arg-type]
    embed = EmbedConfig(front=TokensConfig(vocab_size=TOKENS), positions=LearnedPositions(n=CONTEXT))
    stack = StackConfig(embed=embed, blocks=(BlockConfig(mixer=SublayerConfig(op=attention)),))
    config = TransformerConfig(
        d_model=d,
        decoder=stack if kind == "causal" else None,
        encoder=stack if kind != "causal" else None,
        heads=HeadsConfig(tokens=TokenHeadConfig()),
        context=CONTEXT,
        ids=TokenIds(bos=0),
    )
    model = Transformer(config).eval()
    place, token = slice(0, CONTEXT), slice(CONTEXT, d)
    q, k = torch.zeros(4, d, d), torch.zeros(4, d, d)
    sharp = 40 * d**0.5
    q[0, token, token] = sharp * torch.eye(TOKENS)
    q[0, place, place] = -2 * sharp * torch.eye(CONTEXT)
    k[0] = torch.eye(d)
    q[1, place, place] = sharp * torch.eye(CONTEXT)
    k[1, place, place] = torch.eye(CONTEXT).roll(1, 0)  # the key of place s stands where the query of s + 1 does
    q[2, 0] = sharp
    k[2, 0, 0] = 1.0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.tokens.weight[:, token] = torch.eye(TOKENS)
        model.embed.positions.weight[:, place] = torch.eye(CONTEXT)
        op = model.layers[0].mixer
        op.q_proj.weight.copy_(q.flatten(0, 1))
        op.k_proj.weight.copy_(k.flatten(0, 1))
    return model


def test_heads_built_by_hand_are_found() -> None:
    found = heads(built_by_hand())
    assert [head.role for head in found] == ["duplicate token", "previous token", "first token", "unknown"]
    assert found.unknown == 0.25
    same, before, first, _ = found
    assert same.measures["duplicate token"].score > 0.99
    assert same.measures["duplicate token"].control < 0.1
    assert before.measures["previous token"].score > 0.99
    assert before.looks.entropy == pytest.approx(0.0, abs=1e-6)
    assert before.looks.distance == pytest.approx(1.0, abs=0.05)
    assert first.measures["first token"].score > 0.99
    assert all(head.best.sure > 10 for head in (same, before, first))
    assert found.found("previous token") == [before]


def test_pictures_are_of_ones_own_or_of_ours() -> None:
    model = clearhead.load("clear-vit")
    pixels = torch.randn(3, 1, 28, 28)
    given, ours = heads(model, {"pixels": pixels}), heads(model)
    assert given[0].looks != ours[0].looks
    assert {"neighbouring patch", "patch above", "one patch", "first token"} <= set(given[0].measures)
    pattern_BTS = clearhead.look(model, {"pixels": pixels}, "layers.1.mixer.pattern")["layers.1.mixer.pattern"][:, 3]
    (head,) = [head for head in given if (head.layer, head.head) == (1, 3)]
    assert head.measures["one patch"].score == pytest.approx(float(pattern_BTS.mean(1).amax(-1).mean()), abs=1e-5)
    with pytest.raises(ClearheadError, match="reads no text"):
        heads(model, "a text")


def test_row_by_row_is_the_same_as_all_at_once(monkeypatch) -> None:
    model = make_model()
    model.tokenizer = None
    whole = heads(model, shuffles=2)
    monkeypatch.setattr(measure, "AT_ONCE", 1)
    for one, other in zip(heads(model, shuffles=2), whole, strict=True):
        for name, found in one.measures.items():
            assert found.score == pytest.approx(other.measures[name].score, abs=1e-5)
            assert found.control == pytest.approx(other.measures[name].control, abs=1e-5)
            assert found.spread == pytest.approx(other.measures[name].spread, abs=1e-5)
        assert one.looks.entropy == pytest.approx(other.looks.entropy, abs=1e-5)


def test_two_ways_of_looking_in_an_encoder() -> None:
    found = heads(built_by_hand("full"))
    assert [head.role for head in found] == ["duplicate token", "previous token", "first token", "unknown"]
    assert "next token" in found[0].measures


def test_an_untrained_model_does_nothing_that_was_asked_about() -> None:
    config = make_model().config
    torch.manual_seed(1)
    found = heads(Transformer(config).eval())
    assert found.unknown == 1.0
    assert not any(head.also for head in found)


def test_asking_changes_nothing_and_the_seed_decides() -> None:
    model = make_model()
    model.tokenizer = None
    tokens = torch.randint(1, 50, (1, 12))
    with torch.no_grad():
        before = model(tokens)
        first, again, other = heads(model, seed=3), heads(model, seed=3), heads(model, seed=4)
        assert torch.equal(model(tokens), before)
    assert first.to_json() == again.to_json()
    assert first.to_json() != other.to_json()


@pytest.fixture(scope="module")
def small() -> Transformer:
    return clearhead.load("clear-2l")


def test_a_text_of_ones_own_is_what_is_measured(small) -> None:
    """1,000 tokens: four windows of 128, the mark before each."""
    text = "The keys to the cabinet are on the table. " * 60
    given = heads(small, text)
    assert given[0].looks != heads(small)[0].looks
    ids = small.tokenizer.encode(text, bos=False)
    rows = torch.tensor([[0, *ids[start : start + 127]] for start in range(0, 4 * 127, 127)])
    assert heads(small, rows)[0].looks == given[0].looks
    entropy = torch.special.entr(clearhead.look(small, rows)["layers.0.mixer.pattern"][:, 0]).sum(-1).mean()
    assert given[0].looks.entropy == pytest.approx(float(entropy), abs=1e-5)


def test_a_short_text_is_read_whole(small) -> None:
    ids = small.tokenizer.encode("The keys to the cabinet are on the table.")
    assert heads(small, "The keys to the cabinet are on the table.")[3].looks == heads(small, ids)[3].looks


@pytest.mark.parametrize("family", tiny.families())
def test_every_family_can_be_asked_or_says_why_not(family, tmp_path) -> None:
    """Every head of every stack has its measures, all of them numbers."""
    tiny.make(family).save_pretrained(tmp_path)
    model = clearhead.load(tmp_path)
    there = {address for address in catalogue(model) if address.endswith("mixer.pattern")}
    if not there:
        with pytest.raises(ClearheadError, match="no attention layers"):
            heads(model)
        return
    found = heads(model, shuffles=2, composition=True)
    assert {f"{head.address}.pattern" for head in found} == there
    assert len({(head.address, head.head) for head in found}) == len(found)
    assert found.values.shape == (len(there), 1 + max(head.head for head in found))
    for head in found:
        numbers = [value for m in head.measures.values() for value in (m.score, m.control, m.spread, m.sure)]
        assert len(numbers) >= 8
        assert all(map(math.isfinite, [*numbers, head.looks.entropy, head.looks.distance]))
        assert all(-1e-5 <= m.score <= 1 + 1e-5 for m in head.measures.values())
    json.dumps(found.to_json(), allow_nan=False)
    crossed = any(".cross." in address for address in catalogue(model))
    assert crossed == any("cross-attention" in reason for reason in found.left_out)


@pytest.mark.parametrize(
    ("inputs", "how", "words"),
    [
        (None, {"shuffles": 1}, "shuffles is 1"),
        ("a", {}, "1 tokens long"),
        ({"tokens": [1, 2, 3, 4], "present": torch.ones(1, 4)}, {}, "without padding"),
        (torch.zeros(1, 900, dtype=torch.long), {}, "512"),
    ],
)
def test_what_can_not_be_asked_is_refused(small, inputs, how, words) -> None:
    with pytest.raises(ClearheadError, match=words):
        heads(small, inputs, **how)
