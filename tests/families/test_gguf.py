"""GGUF files of every family here, written by the `gguf` package, read back bit for bit."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from tests.oracles import close
from tests.tiny import llama


def permuted(weight: torch.Tensor, n_heads: int) -> torch.Tensor:
    """How converters store q and k: a head's two halves interleaved."""
    return (
        weight.reshape(n_heads, 2, weight.shape[0] // n_heads // 2, *weight.shape[1:])
        .swapaxes(1, 2)
        .reshape(weight.shape)
    )


def write_llama(path: Path, model: torch.nn.Module, *, divisors: torch.Tensor | None = None, **extra: object) -> None:
    c, s = model.config, model.state_dict()
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_dimension_count(c.head_dim)
    w.add_vocab_size(c.vocab_size)
    for key, value in extra.items():
        w.add_string(key, value)
    tensors = {"token_embd": s["model.embed_tokens.weight"], "output_norm": s["model.norm.weight"]}
    if not c.tie_word_embeddings:
        tensors["output"] = s["lm_head.weight"]
    if divisors is not None:
        tensors["rope_freqs"] = divisors
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}"
        tensors |= {
            f"blk.{i}.attn_norm": s[f"{layer}.input_layernorm.weight"],
            f"blk.{i}.ffn_norm": s[f"{layer}.post_attention_layernorm.weight"],
            f"blk.{i}.attn_q": permuted(s[f"{layer}.self_attn.q_proj.weight"], c.num_attention_heads),
            f"blk.{i}.attn_k": permuted(s[f"{layer}.self_attn.k_proj.weight"], c.num_key_value_heads),
            f"blk.{i}.attn_v": s[f"{layer}.self_attn.v_proj.weight"],
            f"blk.{i}.attn_output": s[f"{layer}.self_attn.o_proj.weight"],
            f"blk.{i}.ffn_gate": s[f"{layer}.mlp.gate_proj.weight"],
            f"blk.{i}.ffn_up": s[f"{layer}.mlp.up_proj.weight"],
            f"blk.{i}.ffn_down": s[f"{layer}.mlp.down_proj.weight"],
        }
    for name, tensor in tensors.items():
        w.add_tensor(f"{name}.weight", tensor.contiguous().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.mark.parametrize("tie", [False, True])
def test_h20_query_and_key_order_with_grouped_heads(tmp_path, tie):
    theirs = llama.make(hidden_size=32, num_hidden_layers=2, tie_word_embeddings=tie)
    write_llama(tmp_path / "tiny.gguf", theirs)
    ours = clearhead.load(tmp_path / "tiny.gguf")
    source = theirs.state_dict()
    for i in range(2):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            read = ours.get_parameter(f"layers.{i}.mixer.{name}.weight")
            assert torch.equal(read, source[f"model.layers.{i}.self_attn.{name}.weight"])
    for length in (1, 64):
        tokens = torch.randint(0, 99, (2, length))
        with torch.no_grad():
            assert close(ours(tokens), theirs(tokens).logits)


def test_a_gguf_becomes_a_folder(tmp_path):
    from transformers import LlamaForCausalLM

    theirs = llama.make()
    write_llama(tmp_path / "tiny.gguf", theirs)
    clearhead.save(clearhead.load(tmp_path / "tiny.gguf"), tmp_path / "folder")
    tokens = torch.randint(0, 99, (2, 12))
    with torch.no_grad():
        there = LlamaForCausalLM.from_pretrained(tmp_path / "folder").eval()(tokens).logits
        assert close(there, theirs(tokens).logits)
        assert close(clearhead.load(tmp_path / "folder")(tokens), there)


def test_llama3_scaling_comes_as_one_divisor_a_frequency(tmp_path):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    theirs = llama.make(rope_parameters={"rope_theta": 10000.0, **llama.SCALINGS["llama3"]})
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](theirs.config, torch.device("cpu"))
    plain = 10000.0 ** (-torch.arange(0, 16, 2) / 16)
    write_llama(tmp_path / "tiny.gguf", theirs, divisors=plain / scaled)
    tokens = torch.randint(0, 99, (2, 40))
    ours = clearhead.load(tmp_path / "tiny.gguf")
    with torch.no_grad():
        assert close(ours(tokens), theirs(tokens).logits)
        state = ours.new_state()
        ours(tokens[:, :30], state=state)
        assert close(ours(tokens[:, 30:], state=state), theirs(tokens).logits[:, 30:])
    assert state.tokens is None  # these divisors do not depend on the length: nothing is ever read again


def test_unknown_metadata_and_architectures_are_refused(tmp_path):
    write_llama(tmp_path / "odd.gguf", llama.make(), **{"llama.attention.spin": "left"})
    with pytest.raises(ClearheadError, match=r"odd\.gguf.*attention\.spin"):
        clearhead.load(tmp_path / "odd.gguf")
    w = gguf.GGUFWriter(tmp_path / "other.gguf", "starcoder")
    w.add_tensor("a", torch.zeros(4).numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    with pytest.raises(ClearheadError, match="'starcoder' can't be read from GGUF"):
        clearhead.load(tmp_path / "other.gguf")
