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
STACK = {"embed": "B T D", "final": "B T D"}
MODEL = {**STACK, "logits": "B T V"}


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
        found = [name for name in known if fnmatchcase(name, pattern)]
        if not found:
            # The nearest spelling: what is wrong may be the star, the layer or the last word.
            near = difflib.get_close_matches(pattern.replace("*", "0"), known, n=3, cutoff=0.0)
            raise ClearheadError(f"this model has nothing called {pattern!r}; the nearest are {', '.join(near)}")
        wanted.update(found)
    return [name for name in known if name in wanted]


class Recorder:
    """Keeps the values at `addresses` in `values`. They are detached unless `keep_graph`."""

    def __init__(self, addresses: Iterable[str], keep_graph: bool = False) -> None:
        self.addresses = frozenset(addresses)
        self.keep_graph = keep_graph
        self.values: dict[str, Tensor] = {}

    def mode(self, path: str, name: str) -> Mode:
        return "read" if address(path, name) in self.addresses else "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        where = address(path, name)
        if where in self.addresses:
            # A copy, because a later step may write into the same memory (a state does).
            self.values[where] = value if self.keep_graph else value.detach().clone()
        return value


class Editor:
    """Replaces the value at each address by `function(value)`, which must return a tensor of the same shape."""

    def __init__(self, functions: Mapping[str, Callable[[Tensor], Tensor]]) -> None:
        self.functions = dict(functions)

    def mode(self, path: str, name: str) -> Mode:
        return "edit" if address(path, name) in self.functions else "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        function = self.functions.get(address(path, name))
        if function is None:
            return value
        new = function(value)
        if not isinstance(new, Tensor) or new.shape != value.shape:
            shape = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
            raise ClearheadError(
                f"the edit of {address(path, name)} must return a tensor of shape {tuple(value.shape)}, not {shape}"
            )
        return new


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
