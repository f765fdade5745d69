"""What every kind of checkpoint offers: a config, named tensors, and a way to read one into its place.

Reading goes in chunks of about 1 MB: values of the file's dtype are looked at where they lie, converted into place,
checked there, and their pages given back. Nothing the size of a tensor is ever allocated besides the tensor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from clearhead.errors import ClearheadError

CHUNK = 1 << 18
"""Elements read at a time (1 MB of float32: it stays in the cache between steps). A multiple of every GGUF block."""

Format = Literal["safetensors", "gguf", "pickle"]


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """A tensor as its file describes it. A quantised one has the name of its GGUF type as `dtype`."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype | str
    file: str
    turned: bool = False
    """Whether the file has the last two dimensions the other way round."""

    @property
    def numel(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


class Checkpoint(ABC):
    """An opened checkpoint. Close it, or use it in a `with` statement, once the weights are in place."""

    format: Format
    unquantised: ClassVar[torch.dtype] = torch.float32
    """What quantised numbers are read as, unless something else is asked for."""

    def __init__(self, where: Path, config: dict[str, Any], tensors: Mapping[str, TensorInfo]) -> None:
        self.where = str(where)
        self.config = config
        self.tensors = dict(tensors)
        self.generation_config: dict[str, Any] | None = None
        self.sidecar_files: dict[str, Path] = {}
        self.usual: torch.dtype | None = None
        """What the weights are read as, unless something else is asked for; None is what most of them are stored as."""

    def read_into(self, name: str, target: Tensor, *, check_finite: bool = True) -> None:
        """Copy a tensor into `target`, which has its shape and any dtype, strides and device.

        Raises ClearheadError for an unknown name, another shape, and (unless told not to) a NaN or an infinity.
        """
        info = self._info(name)
        if tuple(target.shape) != info.shape:
            raise ClearheadError(
                f"{info.file}: {name!r} has shape {list(info.shape)}, but its place in the model has shape "
                f"{list(target.shape)}. The config and the weights are of two different models."
            )
        as_stored = target.detach().transpose(-1, -2) if info.turned else target.detach()
        for begin, end, piece in pieces(as_stored, CHUNK):
            values = self._values(name, begin, end)
            piece.copy_(values.view(piece.shape))
            if check_finite:
                # Looked at in place: copies of chunks between the weights leave holes in the heap (20 MB in 200).
                _refuse_not_finite(info, values, piece if piece.is_cpu else values.to(piece.dtype))
            self._release(name, begin, end)

    def read(self, name: str, dtype: torch.dtype | None = None, *, check_finite: bool = True) -> Tensor:
        """A tensor in memory of its own, in the file's dtype (`unquantised` when quantised) or in `dtype`."""
        info = self._info(name)
        own = info.dtype if isinstance(info.dtype, torch.dtype) else self.unquantised
        # A turned one lies in memory as it does in the file, which is read the faster.
        order = (*range(len(info.shape) - 2), -1, -2) if info.turned else range(len(info.shape))
        target = torch.empty([info.shape[i] for i in order], dtype=dtype or own).permute(tuple(order))
        self.read_into(name, target, check_finite=check_finite)
        return target

    @abstractmethod
    def close(self) -> None:
        """Let go of the files."""

    @abstractmethod
    def _values(self, name: str, begin: int, end: int) -> Tensor:
        """Elements [begin, end) of a tensor as one row, perhaps a view of mapped memory. `begin` is on a block."""

    @abstractmethod
    def _release(self, name: str, begin: int, end: int) -> None:
        """Elements [begin, end) of a tensor have been copied: their pages may go."""

    def _info(self, name: str) -> TensorInfo:
        if name not in self.tensors:
            raise ClearheadError(f"{self.where} has no tensor {name!r}")
        return self.tensors[name]

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pieces(target: Tensor, size: int, start: int = 0) -> Iterator[tuple[int, int, Tensor]]:
    """Cut a tensor into views of about `size` elements, each with the range it takes up in row-major order.

    A contiguous tensor is cut anywhere; another one along its first dimension, and deeper where one row is too long.
    """
    count = target.numel()
    if count == 0:
        return
    if target.is_contiguous():
        flat = target.view(-1)
        for at in range(0, count, size):
            end = min(at + size, count)
            yield start + at, start + end, flat[at:end]
        return
    row = count // target.shape[0]
    if row > size and target.dim() > 1:
        for index, part in enumerate(target.unbind(0)):
            yield from pieces(part, size, start + index * row)
        return
    step = max(1, size // row)
    for at in range(0, target.shape[0], step):
        part = target[at : at + step]
        yield start + at * row, start + at * row + part.numel(), part


def _refuse_not_finite(info: TensorInfo, values: Tensor, converted: Tensor) -> None:
    """One sum finds every NaN and infinity; only when it is odd (it may just be too large) are all looked at.

    The sum is of the tensor's own dtype: torch adds in float32 inside, and would make a copy to be told so.
    """
    if not converted.is_floating_point() or converted.dtype.itemsize < 2:
        return
    if bool(converted.sum().isfinite()) or bool(converted.isfinite().all()):
        return
    values = values.float()  # float8 knows no isfinite
    if bool(values.isfinite().all()):
        raise ClearheadError(
            f"{info.file}: {info.name!r} has values too large for {str(converted.dtype).removeprefix('torch.')}. "
            "Load it as bfloat16 or float32."
        )
    kind = "NaN (not a number)" if bool(values.isnan().any()) else "infinite values"
    raise ClearheadError(
        f"{info.file}: the weights of {info.name!r} hold {kind}. The file is damaged or its training broke down: "
        "download it again, or take an earlier checkpoint."
    )
