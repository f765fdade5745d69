"""Where a run stands in its text, and what is known of a site before anything runs: what limits are checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from clearhead.config import FramesConfig, PatchesConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Inputs as Read
from clearhead.generation.prompts import window
from clearhead.generation.source import source_window
from clearhead.lens.aliases import Alias
from clearhead.model.stack import Stack
from clearhead.model.transformer import Transformer
from clearhead.taps import Mode, address

if TYPE_CHECKING:
    from clearhead.lens.arguments import Arguments

ROWS, HEADS, KV_HEADS, TOKENS, KEYS, EXPERTS = "B", "H", "G", "T", "S", "E"
FIRST = "front"
"""What a pass over any stack offers first."""
SOURCE = "encoder"
"""The path of the stack that cross-attention looks at."""


@dataclass(frozen=True)
class Slots:
    """What one stack reads in a pass: slots `start` to `stop` of its text, and which of them hold a token."""

    start: int
    stop: int
    present_BT: Tensor | None = None


class Progress:
    """Taps that change nothing, and know which slots each stack reads in the pass that runs, by the stack's path."""

    def __init__(self, now: Mapping[str, Slots] | None = None) -> None:
        self.now = dict(now or {})

    def mode(self, path: str, name: str) -> Mode:
        return "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        if name == FIRST:
            self.begin(stack_of(address(path, name)), value.shape[1])
        return value

    def begin(self, path: str, n_slots: int) -> None:
        """A pass over a stack begins. More slots than were given: the text is read again."""
        slots = self.now.get(path, Slots(0, n_slots))
        self.now[path] = Slots(slots.stop - n_slots, slots.stop, slots.present_BT)


@dataclass(frozen=True)
class Site:
    """A place in one model, in one run."""

    alias: Alias
    """The name it was asked for by: whose axes a function of the caller's expects."""
    letters: tuple[str, ...]
    """Its axes, in the library's letters."""
    sizes: Mapping[str, int]
    """How many heads and experts there are."""
    progress: Progress

    @property
    def address(self) -> str:
        return self.alias.address

    @property
    def name(self) -> str:
        return self.address.rpartition(".")[2]

    @property
    def token_letter(self) -> str:
        """The axis that counts slots: of queries where there is one, else of keys."""
        return TOKENS if TOKENS in self.letters else KEYS

    def axis(self, letter: str) -> int:
        return self.letters.index(letter)

    def slots(self, letter: str) -> Slots | None:
        """What is read, as this axis counts it."""
        return self.progress.now.get(self.stack(letter))

    def stack(self, letter: str) -> str:
        """The path of the stack whose slots this axis counts: keys of cross-attention are the source's."""
        crossed = ".cross." in self.address or self.name == "alignment"
        source = crossed and (letter == KEYS or self.name in ("k_raw", "k", "v"))
        return SOURCE if source else stack_of(self.address)

    def first(self, letter: str, n: int) -> int:
        """Which slot of its text stands first along an axis of `n`: keys end where queries do."""
        slots = self.slots(letter)
        return 0 if slots is None else slots.stop - n

    def check(self, wanted: Sequence[int], letter: str) -> None:
        """Refuse slots that this run has not."""
        slots = self.slots(letter)
        wrong = [] if slots is None else [slot for slot in wanted if not -slots.stop <= slot < slots.stop]
        if slots is not None and wrong:
            raise ClearheadError(f"{self.address} has positions 0 to {slots.stop - 1} in this text, not {wrong[0]}")

    def places(self, value: Tensor, wanted: Sequence[int], letter: str) -> list[int]:
        """Where along an axis of this value the slots `wanted` stand, those that are there; -1 is the last of it."""
        n = value.shape[self.axis(letter)]
        first = self.first(letter, n)
        found = [n + slot if slot < 0 else slot - first for slot in wanted]
        return [place for place in found if 0 <= place < n]


def site(model: Transformer, alias: Alias, letters: str, progress: Progress) -> Site:
    """What is known of an address of `model`."""
    config = getattr(model.get_submodule(alias.address.rpartition(".")[0]), "config", None)
    named = ((HEADS, "n_heads"), (KV_HEADS, "n_kv_heads"), (EXPERTS, "n_experts"))
    sizes = {letter: getattr(config, name) for letter, name in named if hasattr(config, name)}
    return Site(alias, tuple(letters.split()), sizes, progress)


def stack_of(address: str) -> str:
    """The path of the stack that an address is in; "" is the model itself."""
    for part in ("layers.", "embed."):
        before, found, _ = address.partition(part)
        if found:
            return before.rstrip(".")
    return address.rpartition(".")[0]


def slots_of(model: Transformer, call: Arguments) -> dict[str, Slots]:
    """What each stack of `model` will read in this call, by its path.

    Raises:
        ClearheadError: a text is longer than the model.
    """
    found: dict[str, Slots] = {}
    for path, stack in model.named_modules():
        if not isinstance(stack, Stack):
            continue
        is_source = path == SOURCE
        what = "source" if is_source else "text"
        read, present_BT = _read(stack, call, "source" if is_source else "tokens")
        if read == Read():
            continue
        n_slots = stack.embed.n_slots(read)
        state = None if is_source else call.others.get("state")
        start = 0 if state is None else state.length
        if not isinstance(present_BT, Tensor) or present_BT.ndim != 2:
            present_BT = None  # the model says what is wrong with it
        found[path] = Slots(start, start + n_slots, present_BT)
        longest = n_slots if present_BT is None else int(present_BT.sum(dim=1).max())
        limit = None
        if read.tokens_BT is not None and "documents" not in call.others:
            limit = window(stack.config) if isinstance(stack, Transformer) else source_window(model.config)
        if limit is not None and start + longest > limit:
            raise ClearheadError(f"the {what} is {start + longest} tokens and this model's window {limit}; shorten it")
    return found


def _read(stack: Stack, call: Arguments, tokens: str) -> tuple[Read, Tensor | None]:
    front = stack.embed.config.front
    if isinstance(front, PatchesConfig):
        return Read(pixels_BCHW=call.others.get("pixels")), None
    if isinstance(front, FramesConfig):
        return Read(frames_BMF=call.others.get("frames")), None
    if tokens == "source":
        return Read(tokens_BT=call.others.get("source")), call.others.get("source_present")
    return Read(tokens_BT=call.tokens_BT), call.others.get("present")
