"""Users, documents, prices and kept prompts: all are the bytes of the cache and the FLOPs of reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.config import AttentionConfig, TransformerConfig
from clearhead.costs import counts
from clearhead.costs.cost import cost
from clearhead.costs.counter import count_flops
from clearhead.costs.devices import Device, device
from clearhead.costs.source import read_config
from clearhead.generation.kept import copy_state
from clearhead.model.transformer import Transformer
from clearhead.state import State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVICE, N_DEVICES, PRICE = "h100-sxm", 4, 12.0
"""Four accelerators of 80 GiB, and dollars an hour for all."""
BFLOAT16 = 2
KV_HEADS = (64, 32, 16, 8, 4, 2, 1)
CONTEXTS = (2048, 8192, 32768)
LENGTH, KEPT = 8192, 7168
READ, PREFIX = 96, 72
"""Tokens of a small model's prompt, and those at its beginning that are kept."""
VOCAB = 64


def measure(run: Run) -> Measured:
    config = read_config("llama3-70b").config
    assert isinstance(config, TransformerConfig)
    hired = device(DEVICE).times(N_DEVICES)
    shapes = {n: with_kv_heads(config, n) for n in KV_HEADS}
    found = cost(config, context=LENGTH, device=hired, devices=1, price_per_hour=PRICE, kept=KEPT)
    service = found.service
    assert service is not None and service.users
    saved = service.reading.load.flops - service.reading_rest.load.flops
    return Measured(
        values={
            "users or lengths that are not room over bytes": strays(shapes, hired),
            "times the users with 8 key-value heads for 64, same room": in_same_room(shapes, 8)
            / in_same_room(shapes, 64),
            "price of a token off its bytes": off_its_bytes(config, hired),
            "FLOPs saved by a kept prefix, over those of reading it": saved
            / found.counts.flops(1, KEPT, last=0).needed,
            **kept_prefix(run.seed),
            "users at 8,192 tokens": service.users,
            "longest document, tokens": found.longest or 0,
            "dollars for a million tokens, one user": service.price_out(1),
            "dollars for a million tokens, all users": service.price_out(service.users),
            "share of the price of reading that the kept prefix saves": service.price_saved()
            / (service.price_in() * LENGTH / 1e6),
        },
        series={
            "kv_heads": list(KV_HEADS),
            "users": [users(shape, LENGTH, hired) for shape in shapes.values()],
            "longest": [longest(shape, hired) for shape in shapes.values()],
            "texts": (texts := [2**i for i in range(7)]),
            "price": [service.price_out(n) for n in texts],
            "kept": (kept := [LENGTH * i // 8 for i in range(8)]),
            "left": [found.counts.flops(1, LENGTH - n, n, last=1).needed / 1e12 for n in kept],
            "with_8": service.users,
        },
    )


def with_kv_heads(config: TransformerConfig, n: int) -> TransformerConfig:
    """The same model with so many key-value heads in each layer."""
    assert config.decoder is not None
    first = config.decoder.blocks[0]
    assert isinstance(first.mixer.op, AttentionConfig)
    mixer = replace(first.mixer, op=replace(first.mixer.op, n_kv_heads=n))
    blocks = (replace(first, mixer=mixer),) * len(config.decoder.blocks)
    return replace(config, decoder=replace(config.decoder, blocks=blocks))


def users(config: TransformerConfig, context: int, hired: Device) -> int:
    service = cost(config, context=context, device=hired, devices=1).service
    assert service is not None and service.users is not None
    return service.users


def longest(config: TransformerConfig, hired: Device) -> int:
    found = cost(config, device=hired, devices=1).longest
    assert found is not None
    return found


def bytes_a_token(config: TransformerConfig) -> int:
    """Worked out here: keys and values of every layer and key-value head."""
    op = config.stack.blocks[0].mixer.op
    assert isinstance(op, AttentionConfig)
    return 2 * len(config.stack.blocks) * op.n_kv_heads * op.d_head * BFLOAT16


def strays(shapes: dict[int, TransformerConfig], hired: Device) -> int:
    """How often users or the longest document are not the free memory over the bytes that they take."""
    wrong = 0
    for config in shapes.values():
        free = hired.memory - BFLOAT16 * counts(config).parameters.total
        wrong += longest(config, hired) != free // bytes_a_token(config)
        wrong += sum(users(config, n, hired) != free // (n * bytes_a_token(config)) for n in CONTEXTS)
    return wrong


def in_same_room(shapes: dict[int, TransformerConfig], n_kv_heads: int) -> int:
    """Users where 160 GiB are left beside the weights, which are fewer with fewer key-value heads."""
    config = shapes[n_kv_heads]
    memory = 160 * 2**30 + BFLOAT16 * counts(config).parameters.total
    return users(config, LENGTH, replace(device(DEVICE), memory=memory))


def off_its_bytes(config: TransformerConfig, hired: Device) -> float:
    """How far the price of a written token is from the seconds that its bytes take, relative, for 1 and for 8 texts:
    all weights but the table of tokens once, and each text's cache.
    """
    service = cost(config, context=LENGTH, device=hired, devices=1, price_per_hour=PRICE).service
    assert service is not None
    weights = BFLOAT16 * (counts(config).parameters.total - config.vocab_size * config.d_model)
    off = []
    for n in (1, 8):
        seconds = (weights / n + LENGTH * bytes_a_token(config)) / hired.bandwidth
        off.append(abs(service.price_out(n) / (seconds * 1e6 * PRICE / 3600) - 1))
    return max(off)


@torch.no_grad()
def kept_prefix(seed: int) -> dict[str, float]:
    """A small model reads a prompt a token at a time, so that nothing is computed that the mask hides: from its first
    token, and after a prefix that is kept.
    """
    model = new_model(decoder((block(attention(4, 16), 128),) * 2, d_model=64, vocab_size=VOCAB), seed).double()
    tokens_BT = torch.randint(VOCAB, (1, READ), generator=torch.Generator().manual_seed(seed))
    kept = model.new_state()
    read(model, tokens_BT[:, :PREFIX], kept, last=0)
    outputs = []

    def whole() -> None:
        outputs.append(read(model, tokens_BT, model.new_state(), last=1))

    def rest() -> None:
        outputs.append(read(model, tokens_BT[:, PREFIX:], copy_state(kept), last=1))

    saved = count_flops(whole) - count_flops(rest)
    told = counts(model).flops(1, PREFIX, last=0).needed
    return {
        "FLOPs saved in a small model, over those of its prefix": saved / told,
        "difference of the answer": float((outputs[0] - outputs[1]).abs().max()),
    }


def read(model: Transformer, tokens_BT: torch.Tensor, state: State, last: int) -> torch.Tensor:
    """Token by token; scores, where they are asked for, behind the last alone."""
    n_tokens = tokens_BT.shape[1]
    for i in range(n_tokens):
        is_last = i == n_tokens - 1
        out: torch.Tensor = model(
            tokens_BT[:, i : i + 1], state=state, last=last if is_last else 0, backend="reference"
        )
    return out


def draw(results: Sequence[Measured]) -> Figure:
    figure, panels = figures.panels(4, across=2, width=5.0, height=3.4)
    series, plain = results[0].series, next(figures.styles())
    for axes, name, what in (
        (panels[0], "users", "users at 8,192 tokens"),
        (panels[1], "longest", "longest document, tokens"),
    ):
        axes.plot(series["kv_heads"], series[name], label="on four H100", **plain)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=10)
        axes.set_xticks(series["kv_heads"], [str(n) for n in series["kv_heads"]])
        axes.set_xlabel("key-value heads (it has 8)")
        axes.set_ylabel(what)
    line = [series["with_8"] * 8 / n for n in series["kv_heads"]]
    panels[0].plot(series["kv_heads"], line, color=figures.INK, linestyle=(0, (6, 3)), label="8/n of the users with 8")
    panels[0].legend()
    panels[2].plot(series["texts"], series["price"], **plain)
    panels[2].set_xscale("log", base=2)
    panels[2].set_xticks(series["texts"], [str(n) for n in series["texts"]])
    panels[2].set_xlabel("users at once")
    panels[2].set_ylabel("dollars for a million tokens")
    panels[3].plot(series["kept"], series["left"], **plain)
    panels[3].set_xlabel("tokens kept, of a prompt of 8,192")
    panels[3].set_ylabel("TFLOP until the first new token")
    panels[3].set_ylim(bottom=0)
    return figure


EXACT = 1e-12

CLAIM = Claim(
    says="The price of a token, the longest document, the users of a GPU and what a cached prompt saves all come back "
    "to a few costs: the bytes of the cache, beside those of the weights, and the FLOPs of reading.",
    source=Source(
        statements=(64,), paper="Williams 2009 (the roofline); Ainslie 2023, section 1; Llama 3 2024, table 3"
    ),
    how="`clearhead cost` for Llama 3 70B in bfloat16 on four H100 of 80 GiB, with 64 to 1 key-value heads. Users and "
    "the longest document are compared with the memory left beside the weights over 2 x 80 x heads x 128 x 2 bytes a "
    "token; the price of a written token, at 12 dollars an hour for all four, with the bytes it reads over the "
    "bandwidth: the weights, once for all users, and its own cache; what a kept prefix of 7,168 of 8,192 tokens saves "
    "with the FLOPs of reading it. A real small model then reads a prompt with and without its prefix kept, counted by "
    "torch's counter. These are bounds of a device: no accelerator is run.",
    marks=(
        Mark(
            of="users or lengths that are not room over bytes",
            low=0,
            high=0,
            why="28 cases: nothing but the cache grows with users and lengths",
        ),
        Mark(
            of="times the users with 8 key-value heads for 64, same room",
            low=8,
            high=8,
            why="the cache shrinks by 64 / 8, and in the same room so many more users fit; 160 GiB are whole users",
        ),
        Mark(
            of="price of a token off its bytes",
            high=EXACT,
            why="writing waits for memory: its time is the weights and the caches over the bandwidth",
        ),
        Mark(
            of="FLOPs saved by a kept prefix, over those of reading it",
            low=1,
            high=1,
            why="each pair of tokens that the mask leaves is met once, so the rest costs what it always did",
        ),
        Mark(
            of="FLOPs saved in a small model, over those of its prefix",
            low=1,
            high=1,
            why="the same, counted in a real pass",
        ),
        Mark(of="difference of the answer", high=EXACT, why="a kept prefix changes the cost and not the scores"),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
