"""How large a recorded value will be and how long a pass will take, said before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from clearhead.costs.cost import cost
from clearhead.errors import ClearheadError
from clearhead.lens.aliases import Alias
from clearhead.lens.places import Progress, Site
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.explore.given import Reading

FIRST_RATE = 10e9
"""Operations a second that a processor is trusted with before a pass of the model has been timed."""


def n_cells(model: Transformer, address: str, reading: Reading) -> int:
    """How many numbers stand at an address in a run."""
    letters = catalogue(model)[address].split()
    site = Site(Alias(address), tuple(letters), {}, Progress())
    slots = {one.stack: len(one.tokens) for one in reading.reads}
    config = getattr(model.get_submodule(address.rpartition(".")[0]), "config", None)
    product = 1
    for letter in letters:
        if letter == "B":
            continue
        if letter in ("T", "S"):
            product *= slots.get(site.stack(letter), 1)
        else:
            product *= width(model, config, letter)
    return product


def width(model: Transformer, config: Any, letter: str) -> int:
    """How long an axis is that does not count tokens, from the config of the part it stands in."""
    whole = getattr(model, "config", None)
    widths = getattr(config, "widths", None)
    named: Mapping[str, tuple[str, ...]] = {
        "D": ("d_model",),
        "H": ("n_heads",),
        "G": ("n_kv_heads", "n_heads"),
        "K": ("d_head",),
        "F": ("d_ff", "d_inner", "d_hidden"),
        "N": ("d_state",),
        "E": ("n_experts",),
        "C": ("n_chosen",),
        "V": ("vocab_size",),
    }
    if letter == "K" and widths is not None:
        return int(widths.nope + widths.rope)
    if letter == "v" and widths is not None:
        return int(widths.value)
    for name in named.get(letter, ()):
        for where in (config, whole):
            try:
                found = getattr(where, name, None)
            except ClearheadError:
                found = None
            if isinstance(found, int):
                return found * (2 if getattr(config, "both_ways", False) else 1)
    return 4 if letter == "C" else int(getattr(whole, "d_model", 1024))


def operations(model: Transformer, reading: Reading) -> float:
    """Multiplications and additions of one pass without a head over the vocabulary, about."""
    n_tokens = sum(len(one.tokens) for one in reading.reads)
    try:
        asked = cost(model, context=len(reading.reads[0].tokens) if reading.reads[0].kind == "text" else None)
        parts = asked.flops["read"].parts
        return float(sum(work.linear + work.quadratic for name, work in parts.items() if name != "heads"))
    except ClearheadError:
        return 2.0 * sum(p.numel() for p in model.parameters()) * n_tokens
