"""Rows and metadata that many decoders have in common: names in the Hub's files, and in GGUF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from clearhead.families.common import CLASSES, SPAN
from clearhead.families.family import GGUFFile, Reader
from clearhead.families.row_ops import Concat, Op, RopeOrder, Same, Shift, Stack, Tied
from clearhead.families.weights import Row

KINDS = ("weight", "bias")
QKV = ("q_proj", "k_proj", "v_proj")
SAME, TIED = Same(), Tied("embed.tokens.weight")


def rows(theirs: str, names: Mapping[str, str], op: Op = SAME, ours: str = "layers.{l}.") -> tuple[Row, ...]:
    """Rows of weights and biases, stored alike; those that a model has no parameter for don't count."""
    return tuple(Row(f"{theirs}{file}.{k}", f"{ours}{name}.{k}", op) for file, name in names.items() for k in KINDS)


def fused(theirs: str, parts: tuple[str, ...], op: Op | None = None, ours: str = "layers.{l}.") -> tuple[Row, ...]:
    """Rows of a tensor that holds several parameters, one after another if `op` says nothing else."""
    return tuple(Row(f"{theirs}.{k}", tuple(f"{ours}{part}.{k}" for part in parts), op or Concat()) for k in KINDS)


def experts(theirs: str, gate: str, up: str, down: str) -> tuple[Row, ...]:
    """Rows of experts' matrices, one tensor an expert: `theirs` counts them by `{e}`."""
    parts = {gate: "gate", up: "up", down: "down"}
    return tuple(Row(f"{theirs}.{k}.weight", f"layers.{{l}}.ffn.{part}_proj", Stack()) for k, part in parts.items())


LAYER = "model.layers.{l}."

EMBEDDING = (Row("model.embed_tokens.weight", "embed.tokens.weight"),)
ATTENTION = {f"self_attn.{name}": f"mixer.{name}" for name in (*QKV, "o_proj", "q_norm", "k_norm")}
FEED_FORWARD = {f"mlp.{name}_proj": f"ffn.{name}_proj" for name in ("gate", "up", "down")}
PRE_NORMS = {"input_layernorm": "mixer_norm.pre", "post_attention_layernorm": "ffn_norm.pre"}
SANDWICH_NORMS = {
    "input_layernorm": "mixer_norm.pre",
    "post_attention_layernorm": "mixer_norm.out",
    "pre_feedforward_layernorm": "ffn_norm.pre",
    "post_feedforward_layernorm": "ffn_norm.out",
}
LABELS = rows("", {"score": f"labels.{CLASSES}", "qa_outputs": f"labels.{SPAN}"}, ours="")
ENDS = (Row("model.norm.weight", "norm.weight"), Row("lm_head.weight", "head.weight", TIED), *LABELS)
"""The last norm and the heads."""


def answers(config: Any) -> bool:
    """Whether a model finds the spans that answer a question."""
    return any(name == SPAN for name, _ in config.heads.labels)


def tags(config: Any) -> bool:
    """Whether a model labels every token."""
    return any(name == CLASSES and head.at == "every" for name, head in config.heads.labels)


def only(holds: Callable[[Any], bool], those: Iterable[Row]) -> tuple[Row, ...]:
    """Rows of some models alone."""
    return tuple(replace(row, when=holds) for row in those)


ANSWERING = ("transformer.", answers)
"""What several families' classes that answer questions call their inner model."""

LABELS_BY_CLASS = (
    *rows("", {"qa_outputs": f"labels.{SPAN}"}, ours=""),
    *only(lambda config: not tags(config), rows("", {"score": f"labels.{CLASSES}"}, ours="")),
    *only(tags, rows("", {"classifier": f"labels.{CLASSES}"}, ours="")),
)
"""Label heads where the two kinds of classifiers call theirs by two names."""

LLAMA = (*EMBEDDING, *rows(LAYER, PRE_NORMS | ATTENTION | FEED_FORWARD), *ENDS)
"""What most decoders have."""
GEMMA = (*EMBEDDING, *rows(LAYER, SANDWICH_NORMS | ATTENTION | FEED_FORWARD), *ENDS)
"""The same with norms on both sides."""

OLD_ROTARY = ("model.layers.{l}.self_attn.rotary_emb.inv_freq",)
"""Buffers of older files."""


# ---- GGUF

BLOCK = "blk.{l}."

GGUF_EMBEDDING = (Row("token_embd.weight", "embed.tokens.weight"),)
GGUF_Q, GGUF_K = {"attn_q": "mixer.q_proj"}, {"attn_k": "mixer.k_proj"}
GGUF_VO = {"attn_v": "mixer.v_proj", "attn_output": "mixer.o_proj"}
GGUF_QK_NORMS = {"attn_q_norm": "mixer.q_norm", "attn_k_norm": "mixer.k_norm"}
GGUF_FEED_FORWARD = {f"ffn_{name}": f"ffn.{name}_proj" for name in ("gate", "up", "down")}
GGUF_PRE_NORMS = {"attn_norm": "mixer_norm.pre", "ffn_norm": "ffn_norm.pre"}
GGUF_SANDWICH_NORMS = {
    "attn_norm": "mixer_norm.pre",
    "post_attention_norm": "mixer_norm.out",
    "ffn_norm": "ffn_norm.pre",
    "post_ffw_norm": "ffn_norm.out",
}
GGUF_ENDS = (Row("output_norm.weight", "norm.weight"), Row("output.weight", "head.weight", TIED))

GGUF_MATRICES = rows(BLOCK, GGUF_Q | GGUF_K | GGUF_VO | GGUF_FEED_FORWARD)

GGUF_PLAIN = (*GGUF_EMBEDDING, *rows(BLOCK, GGUF_PRE_NORMS | GGUF_QK_NORMS), *GGUF_MATRICES, *GGUF_ENDS)
"""What most decoders have."""

GGUF_TURNED = (
    *GGUF_EMBEDDING,
    *rows(BLOCK, GGUF_PRE_NORMS | GGUF_VO | GGUF_FEED_FORWARD),
    *rows(BLOCK, GGUF_Q | GGUF_K, RopeOrder()),
    *GGUF_ENDS,
)
"""The same where rotary pairs are neighbours in the file, as Meta's own files have them."""

GGUF_GEMMA = (
    *GGUF_EMBEDDING,
    # There the norms' weights are stored with their offset of 1.
    *(
        Row(f"blk.{{l}}.{file}.weight", f"layers.{{l}}.{ours}.weight", Shift(1.0))
        for file, ours in (GGUF_SANDWICH_NORMS | GGUF_QK_NORMS).items()
    ),
    *GGUF_MATRICES,
    Row("output_norm.weight", "norm.weight", Shift(1.0)),
    Row("output.weight", "head.weight", TIED),
)
"""The same with norms on both sides."""


def read_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    """The config of a decoder in Llama's words, from the metadata that all of them have."""
    d_model, n_heads = r.need("embedding_length"), r.need("attention.head_count")
    d_head = r.get("attention.key_length", d_model // n_heads)
    r.expect("attention.value_length", d_head)
    r.get("vocab_size")
    r.get("rope.dimension_count")
    return {
        "vocab_size": file.shapes["token_embd.weight"][0],
        "hidden_size": d_model,
        "intermediate_size": r.need("feed_forward_length"),
        "num_hidden_layers": r.need("block_count"),
        "num_attention_heads": n_heads,
        "num_key_value_heads": r.get("attention.head_count_kv", n_heads),
        "head_dim": d_head,
        "max_position_embeddings": r.need("context_length"),
        "rms_norm_eps": r.need("attention.layer_norm_rms_epsilon"),
        "rope_theta": r.get("rope.freq_base", 10000.0),
        "rope_scaling": gguf_scaling(r),
        "tie_word_embeddings": "output.weight" not in file.shapes,
    }


def gguf_scaling(r: Reader) -> dict[str, Any] | None:
    """Rotary scaling as GGUF metadata has it."""
    kind = r.get("rope.scaling.type", "none")
    factor, trained = r.get("rope.scaling.factor"), r.get("rope.scaling.original_context_length")
    betas = {name: r.get(f"rope.scaling.yarn_{name}") for name in ("beta_fast", "beta_slow")}
    r.get("rope.scaling.finetuned")
    if kind == "none":
        return None
    return {
        "rope_type": kind,
        "factor": factor,
        "original_max_position_embeddings": trained,
        **({name: beta for name, beta in betas.items() if beta is not None} if kind == "yarn" else {}),
    }
