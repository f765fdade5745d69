"""The data of a run on texts: a tokenizer, token ids, batches, and what is measured in the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.files import write_whole
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.model.transformer import Transformer
from clearhead.training import checkpoint
from clearhead.training.config import DataConfig, StartConfig, TrainConfig
from clearhead.training.data.batches import (
    Batches,
    RowBatches,
    label_batches,
    masked_batches,
    next_token_batches,
    pair_batches,
    split,
)
from clearhead.training.data.documents import Document, documents, find, fingerprints, hash_of
from clearhead.training.data.masking import ordinary_ids
from clearhead.training.data.repeats import Repeating
from clearhead.training.data.shards import TokenStore, tokenise
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.measures.labels import measure_labels, measure_values
from clearhead.training.measures.masked import measure_masked
from clearhead.training.measures.pairs import measure_pairs
from clearhead.training.measures.texts import report_on
from clearhead.training.models import decoder_start, start_tokenizer
from clearhead.training.prepared import Prepared
from clearhead.training.settings import plain
from clearhead.training.start import label_names


def prepare_texts(config: TrainConfig, data: DataConfig, folder: Path, *, quiet: bool = False) -> Prepared:
    """Train the tokenizer and make the token ids, or find them made in `folder`."""
    tokenizer = start_tokenizer(config.model)
    if tokenizer is None and isinstance(config.model, StartConfig):
        raise ClearheadError(f"{config.model.source} reads no tokens, and the data of this run is text; name another")
    tokenizer = tokenizer or tokenizer_for(data, folder, quiet=quiet)
    store = tokenise(data.corpus, tokenizer, folder, progress=False if quiet else None)
    batches = make_batches(config, data, store, tokenizer)
    return Prepared(batches, lambda model: measure(model, config, data, batches), tokenizer, labels=batches.labels)


def measure(model: Transformer, config: TrainConfig, data: DataConfig, batches: Batches) -> dict[str, Any]:
    """How well a model does what it learnt on the texts that were held out; nothing where none were."""
    if config.objective.name == "next_token":
        return report_on(model, held_out_texts(data))
    if config.objective.name == "source_to_target":
        found = list(_held_out(data)) if data.held_out else []
        pairs = [(one.texts[0], one.texts[1]) for _, one in found]
        return measure_pairs(model, pairs, files=[name for name, _ in found]).summary() if pairs else {}
    rows = config.batch.micro_rows or config.batch.rows
    parts = (part for batch in batches.held_out() for part in split(batch, rows))
    first = next(parts, None)
    if first is None:
        return {}
    held, head = chain([first], parts), config.objective.head or None
    match config.objective.name:
        case "masked_tokens":
            return measure_masked(model, held).summary()
        case "labels":
            return measure_labels(model, held, head=head).summary()
        case "regress":
            return measure_values(model, held, head=head).summary()


def tokenizer_for(data: DataConfig, folder: Path, *, quiet: bool = False) -> Tokenizer:
    """The tokenizer of the texts that are not held out: trained once, and from then on read from `folder`."""
    hashes = fingerprints(data.corpus, find(data.corpus), {})
    about = {**plain(data), "corpus": [*data.corpus.columns]}
    inside = folder / f"tokenizer-{hash_of([sorted((name, one[-1]) for name, one in hashes.items()), about])[:16]}"
    if not inside.is_dir():
        if not quiet and not data.pieces:
            print(f"training a tokenizer ({data.tokenizer}, {data.vocab_size:,} ids)", file=sys.stderr, flush=True)
        texts = (text for _, document in _learnt(data) for text in document.texts)
        made = train_tokenizer(texts, TokenizerConfig(kind=data.tokenizer, size=data.vocab_size, pieces=data.pieces))
        with checkpoint.replacing(inside) as temporary:
            temporary.mkdir()
            for name, content in made.files().items():
                write_whole(temporary / name, content)
    return Tokenizer.from_folder(inside)


def _learnt(data: DataConfig) -> Iterator[tuple[str, Document]]:
    """The texts that are learnt from: all, where there are too few to hold some out, and the end of each is."""
    found = documents(data.corpus, held_out=False, share=data.held_out, seed=data.seed)
    first = next(found, None)
    return chain([first], found) if first is not None else documents(data.corpus)


def held_out_texts(data: DataConfig) -> dict[str, str]:
    """The texts that are never learnt from, whole."""
    found = {f"{name}:{one.item}" if one.item else name: one.text for name, one in _held_out(data)}
    learnt_whole = next(documents(data.corpus, held_out=False, share=data.held_out, seed=data.seed), None) is not None
    return found if learnt_whole else {}


def _held_out(data: DataConfig) -> Iterator[tuple[str, Document]]:
    return documents(data.corpus, held_out=True, share=data.held_out, seed=data.seed)


def make_batches(
    config: TrainConfig, data: DataConfig, store: TokenStore, tokenizer: Tokenizer
) -> RowBatches | Repeating:
    """The batches that an objective learns from."""
    batch = config.batch
    how: dict[str, Any] = {
        "rows": batch.rows - batch.repeated,
        "length": batch.length,
        "held_out": data.held_out,
        "seed": data.seed,
    }
    match config.objective.name:
        case "next_token":
            texts = next_token_batches(store, tokenizer, pack=batch.pack, **how)
            if not batch.repeated:
                return texts
            return Repeating(texts, batch.repeated, batch.length, ordinary_ids(tokenizer))
        case "masked_tokens":
            return masked_batches(store, tokenizer, pack=batch.pack, masking=config.objective.masking, **how)
        case "source_to_target":
            return pair_batches(store, tokenizer, start=decoder_start(config, tokenizer), **how)
        case name:
            names = label_names(config.model) if isinstance(config.model, StartConfig) else None
            return label_batches(store, tokenizer, names=names, values=name == "regress", **how)
