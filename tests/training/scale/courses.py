"""Tiny runs of which every step must be the same in one process and in several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from clearhead.config import AlibiConfig, TransformerConfig
from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.training.config import BatchConfig, DecoderConfig, OptimConfig, RunConfig, ScaleConfig, TrainConfig
from clearhead.training.data.batches import Batch
from clearhead.training.models import decoder
from clearhead.training.objectives import NextToken, SourceToTarget
from clearhead.training.scale.processes import arranged
from clearhead.training.trainer import Trainer
from tests.training.samples import IGNORE, VOCAB, Samples, tiny

STEPS = 6
SCALES = {"copies": ScaleConfig(), "shards": ScaleConfig(shard=True), "matrices": ScaleConfig(tensor=2)}
GROUPED = DecoderConfig(family="qwen3", d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=24, qk_norm=True)
SIZES = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
WINDOWED = {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4, "max_position_embeddings": 32}
PUBLISHED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "biased": (
        "gpt2",
        "GPT2LMHeadModel",
        {"vocab_size": VOCAB, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32}
        | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    ),
    "sinks": (
        "gpt_oss",
        "GptOssForCausalLM",
        {**SIZES, **WINDOWED, "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2}
        | {"rope_scaling": None},
    ),
    "relative": (
        "t5",
        "T5ForConditionalGeneration",
        {"vocab_size": VOCAB, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4}
        | {"dropout_rate": 0.0},
    ),
    "normed": ("olmo2", "Olmo2ForCausalLM", {**SIZES, "intermediate_size": 24, "num_key_value_heads": 2}),
    "scan": (
        "mamba",
        "MambaForCausalLM",
        {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 2},
    ),
    "crossed": (
        "bart",
        "BartForConditionalGeneration",
        {"vocab_size": VOCAB, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 32}
        | {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
        | {"dropout": 0.0},
    ),
}
READ_PAIRS = ("crossed", "relative")


class Ragged(Samples):
    """As `Samples`, with rows that have no target at all, so that some processes have none in a micro-batch."""

    def _batch(self, chosen: list[int]) -> Batch:
        batch = super()._batch(chosen)
        batch.targets[[i for i, n in enumerate(chosen) if n % 3 == 0]] = IGNORE
        return batch


class Pairs(Ragged):
    """Each text from itself, backwards."""

    def _batch(self, chosen: list[int]) -> Batch:
        batch = super()._batch(chosen)
        source = {"source": batch.inputs["tokens_BT"].flip(1), "source_present": batch.inputs["present"].flip(1)}
        return Batch({**batch.inputs, **source}, batch.targets)


def config_of(scale: ScaleConfig, *, run: dict[str, Any] | None = None, **changes: Any) -> TrainConfig:
    """Seven rows a step: micro-batches of two, of which one process has four and each of two has two."""
    config = tiny(
        model=GROUPED,
        batch=BatchConfig(rows=7, length=12, micro_rows=2),
        optim=OptimConfig(lr=1e-2, clip=0.5),
        run=RunConfig(steps=STEPS, scale=scale, **(run or {})),
    )
    return replace(config, **changes)


def model_config(name: str, config: TrainConfig) -> TransformerConfig:
    if name in PUBLISHED:
        family, architecture, raw = PUBLISHED[name]
        return FAMILIES[family].read({"model_type": family, "architectures": [architecture], **raw}, "here")
    assert isinstance(config.model, DecoderConfig)
    made = decoder(config.model, VOCAB, config.batch.length)
    if name == "slopes":
        blocks = tuple(
            replace(b, mixer=replace(b.mixer, op=replace(b.mixer.op, positions=AlibiConfig())))
            for b in made.stack.blocks
        )
        return replace(made, decoder=replace(made.stack, blocks=blocks))
    assert name == "grouped"
    return made


def trainer_of(name: str, config: TrainConfig, dtype: torch.dtype = torch.float32) -> Trainer:
    """A trainer whose model always has the same weights."""
    world = arranged(config)
    torch.manual_seed(0)
    model = build(model_config(name, config)).to(dtype)
    data = (Pairs if name in READ_PAIRS else Ragged)(rows=config.batch.rows)
    return Trainer(config, model, SourceToTarget() if name in READ_PAIRS else NextToken(), data, world=world)


Course = list[tuple[float, ...]]
"""Loss, length of the gradient and number of targets of every step."""


def steps_of(trainer: Trainer, n: int = STEPS) -> Course:
    return [(step.loss, step.norm, step.n_targets) for step in (trainer.step() for _ in range(n))]


def course(name: str, scale: ScaleConfig, dtype: torch.dtype = torch.float32, **changes: Any) -> Course:
    """All steps, and the loss of held-out data."""
    trainer = trainer_of(name, config_of(scale, **changes), dtype)
    return [*steps_of(trainer), (trainer.held_out()["held_out_loss"],)]


def apart(a: Course, b: Course) -> float:
    """How far two courses are apart at most, relative to what is more than one."""
    pairs = [(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True)]
    return max(abs(x - y) / max(1.0, abs(y)) for x, y in pairs)
