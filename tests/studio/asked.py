"""Operations that tests ask, and what became of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field

from clearhead.errors import ClearheadError
from clearhead.studio.operations import OPERATIONS, Answer, operation


@dataclass
class Seen:
    """What was worked on."""

    begun: list[Any] = field(default_factory=list)
    closed: list[Any] = field(default_factory=list)


@contextmanager
def operations_of_tests() -> Iterator[Seen]:
    """`test.echo` and others, as long as the block lasts."""
    before, seen = dict(OPERATIONS), Seen()

    @operation("test.echo")
    def echo(*, value: Annotated[str, Field(max_length=100_000)] = "", number: float = 0.0) -> Answer:
        return Answer(data={"value": value, "number": number}, printed=(number,), python="print(0.0)")

    @operation("test.slow")
    def slow(*, value: int, seconds: Annotated[float, Field(le=2)] = 0.2) -> Answer:
        seen.begun.append(value)
        time.sleep(seconds)
        return Answer(data={"value": value})

    @operation("test.count")
    def count(*, to: int, pause: float = 0.0, wide: Annotated[int, Field(le=1 << 22)] = 0) -> Iterator[Answer]:
        seen.begun.append(to)
        try:
            for number in range(to):
                time.sleep(pause)
                yield Answer(data={"number": number}, arrays={"wide": np.zeros(wide, np.float32)})
        finally:
            seen.closed.append(to)

    @operation("test.nan")
    def nan() -> Answer:
        bad = float("nan")
        data = {"nan": bad, "inside": [1.0, (float("inf"), {"x": np.float32("nan")})], "tensor": torch.tensor([1, bad])}
        return Answer(data=data, arrays={"a": torch.tensor([-torch.inf, bad])}, printed=(bad,))

    @operation("test.arrays")
    def arrays() -> Answer:
        return Answer(
            arrays={
                "half": torch.arange(3, dtype=torch.bfloat16),
                "yes": torch.tensor([[True], [False]]),
                "whole": torch.arange(-2, 3),
                "turned": torch.arange(6.0).reshape(2, 3).T,
                "none": torch.zeros(0, 4),
                "one": np.float64(1.5) * np.ones(()),
            }
        )

    @operation("test.huge")
    def huge() -> Answer:
        return Answer(arrays={"a": torch.zeros(()).expand(1 << 29)})

    @operation("test.defect")
    def defect(*, how: str = "division") -> Answer:
        if how == "exit":
            sys.exit(3)
        if how == "memory":
            raise MemoryError
        if how == "stop":
            raise StopIteration
        return Answer(data={"x": 1 // 0})

    @operation("test.refuse")
    def refuse() -> Answer:
        raise ClearheadError("there is no such thing; take another")

    @operation("test.breaks")
    def breaks(*, refused: bool = False) -> Iterator[Answer]:
        yield Answer(data={"number": 0})
        if refused:
            raise ClearheadError("it ends here; begin anew")
        raise ZeroDivisionError

    @operation("test.unsendable")
    def unsendable() -> Answer:
        return Answer(data={"x": object()})

    try:
        yield seen
    finally:
        OPERATIONS.clear()
        OPERATIONS.update(before)
