"""`look_through`: what a model computes over a whole data set, on disk, in files that are whole or absent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.files import into_place, read_json
from clearhead.lens.aliases import addresses, aliases
from clearhead.lens.arguments import Arguments, Inputs, arguments
from clearhead.lens.places import Slots
from clearhead.lens.record import PATTERNS, labels, look
from clearhead.lens.seen import Seen
from clearhead.progress import progress_bar
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

INDEX, ENDING = "seen.json", ".safetensors"
INPUTS = ("tokens", "present")
"""What is kept of an item beside what was seen in it."""


def look_through(
    model: Transformer,
    data: Iterable[Inputs],
    folder: str | Path,
    *wanted: str,
    positions: Sequence[int] | None = None,
    backend: str = "auto",
    per_shard: int = 32,
    show: bool | None = None,
) -> SeenFolder:
    """Look at every item of `data` as `clearhead.look` does, and write what was seen to `folder`, so many items a file.

    A run that was stopped goes on where it was when it is called again: files are written under another name first, and
    those that are there are kept. Of the data, what they were made from is compared.
    show: a bar on standard error; None is when a person watches.

    Raises:
        ClearheadError: as `clearhead.look`; the folder holds what another model, other data or another call gave, or
            can't be written.
    """
    if per_shard < 1:
        raise ClearheadError(f"per_shard is {per_shard}; a file holds at least one item")
    names = addresses(model, wanted or (PATTERNS,))
    folder = Path(folder)
    letters = catalogue(model)
    index = {
        "addresses": {name: letters[name] for name in names},
        "model": digest_of_model(model),
        "positions": None if positions is None else list(positions),
        "backend": backend,
        "per_shard": per_shard,
    }
    _begin(folder, index)
    items, number, n_items = iter(data), 0, 0
    total = len(data) if isinstance(data, Sized) else None
    with progress_bar("looking", total, show) as advance:
        while chunk := list(islice(items, per_shard)):
            calls = [_without_state(arguments(model, item)) for item in chunk]
            path = folder / f"{number:05}{ENDING}"
            digests = [_digest_of_call(call) for call in calls]
            if not _is_done(path, digests):
                tensors: dict[str, Tensor] = {}
                for i, call in enumerate(calls):
                    given = call.others if call.tokens_BT is None else {"tokens": call.tokens_BT, **call.others}
                    seen = look(model, given, *names, positions=positions, backend=backend, device="cpu")
                    tensors |= {f"{i}/{name}": value.contiguous() for name, value in seen.items()}
                    kept = {name: given[name] for name in INPUTS if given.get(name) is not None}
                    tensors |= {f"{i}/{name}": value.cpu().contiguous() for name, value in kept.items()}
                _write(path, tensors, digests)
            number, n_items = number + 1, n_items + len(chunk)
            advance(len(chunk))
    if (folder / f"{number:05}{ENDING}").exists():
        raise ClearheadError(f"{folder} holds more than the {n_items} items of this data; look into an empty folder")
    _write_json(folder / INDEX, {**index, "items": n_items})
    return SeenFolder(folder, model)


class SeenFolder(Sequence[Seen]):
    """What `look_through` wrote: a `Seen` for each item, read when it is asked for.

    model: whose tokenizer names the tokens, and whose aliases are answered; without one they are ids.

    Raises:
        ClearheadError: the folder holds no such thing, or what it holds is not finished.
    """

    def __init__(self, folder: str | Path, model: Transformer | None = None) -> None:
        self.folder = Path(folder)
        self._index = read_json(self.folder / INDEX)
        if "items" not in self._index:
            what = "is not finished; call look_through again" if self._index else f"has no {INDEX} that can be read"
            raise ClearheadError(f"{folder} {what}")
        self._model = model
        self._aliases = {} if model is None else aliases(model)

    @property
    def addresses(self) -> list[str]:
        """What was looked at, in the order of the pass."""
        return list(self._index["addresses"])

    def __len__(self) -> int:
        n: int = self._index["items"]
        return n

    @overload
    def __getitem__(self, item: int) -> Seen: ...
    @overload
    def __getitem__(self, item: slice) -> list[Seen]: ...
    def __getitem__(self, item: int | slice) -> Seen | list[Seen]:
        if isinstance(item, slice):
            return [self[i] for i in range(*item.indices(len(self)))]
        if not -len(self) <= item < len(self):
            raise IndexError(f"{self.folder} has items 0 to {len(self) - 1}, not {item}")
        shard, place = divmod(item % len(self), self._index["per_shard"])
        with _opened(self.folder / f"{shard:05}{ENDING}") as file:
            there = {name.partition("/")[2]: name for name in file.keys() if name.startswith(f"{place}/")}  # noqa: SIM118
            values = {name: file.get_tensor(there[name]) for name in self.addresses if name in there}
            tokens, present = (file.get_tensor(there[name]) if name in there else None for name in INPUTS)
        slots = {} if tokens is None else {"": Slots(0, tokens.shape[1], present)}
        return Seen(
            values,
            self._index["addresses"],
            None,
            _names(self._model, tokens),
            aliases=self._aliases,
            slots=slots,
        )


def _without_state(call: Arguments) -> Arguments:
    if "state" in call.others:
        raise ClearheadError("an item of a data set is a text by itself; leave out its state")
    return call


def digest_of_model(model: nn.Module) -> str:
    """The same for two models that compute the same: of every weight, by name, and of the config."""
    digest = hashlib.blake2b(repr(getattr(model, "config", None)).encode(), digest_size=16)
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _digest_of_call(call: Arguments) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, value in {"tokens": call.tokens_BT, **call.others}.items():
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(_bytes(value))
        else:
            digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _names(model: Transformer | None, tokens: Tensor | None) -> list[list[str]]:
    if model is not None:
        return labels(model, tokens)
    return [] if tokens is None else [[str(token) for token in row] for row in tokens.tolist()]


def _begin(folder: Path, index: dict[str, Any]) -> None:
    """An index in a folder without one; the same index in one that has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(".*.tmp"):
            left.unlink(missing_ok=True)
    except OSError as problem:
        raise ClearheadError(f"{folder} can't be written: {problem.strerror or problem}") from problem
    before = read_json(folder / INDEX)
    if not before:
        if any(folder.iterdir()):
            raise ClearheadError(f"{folder} holds other files; look into an empty folder, or a new one")
        _write_json(folder / INDEX, index)
        return
    other = [name for name, value in index.items() if before.get(name) != value]
    if other:
        what = "another model" if "model" in other else f"a call with another {' and another '.join(other)}"
        raise ClearheadError(f"{folder} holds what {what} gave; look into an empty folder, or call it as before")


def _is_done(path: Path, digests: list[str]) -> bool:
    """Whether a file is there and holds these items; refuse one that holds others."""
    if not path.exists():
        return False
    with _opened(path) as file:
        there: list[str] = json.loads((file.metadata() or {}).get("items", "[]"))
    if there == digests:
        return True
    if there == digests[: len(there)]:
        return False  # the data has grown since
    raise ClearheadError(f"{path} was made from other data; look into an empty folder, or give the data as before")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, FileNotFoundError, json.JSONDecodeError) as problem:
        raise ClearheadError(f"{path} can't be read ({problem}); delete it and call look_through again") from problem


def _write(path: Path, tensors: dict[str, Tensor], digests: list[str]) -> None:
    from safetensors.torch import save_file

    def content(temporary: Path) -> None:
        save_file(_apart(tensors), temporary, metadata={"items": json.dumps(digests)})
        temporary.chmod((path.parent / INDEX).stat().st_mode)  # the library lets no one else read it

    _into_place(path, content)


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The file wants memory of its own for each: one tensor may have been seen at two addresses."""
    known: set[int] = set()
    out = {}
    for name, tensor in tensors.items():
        where = tensor.untyped_storage().data_ptr()
        out[name] = tensor.clone() if where in known else tensor
        known.add(where)
    return out


def _write_json(path: Path, value: dict[str, Any]) -> None:
    _into_place(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1)))


def _into_place(path: Path, write: Callable[[Path], object]) -> None:
    from safetensors import SafetensorError

    try:
        into_place(path, write)
    except (OSError, SafetensorError) as problem:
        raise ClearheadError(f"{path} can't be written: {getattr(problem, 'strerror', None) or problem}") from problem
