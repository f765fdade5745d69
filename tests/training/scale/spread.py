"""The same task in several processes, as `torchrun` would start them."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def spread(n: int, task: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """What `task(*args)` gives in each of `n` processes, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    multiprocessing.spawn(_enter, args=(n, task, str(folder), args), nprocs=n)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(n)]


def _enter(rank: int, n: int, task: Callable[..., Any], folder: str, args: tuple[Any, ...]) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=n, timeout=timedelta(minutes=5)
    )
    try:
        torch.save(task(*args), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()
