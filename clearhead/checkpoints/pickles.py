"""Reading PyTorch's .bin files: pickles, which may hold code. None of it is ever run.

Only `torch.load(weights_only=True)` touches them, and only where there is no safetensors.
"""

from __future__ import annotations

import ctypes
import mmap
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoints.mapped import DOWNLOAD_AGAIN, LFS_POINTER, refuse_lfs_pointer
from clearhead.errors import ClearheadError


def load_pickle(path: Path) -> dict[str, Tensor]:
    """The tensors of a .bin file, mapped from it where its format allows. Raises ClearheadError."""
    try:
        with path.open("rb") as file:
            refuse_lfs_pointer(path, file.read(len(LFS_POINTER)))
        # The format before PyTorch 1.6 is no zip archive and can't be mapped.
        found: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except ClearheadError:
        raise
    except pickle.UnpicklingError as problem:
        raise _refusal(path, str(problem)) from None
    except Exception as problem:  # torch raises RuntimeError, EOFError, KeyError, ... for a damaged file
        raise ClearheadError(
            f"{path} ({path.stat().st_size if path.exists() else 0} bytes) can't be read as a PyTorch checkpoint: "
            f"{_first_line(problem)}. {DOWNLOAD_AGAIN}"
        ) from problem
    if not isinstance(found, dict):
        raise ClearheadError(f"{path} holds a {type(found).__name__}, expected a dictionary of tensors")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Tensor) or value.layout != torch.strided:
            raise ClearheadError(
                f"{path}: {name!r} is a {type(value).__name__}, expected a plain tensor. Is this a training state? "
                "Save the model's own state dict, best as safetensors."
            )
    return found


def _refusal(path: Path, text: str) -> ClearheadError:
    wanted = re.search(r"GLOBAL ([\w.]+)", text)
    if wanted or "Unsupported" in text:
        what = f" (it calls {wanted.group(1)})" if wanted else ""
        return ClearheadError(
            f"{path} is a pickle that wants to run code{what}, which clearhead never allows. "
            "Get the model as safetensors; if you trust the file, convert it on a machine you can lose."
        )
    return ClearheadError(f"{path} is not a readable PyTorch checkpoint: damaged or cut short. {DOWNLOAD_AGAIN}")


def _first_line(problem: Exception) -> str:
    return str(problem).strip().split("\n")[0].rstrip(".") or type(problem).__name__


def mapped_ranges(path: Path) -> list[tuple[int, int]]:
    """Where in memory a file is mapped: [first, last) addresses. Empty where the system (not Linux) doesn't say."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    ranges = []
    for line in maps.read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5] == str(path.resolve()):
            first, last = parts[0].split("-")
            ranges.append((int(first, 16), int(last, 16)))
    return ranges


def release(values: Tensor, ranges: list[tuple[int, int]]) -> None:
    """Give back the whole pages under a row of values, if they are a file's: other memory would lose its contents."""
    page = mmap.PAGESIZE
    first = -(-values.data_ptr() // page) * page
    last = (values.data_ptr() + values.nbytes) // page * page
    if last > first and any(begin <= first and last <= end for begin, end in ranges):
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED)
