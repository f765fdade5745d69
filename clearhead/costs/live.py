"""How much memory a computation really holds: all tensors that are alive, counted by their storage."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Within it, `now` is how many bytes the tensors take that were made within it and are still there, and `peak` the
    most that it was. What is in `known` does not count.
    """

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._seen = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return out

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._seen:
            return
        self._seen.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size
