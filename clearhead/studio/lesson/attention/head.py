"""One layer of attention of a model on a text, and the steps of one of its heads worked out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from clearhead.config import AttentionConfig
from clearhead.errors import UsageError
from clearhead.lens import look
from clearhead.nn.attention import mask_from
from clearhead.nn.block import Block
from clearhead.ops.attention import mask_scores, score, traced
from clearhead.ops.masks import Causal, Everything, Mask, bind
from clearhead.studio.kept import KeptResults
from clearhead.studio.lesson.attention.stepper import Sharpness

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

MOST = 64
TAPS = ("q", "k", "v", "scores", "pattern", "z")


@dataclass(frozen=True)
class Switches:
    """What is changed of a head: the sharpness, the divisor, and the model's own mask or another in its place."""

    beta: Sharpness = 1.0
    scale: bool = True
    mask: Literal["own", "none", "causal"] = "own"


@dataclass(frozen=True)
class Cell:
    """A query and the key that it reads; -1: the last token, and the key that it weighs most."""

    q: Annotated[int, Field(ge=-1, lt=MOST)] = -1
    k: Annotated[int, Field(ge=-1, lt=MOST)] = -1


@dataclass(frozen=True)
class Layer:
    """What one attention computed on a text."""

    address: str
    pieces: list[str]
    config: AttentionConfig
    scale: float
    """What the model multiplies q.k by."""
    heads: list[int]
    """How many heads each layer of the model has; 0 where it has no such attention."""
    seen: Mapping[str, Tensor]
    """By tap: q, scores, pattern and z of each head, k and v of each key-value head."""


_kept: KeptResults[Layer] = KeptResults(12)


def is_kept(studio: Studio, id: str, text: str, layer: int) -> bool:
    """Whether the layer is known on this text, so that `layer_of` runs nothing."""
    return _kept.get(_kept.key(studio.models, id, text, layer)) is not None


def layer_of(studio: Studio, id: str, text: str, layer: int) -> Layer:
    """What one layer computed; the last few are kept, since a reader who moves from cell to cell asks for the same.

    Raises:
        UsageError: the model reads no text, the text is empty or too long, or the layer has no attention with heads.
    """
    return _kept.of(studio.models, id, text, layer, make=lambda model: _look(model, id, text, layer))


def _look(model: Transformer, id: str, text: str, layer: int) -> Layer:
    config: Any = model.config
    both = getattr(config, "encoder", None) is not None and getattr(config, "decoder", None) is not None
    if model.tokenizer is None or both or not hasattr(config, "stack"):
        raise UsageError(f"{id} does not read one text; choose clear-gpt, clear-2l or clear-bert")
    ops = [block.mixer.op for block in config.stack.blocks]
    if layer >= len(ops):
        raise UsageError(f"{id} has the layers 0 to {len(ops) - 1}, and no layer {layer}")
    op = ops[layer]
    if not isinstance(op, AttentionConfig):
        raise UsageError(f"layer {layer} of {id} mixes without queries and keys of heads; choose another layer")
    ids = model.tokenizer.encode(text)
    if not ids or not text.strip():
        raise UsageError("there is no text; write a sentence")
    if len(ids) > MOST:
        raise UsageError(
            f"{id} makes {len(ids)} tokens of this text, and the figure shows {MOST}; write a shorter one, or open "
            "it under Explore"
        )
    address = f"layers.{layer}.mixer"
    seen = look(model, ids, *(f"{address}.{tap}" for tap in TAPS))
    block = model.layers[layer]
    assert isinstance(block, Block)
    mixer: Any = block.mixer
    return Layer(
        address=address,
        pieces=model.tokenizer.pieces(ids),
        config=op,
        scale=mixer.scale,
        heads=[one.n_heads if isinstance(one, AttentionConfig) else 0 for one in ops],
        seen={tap: seen[f"{address}.{tap}"][0] for tap in TAPS},
    )


@dataclass(frozen=True)
class Vectors:
    """A head's queries and keys, and its values, a row a token."""

    q_TK: Tensor
    k_SK: Tensor
    v_SV: Tensor


@dataclass(frozen=True)
class Steps:
    """One head at every step: q.k, scaled, masked and normalised, (T, S) each, and the mix, (T, V)."""

    score_TS: Tensor
    scale_TS: Tensor
    mask_TS: Tensor
    softmax_TS: Tensor
    mix_TV: Tensor


@dataclass(frozen=True)
class Head:
    """One head, and the key-value head that it reads."""

    index: int
    kv_index: int
    vectors: Vectors
    steps: Steps
    untouched: bool
    """Whether the numbers are those that the model computed on the way."""


def head_of(layer: Layer, index: int, switches: Switches) -> Head:
    """A head's steps, with the switches as they are set."""
    config, seen = layer.config, layer.seen
    kv_index = index // (config.n_heads // config.n_kv_heads)
    vectors = Vectors(seen["q"][index], seen["k"][kv_index], seen["v"][kv_index])
    own = mask_from(config.mask)
    rule = {"own": own, "none": Everything(), "causal": Causal()}[switches.mask]
    factor = switches.beta * (layer.scale if switches.scale else 1.0)
    steps = _steps(vectors, rule, factor, config.scores.softcap)
    untouched = rule == own and switches.beta == 1.0 and switches.scale
    if untouched:
        steps = replace(
            steps, mask_TS=seen["scores"][index], softmax_TS=seen["pattern"][index], mix_TV=seen["z"][index]
        )
    return Head(index, kv_index, vectors, steps, untouched)


def _steps(vectors: Vectors, rule: Mask, factor: float, softcap: float | None) -> Steps:
    n, m = len(vectors.q_TK), len(vectors.k_SK)
    q_BHTK, k_BHSK, v_BHSV = (x[None, None] for x in (vectors.q_TK, vectors.k_SK, vectors.v_SV))
    raw_BHTS = score(q_BHTK, k_BHSK)
    scaled_BHTS = mask_scores(raw_BHTS, bind(Everything(), n, m), scale=factor, softcap=softcap)
    seen = traced(q_BHTK, k_BHSK, v_BHSV, bind(rule, n, m), scale=factor, softcap=softcap)
    every = (raw_BHTS, scaled_BHTS, seen.scores_BHTS, seen.pattern_BHTS, seen.z_BHTV)
    return Steps(*(x[0, 0] for x in every))
