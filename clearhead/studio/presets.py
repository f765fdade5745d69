"""Models whose costs are asked about: published configs by name, those of this machine, and other groupings of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from clearhead.config import AttentionConfig, BlockConfig, StackConfig, TransformerConfig, TwoTowersConfig
from clearhead.costs.asking import checked, device_for
from clearhead.costs.cost import Cost, Learning
from clearhead.costs.count import Counts, counts
from clearhead.costs.serving import writes
from clearhead.costs.source import config_names, read_config
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

Config = TransformerConfig | TwoTowersConfig


def counted(name: str, kv_heads: int = 0) -> Counts:
    """The counts of a published model, with so many key-value heads in each layer; 0: as many as it has.

    Raises:
        UsageError: no config of that name is shipped, or its heads can't be grouped so.
    """
    if name not in published():
        raise UsageError(f"no config is called {name[:60]!r}; there are {', '.join(published())}")
    return _counted(name, kv_heads)


@cache
def published() -> tuple[str, ...]:
    """The names of all shipped configs."""
    return tuple(config_names())


@cache
def writers() -> tuple[str, ...]:
    """Those of models that write, and so keep a state."""
    return tuple(name for name in published() if writes(_counted(name, 0)))


@cache
def _counted(name: str, kv_heads: int) -> Counts:
    return counts(regrouped(read_config(name).config, kv_heads))


def source_of(studio: Studio, name: str) -> str:
    """What `clearhead.cost` takes for a published config, or for a model of this machine by its id.

    Raises:
        UsageError: there is neither.
    """
    if name in published():
        return name
    if name in studio.models.sources:
        return studio.models.sources[name]
    raise UsageError(f"no config or model is called {name[:60]!r}; choose one of those listed")


@lru_cache(maxsize=64)
def counts_of(source: str, kv_heads: int = 0) -> Counts:
    """The counts of whatever `clearhead.cost` takes by a name; what they have worked out is kept for the next time."""
    return (
        _counted(source, kv_heads) if source in published() else counts(regrouped(read_config(source).config, kv_heads))
    )


def costed(name: str, of: Counts, **asked: Any) -> Cost:
    """`clearhead.cost` of counts that are kept, by its keywords: what was counted once is not counted again, so that a
    slider can follow.

    Raises:
        UsageError, ClearheadError: as `clearhead.cost`, or where the number that is refused is asked for.
    """
    on, devices, price = asked.get("device"), asked.get("devices"), asked.get("price_per_hour")
    dtype, batch = asked.get("dtype", "bfloat16"), asked.get("batch", 1)
    ask = checked(name, of, asked.get("context"), batch, dtype, asked.get("kept"), price)
    device = None if on is None else device_for(on, devices, of, ask)
    learning = Learning(asked.get("optimiser", "adamw"), asked.get("shard", 1), asked.get("tensor", 1))
    return Cost(name, of, ask, device, None if device is None else device.memory, learning)


def heads_of(config: Config) -> tuple[int, int] | None:
    """Query heads and key-value heads of the layers that write; None where they have none, or not all the same."""
    found = {(op.n_heads, op.n_kv_heads) for op in _grouped(config)}
    return found.pop() if len(found) == 1 else None


def groupings(config: Config) -> list[int]:
    """How many key-value heads there could be: the divisors of the query heads, most first."""
    heads = heads_of(config)
    return [] if heads is None else [n for n in range(heads[0], 0, -1) if heads[0] % n == 0]


def regrouped(config: Config, kv_heads: int) -> Config:
    """The same model with so many key-value heads in each layer; 0 leaves it as it is.

    Raises:
        UsageError: its heads can't be grouped so.
    """
    if kv_heads == 0:
        return config
    if kv_heads not in groupings(config):
        able = ", ".join(map(str, groupings(config)))
        raise UsageError(
            f"key-value heads can be {able} here, and not {kv_heads}" if able else "this model has no heads to group"
        )
    assert isinstance(config, TransformerConfig) and config.decoder is not None
    return replace(config, decoder=_with_kv_heads(config.decoder, kv_heads))


def _with_kv_heads(stack: StackConfig, kv_heads: int) -> StackConfig:
    def changed(block: BlockConfig) -> BlockConfig:
        op = block.mixer.op
        assert isinstance(op, AttentionConfig)
        return replace(block, mixer=replace(block.mixer, op=replace(op, n_kv_heads=kv_heads)))

    return replace(stack, blocks=tuple(changed(block) for block in stack.blocks))


def _grouped(config: Config) -> list[AttentionConfig]:
    """Every mixer of the decoder, where all are attention that may be grouped; none otherwise."""
    if not isinstance(config, TransformerConfig) or config.decoder is None:
        return []
    ops = [block.mixer.op for block in config.decoder.blocks]
    attentions = [op for op in ops if isinstance(op, AttentionConfig)]
    return attentions if len(attentions) == len(ops) else []


# ---- as code


def source_code(source: str, kv_heads: int = 0) -> tuple[str, str]:
    """Lines that make what `clearhead.cost` takes, and the expression that stands for it then."""
    return (_REGROUP.format(source=source, kv_heads=kv_heads), "config") if kv_heads else ("", repr(source))


_REGROUP = """\
from dataclasses import replace
from clearhead.costs.source import read_config

config = read_config({source!r}).config


def regrouped(block, n):  # the same block with n key-value heads
    return replace(block, mixer=replace(block.mixer, op=replace(block.mixer.op, n_kv_heads=n)))


blocks = tuple(regrouped(block, {kv_heads}) for block in config.decoder.blocks)
config = replace(config, decoder=replace(config.decoder, blocks=blocks))
"""
