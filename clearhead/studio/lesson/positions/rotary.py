"""Chapter 5, continued: queries and keys that turn, and a context that is stretched (S38, S39)."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Literal, NamedTuple, get_args

import torch
from pydantic import Field
from torch import Tensor

from clearhead.config import (
    AttentionConfig,
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RotaryConfig,
    Scaling,
    TransformerConfig,
    YarnScaling,
)
from clearhead.costs.source import read_config
from clearhead.nn.rotary import frequencies
from clearhead.ops import positions
from clearhead.ops.attention import score
from clearhead.studio.operations import Answer, operation

HEAD, BASE = 16, 10_000.0
"""The head that is drawn: eight pairs."""
OFFSETS = tuple(range(-64, 65))


# ---- rotating pairs


@cache
def _drawn(seed: int) -> tuple[Tensor, Tensor]:
    """A query and a key that somewhat resemble each other, as those that meet in a trained head do."""
    generator = torch.Generator().manual_seed(seed)
    q_K, k_K = (torch.randn(HEAD, generator=generator, dtype=torch.float64) for _ in range(2))
    return q_K, (k_K + q_K) / math.sqrt(2)


def _turned(x_K: Tensor, place_N: Tensor) -> Tensor:
    """(N, K): a vector as it is at each place, by the library's functions in float64."""
    cos, sin = positions.rotary_tables(place_N, positions.frequencies(HEAD, BASE).double(), False)
    x_11NK = x_K.expand(1, 1, len(place_N), -1)
    turned_11NK: Tensor = positions.rotate(x_11NK, cos[None, None], sin[None, None], False)
    turned_NK: Tensor = turned_11NK[0, 0]
    return turned_NK


@operation("positions.rotary")
def rotary(
    *,
    query: Annotated[int, Field(ge=0, le=500)] = 12,
    key: Annotated[int, Field(ge=0, le=500)] = 4,
    shift: Annotated[int, Field(ge=0, le=500)] = 0,
    seed: Annotated[int, Field(ge=0, le=99)] = 0,
) -> Answer:
    """A query and a key turned to their places, pair by pair, and their score; `shift` moves both.

    Arrays hold a pair a row: pair i is dimensions i and i + K/2.
    """
    q_K, k_K = _drawn(seed)
    at_q, at_k = query + shift, key + shift
    turned_q = _turned(q_K, torch.tensor([at_q]))[0]
    turned_k = _turned(k_K, torch.tensor([at_k]))[0]
    parts_K = (turned_q * turned_k).unflatten(0, (2, -1)).sum(0) / math.sqrt(HEAD)
    moved = float(_scores(turned_q[None], turned_k))
    before_1K, before_k = _turned(q_K, torch.tensor([query])), _turned(k_K, torch.tensor([key]))[0]
    unmoved = float(_scores(before_1K, before_k))
    # A query before the text's beginning stands nowhere, but turns as any other: the curve needs no edge.
    curve_N = _scores(_turned(q_K, at_k + torch.tensor(OFFSETS)), turned_k)
    places = [(at_q, at_k), (query, key)] if shift else [(at_q, at_k)]
    return Answer(
        data={
            "query": at_q,
            "key": at_k,
            "offset": query - key,
            "apart": abs(query - key),
            "shift": shift,
            "width": HEAD,
            "score": moved,
            "unmoved": unmoved,
            "offsets": list(OFFSETS),
            "parts": parts_K.tolist(),
            "unmoved_parts": ((before_1K[0] * before_k).unflatten(0, (2, -1)).sum(0) / math.sqrt(HEAD)).tolist(),
            "wavelengths": (2 * math.pi / positions.frequencies(HEAD, BASE).double()).tolist(),
            "length": float(q_K.norm()),
            "length_turned": float(turned_q.norm()),
        },
        arrays={
            "query": _pairs(turned_q),
            "key": _pairs(turned_k),
            "query_at_0": _pairs(q_K),
            "key_at_0": _pairs(k_K),
            "curve": curve_N,
        },
        python=_ROTARY.format(seed=seed, places=places, query=at_q, head=HEAD),
        printed=(moved, *((unmoved,) if shift else ()), float(q_K.norm()), float(turned_q.norm())),
    )


def _scores(q_NK: Tensor, k_K: Tensor) -> Tensor:
    """(N,): what queries score with a key, as attention has it."""
    scores_11N1: Tensor = score(q_NK[None, None], k_K[None, None, None]) / math.sqrt(HEAD)
    scores_N: Tensor = scores_11N1[0, 0, :, 0]
    return scores_N


def _pairs(x_K: Tensor) -> Tensor:
    """(K/2, 2): the two dimensions that turn together."""
    x_2K: Tensor = x_K.unflatten(0, (2, -1))
    return x_2K.t()


_ROTARY = """\
import math

import torch

from clearhead.ops import positions
from clearhead.ops.attention import score

generator = torch.Generator().manual_seed({seed})
q_K, k_K = (torch.randn({head}, generator=generator, dtype=torch.float64) for _ in range(2))
k_K = (k_K + q_K) / math.sqrt(2)


def turned(x_K, place):
    frequency = positions.frequencies({head}, 10000.0).double()
    cos, sin = positions.rotary_tables(torch.tensor([place]), frequency, interleaved=False)
    return positions.rotate(x_K[None, None, None], cos[None, None], sin[None, None], interleaved=False)


for query, key in {places}:
    print("score:", float(score(turned(q_K, query), turned(k_K, key))) / math.sqrt({head}))
print("length of the query:", float(q_K.norm()), float(turned(q_K, {query}).norm()))
"""


# ---- stretch the context

Way = Literal["none", "linear", "dynamic", "yarn", "llama3", "longrope"]
WAYS: tuple[Way, ...] = get_args(Way)
Like = Literal["clear-gpt", "pythia-160m", "mistral-7b", "qwen3-8b", "llama3-8b"]


class Rotary(NamedTuple):
    """How a model turns its queries and keys, and the longest text it learned from."""

    config: RotaryConfig
    d_head: int
    trained: int


@cache
def _rotary_of(name: Like) -> Rotary:
    """Of a published config, as it was before any scaling."""
    config = read_config(name).config
    assert isinstance(config, TransformerConfig)
    op = config.stack.blocks[0].mixer.op
    assert isinstance(op, AttentionConfig) and isinstance(op.positions, RotaryConfig)
    scaling = op.positions.scaling
    trained = getattr(scaling, "trained_length", None) or config.context
    assert trained is not None
    plain = RotaryConfig(base=op.positions.base, fraction=op.positions.fraction)
    return Rotary(plain, op.d_head, trained)


def scaling(way: Way, factor: float, trained: int, n_pairs: int) -> Scaling | None:
    """A scaling by its name. LongRoPE's divisors are searched for with a model; a smooth row stands for them here, from
    1 for the fastest pair to `factor` for the slowest.
    """
    steps = [i / (n_pairs - 1) for i in range(n_pairs)]
    long = tuple(factor ** (t * t * (3 - 2 * t)) for t in steps)
    ways: dict[Way, Scaling | None] = {
        "none": None,
        "linear": LinearScaling(factor=factor),
        "dynamic": DynamicScaling(factor=1.0, trained_length=trained),
        "yarn": YarnScaling(factor=factor, trained_length=trained),
        "llama3": Llama3Scaling(factor=factor, low=1.0, high=4.0, trained_length=trained),
        "longrope": LongRopeScaling(short=(1.0,) * n_pairs, long=long, trained_length=trained, factor=factor),
    }
    return ways[way]


@operation("positions.stretch")
def stretch(
    *,
    like: Like = "llama3-8b",
    way: Way = "yarn",
    factor: Annotated[float, Field(ge=1, le=64)] = 8.0,
    pair: Annotated[int, Field(ge=0, le=63)] = 40,
) -> Answer:
    """The wavelength of every pair before and after a scaling, for a text `factor` times as long as was trained on.

    A pair that is not there is brought to the last.
    """
    base = _rotary_of(like)
    n_pairs, length = int(base.d_head * base.config.fraction) // 2, round(base.trained * factor)
    pair = min(pair, n_pairs - 1)
    waves, gains = {}, {}
    for name in WAYS:
        config = _with(base, name, factor, n_pairs)
        frequency_K, gains[name] = frequencies(config, base.d_head, length)
        waves[name] = 2 * math.pi / frequency_K.double()
    before_K, after_K = waves["none"], waves[way]
    ratio_K = after_K / before_K
    unfinished = int((before_K > base.trained).sum())
    printed = (float(before_K[pair]), float(after_K[pair]), float(ratio_K[0]), float(ratio_K[-1]), gains[way])
    return Answer(
        data={
            "like": like,
            "way": way,
            "factor": factor,
            "base": base.config.base,
            "d_head": base.d_head,
            "trained": base.trained,
            "length": length,
            "n_pairs": n_pairs,
            "pair": pair,
            "rotated": 2 * n_pairs,
            "frequency_after": float(2 * math.pi / after_K[pair]),
            "ends": {
                "before": [float(before_K[0]), float(before_K[-1])],
                "after": [float(after_K[0]), float(after_K[-1])],
            },
            "before": float(before_K[pair]),
            "after": float(after_K[pair]),
            "ratio": float(ratio_K[pair]),
            "ratio_fastest": float(ratio_K[0]),
            "ratio_slowest": float(ratio_K[-1]),
            "gain": gains[way],
            "unfinished": unfinished,
            "kept": int((ratio_K < 1.001).sum()),
            "stretched": int((ratio_K > 0.999 * factor).sum()),
        },
        arrays={str(name): wave_K for name, wave_K in waves.items()}
        | {f"{name}_ratio": wave_K / before_K for name, wave_K in waves.items()},
        python=_STRETCH.format(
            names=", ".join(sorted({"RotaryConfig", _named(way)})),
            config=_code(base, way, factor, n_pairs),
            base=base.config,
            d_head=base.d_head,
            length=length,
            pair=pair,
        ),
        printed=printed,
    )


def _with(base: Rotary, way: Way, factor: float, n_pairs: int) -> RotaryConfig:
    return RotaryConfig(
        base=base.config.base, fraction=base.config.fraction, scaling=scaling(way, factor, base.trained, n_pairs)
    )


def _named(way: Way) -> str:
    """The class of its scaling, to be imported; nothing more than what is imported anyway where there is none."""
    made = scaling(way, 2.0, 1024, 8)
    return "RotaryConfig" if made is None else type(made).__name__


def _code(base: Rotary, way: Way, factor: float, n_pairs: int) -> str:
    """The scaling as code, whose rows of divisors are said and not written out."""
    if way != "longrope":
        return repr(scaling(way, factor, base.trained, n_pairs))
    steps = f"(i / {n_pairs - 1} for i in range({n_pairs}))"
    return (
        f"LongRopeScaling(\n    short=(1.0,) * {n_pairs},\n"
        f"    long=tuple({factor!r} ** (t * t * (3 - 2 * t)) for t in {steps}),\n"
        f"    trained_length={base.trained},\n    factor={factor!r},\n)"
    )


_STRETCH = """\
import math

from clearhead.config import {names}
from clearhead.nn.rotary import frequencies

scaling = {config}
plain = RotaryConfig(base={base.base!r}, fraction={base.fraction!r})
stretched = RotaryConfig(base={base.base!r}, fraction={base.fraction!r}, scaling=scaling)
before, _ = frequencies(plain, {d_head}, {length})
after, gain = frequencies(stretched, {d_head}, {length})
print("wavelength:", 2 * math.pi / float(before[{pair}]), 2 * math.pi / float(after[{pair}]))
ratio = before.double() / after.double()
print("stretched by:", float(ratio[0]), float(ratio[-1]))
print("attention sharpened by:", gain)
"""
