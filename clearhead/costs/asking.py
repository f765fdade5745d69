"""What is asked of a cost, checked before anything is counted or measured."""

from __future__ import annotations

from clearhead.config import RotaryConfig
from clearhead.costs.count import Counts
from clearhead.costs.devices import HERE, Device, bytes_of, device
from clearhead.costs.service import Ask
from clearhead.costs.serving import devices_needed, made_for, weight_bytes
from clearhead.errors import UsageError

USUAL = 2048
"""The length asked about of a model that was made for any."""
MEASURED = ("float32", "bfloat16", "float16")
"""What this machine is measured in."""


def checked(
    name: str,
    counted: Counts,
    context: int | None,
    batch: int,
    dtype: str,
    kept: int | None,
    price: float | None,
) -> Ask:
    """What is asked, filled up.

    Raises:
        UsageError: a size below 1, a dtype that is not known, or more tokens than the model was made for.
    """
    bytes_of(dtype)
    end = made_for(counted)
    length = context if context is not None else end or USUAL
    for what, value in (("context", length), ("batch", batch), ("kept", 1 if kept is None else kept)):
        if value < 1:
            raise UsageError(f"{what} is {value}; it must be 1 or more")
    if end is not None and length > end:
        stretch = f"; another scaling of its positions may stretch it: rope (yarn:{-(-length // end)})"
        rotary = _has_rotary(counted)
        raise UsageError(
            f"{name} was made for texts of {end:,} tokens, and the context is {length:,}{stretch if rotary else ''}"
        )
    if counted.fixed_tokens is not None and length != end:
        raise UsageError(f"what {name} reads always becomes {end:,} tokens; leave the context out")
    if kept is not None and kept > length:
        raise UsageError(f"{kept:,} tokens of a prompt can't be kept where it has {length:,}")
    if price is not None and price < 0:
        raise UsageError(f"a price per hour is 0 or more, and not {price:g}")
    return Ask(length, batch, dtype, length if kept is None else kept, price)


def _has_rotary(counted: Counts) -> bool:
    ops = [block.mixer.op for stack in counted.stacks for block in stack.blocks]
    return any(isinstance(getattr(op, "positions", None), RotaryConfig) for op in ops)


def device_for(wanted: str | Device, n: int | None, counted: Counts, ask: Ask) -> Device:
    """The device or devices; this machine is measured.

    Raises:
        UsageError: there is no such device, or it has no such numbers.
    """
    if wanted == HERE:
        from clearhead.costs.machine import this_machine

        if ask.dtype not in MEASURED:
            raise UsageError(f"this machine is measured in {', '.join(MEASURED)}, and not in {ask.dtype}")
        if n not in (None, 1):
            raise UsageError(f"there is one machine here, and devices is {n}")
        return this_machine(ask.dtype, counted, ask.batch)
    found = wanted if isinstance(wanted, Device) else device(wanted)
    found.peak(ask.dtype)
    needed = weight_bytes(counted, ask.width) + counted.state(ask.batch, ask.context, ask.width).total
    return found.times(n or devices_needed(needed, found.memory))
