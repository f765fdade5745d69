"""TransformerLens' names: the axes it has, no name that means something else there.

What each of its names means is written out here from its documentation; the package itself is no requirement.
"""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens import edit, look
from clearhead.lens.aliases import MARK, aliases
from clearhead.taps import catalogue
from tests import tiny
from tests.lens.conftest import make_model

TOKENS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def gpt2(tmp_path):
    tiny.make("gpt2").save_pretrained(tmp_path)
    return clearhead.load(tmp_path)


def test_their_names_of_gpt2(gpt2):
    block, known = "blocks.1.", aliases(gpt2)
    expected = {
        "hook_embed": "embed.front",
        "hook_pos_embed": "embed.positions",
        block + "hook_resid_pre": "layers.1.resid_pre",
        block + "hook_resid_mid": "layers.1.resid_mid",
        block + "hook_resid_post": "layers.1.resid_post",
        block + "hook_attn_out": "layers.1.mixer.out",
        block + "hook_mlp_out": "layers.1.ffn.out",
        block + "attn.hook_q": "layers.1.mixer.q_raw",
        block + "attn.hook_k": "layers.1.mixer.k_raw",
        block + "attn.hook_v": "layers.1.mixer.v",
        block + "attn.hook_z": "layers.1.mixer.z",
        block + "attn.hook_attn_scores": "layers.1.mixer.scores",
        block + "attn.hook_pattern": "layers.1.mixer.pattern",
        block + "mlp.hook_pre": "layers.1.ffn.pre",
        block + "mlp.hook_post": "layers.1.ffn.post",
        "ln_final.hook_normalized": "final",
    }
    for name, address in expected.items():
        assert (known[name].address, known[name].differs) == (address, ""), name
    seen = look(gpt2, TOKENS, *expected)
    assert set(seen) == set(expected.values())
    b, t, h, k = 2, 9, gpt2.config.stack.blocks[0].mixer.op.n_heads, gpt2.config.stack.blocks[0].mixer.op.d_head
    for name in ("q", "k", "v", "z"):
        assert seen[f"{block}attn.hook_{name}"].shape == (b, t, h, k)
    assert torch.equal(seen[block + "attn.hook_z"], seen["layers.1.mixer.z"].transpose(1, 2))
    assert seen[block + "attn.hook_pattern"].shape == (b, h, t, t)
    # What begins a model is the sum of what it embeds.
    assert torch.equal(seen["hook_embed"] + seen["hook_pos_embed"], look(gpt2, TOKENS, "embed")["embed"])


def test_the_catalogue_has_none_of_their_names(gpt2):
    assert not [name for name in catalogue(gpt2) if MARK in name]


def test_a_function_for_their_axes_does_what_it_does_there(model):
    def without_head_2(z_BTHK: torch.Tensor) -> torch.Tensor:
        z_BTHK[:, :, 2] = 0
        return z_BTHK

    seen = look(model, TOKENS, "blocks.*.attn.hook_z", edits={"blocks.1.attn.hook_z": without_head_2})
    assert not seen["layers.1.mixer.z"][:, 2].any()
    assert seen["layers.1.mixer.z"][:, [0, 1, 3]].abs().amin((0, 2, 3)).min() > 0
    with pytest.raises(ClearheadError, match=r"layers\.1\.mixer\.z must return a tensor of shape \(2, 4, 9, 8\)"):
        edit(model, TOKENS, {"blocks.1.attn.hook_z": lambda z_BTHK: z_BTHK[:, :, :2]})


def test_with_rotary_positions_queries_have_two_names(model):
    seen = look(model, TOKENS, "blocks.0.attn.hook_q", "blocks.0.attn.hook_rot_q", "blocks.0.attn.hook_rot_k")
    assert list(seen) == ["layers.0.mixer.q_raw", "layers.0.mixer.q", "layers.0.mixer.k"]
    assert not torch.equal(seen["blocks.0.attn.hook_q"], seen["blocks.0.attn.hook_rot_q"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("blocks.0.attn.hook_result", r"nearest is layers\.0\.mixer\.z"),
        ("blocks.1.ln1.hook_scale", r"nearest is layers\.1\.resid_pre"),
        ("ln_final.hook_normalized", "before the norm's weight; the nearest is final"),
        ("blocks.0.attn.hook_patern", r"nothing called .*layers\.0\.mixer\.pattern"),
        ("blocks.7.attn.hook_z", r"nothing called .*layers\.\d\.mixer\.z"),
        ("hook_pos_embed", "nothing called"),
    ],
)
def test_what_has_no_exact_equal_is_refused_with_the_nearest(model, name, words):
    with pytest.raises(ClearheadError, match=words):
        look(model, TOKENS, name)
    with pytest.raises(ClearheadError, match=words):
        edit(model, TOKENS, {name: torch.zeros_like})


def test_a_star_takes_what_is_equal_and_leaves_the_rest(model):
    seen = look(model, TOKENS, "blocks.0.attn.hook_*")
    assert [name.removeprefix("layers.0.mixer.") for name in seen] == "q_raw k_raw q k v scores pattern z".split()


@pytest.mark.parametrize(("family", "equal"), [("bert", False), ("llama", True)])
def test_behind_a_norm_the_stream_has_another_name(family, equal, tmp_path):
    tiny.make(family).save_pretrained(tmp_path)
    model = clearhead.load(tmp_path)
    if equal:
        assert list(look(model, TOKENS, "blocks.0.hook_resid_post")) == ["layers.0.resid_post"]
        return
    assert list(look(model, TOKENS, "blocks.0.hook_normalized_resid_post")) == ["layers.0.resid_post"]
    with pytest.raises(ClearheadError, match=r"before the norm; the nearest is layers\.0\.resid_post"):
        look(model, TOKENS, "blocks.0.hook_resid_post")


def test_an_encoder_beside_a_decoder(tmp_path):
    tiny.make("t5").save_pretrained(tmp_path)
    model = clearhead.load(tmp_path)
    inputs = {"tokens": TOKENS, "source": TOKENS[:, :5]}
    names = ["encoder.0.attn.hook_pattern", "decoder.1.cross_attn.hook_pattern", "decoder.1.hook_resid_mid_cross"]
    seen = look(model, inputs, *names)
    assert set(seen) == {"encoder.layers.0.mixer.pattern", "layers.1.cross.pattern", "layers.1.resid_cross"}
    assert seen[names[1]].shape[-2:] == (9, 5)
    assert seen.sources == [[str(int(token)) for token in row] for row in TOKENS[:, :5]]


def test_a_norm_of_queries_has_no_place_of_theirs_behind_it(tmp_path):
    tiny.make("qwen3").save_pretrained(tmp_path)
    with pytest.raises(ClearheadError, match=r"before the norm; the nearest is layers\.0\.mixer\.q_raw"):
        look(clearhead.load(tmp_path), TOKENS, "blocks.0.attn.hook_q")


def test_gradients_answer_to_their_names_too():
    seen = look(make_model(), TOKENS, "blocks.0.attn.hook_z", gradient_of=lambda logits: logits[0, -1, 0])
    assert seen.gradients["blocks.0.attn.hook_z"].shape == (2, 9, 4, 8)
    assert "blocks.0.attn.hook_z" in seen and "blocks.1.attn.hook_z" not in seen
