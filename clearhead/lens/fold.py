"""Folding and centring: the same model, with nothing left in its norms but the division (Elhage 2021, appendix)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ExpertsConfig,
    FeedForwardConfig,
    LatentAttentionConfig,
    LearnedPositions,
    Mamba2Config,
    MambaConfig,
    NormConfig,
    RecurrentConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.lens.stream import additions
from clearhead.model.transformer import Transformer
from clearhead.nn.norm import Norm

READS: Mapping[type, tuple[str, ...]] = {
    AttentionConfig: ("q_proj", "k_proj", "v_proj"),
    LatentAttentionConfig: ("q_proj", "q_a_proj", "kv_a_proj"),
    FeedForwardConfig: ("gate_proj", "up_proj"),
    ExpertsConfig: ("router", "gate_proj", "up_proj", "shared.gate_proj", "shared.up_proj"),
    MambaConfig: ("in_proj",),
    Mamba2Config: ("in_proj",),
    RecurrentConfig: ("cell.x_proj", "back.x_proj"),
}
"""What reads the stream, by kind of sub-layer, where it is there. Its last dimension is the stream's."""
WRITES: Mapping[type, tuple[str, ...]] = {
    AttentionConfig: ("o_proj",),
    LatentAttentionConfig: ("o_proj",),
    FeedForwardConfig: ("down_proj",),
    ExpertsConfig: ("down_proj", "shared.down_proj"),
    MambaConfig: ("out_proj",),
    Mamba2Config: ("out_proj",),
    RecurrentConfig: ("out_proj",),
}
"""What writes to it. Its last dimension but one is the stream's."""
FROM_SOURCE = ("k_proj", "v_proj")
"""Of attention that looks at a source, what reads the source's stream."""


def fold(model: Transformer, *, centre: bool = False, centre_logits: bool = False) -> Transformer:
    """A new model of the same outputs: the weight and the bias of every norm that is read by matrices alone go into
    those matrices, and the norm divides and no more. `model` is as it was.

    Of each sub-layer the norm before it is folded, and the final norm where the vocabulary head alone reads it, which
    then has a matrix of its own. Norms after an operation or an addition stay: the stream reads them too. centre: take
    the mean over the stream's dimensions out of everything that writes to it, which no LayerNorm would let through; it
    is refused for RMSNorm, which does. centre_logits: take the mean over the vocabulary out of the head, which moves
    all logits of a place by one number and no probability.

    Raises:
        ClearheadError: nothing can be folded (post-norm), or centring would change what comes out.
    """
    if not isinstance(model, Transformer):
        raise ClearheadError("fold one model of one stack; of two towers give .text or .image")
    folds = _folds(model)
    if not folds:
        raise ClearheadError(
            "this model's norms stand after an addition or an operation, so no matrix alone reads them"
        )
    if centre:
        _check_centred(model.config)
    head = model.config.heads.tokens
    if centre_logits and (head is None or head.softcap is not None):
        why = "it has no vocabulary head" if head is None else "its soft-cap would not let one number through alike"
        raise ClearheadError(f"the logits of this model can't be centred: {why}")

    with torch.device("meta"):
        new = Transformer(_config(model, folds, own_head=centre or centre_logits))
    weights = _Weights(model, new)
    for norm_path, readers in folds.items():
        weights.fold(norm_path, readers)
    if centre:
        for path, stack in _stacks(model):
            weights.centre(path, stack)
    if centre_logits:
        weights.centre_logits()
    weights.put(new)
    new.tokenizer, new.origin = model.tokenizer, model.origin
    return new.train(model.training)


# ---- what is folded into what


def _stacks(model: Transformer) -> list[tuple[str, Any]]:
    """(prefix, stack) of the model's own, and of the encoder it looks at."""
    return [("", model)] + ([("encoder.", model.encoder)] if model.encoder is not None else [])


def _folds(model: Transformer) -> dict[str, list[str]]:
    """{path of a norm: what reads it, and it alone}."""
    found: dict[str, list[str]] = {}
    for _, stack in _stacks(model):
        for block in stack.layers:
            for kind in ("mixer", "cross", "ffn"):
                sublayer: SublayerConfig | None = getattr(block.config, kind)
                if sublayer is not None and sublayer.pre is not None:
                    names = [name for name in READS[type(sublayer.op)] if kind != "cross" or name not in FROM_SOURCE]
                    op = getattr(block, kind)
                    found[f"{block.path}.{kind}_norm.pre"] = [f"{op.path}.{name}" for name in names if _has(op, name)]
    crossed = [a.op.path for a in additions(model) if a.kind == "cross"]
    if model.encoder is not None and model.encoder.norm is not None:
        found["encoder.norm"] = [f"{path}.{name}" for path in crossed for name in FROM_SOURCE]
    alone = model.head is not None and model.pool is None and not len(model.labels)
    if model.norm is not None and alone:
        found["norm"] = ["head" if model.head.transform is None else "head.transform.dense"]  # type: ignore[union-attr]
    return found


def _has(module: nn.Module, name: str) -> bool:
    first, _, rest = name.partition(".")
    part = getattr(module, first, None)
    return part is not None and (not rest or _has(part, rest))


def _check_centred(config: TransformerConfig) -> None:
    """Refuse to centre where somebody reads the mean, or where it is not weights that write it."""
    for stack in (config.decoder, config.encoder):
        if stack is None:
            continue
        sublayers = [s for block in stack.blocks for s in (block.mixer, block.cross, block.ffn) if s is not None]
        readers = [stack.norm, *(sublayer.pre for sublayer in sublayers)]
        if None in readers:
            raise ClearheadError("something reads the stream without a norm, mean and all, so it can't be centred")
        if any(norm is not None and norm.kind != "layer" for norm in readers):
            raise ClearheadError("RMSNorm lets the stream's mean through, so centring would change this model (centre)")
        if any(sublayer.out is not None or sublayer.after is not None for sublayer in sublayers):
            raise ClearheadError("a norm stands between the weights and the stream, so they can't be centred (centre)")
        embed = stack.embed
        by_weights = isinstance(embed.front, TokensConfig) and isinstance(embed.positions, LearnedPositions | None)
        if not by_weights or embed.norm is not None:
            raise ClearheadError("what this model's embedding writes is not its weights alone, so it can't be centred")


# ---- the new config


def _config(model: Transformer, folds: Mapping[str, Sequence[str]], own_head: bool) -> TransformerConfig:
    """With a bias where a norm's is to go, a head of its own, and no layer that shares another's weights."""
    config = model.config
    from_source = config.encoder is not None and config.encoder.norm is not None and config.encoder.norm.bias
    decoder = None if config.decoder is None else _stack(config.decoder, from_source)
    encoder = None if config.encoder is None else _stack(config.encoder, False)
    head = config.heads.tokens
    if head is not None:
        head = _head(head, config.stack.norm if "norm" in folds else None, own_head)
    return replace(config, decoder=decoder, encoder=encoder, heads=replace(config.heads, tokens=head))


def _stack(stack: StackConfig, from_source: bool) -> StackConfig:
    return replace(stack, blocks=tuple(_block(block, from_source) for block in stack.blocks), share=None)


def _block(block: BlockConfig, from_source: bool) -> BlockConfig:
    cross = block.cross
    if cross is not None and isinstance(cross.op, AttentionConfig):
        own = cross.pre is not None and cross.pre.bias
        bias = replace(
            cross.op.bias, q=cross.op.bias.q or own, k=cross.op.bias.k or from_source, v=cross.op.bias.v or from_source
        )
        cross = replace(cross, op=replace(cross.op, bias=bias))
    ffn = None if block.ffn is None else _biased(block.ffn)
    return replace(block, mixer=_biased(block.mixer), cross=cross, ffn=ffn)


def _biased(sublayer: SublayerConfig) -> SublayerConfig:
    """With a bias in all that reads the stream, where the norm before it has one."""
    if sublayer.pre is None or not sublayer.pre.bias:
        return sublayer
    op = sublayer.op
    match op:
        case AttentionConfig():
            op = replace(op, bias=replace(op.bias, q=True, k=True, v=True))
        case ExpertsConfig():
            shared = None if op.shared is None else replace(op.shared, bias=True)
            expert, router = replace(op.expert, bias=True), replace(op.router, bias=True)
            op = replace(op, expert=expert, router=router, shared=shared)
        case LatentAttentionConfig() if op.widths.q is None:
            raise ClearheadError(
                "queries of latent attention that are not compressed have no bias to fold a norm's into"
            )
        case RecurrentConfig():
            pass  # it always has one
        case _:
            op = replace(op, bias=True)
    return replace(sublayer, op=op)


def _head(head: TokenHeadConfig, norm: NormConfig | None, own_head: bool) -> TokenHeadConfig:
    has_bias = norm is not None and norm.bias
    if head.transform is not None:
        transform = replace(head.transform, bias=head.transform.bias or has_bias)
        return replace(head, transform=transform, tie=head.tie and not own_head)
    return replace(head, tie=head.tie and norm is None and not own_head, bias=head.bias or has_bias)


# ---- the new weights


class _Weights:
    """The values of the new model's parameters by name. What changes is worked out in float64."""

    def __init__(self, old: Transformer, new: Transformer) -> None:
        self.old = old
        once = {id(value): value.detach() for value in old.parameters()}  # what is shared stays shared
        self.values = {name: once[id(value)] for name, value in old.named_parameters(remove_duplicate=False)}
        if old.head is not None and new.head is not None and new.head.weight is not None:
            self.values["head.weight"] = old.unembedding.detach()
        for name, wanted in new.named_parameters(remove_duplicate=False):
            if name not in self.values:  # a bias that comes with the fold
                self.values[name] = torch.zeros(wanted.shape, dtype=old.dtype, device=old.device)

    def fold(self, norm_path: str, readers: Sequence[str]) -> None:
        """W (w * unit + b) = (W w) unit + W b."""
        norm: Norm = attrgetter(norm_path)(self.old)
        scale_D = self.values[f"{norm_path}.weight"].double() + norm.config.offset
        bias_D = None if norm.bias is None else self.values[f"{norm_path}.bias"].double()
        for reader in readers:
            weight, bias = self._names(reader)
            matrix = self.values[weight].double()
            if bias_D is not None:
                times = self.old.head.config.scale if reader == "head" and self.old.head is not None else 1.0
                self._set(bias, self.values[bias].double() + matrix @ bias_D * times)
            self._set(weight, matrix * scale_D)
        self._set(f"{norm_path}.weight", torch.full_like(scale_D, 1.0 - norm.config.offset))
        if bias_D is not None:
            self._set(f"{norm_path}.bias", torch.zeros_like(bias_D))

    def centre(self, prefix: str, stack: Any) -> None:
        """Take the mean over the stream out of all that a stack's weights write."""
        embed = f"{prefix}embed."
        tables = ("tokens.weight", "types.weight", "positions.weight") if stack.embed.project is None else ()
        for name in tables:
            if embed + name in self.values:
                self._centre(embed + name, -1)
        writers = [] if stack.embed.project is None else [f"{embed}project"]
        for block in stack.layers:
            for kind in ("mixer", "cross", "ffn"):
                op = getattr(block, kind)
                if op is not None:
                    names = WRITES[type(getattr(block.config, kind).op)]
                    writers += [f"{op.path}.{name}" for name in names if _has(op, name)]
        for writer in writers:
            weight, bias = self._names(writer)
            self._centre(weight, -2)
            if bias in self.values:
                self._centre(bias, -1)

    def centre_logits(self) -> None:
        """Take the mean over the vocabulary out of the head."""
        self._centre("head.weight", 0)
        if "head.bias" in self.values:
            self._centre("head.bias", 0)

    def put(self, new: Transformer) -> None:
        """Give `new` its parameters, which want gradients where the old ones did."""
        old = dict(self.old.named_parameters(remove_duplicate=False))
        made: dict[int, nn.Parameter] = {}
        for path, module in new.named_modules():
            for leaf, _ in list(module.named_parameters(recurse=False)):
                name = f"{path}.{leaf}" if path else leaf
                value, was = self.values[name], old.get(name)
                if id(value) not in made:
                    made[id(value)] = nn.Parameter(value.clone(), was is None or was.requires_grad)
                setattr(module, leaf, made[id(value)])

    def _set(self, name: str, value: Tensor) -> None:
        """In the dtype that was there, at once: all in float64 would be twice the model."""
        self.values[name] = value.to(self.values[name].dtype)

    def _centre(self, name: str, dim: int) -> None:
        value: Tensor = self.values[name].double()
        self._set(name, value - value.mean(dim, keepdim=True))

    def _names(self, path: str) -> tuple[str, str]:
        """A matrix and its bias: a module's, or among experts, whose matrices are parameters of their own."""
        if path in self.values:
            return path, path.replace("_proj", "_bias")
        return f"{path}.weight", f"{path}.bias"
