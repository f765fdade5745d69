"""One pass that keeps what is asked for: values coded as they come, ended when there is nothing left to see."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens.arguments import arguments
from clearhead.lens.edit import Edits, edit_functions
from clearhead.lens.places import Progress
from clearhead.model.transformer import Transformer
from clearhead.taps import Chain, Editor, Mode, Recorder, address

if TYPE_CHECKING:
    from clearhead.taps import Taps

LOGITS = "logits"
NEEDS_HEAD = frozenset({LOGITS})


class Cancelled(UsageError):
    """Nobody waits for the run any more."""


class _Enough(Exception):
    """Everything that was asked for is there."""


class Watch:
    """Taps that change nothing: they end a pass that nobody waits for, or whose rest nobody asked for."""

    def __init__(self, recorder: Recorder, cancelled: Event | None) -> None:
        self.recorder = recorder
        self.cancelled = cancelled
        self.base = self.peak = resident_bytes()

    def mode(self, path: str, name: str) -> Mode:
        return "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        if self.cancelled is not None and self.cancelled.is_set():
            raise Cancelled("the run was cancelled")
        if address(path, name) in self.recorder.addresses:
            self.peak = max(self.peak, resident_bytes())
        if len(self.recorder.values) == len(self.recorder.addresses):
            raise _Enough
        return value


def record(
    model: Transformer,
    inputs: Mapping[str, Any],
    addresses: Sequence[str],
    keep: Callable[[str, Tensor], Tensor],
    *,
    edits: Edits = (),
    cancelled: Event | None = None,
) -> tuple[dict[str, Tensor], int]:
    """What `keep(address, value)` makes of the value at each address, and by how many bytes the process grew.

    The values are those of `clearhead.look`: the same taps in the same pass. No head reads the stream where no logits
    are asked for: of 1,000 tokens and 262,144 words they alone are 1 GB.

    Raises:
        Cancelled: `cancelled` was set meanwhile.
        ClearheadError: what `clearhead.look` refuses.
    """
    call = arguments(model, inputs)
    progress = Progress(call.slots)
    recorder = Recorder(addresses, keep=keep)
    watch = Watch(recorder, cancelled)
    functions = edit_functions(model, edits, progress)
    # The watch stands last: what it ends the pass after has been recorded.
    taps: list[Taps] = [progress, *([Editor(functions)] if functions else []), recorder, watch]
    options: dict[str, Any] = {"taps": Chain(*taps)}
    if isinstance(model, Transformer) and not NEEDS_HEAD & recorder.addresses:
        options["read"] = False
    try:
        with torch.no_grad():
            call.call(model, **options)
    except _Enough:
        pass
    return recorder.values, max(0, watch.peak - watch.base)


def resident_bytes() -> int:
    """How much memory this process holds now; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
