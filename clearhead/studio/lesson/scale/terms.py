"""What a state is made of: its formula with the values put in, a term for each kind of layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from clearhead.config import AttentionConfig, BlockConfig, TransformerConfig
from clearhead.costs.count import Counts
from clearhead.costs.serving import state_at
from clearhead.costs.state import Kept, kept
from clearhead.costs.traffic import Heads, heads_of


class Term(NamedTuple):
    """Layers that keep alike: how many there are, what one keeps, and the heads that it keeps keys and values of."""

    layers: int
    kept: Kept
    kv_heads: int | None
    d_head: int | None


def terms_of(of: Counts, batch: int, context: int, width: int) -> list[dict[str, Any]]:
    """The state of so many texts of that length in numbers of `width` bytes, term by term, each multiplied out. What is
    kept of a source is a term of its own, of kind "cross". A model that doesn't write keeps nothing: no terms.
    """
    config = of.config
    if not isinstance(config, TransformerConfig) or config.decoder is None:
        return []
    found = [_told(term, batch, context, width) for term in _terms(of, width)]
    n_cross = sum(block.cross is not None for block in config.decoder.blocks)
    if n_cross:
        in_all = state_at(of, 1, context, width) - sum(
            term.layers * term.kept.total(context) for term in _terms(of, width)
        )
        source = Kept(kind="cross", fixed=in_all // n_cross, multi_head=0)
        found.append(_told(Term(n_cross, source, None, None), batch, context, width))
    return found


@lru_cache(maxsize=1024)
def _terms(of: Counts, width: int) -> tuple[Term, ...]:
    config = of.config
    assert isinstance(config, TransformerConfig) and config.decoder is not None
    terms: dict[tuple[Kept, int | None, int | None], int] = {}
    for block in config.decoder.blocks:
        op = block.mixer.op
        heads = (op.n_kv_heads, op.d_head) if isinstance(op, AttentionConfig) else (None, None)
        key = (kept(op, config.d_model, width), *heads)
        terms[key] = terms.get(key, 0) + 1
    return tuple(Term(layers, *key) for key, layers in terms.items())


def _told(term: Term, batch: int, context: int, width: int) -> dict[str, Any]:
    layer = term.kept
    return {
        "kind": layer.kind,
        "layers": term.layers,
        "kv_heads": term.kv_heads,
        "d_head": term.d_head,
        "latent": layer.per_token // width if layer.kind == "latent" else None,
        "width": width,
        "tokens": layer.tokens(context),
        "reach": layer.reach,
        "fixed": layer.fixed,
        "per_token": term.layers * layer.per_token,
        "fixed_in_all": term.layers * layer.fixed,
        "total": batch * term.layers * layer.total(context),
    }


def shapes_of(of: Counts) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
    """By part, the shapes of its weights and how many there are of each, the largest first."""
    found: dict[str, Counter[tuple[int, ...]]] = {}
    for weight in of.weights:
        found.setdefault(weight.part, Counter())[tuple(weight.shape)] += 1
    return {
        part: sorted(((n, shape) for shape, n in shapes.items()), key=lambda one: -one[0] * prod(one[1]))
        for part, shapes in found.items()
    }


def traffic_of(of: Counts, tokens: int | None, fast: int) -> list[dict[str, int]]:
    """What attention moves in a pass over one text, term by term: layers whose heads are alike, how many queries and
    keys meet in them, and into how many blocks the keys are cut for a fast memory of so many numbers.
    """
    found: Counter[tuple[Heads, int, int]] = Counter()
    for blocks, n_queries, n_source in _stacks(of, tokens):
        for block in blocks:
            looks = [(block.mixer.op, n_queries), *([(block.cross.op, n_source)] if block.cross is not None else [])]
            for op, n_keys in looks:
                if (heads := heads_of(op)) is not None:
                    found[heads, n_queries, n_keys] += 1
    return [
        {
            "layers": layers,
            "heads": heads.n,
            "d_key": heads.d_key,
            "d_value": heads.d_value,
            "queries": n_queries,
            "keys": n_keys,
            "blocks": blocks_of_keys(n_keys, heads, fast),
        }
        for (heads, n_queries, n_keys), layers in found.items()
    ]


def _stacks(of: Counts, tokens: int | None) -> Iterator[tuple[tuple[BlockConfig, ...], int, int]]:
    """The blocks that a pass over one text goes through, with how many tokens they and their source have."""
    if not isinstance(of.config, TransformerConfig):
        yield from _stacks(Counts(of.config.text), tokens)
        yield from _stacks(Counts(of.config.image), None)
        return
    run = of.run(1, tokens)
    yield of.config.stack.blocks, run.tokens, run.source
    if run.source and of.config.encoder is not None:
        yield of.config.encoder.blocks, run.source, 0


def blocks_of_keys(n_keys: int, heads: Heads, fast: int) -> int:
    """How many blocks the keys are cut into, so that one each of queries, keys, values and output fits in a fast memory
    of so many numbers (Dao 2022, algorithm 1).
    """
    return -(-n_keys // -(-fast // (4 * max(heads.d_key, heads.d_value))))
