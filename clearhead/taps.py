"""Looking inside: the names of everything a pass computes, and the one mechanism that reads or replaces it.

A module that computes something worth seeing offers it: `x = p.tap(self.path, "name", x)`. Without taps that is
nothing; with taps, what comes back is used from there on. So recording, replacing and capturing gradients are one
thing, given to one pass and gone with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from clearhead.errors import ClearheadError

Mode = Literal["none", "read", "edit"]

# Site names and shapes by kind of module. A module class names its kind in `sites`.
BLOCK = {"resid_pre": "B T D", "resid_mid": "B T D", "resid_post": "B T D"}
CROSSED_BLOCK = {"resid_pre": "B T D", "resid_mid": "B T D", "resid_cross": "B T D", "resid_post": "B T D"}
ATTENTION = {
    "q_raw": "B H T K",
    "k_raw": "B G T K",
    "q": "B H T K",
    "k": "B G S K",
    "v": "B G S K",
    "scores": "B H T S",
    "pattern": "B H T S",
    "z": "B H T K",
    "out": "B T D",
}
# Values may be of another width, v, than keys; each head has keys and values of its own.
LATENT_ATTENTION = {**ATTENTION, "k_raw": "B H T K", "k": "B H S K", "v": "B H S v", "z": "B H T v"}
FEED_FORWARD = {"pre": "B T F", "post": "B T F", "out": "B T D"}
EXPERTS = {"router_logits": "B T E", "chosen": "B T C", "out": "B T D"}
# F channels (or H heads of K), each with N numbers of state.
MAMBA = {"delta": "B T F", "state": "B T F N", "out": "B T D"}
MAMBA2 = {"delta": "B T H", "state": "B T H K N", "out": "B T D"}
# F hidden units, of both directions side by side. An LSTM has a cell, and gates i, f, g, o (that of 1997 i, g, o); a
# GRU gates r, z, n; alignment is what attention to a source weighs its S tokens with.
RECURRENT = {
    "hidden": "B T F",
    "cell": "B T F",
    "gates": "B T F C",
    "alignment": "B T S",
    "out": "B T D",
}
# What the embedding sums, each as wide as its table; W where it is brought to the width of the stream after that.
EMBEDDING = ("front", "types", "positions")
STACK = {"embed": "B T D", "final": "B T D"}
MODEL = {**STACK, "logits": "B T V"}

EVERY_NAME = frozenset({*CROSSED_BLOCK, *ATTENTION, *FEED_FORWARD, *EXPERTS, *MAMBA, *RECURRENT, *EMBEDDING, *MODEL})
FORBIDDING = frozenset({"scores", "router_logits"})
"""Where minus infinity means: not this key, not this expert."""


@runtime_checkable
class Taps(Protocol):
    """What a pass carries when somebody looks."""

    def mode(self, path: str, name: str) -> Mode:
        """What will be done with a value: nothing, reading, or replacing."""
        ...

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        """Take a value; return the one to use next."""
        ...


def address(path: str, name: str) -> str:
    """The address of a site: `layers.3.mixer.pattern`; the model's own have no path: `logits`."""
    return f"{path}.{name}" if path else name


def catalogue(model: nn.Module) -> dict[str, str]:
    """Every address in `model`, and the shape found there in the library's letters."""
    return {
        address(path, name): shape
        for path, module in model.named_modules()
        for name, shape in getattr(module, "sites", {}).items()
    }


def resolve(model: nn.Module, patterns: Iterable[str]) -> list[str]:
    """The addresses that `patterns` name (`*` stands for anything), in the order of the pass.

    Raises:
        ClearheadError: a pattern names nothing in this model; the message has the nearest names.
    """
    known = catalogue(model)
    wanted: set[str] = set()
    for pattern in patterns:
        found = [pattern] if pattern in known else [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            raise ClearheadError(f"this model has nothing called {pattern!r}{_why(known, pattern)}")
        wanted.update(found)
    return [name for name in known if name in wanted]


def _why(known: Iterable[str], pattern: str) -> str:
    """What is wrong with a pattern that names nothing, and the nearest names."""
    known = list(known)
    # The nearest spelling: what is wrong may be the star, the layer or the last word.
    near = difflib.get_close_matches(pattern.replace("*", "0"), known, n=3, cutoff=0.0)
    before, layers, rest = pattern.rpartition("layers.")
    number, _, _ = rest.partition(".")
    if layers and number.isdecimal():
        there = {name.removeprefix(before + layers).split(".")[0] for name in known if name.startswith(before + layers)}
        if there and number not in there:
            return f": its layers are 0 to {len(there) - 1}; the nearest are {', '.join(near)}"
    word = pattern.rpartition(".")[2]
    if word in EVERY_NAME and not any(name.rpartition(".")[2] == word for name in known):
        return f": no part of it has {word}; the nearest are {', '.join(near)}"
    return f"; the nearest are {', '.join(near)}"


class Recorder:
    """Keeps the values at `addresses` in `values`. They are detached unless `keep_graph`.

    Without a graph a recorded pass keeps every bit: what no kernel gives, such as scores, is computed beside it. With
    one, the pass goes through what is recorded, so that gradients reach it.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        keep_graph: bool = False,
        *,
        copy: bool = True,
        keep: Callable[[str, Tensor], Tensor] | None = None,
    ) -> None:
        """
        Args:
            addresses: what is kept.
            keep_graph: keep the values themselves, for gradients.
            copy: keep copies: needed where a state is, whose memory a later step writes to.
            keep: keep(address, value) gives what is to be kept of a value; all of it where there is none.
        """
        self.addresses = frozenset(addresses)
        self.keep_graph = keep_graph
        self.copy = copy
        self.keep = keep
        self.values: dict[str, Tensor] = {}

    def mode(self, path: str, name: str) -> Mode:
        if address(path, name) not in self.addresses:
            return "none"
        return "edit" if self.keep_graph else "read"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        where = address(path, name)
        if where in self.addresses:
            kept = value if self.keep_graph else value.detach()
            if self.keep is not None:
                kept = self.keep(where, kept)
            # What an embedding adds may be a parameter itself.
            if not self.keep_graph and (self.copy or name in EMBEDDING) and _same_memory(kept, value):
                kept = kept.clone()
            self.values[where] = kept
        return value


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


class Editor:
    """Replaces the value at each address by `function(value)`, of the same shape and dtype. The function is given a
    copy, so it may write into it.
    """

    def __init__(self, functions: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
        self.functions = dict(functions)

    def mode(self, path: str, name: str) -> Mode:
        return "edit" if address(path, name) in self.functions else "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        where = address(path, name)
        function = self.functions.get(where)
        if function is None:
            return value
        new = function(value.clone())
        check_edit(where, value, new)
        return new


def check_edit(where: str, old: Tensor, new: Tensor) -> None:
    """Refuse what can't take the place of `old`: another shape, dtype or device, and NaN or infinity where there was
    none. Minus infinity may be put where it has a meaning: at scores, and at router logits.
    """
    if not isinstance(new, Tensor) or new.shape != old.shape:
        shape = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
        raise ClearheadError(f"the edit of {where} must return a tensor of shape {tuple(old.shape)}, not {shape}")
    if (new.dtype, new.device) != (old.dtype, old.device):
        had, got = (f"{str(x.dtype).removeprefix('torch.')} on {x.device}" for x in (old, new))
        raise ClearheadError(f"the edit of {where} must return {had}, not {got}; end it with .to(value)")
    if not new.is_floating_point() or bool(new.isfinite().all()):
        return
    nan, infinite = new.isnan() & ~old.isnan(), new.isinf() & old.isfinite()
    if where.rpartition(".")[2] in FORBIDDING:
        infinite &= new > 0
    n, what = (int(nan.sum()), "NaN") if bool(nan.any()) else (int(infinite.sum()), "infinity")
    if n:
        raise ClearheadError(f"the edit of {where} returned {what} in {n} places where there was none")


def as_it_was(old: Tensor, new: Tensor) -> bool:
    """Whether an edit wrote back what it had read, so that the numbers of what was edited beside it may stand. Not
    where a gradient is to come through it.
    """
    return not new.requires_grad and torch.equal(new, old)


class Chain:
    """Several taps, one after another: what one returns, the next receives."""

    def __init__(self, *taps: Taps) -> None:
        self.taps = taps

    def mode(self, path: str, name: str) -> Mode:
        modes = [taps.mode(path, name) for taps in self.taps]
        return "edit" if "edit" in modes else "read" if "read" in modes else "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        for taps in self.taps:
            value = taps(path, name, value)
        return value
