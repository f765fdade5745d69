"""Recording: what is seen is what was computed, and seeing it changes nothing."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.taps import catalogue
from tests import tiny
from tests.oracles import TOLERANCE, error

TOKENS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))


def test_taking_a_look_changes_no_bit_of_the_output(model):
    with torch.no_grad():
        plain = model(TOKENS)
    seen = look(model, TOKENS, *catalogue(model))
    assert set(seen) == set(catalogue(model))
    assert torch.equal(seen.output, plain)
    assert torch.equal(seen["logits"], plain)


def test_shapes_are_those_of_the_catalogue(model):
    sizes = {"B": 2, "T": 9, "S": 9, "D": 32, "H": 4, "G": 2, "K": 8, "F": 48, "V": 60}
    for address, value in look(model, TOKENS, *catalogue(model)).items():
        assert list(value.shape) == [sizes[letter] for letter in catalogue(model)[address].split()], address


@pytest.mark.parametrize("window", [None, 3])
def test_rows_of_a_pattern_sum_to_one_and_see_only_what_the_mask_allows(make, window):
    seen = look(make(window=window), TOKENS)
    assert list(seen) == ["layers.0.mixer.pattern", "layers.1.mixer.pattern"]
    back = torch.arange(9)[:, None] - torch.arange(9)
    hidden = (back < 0) | (back >= (window or 9))
    for pattern_BHTS in seen.values():
        assert error(pattern_BHTS.sum(-1), torch.ones(2, 4, 9)) <= TOLERANCE[torch.float32]
        assert not pattern_BHTS[..., hidden].any()
        assert pattern_BHTS[..., ~hidden].min() > 0


def test_padding_is_neither_seen_nor_looks(model):
    present = torch.ones(2, 9, dtype=torch.bool)
    present[0, :3] = False
    seen = look(model, {"tokens": TOKENS, "present": present}, "layers.0.mixer.pattern")
    pattern_BHTS = seen["layers.0.mixer.pattern"]
    assert not pattern_BHTS[0, :, :, :3].any()
    assert not pattern_BHTS[0, :, :3].any()
    alone = look(model, TOKENS[:1, 3:], "layers.0.mixer.pattern")["layers.0.mixer.pattern"]
    assert error(pattern_BHTS[:1, :, 3:, 3:], alone) <= TOLERANCE[torch.float32]


def test_text_ids_and_tensors_are_the_same_input(model):
    ids = model.tokenizer.encode("keys")
    for inputs in (ids, torch.tensor(ids), torch.tensor([ids]), {"tokens": ids}, {"tokens": "keys"}):
        assert torch.equal(look(model, inputs).output, look(model, "keys").output)
    assert look(model, "keys").tokens == [model.tokenizer.pieces(ids)]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("", "empty"),
        ([], "no tokens"),
        (torch.zeros(1, 2, 3, dtype=torch.long), r"\(1, 2, 3\)"),
        (torch.zeros(3), "float32"),
        ([1, 2, 99], "99"),
    ],
)
def test_what_can_not_be_looked_at_is_refused(model, inputs, words):
    with pytest.raises(ClearheadError, match=words):
        look(model, inputs)


def test_text_without_a_tokenizer_is_refused_and_ids_are_their_own_labels(model):
    model.tokenizer = None
    with pytest.raises(ClearheadError, match="tokenizer"):
        look(model, "keys")
    assert look(model, [3, 4]).tokens == [["3", "4"]]


def test_an_unknown_address_is_refused_before_the_run(model, monkeypatch):
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    with pytest.raises(ClearheadError, match=r"layers\.1\.mixer\.pattern"):
        look(model, [1, 2], "layers.1.mixer.patern")


def test_gradients_flow_back_to_what_was_seen(model):
    seen = look(model, TOKENS, "layers.0.resid_post", grad=True)
    (gradient,) = torch.autograd.grad(seen.output.square().mean(), seen["layers.0.resid_post"])
    assert gradient.abs().max() > 0
    assert not look(model, TOKENS, "layers.0.resid_post")["layers.0.resid_post"].requires_grad


def test_seen_lists_itself_and_knows_what_it_has_not(model):
    seen = look(model, TOKENS, "layers.*.mixer.z", "logits")
    lines = str(seen).splitlines()
    assert [line.split()[0] for line in lines] == list(seen)
    assert set(seen) == {"layers.0.mixer.z", "layers.1.mixer.z", "logits"}
    (line,) = [line for line in lines if line.startswith("layers.1")]
    assert line.endswith("B H T K  (2, 4, 9, 8)  float32")
    with pytest.raises(KeyError, match=r"layers\.0\.mixer\.q"):
        seen["layers.0.mixer.q"]
    with pytest.raises(ClearheadError, match="pattern"):
        seen.show()


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3_text"])
def test_patterns_are_those_of_the_eager_attention_of_transformers(family, tmp_path):
    theirs = tiny.make(family)
    theirs.save_pretrained(tmp_path)
    theirs.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = theirs(TOKENS, output_attentions=True).attentions
    seen = look(clearhead.load(tmp_path), TOKENS)
    assert len(seen) == len(attentions)
    for ours, expected in zip(seen.values(), attentions, strict=True):
        assert error(ours, expected) <= TOLERANCE[torch.float32]
