"""From a config to what a run is made of: the tokenizer and the batches, the model, the objective."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    FeedForwardConfig,
    HeadsConfig,
    NormConfig,
    QKNormConfig,
    RotaryConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokenIds,
    TokensConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.training import checkpoint
from clearhead.training.config import DataConfig, DecoderConfig, TrainConfig
from clearhead.training.data.batches import RowBatches, label_batches, masked_batches, next_token_batches, pair_batches
from clearhead.training.data.documents import Corpus, Document, documents, find, fingerprints, hash_of
from clearhead.training.data.shards import TokenStore, tokenise, write_atomically
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.settings import plain

DATA = "data"
"""In the folder of a run: its tokenizer and token ids."""


@dataclass(frozen=True)
class Prepared:
    """The data of a run."""

    tokenizer: Tokenizer
    batches: RowBatches
    held_out: Callable[[], dict[str, str]]
    """The texts that were held out, by name."""


def prepare(config: TrainConfig, folder: Path, *, quiet: bool = False) -> Prepared:
    """Find the texts, train the tokenizer and make the token ids, or find them made in `folder`."""
    data, inside = config.data, folder / DATA
    if folder.resolve().is_relative_to(Path(data.corpus.path).expanduser().resolve()):
        raise ClearheadError(
            f"{folder} lies in the folder of the texts, and would be read as one of them; name another (--out)"
        )
    tokenizer = tokenizer_for(data, inside, quiet=quiet)
    store = tokenise(data.corpus, tokenizer, inside, progress=False if quiet else None)
    batches = make_batches(config, store, tokenizer)
    return Prepared(tokenizer, batches, lambda: held_out_texts(data))


def tokenizer_for(data: DataConfig, folder: Path, *, quiet: bool = False) -> Tokenizer:
    """The tokenizer of the texts that are not held out: trained once, and from then on read from `folder`."""
    hashes = fingerprints(data.corpus, find(data.corpus), {})
    about = {**plain(data), "corpus": [*data.corpus.columns]}
    inside = folder / f"tokenizer-{hash_of([sorted((name, one[-1]) for name, one in hashes.items()), about])[:16]}"
    if not inside.is_dir():
        if not quiet:
            print(f"training a tokenizer ({data.tokenizer}, {data.vocab_size:,} ids)", file=sys.stderr, flush=True)
        texts = (text for _, document in _learnt(data) for text in document.texts)
        made = train_tokenizer(texts, TokenizerConfig(kind=data.tokenizer, size=data.vocab_size))
        with checkpoint.replacing(inside) as temporary:
            temporary.mkdir()
            for name, content in made.files().items():
                write_atomically(temporary / name, content)
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


def held_out_of(folder: str | Path) -> dict[str, str] | None:
    """The texts that were held out in the run that wrote a checkpoint; None where `folder` is none."""
    path = Path(folder).expanduser()
    if not (path / checkpoint.STATE).is_file():
        return None
    said = checkpoint.read_state(path)["config"]["data"]
    corpus: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in said["corpus"].items()
    }
    return held_out_texts(DataConfig(**{**said, "corpus": Corpus(**corpus)}))


def model_config(config: TrainConfig, tokenizer: Tokenizer) -> TransformerConfig:
    """The model's config, with room for the tokenizer's ids."""
    if isinstance(config.model, DecoderConfig):
        ids = TokenIds(bos=tokenizer.bos_id, eos=tuple(tokenizer.eos_ids), pad=tokenizer.pad_id)
        return decoder(config.model, tokenizer.vocab_size, config.batch.length, ids)
    tokenizer.check_matches(config.model.config.vocab_size, "model.config")
    return config.model.config


def decoder(sizes: DecoderConfig, vocab_size: int, context: int, ids: TokenIds | None = None) -> TransformerConfig:
    """The config that a few sizes stand for."""
    if sizes.d_model % sizes.n_heads:
        raise ClearheadError(
            f"model.d_model is {sizes.d_model}, which {sizes.n_heads} heads can't share (model.n_heads)"
        )
    norm = NormConfig()
    attention = AttentionConfig(
        n_heads=sizes.n_heads,
        n_kv_heads=sizes.n_kv_heads,
        d_head=sizes.d_model // sizes.n_heads,
        scores=ScoresConfig(dropout=sizes.dropout),
        positions=RotaryConfig(),
        qk_norm=QKNormConfig(norm=norm) if sizes.qk_norm else None,
    )
    block = BlockConfig(
        mixer=SublayerConfig(op=attention, pre=norm),
        ffn=SublayerConfig(op=FeedForwardConfig(d_ff=sizes.d_ff), pre=norm),
    )
    return TransformerConfig(
        d_model=sizes.d_model,
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=vocab_size)),
            blocks=(block,) * sizes.n_layers,
            norm=norm,
        ),
        heads=HeadsConfig(tokens=TokenHeadConfig()),
        context=context,
        ids=ids or TokenIds(),
    )


def make_batches(config: TrainConfig, store: TokenStore, tokenizer: Tokenizer) -> RowBatches:
    """The batches that an objective learns from."""
    batch, data = config.batch, config.data
    how: dict[str, Any] = {
        "rows": batch.rows,
        "length": batch.length,
        "held_out": data.held_out,
        "seed": data.seed,
    }
    match config.objective.name:
        case "next_token":
            return next_token_batches(store, tokenizer, pack=batch.pack, **how)
        case "masked_tokens":
            return masked_batches(store, tokenizer, pack=batch.pack, **how)
        case "source_to_target":
            return pair_batches(store, tokenizer, **how)
        case name:
            return label_batches(store, tokenizer, values=name == "regress", **how)
