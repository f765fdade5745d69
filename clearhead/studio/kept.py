"""Results that are kept for the next question about the same model, and never the model itself.

A figure asks again with every move of a hand, mostly about what was computed a moment ago. Whoever keeps such results
makes one `KeptResults` for its module and asks it in one of two ways.

At once, for a pass or a few:

    _kept: KeptResults[Reading] = KeptResults(12)

    reading = _kept.of(studio.models, id, text, layer, make=lambda model: read(model, text, layer))

In steps, where an operation tells how far it is while it computes, or takes the model's lock in a thread of its own:

    key = _kept.key(studio.models, id)
    if (found := _kept.get(key)) is None:
        ...  # load the model after the key was made, and yield the progress
        found = _kept.put(key, result)

What a key holds. The model's source and `Models.stamp`, so that a run which is begun anew in its folder, or another
Studio that gives the same id to another folder, is never told old numbers. Then all else that the result depends on:
the text, the layer, options. A key is made before the model is loaded: if its weights are written meanwhile, the
result stands under a stamp that nobody asks for again.

What a value holds. Tensors, numbers, words and records of them, as much as is shown and no more. Not the model, nor a
part of it: the Studio drops models when memory runs short, and could not if a result still held one. `put` refuses a
value in which it finds a module.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torch import Tensor, nn

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.models import Models

V = TypeVar("V")
Key = tuple[Hashable, ...]


class KeptResults(Generic[V]):
    """The results used last, by model and question. Safe to use from several threads; None is no result."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Key, V] = OrderedDict()
        self._mutex = threading.Lock()

    def key(self, models: Models, id: str, *about: Hashable) -> Key:
        """What a result of a model as it is now stands under.

        Raises:
            UsageError: there is no such model.
        """
        return (models.source(id), models.stamp(id), *about)

    def get(self, key: Key) -> V | None:
        """The result under a key, which so becomes the one used last; None where there is none."""
        with self._mutex:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def put(self, key: Key, value: V) -> V:
        """Keep a result in place of the one that was not used for longest.

        Raises:
            TypeError: there is a model in it, or a part of one.
        """
        for one in _inside(value):
            if isinstance(one, nn.Module):
                raise TypeError(f"a result that is kept holds a {type(one).__name__}, and so its model; take it out")
        with self._mutex:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return value

    def of(self, models: Models, id: str, *about: Hashable, make: Callable[[Transformer], V]) -> V:
        """The result for a model and a question. Where none is kept, `make` is given the model, whose lock is held: of
        several that ask at once one computes, and the others take what it found.

        Raises:
            ClearheadError: there is no such model, or it can't be loaded; or what `make` raises, and nothing is kept.
        """
        key = self.key(models, id, *about)
        if (there := self.get(key)) is not None:
            return there
        with models.lock(id):
            if (there := self.get(key)) is not None:
                return there
            return self.put(key, make(models.get(id)))

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)


def _inside(value: Any) -> Iterator[Any]:
    """A value, and all that it holds: items, and attributes of records and other plain objects."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | Tensor | type):
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, nn.Module):
            continue
        if isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, tuple | list | set | frozenset):
            waiting += one
        waiting += getattr(one, "__dict__", {}).values()
