"""Interventions: an identity is nothing, and removing a head removes exactly that head (case H24)."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens import at, edit, forbid, look, zero
from clearhead.taps import catalogue
from tests import tiny
from tests.oracles import TOLERANCE, error

TOKENS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))
F32 = TOLERANCE[torch.float32]
Z, OUT = "layers.1.mixer.z", "layers.1.mixer.out"


def without(*heads: int):
    """An edit of z (B, H, T, K) that cuts heads off."""

    def cut(z_BHTK: torch.Tensor) -> torch.Tensor:
        z_BHTK = z_BHTK.clone()
        z_BHTK[:, list(heads)] = 0
        return z_BHTK

    return cut


def test_identities_are_bit_equal_everywhere_but_in_the_reference(model):
    with torch.no_grad():
        plain = model(TOKENS)
    for address in catalogue(model):
        same = edit(model, TOKENS, {address: lambda value: value})
        if address.rpartition(".")[2] in ("scores", "pattern"):
            assert error(same, plain) <= F32, address
        else:
            assert torch.equal(same, plain), address


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
def test_cutting_a_head_takes_its_share_of_the_correction_and_no_more(make, n_kv_heads, backend):
    model = make(n_kv_heads)
    plain = look(model, TOKENS, Z, OUT, backend=backend)
    cut = look(model, TOKENS, Z, OUT, edits={Z: without(2)}, backend=backend)
    # W_O (D, H * K) reads the heads side by side: head 2's columns are 16 to 24.
    share_BTD = plain[Z][:, 2] @ model.layers[1].mixer.o_proj.weight[:, 16:24].detach().T
    assert share_BTD.abs().max() > 0.1
    assert error(cut[OUT], plain[OUT] - share_BTD) <= F32
    # Its partner on the same keys and values works on.
    assert torch.equal(cut[Z][:, 3], plain[Z][:, 3])
    assert not torch.equal(cut.output, plain.output)
    assert torch.equal(look(model, TOKENS, backend=backend).output, plain.output)


def test_without_any_head_the_bias_is_left(model):
    cut = look(model, TOKENS, OUT, edits={Z: torch.zeros_like})
    assert error(cut[OUT], model.layers[1].mixer.o_proj.bias.detach().expand(2, 9, -1)) <= F32


def test_a_head_is_cut_in_a_cached_run_as_in_a_whole_one(model):
    whole = edit(model, TOKENS, {"layers.*.mixer.z": without(0)})
    state = model.new_state()
    steps = [
        edit(model, {"tokens": TOKENS[:, start:stop], "state": state}, {"layers.*.mixer.z": without(0)})
        for start, stop in ((0, 4), (4, 5), (5, 9))
    ]
    assert error(torch.cat(steps, dim=1), whole) <= F32


def test_an_edited_pattern_is_what_mixes_the_values(model):
    def look_at_the_first(pattern_BHTS: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(pattern_BHTS).index_fill(-1, torch.tensor(0), 1.0)

    address = "layers.1.mixer.pattern"
    seen = look(model, TOKENS, address, Z, "layers.1.mixer.v", edits={address: look_at_the_first})
    assert bool((seen[address][..., 0] == 1).all())
    first_BGK = seen["layers.1.mixer.v"][:, :, 0]
    expected_BHTK = first_BGK.repeat_interleave(2, dim=1)[:, :, None].expand(-1, -1, 9, -1)
    assert error(seen[Z], expected_BHTK) <= F32


# ---- what an edit may not do


@pytest.mark.parametrize(
    ("address", "function", "words"),
    [
        (Z, lambda z_BHTK: z_BHTK[:, :2], r"layers\.1\.mixer\.z must return a tensor of shape \(2, 4, 9, 8\)"),
        (Z, lambda z_BHTK: None, "NoneType"),
        (Z, lambda z_BHTK: z_BHTK.double(), "float32 on cpu, not float64 on cpu"),
        (Z, lambda z_BHTK: z_BHTK / 0, r"layers\.1\.mixer\.z returned infinity in 576 places"),
        (OUT, lambda out_BTD: out_BTD.sqrt(), r"layers\.1\.mixer\.out returned NaN"),
        ("layers.0.mixer.scores", lambda scores_BHTS: scores_BHTS * 0, r"layers\.0\.mixer\.scores returned NaN"),
        (Z, 3, "is a function of a tensor, not a int"),
        ("layers.1.mixer.zz", lambda value: value, r"layers\.1\.mixer\.z"),
        ("layers.2.mixer.z", lambda value: value, "its layers are 0 to 1"),
    ],
)
def test_what_can_not_take_a_values_place_is_refused_by_name(model, address, function, words):
    with pytest.raises(ClearheadError, match=words):
        edit(model, TOKENS, {address: function})


def test_nothing_is_left_behind_when_an_edit_raises(model):
    """Neither in the model nor in a state."""

    def fail(value: torch.Tensor) -> torch.Tensor:
        value.zero_()
        raise KeyboardInterrupt

    with torch.no_grad():
        plain = model(TOKENS)
        state = model.new_state()
        model(TOKENS[:, :4], state=state)
    for address in ("layers.0.mixer.k", "layers.1.mixer.pattern", "layers.1.resid_post", "logits"):
        with pytest.raises(KeyboardInterrupt):
            edit(model, {"tokens": TOKENS[:, 4:], "state": state}, {address: fail})
        assert state.length == 4
        assert torch.equal(edit(model, TOKENS, {}), plain)
    with torch.no_grad():
        assert error(model(TOKENS[:, 4:], state=state), plain[:, 4:]) <= F32


def test_minus_infinity_at_scores_hides_a_key(model):
    seen = look(model, TOKENS, "layers.0.mixer.pattern", edits={"layers.0.mixer.scores": at(forbid, keys=[3])})
    pattern_BHTS = seen["layers.0.mixer.pattern"]
    assert not pattern_BHTS[..., 3].any()
    assert error(pattern_BHTS.sum(-1), torch.ones(2, 4, 9)) <= F32


# ---- several edits of one place


def test_edits_of_one_place_follow_each_other(model):
    """Named twice by a star, by another spelling, or in mappings of their own: all work, in order."""
    value = look(model, TOKENS, Z)[Z]
    add, double = (lambda z: z + 1), (lambda z: z * 2)
    star, alias = "layers.1.*.z", "blocks.1.attn.hook_z"
    for edits in ({star: add, Z: double}, {Z: add, alias: double}, [{Z: add}, {Z: double}]):
        assert error(look(model, TOKENS, Z, edits=edits)[Z], (value + 1) * 2) <= F32
    other_order = look(model, TOKENS, Z, edits=[{Z: double}, {Z: add}])
    assert error(other_order[Z], value * 2 + 1) <= F32


def test_a_run_inside_an_edit_does_not_know_of_it(model):
    inner = []

    def look_again(value: torch.Tensor) -> torch.Tensor:
        inner.append(edit(model, TOKENS, {OUT: torch.zeros_like}))
        return torch.zeros_like(value)

    outer = edit(model, TOKENS, {Z: look_again})
    assert torch.equal(inner[0], edit(model, TOKENS, {OUT: torch.zeros_like}))
    assert torch.equal(outer, edit(model, TOKENS, {Z: torch.zeros_like}))


# ---- limits


@pytest.mark.parametrize(
    ("address", "limits", "chosen"),
    [
        (Z, {"heads": [1, 3]}, (slice(None), [1, 3])),
        (Z, {"heads": [2], "positions": [-1, 0]}, (slice(None), 2, [8, 0])),
        (Z, {"rows": [1]}, (1,)),
        ("layers.0.mixer.k", {"heads": [1]}, (slice(None), 1)),
        ("layers.0.mixer.v", {"positions": [4]}, (slice(None), slice(None), 4)),
        ("layers.0.resid_mid", {"positions": [4, 5]}, (slice(None), [4, 5])),
        ("layers.0.mixer.pattern", {"positions": [8], "keys": [0, 2]}, (slice(None), slice(None), 8, [0, 2])),
    ],
)
def test_an_edit_is_limited_to_what_it_names(model, address, limits, chosen):
    plain = look(model, TOKENS, address)[address]
    expected = plain.clone()
    expected[chosen] = 0.5

    def half(value: torch.Tensor) -> torch.Tensor:
        return value.fill_(0.5)  # in place: what is not chosen must stay all the same

    seen = look(model, TOKENS, address, edits={address: at(half, **limits)})[address]
    if address.endswith("pattern"):  # edited in the reference, and seen beside the kernel: the same to rounding
        assert error(seen, expected) <= F32
    else:
        assert torch.equal(seen, expected)


@pytest.mark.parametrize(
    ("address", "limits", "words"),
    [
        (Z, {"heads": [4]}, r"layers\.1\.mixer\.z has heads 0 to 3, not 4"),
        (Z, {"heads": [-1]}, "heads 0 to 3, not -1"),
        ("layers.1.mixer.k", {"heads": [2]}, "heads of keys and values 0 to 1, not 2"),
        (Z, {"positions": [9]}, "positions 0 to 8 in this text, not 9"),
        ("layers.1.mixer.pattern", {"keys": [9]}, "positions 0 to 8"),
        ("layers.1.resid_pre", {"heads": [0]}, "has no heads to choose: it is B x T x D"),
        (Z, {"experts": [0]}, "has no experts"),
        (Z, {"keys": [0]}, "has no keys"),
        ("layers.1.mixer.k", {"keys": [0]}, "has no keys"),
        (Z, {"heads": ["a"]}, "whole numbers"),
    ],
)
def test_what_is_not_there_is_refused_before_the_run(model, monkeypatch, address, limits, words):
    monkeypatch.setattr(model, "forward", lambda *_, **__: pytest.fail("the model ran"))
    with pytest.raises(ClearheadError, match=words):
        edit(model, TOKENS, {address: at(zero, **limits)})


# ---- experts


@pytest.fixture
def sparse(tmp_path):
    tiny.make("mixtral").save_pretrained(tmp_path)
    return clearhead.load(tmp_path)


def test_an_expert_that_is_forbidden_is_not_chosen(sparse):
    router, chosen = "layers.0.ffn.router_logits", "layers.0.ffn.chosen"
    before = look(sparse, TOKENS, chosen)
    after = look(sparse, TOKENS, chosen, edits={router: at(forbid, experts=[1])})
    assert (before[chosen] == 1).any() and not (after[chosen] == 1).any()
    untouched = ~(before[chosen] == 1).any(-1)
    assert torch.equal(after[chosen][untouched], before[chosen][untouched])
    n = sparse.config.stack.blocks[0].ffn.op.n_experts
    with pytest.raises(ClearheadError, match=f"experts 0 to {n - 1}, not {n}"):
        edit(sparse, TOKENS, {router: at(forbid, experts=[n])})
    with pytest.raises(ClearheadError, match=f"chose an expert that is not there: they are 0 to {n - 1}"):
        edit(sparse, TOKENS, {chosen: lambda ids: ids + n})
