"""What does not fit is refused by name: keys, values, tensors, shapes, ties."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.families.row_ops import Concat, RopeOrder, Shift
from clearhead.families.weights import Row, check_bijection
from tests.tiny import llama


@pytest.fixture
def folder(tmp_path):
    llama.make().save_pretrained(tmp_path)
    return tmp_path


def change(folder: Path, **keys: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **keys}))


def rewrite(folder: Path, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"hidden_sizes": 64}, r"config\.json.*'hidden_sizes' = 64.*did you mean 'hidden_size'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_act": "geglu"}, "hidden_act is 'geglu'; understood are gelu"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_type 'spiral'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "'factor' is missing"),
        ({"rope_parameters": {"rope_type": "default", "beta_fats": 3}}, "beta_fats"),
        ({"hidden_size": "64"}, r"config\.json: hidden_size is '64'"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5'"),
        ({"num_attention_heads": 0}, r"config\.json"),
        ({"hidden_act": ["silu"]}, "hidden_act"),
        ({"eos_token_id": "x"}, "eos_token_id is 'x'"),
        ({"rope_parameters": {"rope_type": "linear", "factor": "x"}}, r"config\.json"),
        ({"rope_parameters": {**llama.SCALINGS["longrope"], "long_factor": [1.0]}}, "one divisor for each of 8"),
        ({"model_type": "lama"}, "model_type 'lama' is not known; the nearest are llama"),
        ({"model_type": None}, "no model_type"),
        ({"architectures": ["LlamaForMaskedLM"]}, "LlamaForCausalLM or .* is built"),
        ({"architectures": ["LlamaForQuestionAnswering"]}, r"qa_outputs\.weight is missing; new_head=True"),
        ({"architectures": ["LlamaForSequenceClassification"]}, r"score\.weight is missing; new_head=True"),
        ({"num_key_value_heads": 3}, "can't share 3"),
        ({"num_hidden_layers": 4}, r"model\.layers\.3\.input_layernorm\.weight is missing"),
        ({"num_hidden_layers": 2}, r"model\.layers\.2\..* has no place"),
        ({"intermediate_size": 96}, r"gate_proj\.weight has shape 88x64, and the config asks for 96x64"),
        ({"attention_bias": True}, r"q_proj\.bias is missing"),
    ],
)
def test_a_config_that_is_not_understood(folder, keys, words):
    change(folder, **keys)
    with pytest.raises(ClearheadError, match=f"(?s){words}"):
        clearhead.load(folder)


def test_keys_that_do_not_matter_are_carried_along(folder, tmp_path):
    change(folder, task_specific_params={"a": 1}, temperature=0.6, chunk_size_feed_forward=0)
    clearhead.save(clearhead.load(folder), tmp_path / "saved")
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert written == json.loads((folder / "config.json").read_text())


def test_all_problems_come_in_one_error(folder):
    def spoil(tensors):
        del tensors["model.norm.weight"]
        tensors["model.extra"] = torch.zeros(2)
        tensors["lm_head.weight"] = tensors["lm_head.weight"][:50].clone()

    rewrite(folder, spoil)
    with pytest.raises(ClearheadError) as found:
        clearhead.load(folder)
    text = str(found.value)
    assert "model.norm.weight is missing" in text
    assert "model.extra has no place" in text
    assert "lm_head.weight has shape 50x64, and the config asks for 99x64" in text
    assert str(folder) in text


def test_nan_weights(folder):
    rewrite(folder, lambda tensors: tensors["model.norm.weight"].fill_(float("nan")))
    with pytest.raises(ClearheadError, match=r"model\.norm\.weight"):
        clearhead.load(folder)


# ---- H08: tied weights


def test_h08_tied_weights_are_one_tensor(tmp_path):
    llama.make(tie_word_embeddings=True).save_pretrained(tmp_path / "tied")
    model = clearhead.load(tmp_path / "tied")
    assert model.unembedding.data_ptr() == model.embed.tokens.weight.data_ptr()
    clearhead.save(model, tmp_path / "again")
    assert "lm_head.weight" not in load_file(tmp_path / "again" / "model.safetensors")
    again, tokens = clearhead.load(tmp_path / "again"), torch.randint(0, 99, (2, 9))
    with torch.no_grad():
        assert torch.equal(again(tokens), model(tokens))
    before = again.unembedding.detach().clone()
    optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
    again(tokens).logsumexp(-1).sum().backward()
    optimizer.step()
    assert again.unembedding is again.embed.tokens.weight
    assert not torch.equal(again.unembedding, before)
    assert again.to(torch.bfloat16).unembedding is again.embed.tokens.weight


def test_h08_an_untied_head_stays_its_own(folder, tmp_path):
    model = clearhead.load(folder)
    assert model.unembedding is not model.embed.tokens.weight
    clearhead.save(model, tmp_path / "again")
    saved, original = load_file(tmp_path / "again" / "model.safetensors"), load_file(folder / "model.safetensors")
    assert torch.equal(saved["lm_head.weight"], original["lm_head.weight"])


def test_h08_tied_config_with_another_head_in_the_file(folder):
    change(folder, tie_word_embeddings=True)
    with pytest.raises(ClearheadError, match=r"ties .*lm_head\.weight.*two that differ"):
        clearhead.load(folder)


def test_h08_tied_config_with_the_same_head_in_the_file(folder):
    def same(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    rewrite(folder, same)
    change(folder, tie_word_embeddings=True)
    model = clearhead.load(folder)
    assert model.unembedding is model.embed.tokens.weight


def test_h08_untied_config_without_a_head(folder):
    rewrite(folder, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(ClearheadError, match=r"lm_head\.weight is missing.*tie_word_embeddings"):
        clearhead.load(folder)


# ---- rows


def test_rows_are_a_bijection():
    for family in FAMILIES.values():
        check_bijection(family.weights.rows, counts_alike=family.weights.numbers is None)
    with pytest.raises(AssertionError, match="twice"):
        check_bijection((Row("a.{l}", "b.{l}"), Row("c.{l}", "b.{l}")))
    with pytest.raises(AssertionError, match="one side"):
        check_bijection((Row("a.{l}", "b"),))


@pytest.mark.parametrize("op", [Concat(), Concat(transposed=True), RopeOrder(), Shift(1.0)])
def test_every_operation_is_undone_bit_for_bit(op):
    config = FAMILIES["llama"].read(llama.make().config.to_dict(), "config")  # heads of 16
    n = 3 if isinstance(op, Concat) else 1
    parameters = [torch.randn(32, 8) for _ in range(n)]
    if isinstance(op, Shift):
        parameters = [torch.randint(-8, 8, (32,)) / 4]  # sums that are exact
    shapes = [tuple(p.shape) for p in parameters]
    files = op.save(parameters, config)
    assert [tuple(f.shape) for f in files] == op.file_shapes(shapes)
    for back, there in zip(op.load(files, shapes, config), parameters, strict=True):
        assert torch.equal(back, there)


def test_saving_a_model_that_came_from_nowhere(tmp_path):
    model = clearhead.Transformer(FAMILIES["gpt2"].read({"n_embd": 32, "n_head": 2, "n_layer": 1}, "config"))
    with pytest.raises(ClearheadError, match="family="):
        clearhead.save(model, tmp_path / "x")
    with pytest.raises(ClearheadError, match="can't be written as llama"):
        clearhead.save(model, tmp_path / "x", family="llama")
    assert not (tmp_path / "x").exists()
    clearhead.save(model, tmp_path / "x", family="gpt2")
    tokens = torch.randint(0, 100, (1, 5))
    assert torch.equal(clearhead.load(tmp_path / "x")(tokens), model.eval()(tokens))


def test_a_config_that_a_family_can_not_say(folder, tmp_path):
    """Saved anyway, it would be another model when it is read back."""
    model = clearhead.load(folder)
    first, *rest = model.config.decoder.blocks
    odd = replace(first, mixer=replace(first.mixer, scale=0.5))
    model.config = replace(model.config, decoder=replace(model.config.decoder, blocks=(odd, *rest)))
    with pytest.raises(ClearheadError, match="can't be written as llama"):
        clearhead.save(model, tmp_path / "x")


def test_null_is_no_token(folder):
    change(folder, eos_token_id=None, bos_token_id=None)
    ids = clearhead.load(folder).config.ids
    assert ids.eos == ()
    assert ids.bos is None


def test_whole_numbers_are_no_weights(folder):
    rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(64, dtype=torch.int32)}))
    with pytest.raises(ClearheadError, match=r"model\.norm\.weight.*int32"):
        clearhead.load(folder)


def test_a_parameter_of_another_shape_is_not_saved(folder, tmp_path):
    model = clearhead.load(folder)
    model.embed.tokens.weight = torch.nn.Parameter(torch.randn(120, 64))
    with pytest.raises(ClearheadError, match=r"embed\.tokens\.weight has shape \[120, 64\]"):
        clearhead.save(model, tmp_path / "x")


def test_side_files_of_another_model_do_not_stay(folder, tmp_path):
    (tmp_path / "old").mkdir()
    for name in ("generation_config.json", "tokenizer.json", "notes.txt"):
        (tmp_path / "old" / name).write_text("{}")
    (folder / "generation_config.json").unlink(missing_ok=True)
    clearhead.save(clearhead.load(folder), tmp_path / "old")
    assert sorted(p.name for p in (tmp_path / "old").iterdir()) == ["config.json", "model.safetensors", "notes.txt"]
