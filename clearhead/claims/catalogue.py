"""Which claims there are, by the lesson's chapters. A claim's name is its file's, with hyphens."""

from __future__ import annotations

import difflib
import importlib

from clearhead.claims.claim import Claim
from clearhead.errors import UsageError

CHAPTERS: dict[str, tuple[str, ...]] = {
    "recurrence": (
        "factor_to_the_power",
        "knife_edge",
        "lstm_eases",
        "one_vector",
        "path_length_one",
        "agreement",
        "training_speed",
    ),
    "lookup": (
        "soft_weights",
        "longer_query",
        "mixture",
        "learned_keys",
        "looking_back",
        "bracket_heads",
        "retrieval",
    ),
    "scaled": (
        "variance_of_scores",
        "softmax_gradient",
        "peakier_rows",
        "leftover_mass",
        "two_products",
        "ten_words",
        "only_attention",
    ),
    "heads": (
        "cost_of_heads",
        "induction",
        "heads_compose",
        "three_layer_chain",
        "pruned_heads",
    ),
    "positions": (
        "permutation",
        "dog_bites_man",
        "wavelengths",
        "distance_only",
        "linear_shift",
        "rotary_offset",
        "longer_context",
    ),
    "block": (
        "two_thirds",
        "sum_of_parts",
        "gradient_by_depth",
        "warm_up",
        "rms_norm",
        "mlp_alone",
        "one_block",
    ),
    "masks": (
        "exactly_zero",
        "both_ways",
        "thousand_predictions",
        "hidden_words",
        "encoder_writes",
        "reads_the_source",
        "prompted_tasks",
    ),
    "scale": (
        "square_and_line",
        "decoding_with_state",
        "seventy_billion",
        "exact_in_tiles",
        "grouped_queries",
        "experts",
        "linear_time",
        "selective_copying",
        "one_in_four",
        "power_laws",
        "lost_in_the_middle",
        "cost_of_2017",
        "price_of_service",
    ),
}
TITLES = {
    "recurrence": "Recurrence",
    "lookup": "Soft lookup",
    "scaled": "Scaled dot product",
    "heads": "Many heads",
    "positions": "Positions",
    "block": "The block",
    "masks": "Masks",
    "scale": "Scale",
}


def of_chapter(chapter: str) -> list[str]:
    """The claims of a chapter, in the lesson's order."""
    return [name.replace("_", "-") for name in CHAPTERS[chapter]]


def names() -> list[str]:
    """All claims, in the lesson's order."""
    return [name for chapter in CHAPTERS for name in of_chapter(chapter)]


def chapter_of(name: str) -> str:
    """The chapter a claim stands in.

    Raises:
        UsageError: there is no such claim; the message has the nearest names.
    """
    module = name.replace("-", "_")
    for chapter, claims in CHAPTERS.items():
        if module in claims:
            return chapter
    near = difflib.get_close_matches(name.replace("_", "-"), names(), n=3, cutoff=0.4)
    perhaps = f"; perhaps {' or '.join(near)}" if near else ""
    raise UsageError(f"there is no claim {name!r}{perhaps}; `clearhead claim` lists them")


def module_of(name: str) -> str:
    """The module that a claim is written in (see `chapter_of` for what it raises)."""
    return f"clearhead.claims.{chapter_of(name)}.{name.replace('-', '_')}"


def find(name: str) -> Claim:
    """The claim of that name (see `chapter_of` for what it raises)."""
    claim: Claim = importlib.import_module(module_of(name)).CLAIM
    return claim
