"""What accelerators can do at most, as their makers say: assets/devices.toml, each with its source."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from clearhead.errors import UsageError

HERE = "here"
"""Not in the table: this machine, measured (`clearhead.costs.machine`)."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
"""Of a number."""
GIB = 2**30


@dataclass(frozen=True)
class Device:
    """Memory in bytes, bandwidth in bytes a second, peaks in floating-point operations a second by dtype."""

    key: str
    name: str
    memory: int
    bandwidth: float
    """Of its own memory, at best."""
    peaks: Mapping[str, float]
    """Of products of dense matrices, at best."""
    source: str
    reached: float | None = None
    """Of a machine that was measured: the bytes of weights a second that this library's products go through when they
    write one token a text. None where nothing was measured."""
    overhead: float = 0.0
    """Seconds that such a step takes beside."""

    def peak(self, dtype: str) -> float:
        """Operations a second on numbers of `dtype`.

        Raises:
            UsageError: nothing is known of it; the message has what is.
        """
        if dtype not in self.peaks:
            raise UsageError(f"{self.name} has no peak for {dtype}; there are {', '.join(self.peaks)}")
        return self.peaks[dtype]

    def balance(self, dtype: str) -> float:
        """Operations a byte: work with fewer of them waits for the memory, work with more for the arithmetic
        (Williams 2009, the roofline's ridge point).
        """
        return self.peak(dtype) / self.bandwidth

    def times(self, n: int) -> Device:
        """So many of them as one: all that they have, and no time to talk to each other."""
        if n == 1:
            return self
        return Device(
            key=self.key,
            name=f"{n} x {self.name}",
            memory=n * self.memory,
            bandwidth=n * self.bandwidth,
            peaks={dtype: n * peak for dtype, peak in self.peaks.items()},
            source=self.source,
            reached=None if self.reached is None else n * self.reached,
            overhead=self.overhead,
        )


@cache
def devices() -> dict[str, Device]:
    """The table, by name."""
    rows = tomllib.loads(files("clearhead").joinpath("assets", "devices.toml").read_text(encoding="utf-8"))
    return {
        key: Device(
            key=key,
            name=row["name"],
            memory=row["memory"] * GIB,
            bandwidth=row["bandwidth"] * 1e9,
            peaks={dtype: peak * 1e12 for dtype, peak in row["peak"].items()},
            source=row["source"],
        )
        for key, row in rows.items()
    }


def device(name: str) -> Device:
    """An accelerator by its name, however it is spelled.

    Raises:
        UsageError: it is not in the table; the message names the nearest.
    """
    known = devices()
    plain = {_plain(key): key for key in known}
    if (key := plain.get(_plain(name))) is not None:
        return known[key]
    near = difflib.get_close_matches(_plain(name), plain, n=3, cutoff=0.5)
    near += [key for key in plain if key not in near and _plain(name) and _plain(name) in key]
    nearest = f"; the nearest are {', '.join(plain[key] for key in near)}" if near else ""
    raise UsageError(f"there is no device {name!r}{nearest}. There are {', '.join(known)}, and {HERE}: this machine")


def _plain(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


def bytes_of(dtype: str) -> int:
    """Of one number.

    Raises:
        UsageError: the dtype is not known.
    """
    if dtype not in BYTES:
        raise UsageError(f"the dtype {dtype!r} is not known; there are {', '.join(BYTES)}")
    return BYTES[dtype]
