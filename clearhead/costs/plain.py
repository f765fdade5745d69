"""Parts of a cost as plain values: bytes, seconds, operations and dollars."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from clearhead.costs.flops import Flops
from clearhead.costs.service import Service
from clearhead.costs.time import Bound


def plain_flops(flops: Flops) -> dict[str, Any]:
    named = {name: getattr(flops, name) for name in ("linear", "quadratic", "total", "needed", "rule")}
    return {**named, "parts": {name: asdict(work) for name, work in flops.parts.items()}}


def _bound(found: Bound) -> dict[str, Any]:
    return {
        "seconds": found.seconds,
        "waits_for": found.limit,
        "intensity": found.load.intensity,
        "flops": found.load.flops,
        "bytes": found.load.bytes,
    }


def plain_service(service: Service) -> dict[str, Any]:
    device, ask = service.device, service.ask
    found: dict[str, Any] = {
        **asdict(device),
        "balance": device.balance(ask.dtype),
        "fits": service.fits,
        "users": service.users,
        "reading": _bound(service.reading),
    }
    if service.writes:
        for texts in dict.fromkeys((ask.batch, service.users or ask.batch)):
            step = service.writing(texts)
            found.setdefault("writing", []).append(
                {
                    "texts": texts,
                    **_bound(step.bound),
                    "expected_seconds": step.expected,
                    "tokens_per_second": step.tokens_per_second,
                    "price_per_million": None if ask.price_per_hour is None else service.price_out(texts),
                }
            )
        found["kept_prompt"] = {
            "tokens": ask.kept,
            "bytes": service.counts.state(1, ask.kept, ask.width).total,
            "seconds_saved": service.reading.seconds - service.reading_rest.seconds,
            "price_saved": None if ask.price_per_hour is None else service.price_saved(),
        }
    if ask.price_per_hour is not None:
        found["price_per_million_read"] = service.price_in()
    return found
