"""Chapter 6, continued: where the norm stands, which norm, which activation, where the parameters are, and that the MLP
works on one token alone (S42, S44 to S46).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.checkpoints.shipped import shipped_names
from clearhead.claims.block.gradient_by_depth import D_MODEL, first_gradients
from clearhead.claims.block.mlp_alone import LAYER, reach
from clearhead.claims.block.rms_norm import RMS, model_with, part
from clearhead.claims.ingredients.norm_placement import Placement
from clearhead.config import FeedForwardConfig
from clearhead.costs import counts
from clearhead.costs.names import EXPERTS, FEED_FORWARD
from clearhead.costs.source import config_names, read_config
from clearhead.errors import UsageError
from clearhead.model.transformer import Transformer
from clearhead.ops.activations import ACTIVATIONS, activation
from clearhead.ops.norms import layer_norm, rms_norm
from clearhead.studio.lesson.drawing import DRAWING
from clearhead.studio.lesson.scale.terms import shapes_of
from clearhead.studio.operations import Answer, operation

EPS = 1e-5


# ---- where the norm stands


@lru_cache(maxsize=64)
def _gradients(placement: Placement, depth: int) -> tuple[float, ...]:
    """The length of the gradient of every layer's last matrix, on random tokens, before any step."""
    # The state of torch's generator is the process's: a figure does not move it, and nobody else draws meanwhile.
    with DRAWING, torch.random.fork_rng(devices=[]):
        return tuple(first_gradients(placement, depth, 0, range(depth)))


@operation("block.placement")
def placement(*, depth: Annotated[int, Field(ge=2, le=24)] = 12) -> Answer:
    """The gradient of each layer's MLP at the start of training, by where the norms stand."""
    pre, post = _gradients("pre", depth), _gradients("post", depth)
    shallow_pre, shallow_post = _gradients("pre", 2)[-1], _gradients("post", 2)[-1]
    return Answer(
        data={
            "depth": depth,
            "width": D_MODEL,
            "last_pre": pre[-1],
            "last_post": post[-1],
            "first_pre": pre[0],
            "first_post": post[0],
            "shallow_pre": shallow_pre,
            "shallow_post": shallow_post,
            "fallen_pre": pre[-1] / shallow_pre,
            "fallen_post": post[-1] / shallow_post,
            "law": (2 / depth) ** 0.5,
            "layers": list(range(1, depth + 1)),
        },
        arrays={"pre": torch.tensor(pre), "post": torch.tensor(post)},
        python=_PLACEMENT.format(depth=depth),
        printed=(pre[-1], post[-1], pre[-1] / shallow_pre, post[-1] / shallow_post),
    )


_PLACEMENT = """\
from clearhead.claims.block.gradient_by_depth import last_gradient

deep = [last_gradient(placement, {depth}, seed=0) for placement in ("pre", "post")]
shallow = [last_gradient(placement, 2, seed=0) for placement in ("pre", "post")]
print("gradient of the last layer:", *deep)
print("by that of two layers:", deep[0] / shallow[0], deep[1] / shallow[1])
"""


# ---- which norm


@operation("block.norm")
def norm(
    *,
    shift: Annotated[float, Field(ge=-4, le=4)] = 0.0,
    stretch: Annotated[float, Field(ge=0.1, le=4)] = 1.0,
    seed: Annotated[int, Field(ge=0, le=99)] = 0,
) -> Answer:
    """A vector of eight numbers, stretched and shifted, through both norms, with weights of 1."""
    x_D = stretch * torch.randn(8, generator=torch.Generator().manual_seed(seed)) + shift
    layer_D, rms_D = layer_norm(x_D, torch.ones(8), None, EPS), rms_norm(x_D, torch.ones(8), None, EPS)
    told = {
        name: {
            "mean": float(y_D.mean()),
            "deviation": float(y_D.std(correction=0)),
            "rms": float(y_D.square().mean().sqrt()),
        }
        for name, y_D in (("x", x_D), ("layer", layer_D), ("rms", rms_D))
    }
    return Answer(
        data={**told, "apart": float((layer_D - rms_D).abs().max())},
        arrays={"x": x_D, "layer": layer_D, "rms": rms_D},
        python=_NORM.format(stretch=stretch, shift=shift, seed=seed, eps=EPS),
        printed=(
            told["x"]["mean"],
            told["x"]["deviation"],
            told["x"]["rms"],
            told["layer"]["mean"],
            told["layer"]["rms"],
            told["rms"]["mean"],
            told["rms"]["rms"],
        ),
    )


_NORM = """\
import torch

from clearhead.ops.norms import layer_norm, rms_norm

x_D = {stretch} * torch.randn(8, generator=torch.Generator().manual_seed({seed})) + {shift}
print("x:", float(x_D.mean()), float(x_D.std(correction=0)), float(x_D.square().mean().sqrt()))
for norm in (layer_norm, rms_norm):
    y_D = norm(x_D, torch.ones(8), None, {eps})
    print(norm.__name__ + ":", float(y_D.mean()), float(y_D.square().mean().sqrt()))
"""


# ---- which activation

Curve = Literal["gelu", "silu", "relu", "quick_gelu", "relu_squared", "tanh"]


@operation("block.activation")
def activations(
    *,
    x: Annotated[float, Field(ge=-4, le=4)] = 1.0,
    up: Annotated[float, Field(ge=-2, le=2)] = 1.5,
    width: Literal[128, 256, 512, 768, 1024, 4096] = 768,
) -> Answer:
    """The curves of the activations; SwiGLU's for one value of its other side; and what both kinds of MLP take."""
    x_N = torch.linspace(-4, 4, 161)
    curves = {name: function(x_N) for name, function in ACTIVATIONS.items() if name in ("gelu", "silu", "relu")}
    silu, gelu = activation("silu"), activation("gelu")
    at = torch.tensor(x)
    plain = part(model_with(RMS, _plain(width), width), FEED_FORWARD)
    gated = part(model_with(RMS, _gated(width), width), FEED_FORWARD)
    return Answer(
        data={
            "x": x,
            "up": up,
            "gelu": float(gelu(at)),
            "phi": float(torch.special.ndtr(at)),
            "silu": float(silu(at)),
            "gated": float(silu(at) * up),
            "plain_parameters": plain,
            "gated_parameters": gated,
            "ratio": gated / plain,
            "plain_hidden": _plain(width).d_ff,
            "gated_hidden": _gated(width).d_ff,
            "width": width,
        },
        arrays={"x": x_N, **curves, "gated": curves["silu"] * up},
        python=_ACTIVATION.format(x=x, up=up, width=width),
        printed=(float(gelu(at)), float(silu(at) * up), float(plain), float(gated)),
    )


def _plain(width: int) -> FeedForwardConfig:
    return FeedForwardConfig(d_ff=4 * width, activation="gelu", gated=False)


def _gated(width: int) -> FeedForwardConfig:
    return FeedForwardConfig(d_ff=8 * width // 3, activation="silu", gated=True)


_ACTIVATION = """\
import torch

from clearhead.claims.block.rms_norm import RMS, model_with, part
from clearhead.config import FeedForwardConfig
from clearhead.costs.names import FEED_FORWARD
from clearhead.ops.activations import activation

x, up, width = torch.tensor({x}), {up}, {width}
print("gelu:", float(activation("gelu")(x)))
print("swiglu:", float(activation("silu")(x) * up))
plain = FeedForwardConfig(d_ff=4 * width, activation="gelu", gated=False)
gated = FeedForwardConfig(d_ff=8 * width // 3, activation="silu", gated=True)
for mlp in (plain, gated):
    print("parameters:", part(model_with(RMS, mlp, width), FEED_FORWARD))
"""


# ---- where the parameters are

NEAR_TWO_THIRDS = 0.0067
"""A share that is nearer than this is called two thirds: norms and biases are left out of that count."""


@cache
def _names() -> tuple[str, ...]:
    return (*(name for name in shipped_names() if name.startswith("clear-")), *config_names())


@operation("block.parameters")
def parameters(*, model: Annotated[str, Field(max_length=60)] = "bert-base") -> Answer:
    """How many parameters each part of a shipped config has, and the MLP's share of its blocks.

    Raises:
        UsageError: no config that is shipped has this name.
    """
    if model not in _names():
        raise UsageError(f"there is no shipped config {model[:60]!r}; take one of {', '.join(_names())}")
    found = counts(read_config(model).config)
    parts, shapes = found.parameters.parts, shapes_of(found)
    of_blocks = [weight for weight in found.weights if weight.block]
    blocks = sum(weight.size for weight in of_blocks)
    in_mlp = sum(weight.size for weight in of_blocks if weight.part in (FEED_FORWARD, EXPERTS))
    share = in_mlp / blocks if blocks else 0.0
    return Answer(
        data={
            "model": model,
            "models": list(_names()),
            "parts": [{"name": name, "size": size, "shapes": shapes[name]} for name, size in parts.items()],
            "total": found.parameters.total,
            "active": found.parameters.active,
            "idle": found.parameters.total - found.parameters.active,
            "blocks": blocks,
            "in_mlp": in_mlp,
            "share": share,
            "two_thirds": blocks > 0 and abs(share - 2 / 3) < NEAR_TWO_THIRDS,
        },
        python=_PARAMETERS.format(model=model) + (_SHARE if blocks else ""),
        printed=(
            *(float(size) for size in parts.values()),
            float(found.parameters.total),
            *((share,) if blocks else ()),
        ),
    )


_PARAMETERS = """\
from clearhead.costs import counts
from clearhead.costs.names import EXPERTS, FEED_FORWARD
from clearhead.costs.source import read_config

found = counts(read_config("{model}").config)
for name, size in found.parameters.parts.items():
    print(name.ljust(12), size)
print("all:", found.parameters.total)
"""
_SHARE = """\
of_blocks = [weight for weight in found.weights if weight.block]
in_mlp = sum(weight.size for weight in of_blocks if weight.part in (FEED_FORWARD, EXPERTS))
print("share of the MLP in the blocks:", in_mlp / sum(weight.size for weight in of_blocks))
"""


# ---- one token alone

MOST_TOKENS = 14


@cache
def _exact() -> Transformer:
    model = load("clear-gpt")
    assert isinstance(model, Transformer)
    return model.double()


@lru_cache(maxsize=32)
def _reach(text: str) -> tuple[list[str], Tensor, Tensor, list[int]]:
    model = _exact()
    ids = model.tokenizer.encode(text)
    if len(ids) > MOST_TOKENS:
        raise UsageError(f"these words are {len(ids)} tokens, and {MOST_TOKENS} fit here; take some away")
    tokens_BT = torch.tensor([ids])
    mlp_TT = reach(model, tokens_BT, "resid_mid", "ffn.out")
    attention_TT = reach(model, tokens_BT, "resid_pre", "mixer.out")
    return model.tokenizer.pieces(ids), mlp_TT, attention_TT, ids


@operation("block.alone")
def alone(*, text: Annotated[str, Field(min_length=1, max_length=80)] = "The MLP works alone.") -> Answer:
    """How much each token's correction depends on each token's stream, for attention and for the MLP of one layer.

    Raises:
        UsageError: the text has more tokens than fit.
    """
    pieces, mlp_TT, attention_TT, ids = _reach(text)
    off_mlp, off_attention = (float((one - one.diagonal().diag()).max()) for one in (mlp_TT, attention_TT))
    return Answer(
        data={
            "tokens": pieces,
            "layer": LAYER,
            "mlp_others": off_mlp,
            "attention_others": off_attention,
            "mlp_own": float(mlp_TT.diagonal().min()),
        },
        arrays={"mlp": mlp_TT, "attention": attention_TT},
        python=_ALONE.format(ids=ids),
        printed=(off_mlp, off_attention),
    )


_ALONE = """\
import torch

import clearhead
from clearhead.claims.block.mlp_alone import others, reach

model = clearhead.load("clear-gpt").double()
tokens_BT = torch.tensor([{ids}])
print("MLP, from other tokens:", others(reach(model, tokens_BT, "resid_mid", "ffn.out")))
print("attention, from other tokens:", others(reach(model, tokens_BT, "resid_pre", "mixer.out")))
"""
