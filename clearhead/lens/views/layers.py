"""The attention patterns that a look brought back, with the tokens on both of their sides."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from clearhead.errors import ClearheadError
from clearhead.lens.views.heads import Layer
from clearhead.lens.views.labels import visible

if TYPE_CHECKING:
    from clearhead.lens.seen import Seen

PATTERN = ".pattern"


def layers_of(seen: Seen, addresses: Sequence[str] = (), row: int = 0) -> list[Layer]:
    """Every pattern that was looked at, or those that `addresses` name (`*` stands for anything), of one row.

    Raises:
        ClearheadError: there is none, or none of that name.
    """
    there = [name for name in seen if name.endswith(PATTERN)]
    if not there:
        raise ClearheadError('no pattern was looked at; look at "layers.*.mixer.pattern" to have one drawn')
    wanted = [name for name in there if not addresses or any(fnmatchcase(name, address) for address in addresses)]
    if not wanted:
        raise ClearheadError(f"{', '.join(addresses)}: no such pattern was looked at; there are {', '.join(there)}")
    return [layer_of(seen, name, row) for name in wanted]


def layer_of(seen: Seen, address: str, row: int = 0) -> Layer:
    """The patterns at one address, of one row of the batch."""
    pattern_HTS = seen.pattern(address, row)
    name = address.removesuffix(PATTERN)
    own, other = (rows[row] if row < len(rows) else [] for rows in (seen.tokens, seen.sources))
    _, n_queries, n_keys = pattern_HTS.shape
    # An encoder beside a decoder reads the source; one alone has its own text under "layers.".
    looks = other if name.startswith("encoder.") else own
    looked_at = other if name.endswith(".cross") else looks
    return Layer(name, pattern_HTS, _labels(looks, n_queries), _labels(looked_at, n_keys))


def _labels(tokens: Sequence[str], n: int) -> list[str]:
    """The tokens where there are as many; places where what is looked at are no tokens, or only some of them."""
    return [visible(token) for token in tokens] if len(tokens) == n else [str(place) for place in range(n)]
