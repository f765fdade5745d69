"""A file as read-only mapped memory, whose pages can be given back.

Pages that were touched count as the process's resident memory until they are given back, so reading a checkpoint
releases each range once it has been copied into place.
"""

from __future__ import annotations

import mmap
import warnings
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from clearhead.errors import ClearheadError

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
DOWNLOAD_AGAIN = "Download the file again."

with warnings.catch_warnings():
    # torch warns, once a process, that a tensor over read-only memory could be written to. Nothing here writes.
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


def refuse_lfs_pointer(path: Path, start: bytes) -> None:
    """Raise when a file's first bytes are those of a Git-LFS pointer: the text that stands in for a large file."""
    if start.startswith(LFS_POINTER):
        raise ClearheadError(
            f"{path} is a Git-LFS pointer, a text of {path.stat().st_size} bytes in the place of the real file. "
            "Run `git lfs pull` in that folder, or download the file again."
        )


class MappedFile:
    """`path` mapped into memory for reading. Reserves addresses, not memory. Raises ClearheadError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lent = False
        try:
            with path.open("rb") as file:
                refuse_lfs_pointer(path, file.read(len(LFS_POINTER)))
                self.size = file.seek(0, 2)
                if self.size == 0:
                    raise ClearheadError(f"{path} is empty (0 bytes). {DOWNLOAD_AGAIN}")
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as problem:
            raise ClearheadError(f"{path} can't be read: {problem.strerror or problem}") from problem

    def bytes_at(self, begin: int, end: int) -> Tensor:
        """The bytes [begin, end) as a uint8 tensor over the mapped memory: read it, never write to it."""
        if begin == end:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self.data, dtype=torch.uint8, count=end - begin, offset=begin)

    def lend(self, begin: int, end: int) -> Tensor:
        """As `bytes_at`, for a tensor that outlives this: the file stays mapped for as long as such a tensor lives."""
        self._lent = True
        return self.bytes_at(begin, end)

    def release(self, begin: int, end: int) -> None:
        """Give the pages of [begin, end) back to the system; a later read brings them in again."""
        if end > begin and hasattr(mmap, "MADV_DONTNEED"):
            first = begin - begin % mmap.PAGESIZE
            self.data.madvise(mmap.MADV_DONTNEED, first, end - first)

    def close(self) -> None:
        """Unmap the file, or leave it to the garbage collector where something still looks at it: a tensor holds on to
        what it was made from, but does not keep it from being closed.
        """
        if self._lent:
            return
        try:
            self.data.close()
        except BufferError:
            self.release(0, self.size)

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
