"""Recording: what is seen is what was computed, and seeing it changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens import edit, look
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


# ---- gradients


def margin(logits_BTV: torch.Tensor) -> torch.Tensor:
    return logits_BTV[0, -1, 3] - logits_BTV[0, -1, 7]


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_are_what_a_small_change_does(model, frozen):
    """Central differences in float64, at every place; through patterns and scores too, which no fused kernel gives."""
    model = model.double().requires_grad_(not frozen)
    everything = list(catalogue(model))
    seen = look(model, TOKENS, *everything, gradient_of=margin)
    assert list(seen.gradients) == everything
    assert not any(value.requires_grad for value in (*seen.values(), *seen.gradients.values(), seen.output))
    assert all(parameter.grad is None for parameter in model.parameters())
    for address in everything:
        step = 1e-5 * torch.randn_like(seen[address])
        up = margin(edit(model, TOKENS, {address: lambda value, step=step: value + step}))
        down = margin(edit(model, TOKENS, {address: lambda value, step=step: value - step}))
        expected = float((seen.gradients[address] * step).sum())
        assert float(up - down) / 2 == pytest.approx(expected, rel=1e-4, abs=1e-12), address


def test_what_the_metric_does_not_depend_on_has_a_gradient_of_zero(model):
    first = look(model, TOKENS, "layers.*.resid_post", gradient_of=lambda logits: logits[:, 0].square().sum())
    assert not first.gradients["layers.0.resid_post"][:, 1:].any()
    assert first.gradients["layers.0.resid_post"][:, 0].all()
    other = look(model, TOKENS, "layers.1.mixer.q", gradient_of=lambda logits: logits[0].sum())
    assert not other.gradients["layers.1.mixer.q"][1].any()


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (lambda logits: logits, r"shape \(2, 9, 60\)"),
        (lambda logits: 3.0, "float"),
        (lambda logits: logits.detach().sum(), "does not depend"),
    ],
)
def test_a_metric_that_is_not_one_number_of_the_output_is_refused(model, metric, words):
    with pytest.raises(ClearheadError, match=words):
        look(model, TOKENS, "embed", gradient_of=metric)


# ---- what is kept


def test_only_chosen_positions_are_kept(model):
    everything = list(catalogue(model))
    whole = look(model, TOKENS, *everything, gradient_of=margin)
    some = look(model, TOKENS, *everything, positions=[-1, 2], gradient_of=margin)
    for address in everything:
        letters = catalogue(model)[address].split()
        axis = letters.index("T") if "T" in letters else letters.index("S")
        chosen = torch.tensor([8, 2])
        assert torch.equal(some[address], whole[address].index_select(axis, chosen)), address
        assert torch.equal(some.gradients[address], whole.gradients[address].index_select(axis, chosen)), address
    assert some[everything[0]].untyped_storage().nbytes() == some[everything[0]].nbytes


@pytest.mark.parametrize("position", [9, -10])
def test_a_position_that_is_not_there_is_refused_before_the_run(model, monkeypatch, position):
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    with pytest.raises(ClearheadError, match=f"positions 0 to 8 in this text, not {position}"):
        look(model, TOKENS, positions=[0, position])


def test_values_are_moved_as_they_are_recorded(model):
    """ "meta" stands for another device: it has shapes and no numbers."""
    seen = look(model, TOKENS, *catalogue(model), device="meta")
    assert {value.device.type for value in seen.values()} == {"meta"}
    assert seen.output.device.type == "cpu"


def test_what_a_state_holds_is_copied(model):
    """Later steps write to its memory."""
    state = model.new_state(capacity=20)
    names = ["layers.0.mixer.k", "layers.0.mixer.v"]
    first = look(model, {"tokens": TOKENS[:, :4], "state": state}, *names)
    kept = {name: value.clone() for name, value in first.items()}
    state.truncate(2)
    later = look(model, {"tokens": TOKENS[:, 5:], "state": state}, *names, positions=[-1, 2])
    assert all(torch.equal(first[name], kept[name]) for name in names)
    # Positions are those of the whole text: slot 2 is the first that was read now.
    everything = look(model, torch.cat([TOKENS[:, :2], TOKENS[:, 5:]], dim=1), *names, positions=[5, 2])
    assert all(error(later[name], everything[name]) <= TOLERANCE[torch.float32] for name in names)


def test_what_an_edit_writes_into_is_its_own(model):
    """The end of a layer and the beginning of the next are one tensor: what was recorded before stays."""

    def spoil(value: torch.Tensor) -> torch.Tensor:
        return value.zero_()

    plain = look(model, TOKENS, "layers.0.resid_post")
    seen = look(model, TOKENS, "layers.0.resid_post", "layers.1.resid_pre", edits={"layers.1.resid_pre": spoil})
    assert torch.equal(seen["layers.0.resid_post"], plain["layers.0.resid_post"])
    assert not seen["layers.1.resid_pre"].any()


def test_a_text_longer_than_the_model_is_refused_before_the_run(model, monkeypatch):
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    model.config = replace(model.config, context=8)
    with pytest.raises(ClearheadError, match="the text is 9 tokens and this model's window 8"):
        look(model, TOKENS)
    with pytest.raises(ClearheadError, match="the text is 9 tokens and this model's window 8"):
        edit(model, TOKENS, {"embed": torch.zeros_like})


def test_a_text_that_padding_makes_long_is_not(model):
    model.config = replace(model.config, context=8)
    present = torch.arange(9) > torch.tensor([[0], [3]])
    assert look(model, {"tokens": TOKENS, "present": present}, "embed")["embed"].shape == (2, 9, 32)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("layers.2.mixer.pattern", "its layers are 0 to 1"),
        ("layers.0.mixer.delta", "no part of it has delta"),
        ("layers.0.ffn.posst", r"the nearest are layers\.0\.ffn\.post"),
    ],
)
def test_an_unknown_address_says_what_is_wrong_with_it(model, address, words):
    with pytest.raises(ClearheadError, match=words):
        look(model, TOKENS, address)


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
