"""What an edit puts in a value's place: means, other rows, other runs, vectors."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens import at, edit, forbid, look, mean, patch, resample, steer, zero
from tests.oracles import TOLERANCE, error

TOKENS = torch.randint(0, 50, (3, 9), generator=torch.Generator().manual_seed(3))
OTHERS = torch.randint(0, 50, (4, 9), generator=torch.Generator().manual_seed(4))
F32 = TOLERANCE[torch.float32]
Z, RESID, SCORES, PATTERN = "layers.1.mixer.z", "layers.0.resid_post", "layers.0.mixer.scores", "layers.0.mixer.pattern"


def after(model, address, edit_, tokens=TOKENS):
    """The value that an edit left."""
    return look(model, tokens, address, edits={address: edit_})[address]


def test_zero_leaves_what_is_masked_hidden(model):
    assert not after(model, Z, zero).any()
    ahead = torch.ones(9, 9, dtype=torch.bool).triu(1)
    seen = look(model, TOKENS, PATTERN, edits={SCORES: zero})[PATTERN]
    even = (~ahead).float() / (~ahead).sum(-1, keepdim=True)
    assert error(seen, even.expand(3, 4, 9, 9)) <= F32


@pytest.mark.parametrize(("over", "axes"), [("all", (0, 2)), ("rows", (0,)), ("positions", (2,))])
def test_a_mean_of_the_value_and_of_another_run(model, over, axes):
    own, other = look(model, TOKENS, Z)[Z], look(model, OTHERS, Z)
    expected = own.mean(axes, keepdim=True).expand_as(own)
    assert error(after(model, Z, mean(over=over)), expected) <= F32
    if over == "positions":
        return  # there are as many rows as there were
    expected = other[Z].mean(axes, keepdim=True).expand_as(own)
    assert error(after(model, Z, mean(other, over=over)), expected) <= F32


def test_a_mean_ablated_head_is_its_mean_and_the_others_stay(model):
    other, plain = look(model, OTHERS, Z), look(model, TOKENS, Z)[Z]
    changed = after(model, Z, at(mean(other), heads=[2]))
    assert torch.equal(changed[:, [0, 1, 3]], plain[:, [0, 1, 3]])
    assert error(changed[:, 2], other[Z][:, 2].mean((0, 1)).expand(3, 9, -1)) <= F32


def test_padding_does_not_count_in_a_mean(model):
    present = torch.arange(9) >= torch.tensor([[0], [3], [5]])
    inputs = {"tokens": TOKENS, "present": present}
    value = look(model, inputs, RESID)
    expected = value[RESID][present].mean(0)
    own = look(model, inputs, RESID, edits={RESID: mean()})[RESID]
    assert error(own, expected.expand_as(own)) <= F32
    assert error(after(model, RESID, mean(value)), expected.expand(3, 9, -1)) <= F32
    some = look(model, inputs, RESID, positions=[2, 4])
    expected = value[RESID][:, [2, 4]][present[:, [2, 4]]].mean(0)
    assert error(after(model, RESID, mean(some)), expected.expand(3, 9, -1)) <= F32


def test_a_mean_over_queries_would_look_ahead(model):
    with pytest.raises(ClearheadError, match="would look ahead"):
        edit(model, TOKENS, {PATTERN: mean()})
    pattern = look(model, TOKENS, PATTERN)[PATTERN]
    assert error(after(model, PATTERN, mean(over="rows")), pattern.mean(0).expand_as(pattern)) <= F32


def test_other_rows(model):
    value, others = look(model, TOKENS, Z)[Z], look(model, OTHERS, Z)
    assert torch.equal(after(model, Z, resample(rows=[2, 0, 0])), value[[2, 0, 0]])
    assert torch.equal(after(model, Z, resample(others, rows=[3, 1, 3])), others[Z][[3, 1, 3]])
    drawn = after(model, Z, resample(seed=1))
    rows = [next(j for j in range(3) if torch.equal(drawn[i], value[j])) for i in range(3)]
    assert sorted(rows) == [0, 1, 2] and all(i != row for i, row in enumerate(rows))
    assert torch.equal(drawn, after(model, Z, resample(seed=1)))
    with pytest.raises(ClearheadError, match=r"layers\.1\.mixer\.z: a row from 0 to 2 is wanted for each of 3"):
        edit(model, TOKENS, {Z: resample(rows=[0, 1])})
    with pytest.raises(ClearheadError, match="one alone"):
        edit(model, TOKENS[:1], {Z: resample()})


def test_patching_everything_from_another_run_is_that_run(model):
    other = look(model, OTHERS[:1], RESID)
    assert torch.equal(edit(model, TOKENS[:1], {RESID: patch(other)}), other.output)
    both = edit(model, TOKENS, {RESID: patch(other)})
    assert error(both, other.output.expand(3, -1, -1)) <= F32


def test_patching_a_position_from_a_text_of_another_length(model):
    short, plain = look(model, OTHERS[:1, :5], RESID), look(model, TOKENS[:1], RESID)[RESID]
    changed = after(model, RESID, patch(short, positions={7: -1, 2: 0}), TOKENS[:1])
    expected = plain.clone()
    expected[:, 7], expected[:, 2] = short[RESID][:, 4], short[RESID][:, 0]
    assert torch.equal(changed, expected)
    with pytest.raises(ClearheadError, match=r"shape \(1, 5, 32\) and what is here \(1, 9, 32\).*positions"):
        edit(model, TOKENS[:1], {RESID: patch(short)})
    with pytest.raises(ClearheadError, match="seen at positions 0 to 4"):
        edit(model, TOKENS[:1], {RESID: patch(short, positions={7: 5})})
    with pytest.raises(ClearheadError, match="positions 0 to 8 in this text, not 9"):
        edit(model, TOKENS[:1], {RESID: patch(short, positions={9: 0})})


def test_one_token_is_not_taken_for_all(model):
    with pytest.raises(ClearheadError, match=r"shape \(1, 1, 32\)"):
        edit(model, TOKENS[:1], {RESID: patch(look(model, OTHERS[:1, :1], RESID))})


def test_patching_from_another_place(model):
    seen = look(model, TOKENS, "layers.0.resid_pre")
    assert torch.equal(after(model, RESID, patch(seen, address="layers.0.resid_pre")), seen["layers.0.resid_pre"])
    with pytest.raises(ClearheadError, match=r"layers\.0\.resid_post was not looked at"):
        edit(model, TOKENS, {RESID: patch(seen)})


def test_steering(model):
    plain, vector = look(model, TOKENS, RESID)[RESID], torch.randn(32, dtype=torch.float64)
    steered = after(model, RESID, at(steer(vector, 3.0), positions=[-1]))
    assert torch.equal(steered[:, :-1], plain[:, :-1])
    assert error(steered[:, -1], plain[:, -1] + (3 * vector).float()) <= F32
    with pytest.raises(ClearheadError, match=r"layers\.0\.resid_post: a vector of shape \(31,\)"):
        edit(model, TOKENS, {RESID: steer(torch.ones(31))})
    with pytest.raises(ClearheadError, match="NaN"):
        edit(model, TOKENS, {RESID: steer(torch.full((32,), torch.nan))})


def test_infinity_is_for_scores(model):
    with pytest.raises(ClearheadError, match=r"layers\.1\.mixer\.z returned infinity"):
        edit(model, TOKENS, {Z: at(forbid, heads=[1])})
