"""Interventions: an identity is nothing, and removing a head removes exactly that head (case H24)."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens import edit, look
from clearhead.taps import catalogue
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


def test_an_edit_must_keep_the_shape_and_name_a_real_place(model):
    with pytest.raises(ClearheadError, match=r"\(2, 4, 9, 8\)"):
        edit(model, TOKENS, {Z: lambda z_BHTK: z_BHTK[:, :2]})
    with pytest.raises(ClearheadError, match=r"layers\.1\.mixer\.z"):
        edit(model, TOKENS, {"layers.1.mixer.zz": lambda value: value})
