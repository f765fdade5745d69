"""What models that read pictures do beyond the harness: sizes (case H22), old spellings, the end of CLIP's texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import clearhead
from clearhead.errors import ClearheadError
from clearhead.families import clip
from clearhead.lens import attention_report
from clearhead.ops.positions import resize_grid
from clearhead.taps import catalogue
from tests.oracles import close, error
from tests.tiny.clip import clip as tiny_clip
from tests.tiny.vit import classifier

TALL = {"image_size": [32, 48]}


def both(theirs: nn.Module, folder: Path) -> tuple[nn.Module, Any]:
    theirs.save_pretrained(folder)
    return theirs, clearhead.load(folder)


# ---- sizes


@torch.no_grad()
def test_at_its_own_size_nothing_is_resized(tmp_path):
    theirs, ours = both(classifier(), tmp_path)
    pixels = torch.randn(2, 3, 32, 32)
    plain, resized = theirs(pixels).logits, theirs(pixels, interpolate_pos_encoding=True).logits
    assert torch.equal(plain, resized)
    assert close(ours(pixels=pixels), plain)


@pytest.mark.parametrize("size", [(32, 48), (48, 32), (64, 40), (8, 8)])
@torch.no_grad()
def test_other_sizes(tmp_path, size):
    theirs, ours = both(classifier(), tmp_path)
    pixels = torch.randn(2, 3, *size)
    assert close(ours(pixels=pixels), theirs(pixels, interpolate_pos_encoding=True).logits)


def test_a_size_that_can_not_be_cut_is_refused(tmp_path):
    _, ours = both(classifier(), tmp_path)
    with pytest.raises(ClearheadError, match="33 x 32 pixels can't be cut into squares of 8"):
        ours(pixels=torch.randn(1, 3, 33, 32))
    with pytest.raises(ClearheadError, match="picture"):
        ours()
    with pytest.raises(ClearheadError, match="reads no tokens"):
        ours(torch.zeros(1, 3, dtype=torch.long))


@torch.no_grad()
def test_a_model_trained_on_oblong_pictures(tmp_path):
    """`transformers` takes every grid for a square one when it resizes, and fails; a table that was resized before
    shows what is right."""
    theirs, ours = both(classifier(**TALL), tmp_path)
    pixels = torch.randn(2, 3, 32, 48)
    assert close(ours(pixels=pixels), theirs(pixels).logits)
    with pytest.raises(RuntimeError):
        theirs(torch.randn(2, 3, 48, 48), interpolate_pos_encoding=True)
    for size in ((48, 32), (48, 48), (64, 96)):
        larger = classifier(image_size=list(size))
        weights = theirs.state_dict()
        name = "vit.embeddings.position_embeddings"
        weights[name] = resize_grid(weights[name][0], (4, 6), (size[0] // 8, size[1] // 8))[None]
        larger.load_state_dict(weights)
        pixels = torch.randn(2, 3, *size)
        assert close(ours(pixels=pixels), larger(pixels).logits)


@torch.no_grad()
def test_a_turned_model_sees_a_turned_picture_alike(tmp_path):
    _, ours = both(classifier(**TALL), tmp_path / "a")
    _, turned = both(classifier(image_size=[48, 32]), tmp_path / "b")
    weights = ours.state_dict()
    weights["embed.patches.weight"] = weights["embed.patches.weight"].transpose(2, 3)
    table = weights["embed.positions.weight"]
    weights["embed.positions.weight"] = torch.cat(
        [table[:1], table[1:].unflatten(0, (4, 6)).transpose(0, 1).flatten(0, 1)]
    )
    turned.load_state_dict(weights)
    for size in ((32, 48), (48, 32), (56, 40)):
        pixels = torch.randn(2, 3, *size)
        assert close(turned(pixels=pixels.transpose(2, 3)), ours(pixels=pixels))


# ---- CLIP


@pytest.fixture
def towers(tmp_path):
    return both(tiny_clip(), tmp_path / "towers")


def texts(*ends: int) -> Tensor:
    tokens = torch.randint(3, 98, (len(ends), 20), generator=torch.Generator().manual_seed(3))
    tokens[range(len(ends)), list(ends)] = 98
    return tokens


@torch.no_grad()
def test_texts_and_pictures_alone(towers):
    theirs, ours = towers
    tokens, pixels = texts(19, 4, 11), torch.randn(2, 3, 32, 32)
    out = theirs(tokens, pixels)
    text, image = ours(tokens), ours(pixels=pixels)
    assert close(text.text, out.text_embeds)
    assert close(image.image, out.image_embeds)
    assert (text.image, text.logits_per_text, image.text, image.logits_per_image) == (None,) * 4
    assert close(text.text.norm(dim=-1), torch.ones(3))
    whole = ours(tokens, pixels=pixels)
    assert close(whole.logits_per_image, out.logits_per_image)
    assert torch.equal(whole.logits_per_image.T, whole.logits_per_text)
    with pytest.raises(ClearheadError, match="give texts"):
        ours()


@torch.no_grad()
def test_pictures_of_another_size_for_the_tower(towers):
    theirs, ours = towers
    pixels = torch.randn(2, 3, 48, 40)
    expected = theirs.get_image_features(pixels, interpolate_pos_encoding=True).pooler_output
    assert close(ours(pixels=pixels).image, expected / expected.norm(dim=-1, keepdim=True))


@torch.no_grad()
def test_a_text_is_read_at_its_first_end(towers):
    theirs, ours = towers
    tokens = texts(19, 4, 11)
    tokens[1, 9:] = tokens[2, 15] = 98  # padding that is spelled as the end is
    assert close(ours(tokens).text, theirs(tokens, torch.randn(1, 3, 32, 32)).text_embeds)
    present = torch.ones(3, 23, dtype=torch.bool)
    present[:, :3] = False
    padded = torch.cat([torch.full((3, 3), 98), tokens], dim=1)
    assert close(ours(padded, present=present).text, ours(tokens).text)


def test_a_text_without_end_is_refused(towers):
    """`transformers` reads its first token instead."""
    tokens = texts(19, 4)
    tokens[1, 4] = 5
    with pytest.raises(ClearheadError, match="at its end token, 98, and a row has none"):
        towers[1](tokens)


@torch.no_grad()
def test_the_old_end_is_the_highest_id(tmp_path):
    theirs, ours = both(tiny_clip(text={"eos_token_id": 2}), tmp_path)
    tokens = torch.randint(3, 98, (6, 20))
    assert close(ours(tokens).text, theirs(tokens, torch.randn(1, 3, 32, 32)).text_embeds)


def test_two_towers_say_what_they_can_not_do(towers):
    ours = towers[1]
    with pytest.raises(ClearheadError, match="decoder"):
        clearhead.generate(ours, [3, 4])
    with pytest.raises(ClearheadError, match="there is no text that it predicts"):
        clearhead.evaluate(ours, ["a"])
    with pytest.raises(ClearheadError, match="two towers"):
        clearhead.embed(ours, ["a"])
    with pytest.raises(ClearheadError, match="two towers"):
        attention_report(ours, [3, 4])
    with pytest.raises(ClearheadError, match="no contact head"):
        clearhead.contacts(ours, [3, 4])


def test_addresses_begin_with_the_tower(towers):
    known = catalogue(towers[1])
    assert {"text.embed", "text.layers.2.mixer.pattern", "image.layers.1.ffn.post", "image.final"} <= set(known)
    tokens, pixels = texts(19, 4), torch.randn(2, 3, 32, 32)
    seen = clearhead.look(towers[1], {"tokens": tokens, "pixels": pixels}, "*.layers.0.mixer.pattern")
    assert seen["text.layers.0.mixer.pattern"].shape == (2, 4, 20, 20)
    assert seen["image.layers.0.mixer.pattern"].shape == (2, 3, 17, 17)


@torch.no_grad()
def test_an_old_file(tmp_path):
    """As the first releases of CLIP on the Hub: everything said twice or three times, and positions saved."""
    theirs, ours = both(tiny_clip(text={"eos_token_id": 2}), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    talk = {
        "_name_or_path": "",
        "add_cross_attention": False,
        "bad_words_ids": None,
        "chunk_size_feed_forward": 0,
        "dropout": 0.0,
        "id2label": {"0": "LABEL_0", "1": "LABEL_1"},
        "is_decoder": False,
        "max_length": 20,
        "pruned_heads": {},
        "tie_word_embeddings": True,
        "tie_encoder_decoder": False,
        "top_k": 50,
        "torch_dtype": None,
        "torchscript": False,
        "use_bfloat16": False,
    }
    config["text_config"] |= talk
    config["vision_config"] |= {**talk, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    (tmp_path / "config.json").write_text(json.dumps({**config, "text_config_dict": None, "vision_config_dict": None}))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["text_model.embeddings.position_ids"] = torch.arange(24)[None]
    tensors["vision_model.embeddings.position_ids"] = torch.arange(17)[None]
    save_file(tensors, tmp_path / "model.safetensors")
    old, tokens, pixels = clearhead.load(tmp_path), texts(19, 4), torch.randn(2, 3, 32, 32)
    assert error(old(tokens, pixels=pixels).logits_per_text, theirs(tokens, pixels).logits_per_text) <= 1e-5
    assert old.config == ours.config


def test_where_a_config_says_it_twice_the_second_counts():
    """And alone: what it leaves out are the published defaults, as `transformers` reads it."""
    from transformers import CLIPConfig

    raw = {
        "text_config": {"hidden_size": 64, "eos_token_id": 2, "num_hidden_layers": 2},
        "text_config_dict": {"hidden_size": 96, "num_attention_heads": 4},
    }
    theirs = CLIPConfig(**json.loads(json.dumps(raw))).text_config
    ours = clip.FAMILY.read(raw, "here").text
    assert (ours.d_model, len(ours.stack.blocks)) == (theirs.hidden_size, theirs.num_hidden_layers) == (96, 12)
    assert ours.ids.eos == (theirs.eos_token_id,) == (49407,)


@pytest.mark.parametrize(
    ("tower", "change", "message"),
    [
        ("text_config", {"rope_theta": 1e4}, "text_config: not understood: 'rope_theta'"),
        ("vision_config", {"patch_size": [8, 16]}, "only squares"),
        ("vision_config", {"image_size": "large"}, "image_size"),
        ("vision_config", {"hidden_act": "mish"}, "hidden_act is 'mish'"),
    ],
)
def test_what_is_not_understood_is_refused(tower, change, message):
    with pytest.raises(ClearheadError, match=message):
        clip.FAMILY.read({"text_config": {}, "vision_config": {}, tower: change}, "here")


def test_a_projection_that_is_missing_is_named(towers, tmp_path):
    clearhead.save(towers[1], tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    del tensors["visual_projection.weight"]
    save_file(tensors, tmp_path / "saved" / "model.safetensors")
    with pytest.raises(ClearheadError, match=r"visual_projection\.weight is missing"):
        clearhead.load(tmp_path / "saved")
