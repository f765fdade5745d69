"""What files of encoders have that today's `transformers` does not write: older names, and missing parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead
from clearhead.errors import ClearheadError
from tests import tiny
from tests.oracles import close

TOKENS = torch.randint(3, 33, (2, 20), generator=torch.Generator().manual_seed(1))


def stored(folder: Path, family: str, name: str) -> torch.nn.Module:
    model = tiny.make(family, name)
    model.save_pretrained(folder)
    return model


def rewrite(folder: Path, tensors: dict[str, torch.Tensor] | None = None, **config: object) -> None:
    """Other weights, and other keys of the config; None takes a key out."""
    if tensors is not None:
        save_file({name: t.clone() for name, t in tensors.items()}, folder / "model.safetensors")
    old = json.loads((folder / "config.json").read_text())
    new = {name: value for name, value in {**old, **config}.items() if value is not None or name not in config}
    (folder / "config.json").write_text(json.dumps(new))


def test_an_old_file_of_bert(tmp_path):
    """Norms as gamma and beta, a buffer, the decoder's matrix and bias written out."""
    theirs = stored(tmp_path, "bert", "masked")
    tensors = load_file(tmp_path / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    old["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"]
    rewrite(tmp_path, old, position_embedding_type="absolute", gradient_checkpointing=False, tie_word_embeddings=None)
    ours = clearhead.load(tmp_path)
    with torch.no_grad():
        assert close(ours(TOKENS), theirs(TOKENS).logits)
    clearhead.save(ours, tmp_path / "saved")
    assert load_file(tmp_path / "saved" / "model.safetensors").keys() == tensors.keys()


def test_a_second_bias_that_differs_is_refused(tmp_path):
    stored(tmp_path, "bert", "masked")
    tensors = load_file(tmp_path / "model.safetensors")
    rewrite(tmp_path, {**tensors, "cls.predictions.decoder.bias": tensors["cls.predictions.bias"] + 1})
    with pytest.raises(clearhead.ClearheadError, match=r"cls\.predictions\.decoder\.bias"):
        clearhead.load(tmp_path)


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
def test_positions_by_distance_are_refused(tmp_path, kind):
    stored(tmp_path, "bert", "masked")
    rewrite(tmp_path, position_embedding_type=kind)
    with pytest.raises(clearhead.ClearheadError, match="position_embedding_type"):
        clearhead.load(tmp_path)


def test_a_bare_model_without_a_pool(tmp_path):
    from transformers import AutoModel

    stored(tmp_path, "bert", "pooled")
    tensors = load_file(tmp_path / "model.safetensors")
    left = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    rewrite(tmp_path, left)
    ours = clearhead.load(tmp_path)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()(TOKENS)
        assert close(ours(TOKENS), theirs.last_hidden_state)
    clearhead.save(ours, tmp_path / "saved")
    again = load_file(tmp_path / "saved" / "model.safetensors")
    assert again.keys() == left.keys()
    assert all(torch.equal(again[name], left[name]) for name in left)
    with torch.no_grad():
        assert torch.equal(clearhead.load(tmp_path / "saved")(TOKENS), ours(TOKENS))


def test_another_task_needs_its_head(tmp_path):
    """A checkpoint of the masked model lacks a classifier, and has a head that classes don't need."""
    theirs = stored(tmp_path, "bert", "masked")
    kind = "BertForSequenceClassification"
    with pytest.raises(clearhead.ClearheadError, match=r"classifier\.weight is missing.*new_head=True") as refused:
        clearhead.load(tmp_path, architecture=kind)
    assert "pooler.dense.weight" in str(refused.value)
    ours = clearhead.load(tmp_path, architecture=kind, new_head=True)
    assert "cls.predictions.transform.dense.weight" in ours.origin.unused
    with torch.no_grad():
        assert ours(TOKENS).shape == (2, 2)
        stream = theirs.bert(TOKENS).last_hidden_state
    assert close(clearhead.look(ours, TOKENS, "final")["final"], stream)


def test_modernbert_as_the_hub_says_it(tmp_path):
    theirs = stored(tmp_path, "modernbert", "masked")
    rewrite(
        tmp_path,
        layer_types=None,
        rope_parameters=None,
        global_rope_theta=160000.0,
        local_rope_theta=10000.0,
        global_attn_every_n_layers=3,
        position_embedding_type="absolute",
        layer_norm_eps=1e-5,
        reference_compile=None,
    )
    ours = clearhead.load(tmp_path)
    with torch.no_grad():
        assert close(ours(TOKENS), theirs(TOKENS).logits)


def test_esm_as_the_hub_has_it(tmp_path):
    """Norms as weight and bias, and a buffer for every layer."""
    theirs = stored(tmp_path, "esm", "masked")
    tensors = load_file(tmp_path / "model.safetensors")
    star = next(name for name in tensors if "*" in name)
    hub = {
        name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in tensors.items()
        if name != star
    }
    hub |= {star.replace("*", str(layer)): tensors[star] for layer in range(3)}
    hub["esm.embeddings.position_ids"] = torch.arange(40)[None]
    rewrite(tmp_path, hub, hidden_act="gelu")
    ours = clearhead.load(tmp_path)
    with torch.no_grad():
        assert close(ours(TOKENS), theirs(TOKENS).logits)


def test_a_protein_of_nothing_but_masks(tmp_path):
    """`transformers` divides by zero there and gives NaN."""
    theirs = stored(tmp_path, "esm", "masked")
    masks = torch.full((1, 5), 32)
    with torch.no_grad():
        assert theirs(masks).logits.isnan().all()
        assert clearhead.load(tmp_path)(masks).isfinite().all()


@torch.no_grad()
def test_masked_tokens_count_in_their_own_document(tmp_path):
    """ESM-2 grows what is not masked by the share that is: of the document, not of the row it is packed in."""
    stored(tmp_path, "esm", "masked")
    model = clearhead.load(tmp_path)
    tokens = TOKENS[:1].clone()
    tokens[tokens == model.config.stack.embed.front.mask_dropout.mask_id] = 5
    tokens[0, 2:6] = model.config.stack.embed.front.mask_dropout.mask_id
    packed = model(tokens, documents=torch.tensor([[0] * 9 + [1] * 11]))
    assert close(packed, torch.cat([model(tokens[:, :9]), model(tokens[:, 9:])], dim=1))


@torch.no_grad()
def test_a_text_seen_both_ways_is_not_read_in_pieces(tmp_path):
    stored(tmp_path, "bert", "masked")
    model = clearhead.load(tmp_path)
    state = model.new_state()
    model(TOKENS[:, :9], state=state)
    with pytest.raises(ClearheadError, match="sees both ways"):
        model(TOKENS[:, 9:], state=state)
