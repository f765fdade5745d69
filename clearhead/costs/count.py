"""All counts of a model, from its config."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from clearhead.config import (
    FramesConfig,
    LearnedPositions,
    PatchesConfig,
    StackConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.costs.activations import Activations, activation_bytes
from clearhead.costs.flops import Flops, Run, Work, model_work
from clearhead.costs.memory import OptimiserName, TrainedBytes, check_blocks, rank_bytes, trained_bytes
from clearhead.costs.names import HEADS, PARTS, check_size, not_understood
from clearhead.costs.parameters import Parameters, parameters
from clearhead.costs.state import StateBytes, state_bytes
from clearhead.costs.traffic import Traffic, traffic
from clearhead.costs.weights import Weight, model_weights, transformed
from clearhead.errors import ClearheadError


def counts(of: TransformerConfig | TwoTowersConfig | Any) -> Counts:
    """What a model costs, from its config, or from a model that has one. No weights are allocated.

    Raises:
        ClearheadError: it is neither, or has a part of which nothing is known.
    """
    config = of if isinstance(of, TransformerConfig | TwoTowersConfig) else getattr(of, "config", None)
    if not isinstance(config, TransformerConfig | TwoTowersConfig):
        raise not_understood(of)
    return Counts(config)


@dataclass(frozen=True)
class Counts:
    """What a model costs. Sizes are checked where they are asked for.

    Of models that read pictures or sound, `tokens` may be None: they read as many as they were made for. Where there is
    an encoder beside the decoder, `source` says how many tokens each source has (None: as many as it was made for, or
    as many as the decoder has in all). Of two towers, `tokens` are of the texts, and there are as many pictures.
    """

    config: TransformerConfig | TwoTowersConfig

    @cached_property
    def weights(self) -> list[Weight]:
        """Every tensor that loading allocates, once."""
        return model_weights(self.config)

    @cached_property
    def parameters(self) -> Parameters:
        """Numbers of weights by part, in all, and active for one token."""
        return parameters(self.weights)

    def flops(
        self,
        batch: int,
        tokens: int | None,
        context: int = 0,
        training: bool = False,
        *,
        source: int | None = None,
        last: int | None = None,
    ) -> Flops:
        """Operations of a pass over `tokens` new tokens of each text, with `context` of each read before.

        A forward pass or a prefill is (batch, N), one decoded token (batch, 1, context=N), and a training step
        (batch, N, training=True): forward and backward, without recomputing. A source is read where `context` is 0.
        `last`: logits are made of so many last slots alone, as `generate` does with 1.

        Raises:
            ClearheadError: a size below 1 (context, last: below 0), more tokens than the model was made for, or a
                context for what has no state: training, and models that see both ways.
        """
        per_token = 6 if training else 2
        if isinstance(self.config, TwoTowersConfig):
            return self._towers(self.config, batch, tokens, context, training)
        run = self.run(batch, tokens, context, training, source=source)
        if last is not None:
            check_size("last", last, 0)
        n_read = run.tokens if last is None else min(last, run.tokens)
        return Flops(_summed(model_work(self.config, run, n_read)), per_token * self.parameters.active * run.rows)

    def _towers(self, config: TwoTowersConfig, batch: int, tokens: int | None, context: int, training: bool) -> Flops:
        """Both, and the cosines of every text with every picture."""
        text, image = Counts(config.text), Counts(config.image)
        found = [
            text.flops(batch, tokens, context, training),
            image.flops(batch, None, 0, training),
        ]
        pool = config.text.heads.pool
        width = config.text.d_model if pool is None else transformed(pool.transform, config.text.d_model)
        run = text.run(batch, tokens, context, training)
        both = [row for one in found for row in one.parts.items()]
        cosines = (HEADS, Work(run.product(batch, width, batch)))
        return Flops(_summed([*both, cosines]), sum(one.rule for one in found))

    def state(self, batch: int, context: int, bytes_per_number: int = 2, *, source: int | None = None) -> StateBytes:
        """Bytes kept after `context` tokens of each text. A model without a decoder keeps nothing.

        Raises:
            ClearheadError: a size below 1 (context: below 0), or a context beyond the model's.
        """
        check_size("batch", batch)
        check_size("context", context, 0)
        check_size("bytes_per_number", bytes_per_number)
        if isinstance(self.config, TwoTowersConfig) or self.config.decoder is None:
            return state_bytes(None, 1, batch, context, bytes_per_number, 0)
        config, decoder = self.config, self.config.decoder
        _check_fits("context", context, config, decoder)
        n_source = self._source(max(context, 1), source)
        return state_bytes(decoder, config.d_model, batch, context, bytes_per_number, n_source)

    def activations(
        self,
        batch: int,
        tokens: int | None,
        bytes_per_number: int = 4,
        recompute: bool = False,
        *,
        source: int | None = None,
    ) -> Activations:
        """What the forward pass of a training step keeps for the backward pass, by an attention that keeps no pattern.

        `recompute`: blocks keep what they read and nothing else; the one that is worked out again is there in full.

        Raises:
            ClearheadError: a size below 1, or more tokens than the model was made for.
        """
        check_size("bytes_per_number", bytes_per_number)
        if isinstance(self.config, TwoTowersConfig):
            towers = ((self.config.text, tokens), (self.config.image, None))
            models = [(tower, Counts(tower).run(batch, size, 0, True)) for tower, size in towers]
        else:
            models = [(self.config, self.run(batch, tokens, 0, True, source=source))]
        return activation_bytes(models, bytes_per_number, recompute)

    def optimiser(self, name: OptimiserName = "adamw", bytes_per_number: int = 4) -> TrainedBytes:
        """Weights, gradients and the optimiser's state, as `clearhead train` makes them.

        Raises:
            ClearheadError: there is no such optimiser, or nothing for it to move.
        """
        check_size("bytes_per_number", bytes_per_number)
        return trained_bytes(self.weights, name, bytes_per_number)

    def per_rank(
        self, shard: int = 1, tensor: int = 1, name: OptimiserName = "adamw", bytes_per_number: int = 4
    ) -> TrainedBytes:
        """The same on one of `shard` x `tensor` processes: `shard` of them share every weight (FSDP2), and `tensor`
        share matrices.

        Raises:
            ClearheadError: so many processes can't share the heads or hidden units evenly.
        """
        check_size("shard", shard)
        check_size("tensor", tensor)
        check_size("bytes_per_number", bytes_per_number)
        for stack in self.stacks:
            check_blocks(stack.blocks, tensor)
        return rank_bytes(self.weights, name, bytes_per_number, shard, tensor)

    def attention_traffic(
        self, tokens: int | None, fast_memory_bytes: int, bytes_per_number: int = 2, *, source: int | None = None
    ) -> Traffic:
        """What attention moves in one pass over one text of `tokens`, with a fast memory of so many bytes.

        Raises:
            ClearheadError: a size below 1, more tokens than the model was made for, or a fast memory that is too small.
        """
        check_size("fast_memory_bytes", fast_memory_bytes)
        check_size("bytes_per_number", bytes_per_number)
        if isinstance(self.config, TwoTowersConfig):
            text = Counts(self.config.text).attention_traffic(tokens, fast_memory_bytes, bytes_per_number)
            return text + Counts(self.config.image).attention_traffic(None, fast_memory_bytes, bytes_per_number)
        run = self.run(1, tokens, 0, False, source=source)
        found = traffic(self.config.stack.blocks, run.tokens, run.source, fast_memory_bytes, bytes_per_number)
        if run.source and self.config.encoder is not None:
            found += traffic(self.config.encoder.blocks, run.source, 0, fast_memory_bytes, bytes_per_number)
        return found

    # ---- sizes

    @property
    def stacks(self) -> list[StackConfig]:
        """All stacks of blocks."""
        if isinstance(self.config, TwoTowersConfig):
            return [*Counts(self.config.text).stacks, *Counts(self.config.image).stacks]
        return [stack for stack in (self.config.encoder, self.config.decoder) if stack is not None]

    @property
    def fixed_tokens(self) -> int | None:
        """How many tokens its pictures or sounds become; None where a text may have any length."""
        return None if isinstance(self.config, TwoTowersConfig) else _fixed(self.config.stack)

    def run(
        self, batch: int, tokens: int | None, context: int = 0, training: bool = False, *, source: int | None = None
    ) -> Run:
        """The sizes of a pass, checked and filled up.

        Raises:
            ClearheadError: they are none that this model can have.
        """
        config = self.config
        assert isinstance(config, TransformerConfig)
        check_size("batch", batch)
        check_size("context", context, 0)
        tokens = _filled("tokens", tokens, config.stack)
        _check_fits("tokens and context together", tokens + context, config, config.stack)
        if context and (training or config.decoder is None):
            why = "training reads whole texts" if training else "this model sees both ways, and reads whole texts"
            raise ClearheadError(f"context is {context}, and {why}; leave it at 0")
        return Run(
            batch=batch,
            tokens=tokens,
            context=context,
            source=self._source(tokens + context, source),
            training=training,
        )

    def _source(self, n_tokens: int, source: int | None) -> int:
        """How many tokens a source has; 0 where none is read."""
        config = self.config
        assert isinstance(config, TransformerConfig)
        if config.encoder is None or config.decoder is None:
            if source is not None:
                raise ClearheadError("this model has no encoder beside a decoder to read a source; leave it out")
            return 0
        if source is None and _fixed(config.encoder) is None:
            source = n_tokens
        filled = _filled("source", source, config.encoder)
        _check_fits("source", filled, config, config.encoder)
        return filled


def _fixed(stack: StackConfig) -> int | None:
    """How many tokens a stack reads whose input has one size."""
    front, places = stack.embed.front, stack.embed.positions
    if isinstance(front, PatchesConfig):
        return front.n_prefix + prod(front.grid)
    if isinstance(front, FramesConfig) and isinstance(places, LearnedPositions):
        return places.n
    return None


def _filled(name: str, value: int | None, stack: StackConfig) -> int:
    """A number of tokens that a stack can read."""
    fixed = _fixed(stack)
    if value is None:
        if fixed is None:
            raise ClearheadError(f"{name} is None, and this model reads texts of any length; say how many tokens")
        return fixed
    check_size(name, value)
    if fixed is not None and value != fixed:
        raise ClearheadError(f"{name} is {value}, and what this model reads always becomes {fixed} tokens; give None")
    return value


def _check_fits(name: str, n_tokens: int, config: TransformerConfig, stack: StackConfig) -> None:
    """Refuse more tokens than a model was made for."""
    limits = [] if config.context is None or _fixed(stack) is not None else [config.context]
    places = stack.embed.positions
    if places is not None and _fixed(stack) is None:
        pad_id = getattr(places, "pad_id", None)
        limits.append(places.n - (getattr(places, "offset", 0) if pad_id is None else pad_id + 1))
    longest = min(limits, default=None)
    if longest is not None and n_tokens > longest:
        raise ClearheadError(f"{name}: {n_tokens:,} tokens, and this model was made for {longest:,} at most")


def _summed(found: Iterable[tuple[str, Work]]) -> dict[str, Work]:
    """Work by part, in the order that parts are always told in; those that take none are left out."""
    by_part: defaultdict[str, Work] = defaultdict(Work)
    for part, one in found:
        by_part[part] += one
    return {part: by_part[part] for part in PARTS if by_part[part].linear or by_part[part].quadratic}
