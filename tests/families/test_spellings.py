"""What older files of a family look like: other keys, other names, no prefix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from clearhead.families import family_of
from tests.oracles import close
from tests.tiny import gemma3, gpt2, llama


def _config(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text())


def test_old_spellings_are_read_and_the_current_ones_written(tmp_path):
    scaling = {"type": "dynamic", "factor": 4.0}
    theirs = llama.make(rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 700.0})
    theirs.save_pretrained(tmp_path / "new")
    config = _config(tmp_path / "new")
    del config["rope_parameters"], config["head_dim"]
    config |= {"rope_theta": 700.0, "rope_scaling": scaling, "torch_dtype": config.pop("dtype")}
    (tmp_path / "new" / "config.json").write_text(json.dumps(config))
    ours = clearhead.load(tmp_path / "new")
    tokens = torch.randint(0, 99, (2, 30))
    with torch.no_grad():
        assert close(ours(tokens), theirs(tokens).logits)
    clearhead.save(ours, tmp_path / "saved")
    written = _config(tmp_path / "saved")
    assert written["rope_parameters"] == {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 700.0}
    assert not {"rope_theta", "rope_scaling", "torch_dtype"} & set(written)


def test_gemma3_old_spellings(tmp_path):
    theirs = gemma3.make()
    theirs.save_pretrained(tmp_path)
    config = _config(tmp_path)
    for name in ("rope_parameters", "layer_types", "_sliding_window_pattern"):
        config.pop(name, None)
    config |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = torch.randint(0, 99, (2, 20))
    with torch.no_grad():
        assert close(clearhead.load(tmp_path)(tokens), theirs(tokens).logits)


def test_gpt2_file_without_prefix_and_with_mask_buffers(tmp_path):
    """The file on the Hub: saved from the inner model, with the masks of its time."""
    from safetensors.torch import save_file

    theirs = gpt2.make()
    theirs.save_pretrained(tmp_path)
    tensors = {k.removeprefix("transformer."): v for k, v in load_file(tmp_path / "model.safetensors").items()}
    for layer in range(3):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 40, 40)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, tmp_path / "model.safetensors")
    tokens = torch.randint(0, 99, (2, 20))
    with torch.no_grad():
        assert close(clearhead.load(tmp_path)(tokens), theirs(tokens).logits)


CASED = dict.fromkeys(("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"), 12)
LABELS = {"id2label": {str(i): str(i) for i in range(3)}}


@pytest.mark.parametrize(
    ("kind", "architecture", "keys"),
    [
        # As on the Hub: bert-base-multilingual-cased, distilbert-base-uncased-finetuned-sst-2-english, the detector of
        # GPT-2's texts, distilbart-cnn, Phi-4-mini.
        ("bert", "BertForMaskedLM", {"directionality": "bidi", "pooler_type": "first_token_transform", **CASED}),
        ("distilbert", "DistilBertForSequenceClassification", {"output_past": True, "finetuning_task": "sst-2"}),
        ("roberta", "RobertaForSequenceClassification", {"output_past": True}),
        ("bart", "BartForConditionalGeneration", {"replacing_rate": 0, "student_encoder_layers": None}),
        ("phi3", "Phi3ForCausalLM", {"full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": False}),
    ],
)
def test_keys_of_published_configs_that_change_nothing(kind, architecture, keys):
    raw = {"model_type": kind, "architectures": [architecture]}
    family = family_of(raw, "config.json")
    assert family.read({**raw, **keys}, "config.json") == family.read(raw, "config.json")


def test_no_dropout_before_the_labels_of_tokens_is_kept():
    raw = {"model_type": "llama", "architectures": ["LlamaForTokenClassification"], "classifier_dropout": 0.0, **LABELS}
    family = family_of(raw, "config.json")
    config = family.read(raw, "config.json")
    assert config.heads.labels[0][1].dropout == 0.0
    assert family.write(config, {})["classifier_dropout"] == 0.0
