"""Models whose weights stay in blocks: the same numbers as the plain weights that the blocks stand for."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from torch import nn

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.ops.quantised import QuantisedTensor
from tests import tiny
from tests.families.test_gguf import permuted
from tests.oracles import close, error

D, FF, V = 64, 128, 320


@pytest.fixture(scope="module")
def llama_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers whose matrices are Q8_0 and Q5_0, q and k with their rows in GGUF's order."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("gguf") / "llama.gguf"
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(128)
    w.add_embedding_length(D)
    w.add_block_count(2)
    w.add_feed_forward_length(FF)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_vocab_size(V)

    def add(name: str, weight: torch.Tensor, kind: str) -> None:
        number = GGMLQuantizationType[kind]
        w.add_tensor(name, quants.quantize(weight.numpy(), number), raw_dtype=number)

    add("token_embd.weight", torch.randn(V, D) * 0.3, "Q8_0")
    w.add_tensor("output_norm.weight", torch.ones(D).numpy())
    add("output.weight", torch.randn(V, D) * 0.3, "Q8_0")
    for i in range(2):
        w.add_tensor(f"blk.{i}.attn_norm.weight", torch.ones(D).numpy())
        w.add_tensor(f"blk.{i}.ffn_norm.weight", torch.ones(D).numpy())
        add(f"blk.{i}.attn_q.weight", permuted(torch.randn(D, D) * 0.2, 4), "Q5_0")
        add(f"blk.{i}.attn_k.weight", permuted(torch.randn(32, D) * 0.2, 2), "Q5_0")
        add(f"blk.{i}.attn_v.weight", torch.randn(32, D) * 0.2, "Q8_0")
        add(f"blk.{i}.attn_output.weight", torch.randn(D, D) * 0.2, "Q5_0")
        add(f"blk.{i}.ffn_gate.weight", torch.randn(FF, D) * 0.2, "Q4_0")
        add(f"blk.{i}.ffn_up.weight", torch.randn(FF, D) * 0.2, "Q4_0")
        add(f"blk.{i}.ffn_down.weight", torch.randn(D, FF) * 0.2, "Q5_1")  # which is not multiplied as it is
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def kinds_of(model: nn.Module) -> dict[str, str]:
    return {n: p.kind for n, p in model.named_parameters() if isinstance(p, QuantisedTensor)}


def test_stored_blocks_are_the_same_model(llama_file: Path) -> None:
    plain, kept = clearhead.load(llama_file), clearhead.load(llama_file, weights="stored")
    found = kinds_of(kept)
    assert found["layers.0.mixer.q_proj.weight"] == "Q5_0" and found["embed.tokens.weight"] == "Q8_0"
    assert "layers.0.ffn.down_proj.weight" not in found and len(found) == 2 + 2 * 6
    for (name, a), b in zip(plain.named_parameters(), kept.parameters(), strict=True):
        assert torch.equal(a, b.dequantise() if isinstance(b, QuantisedTensor) else b), name
    tokens = torch.randint(V, (2, 9), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert close(kept(tokens), plain(tokens))
    rows = [[5, 6, 7, 8], [9]]
    outs = [[r.tokens for r in clearhead.generate(m, rows, max_new_tokens=24, temperature=0)] for m in (plain, kept)]
    assert outs[0] == outs[1]


def test_stored_blocks_can_be_looked_into_and_saved(llama_file: Path, tmp_path: Path) -> None:
    plain, kept = clearhead.load(llama_file), clearhead.load(llama_file, weights="stored")
    address = "layers.1.mixer.pattern"
    a, b = (clearhead.look(model, torch.tensor([[1, 2, 3]]), address)[address] for model in (plain, kept))
    assert error(a, b) <= 1e-5
    clearhead.save(kept, tmp_path / "saved")
    again = clearhead.load(tmp_path / "saved")
    for (name, x), y in zip(plain.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(x, y), name


WIDER = {
    "gpt2": {"n_embd": 64, "n_head": 4},
    "llama": {"hidden_size": 64, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2},
    "bert": {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4},
    "mixtral": {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt_oss": {"hidden_size": 64, "intermediate_size": 64},
    "t5": {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4},
}
"""Tiny models as wide as blocks are."""


@pytest.mark.parametrize("weights", ["int8", "int4"])
@pytest.mark.parametrize("family", WIDER)
def test_any_model_can_be_kept_small(
    family: str, weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers are those of a plain model with the very weights that the blocks stand for."""
    monkeypatch.setattr("clearhead.checkpoints.keeping.SMALLEST", 64)
    record = tiny.record_of(*next(case for case in tiny.cases() if case[0] == family))
    record.make(**WIDER[family]).save_pretrained(tmp_path / family)
    kept, plain = clearhead.load(tmp_path / family, weights=weights), clearhead.load(tmp_path / family)
    wide = {n for n, p in plain.named_parameters() if p.shape[-1] % 64 == 0}
    matrices = [n for n in wide if n.endswith(("_proj.weight", "_proj"))]
    assert matrices and kinds_of(kept).keys() >= set(matrices)
    assert not [name for name in kinds_of(kept) if "bias" in name or "norm" in name or "router" in name]
    assert set(kinds_of(kept).values()) <= ({"Q8_0"} if weights == "int8" else {"Q8_0", "Q4_0", "Q4_K"})
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            value = kept.get_parameter(name)
            parameter.copy_(value.dequantise() if isinstance(value, QuantisedTensor) else value)
    inputs = {"tokens_BT": torch.randint(3, 60, (2, 7), generator=torch.Generator().manual_seed(0))}
    if kept.encoder is not None:
        inputs["source"] = inputs["tokens_BT"]
    with torch.no_grad():
        ours, theirs = kept(**inputs), plain(**inputs)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (ours, theirs)), strict=True):
        assert close(a, b)


def test_what_can_not_be_kept_is_refused(llama_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="weights is 'int3'; there are plain, stored, auto, int8, int4"):
        clearhead.load(llama_file, weights="int3")
    clearhead.save(clearhead.load(llama_file), tmp_path / "plain")
    with pytest.raises(ClearheadError, match="no GGUF file"):
        clearhead.load(tmp_path / "plain", weights="stored")
    with pytest.raises(UsageError, match='weights="int8" is for the CPU'):
        clearhead.load(llama_file, weights="int8", device="meta")
    assert not kinds_of(clearhead.load(tmp_path / "plain", weights="auto"))
    assert kinds_of(clearhead.load(llama_file, weights="auto"))


def test_a_damaged_scale_is_refused(llama_file: Path, tmp_path: Path) -> None:
    from clearhead.checkpoints.gguf_checkpoint import GGUFCheckpoint

    with GGUFCheckpoint(llama_file) as checkpoint:
        begin = checkpoint._places["blk.1.attn_v.weight"][1].begin
    broken = tmp_path / "broken.gguf"
    content = bytearray(llama_file.read_bytes())
    content[begin : begin + 2] = b"\x00\x7e"  # a NaN
    broken.write_bytes(content)
    with pytest.raises(ClearheadError, match=r"blk\.1\.attn_v\.weight.*hold NaN or infinity"):
        clearhead.load(broken, weights="stored")


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_a_tied_head_that_the_file_repeats_is_read_once(weights: str, tmp_path: Path) -> None:
    record = tiny.record_of(*next(case for case in tiny.cases() if case[0] == "llama"))
    model = record.make(**WIDER["llama"], vocab_size=300, tie_word_embeddings=False)
    model.lm_head.weight.data.copy_(model.model.embed_tokens.weight)
    folder = tmp_path / "tied"
    model.save_pretrained(folder)
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'))
    assert kinds_of(clearhead.load(folder, weights=weights))["embed.tokens.weight"] == "Q8_0"
