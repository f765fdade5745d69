"""Rotary positions in published configs: today's `rope_parameters`, and the older `rope_theta` + `rope_scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RotaryConfig,
    Scaling,
    YarnScaling,
)
from clearhead.errors import ClearheadError
from clearhead.families.family import Reader


def read_rotary(reader: Reader, context: int, theta: float = 10000.0, fraction: float = 1.0) -> RotaryConfig:
    """The one rotary config of a model, in either dialect."""
    theta = reader.get("rope_theta", theta)
    fraction = reader.get("partial_rotary_factor", fraction)
    old, new = reader.inner("rope_scaling"), reader.inner("rope_parameters")
    return rotary_from(new or old, theta, fraction, context, reader.get("original_max_position_embeddings"))


def rotary_from(
    parameters: Reader | None, theta: float, fraction: float, context: int, trained: int | None = None
) -> RotaryConfig:
    """One mapping of rotary parameters; what it leaves out is given by the other arguments."""
    if parameters is None:
        return RotaryConfig(base=float(theta), fraction=fraction)
    theta = parameters.get("rope_theta", theta)
    fraction = parameters.get("partial_rotary_factor", fraction)
    scaling = _scaling(parameters, context, trained)
    parameters.finish()
    return RotaryConfig(base=float(theta), fraction=fraction, scaling=scaling)


def scaling_from(
    parameters: Mapping[str, Any], context: int | None, trained: int | None = None, where: str = "rope"
) -> Scaling | None:
    """A scaling in the words of published configs, for a model made for `context` tokens.

    Raises:
        ClearheadError: a word or a value is not understood, or one is missing.
    """
    reader = Reader(parameters, where)
    try:
        scaling = _scaling(reader, context or 0, trained)
    except (TypeError, ValueError, ZeroDivisionError) as problem:
        raise ClearheadError(f"{where}: {dict(parameters)} is not a scaling of positions ({problem})") from problem
    reader.finish()
    if getattr(scaling, "trained_length", 1) <= 0:
        raise ClearheadError(f"{where}: give original_max_position_embeddings; the model does not say its length")
    return scaling


def _scaling(p: Reader, context: int, trained: int | None) -> Scaling | None:
    legacy = p.get("type", "default")
    kind = p.get("rope_type", legacy)
    if "short_factor" in p.raw:
        kind = "longrope"  # old files call it su, or yarn, which it is not
    trained = p.get("original_max_position_embeddings", trained)
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(factor=float(p.need("factor")))
    if kind == "dynamic":
        # The published code counts from the context, whatever else the config says.
        return DynamicScaling(factor=float(p.need("factor")), trained_length=context)
    trained = trained or context
    if kind == "llama3":
        return Llama3Scaling(
            factor=float(p.need("factor")),
            low=float(p.need("low_freq_factor")),
            high=float(p.need("high_freq_factor")),
            trained_length=trained,
        )
    factor = float(p.get("factor", context / trained))
    if kind == "yarn":
        return YarnScaling(
            factor=factor,
            trained_length=trained,
            beta_fast=float(p.get("beta_fast", 32.0)),
            beta_slow=float(p.get("beta_slow", 1.0)),
            truncate=p.get("truncate", True),
            attention_factor=p.get("attention_factor"),
            mscale=p.get("mscale"),
            mscale_all_dim=p.get("mscale_all_dim"),
        )
    if kind == "longrope":
        return LongRopeScaling(
            short=tuple(map(float, p.need("short_factor"))),
            long=tuple(map(float, p.need("long_factor"))),
            trained_length=trained,
            factor=factor,
            attention_factor=p.get("attention_factor"),
        )
    raise ClearheadError(
        f"{p.where}: the rope_type {kind!r} is not understood; understood are default, linear, dynamic, llama3, yarn "
        "and longrope"
    )


def write_rotary(rotary: RotaryConfig) -> dict[str, Any]:
    """Today's spelling of one rotary config."""
    out: dict[str, Any] = {"rope_type": "default", "rope_theta": rotary.base}
    if rotary.fraction != 1.0:
        out["partial_rotary_factor"] = rotary.fraction
    match rotary.scaling:
        case None:
            pass
        case LinearScaling(factor=factor):
            out |= {"rope_type": "linear", "factor": factor}
        case DynamicScaling(factor=factor):
            out |= {"rope_type": "dynamic", "factor": factor}
        case Llama3Scaling() as c:
            out |= {
                "rope_type": "llama3",
                "factor": c.factor,
                "low_freq_factor": c.low,
                "high_freq_factor": c.high,
                "original_max_position_embeddings": c.trained_length,
            }
        case YarnScaling() as c:
            out |= {
                "rope_type": "yarn",
                "factor": c.factor,
                "original_max_position_embeddings": c.trained_length,
                "beta_fast": c.beta_fast,
                "beta_slow": c.beta_slow,
                "truncate": c.truncate,
            }
            optional = {
                "attention_factor": c.attention_factor,
                "mscale": c.mscale,
                "mscale_all_dim": c.mscale_all_dim,
            }
            out |= {k: v for k, v in optional.items() if v is not None}
        case LongRopeScaling() as c:
            out |= {
                "rope_type": "longrope",
                "short_factor": list(c.short),
                "long_factor": list(c.long),
                "factor": c.factor,
                "original_max_position_embeddings": c.trained_length,
            }
            if c.attention_factor is not None:
                out["attention_factor"] = c.attention_factor
    return out
