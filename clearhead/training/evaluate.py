"""`clearhead.evaluate`: how well a model does on data, measured by what the model is and what the data holds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import TransformerConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.model.transformer import Transformer
from clearhead.training import checkpoint
from clearhead.training.config import DataConfig, TrainConfig
from clearhead.training.data.documents import Corpus, documents
from clearhead.training.measures.labels import (
    LabelScores,
    ValueScores,
    labelled,
    measure_labels,
    measure_values,
    n_labels_of,
)
from clearhead.training.measures.masked import MaskedScores, hidden, measure_masked
from clearhead.training.measures.pairs import PairScores, measure_pairs
from clearhead.training.measures.texts import TextScores, measure_texts
from clearhead.training.prepare import DATA, prepare
from clearhead.training.prepare_texts import held_out_texts
from clearhead.training.settings import from_plain

Scores = TextScores | MaskedScores | PairScores | LabelScores | ValueScores
Data = str | Path | Sequence[str | Path] | Mapping[str, str] | Corpus


def evaluate(
    model: Transformer,
    data: Data,
    *,
    columns: Sequence[str] = (),
    label: str | None = None,
    window: int | None = None,
    stride: int | None = None,
    n_beams: int = 1,
    seed: int = 0,
    progress: Callable[[float], Any] | None = None,
) -> Scores:
    """Measure a model on data.

    Texts are predicted, token by token from what stands before (`TextScores`: perplexity, bits per byte, accuracy); by
    a model that sees both sides, 15 % of the tokens from the rest (`MaskedScores`). Of pairs, the second is written
    from the first (`PairScores`: exact match, BLEU, chrF). Labels and values are told (`LabelScores`, `ValueScores`).

    Args:
        model: what `clearhead.load` gave.
        data: files, a corpus, or texts by name. A file is one text, or with `columns` or `label` a table (.tsv, .csv,
            .jsonl, .parquet).
        columns: the columns that are read: one of texts, or a source and a target. "text" where only a label is given.
        label: the column that says what a text is.
        window: how many tokens are read at a time, of texts; None is the length that the model was made for.
        stride: how far windows move on; None is half of the window.
        n_beams: how many texts a search for the best target follows; 1 takes the likeliest token each time.
        seed: of which tokens are hidden.
        progress: told after each batch which share of the whole it was.

    Raises:
        ClearheadError: the model can't do what the data is for, or a file can't be read.
        UsageError: columns that make no sense.
    """
    if not isinstance(model.config, TransformerConfig):
        raise ClearheadError("this model puts texts and pictures side by side; there is no text that it predicts")
    corpora = [data] if isinstance(data, Corpus) else _tables(data, tuple(columns), label)
    if not corpora:
        texts = dict(data) if isinstance(data, Mapping) else dict(read_texts(data))  # type: ignore[arg-type]
        return _texts(model, texts, window, stride, seed, progress)
    by_text = corpora[0].label is None and len(corpora[0].columns) == 1
    if not by_text and (window is not None or stride is not None):
        raise UsageError("window and stride are of texts; pairs and labels are read whole")
    records = [(name, one) for corpus in corpora for name, one in documents(corpus)]
    if not records:
        raise ClearheadError("there is nothing to evaluate on: the tables have no rows")
    if corpora[0].label is not None:
        return _labels(model, [(one.text, one.label or "") for _, one in records], progress)
    if not by_text:
        pairs, files = [(one.texts[0], one.texts[1]) for _, one in records], [name for name, _ in records]
        return measure_pairs(model, pairs, files=files, n_beams=n_beams, progress=_share(progress, len(records)))
    return _texts(model, {f"{name}:{one.item}": one.text for name, one in records}, window, stride, seed, progress)


def evaluate_run(
    model: Transformer,
    folder: str | Path,
    *,
    window: int | None = None,
    stride: int | None = None,
    progress: Callable[[float], Any] | None = None,
) -> TextScores | dict[str, Any]:
    """Measure the model of a run's checkpoint on what was held out in the run, as is done at its end.

    Raises:
        UsageError: `folder` is no checkpoint of a run.
        ClearheadError: the run's data can't be found, or no data was held out.
    """
    path = Path(folder).expanduser()
    if not (path / checkpoint.STATE).is_file():
        raise UsageError(f"{folder} is no checkpoint of a run here, so name files to evaluate on after it")
    try:
        config: TrainConfig = from_plain(TrainConfig, checkpoint.read_state(path)["config"])
    except (KeyError, TypeError, ValueError) as problem:
        raise ClearheadError(
            f"{path / checkpoint.STATE} was written by another version ({problem}); name files to evaluate on"
        ) from problem
    if isinstance(config.data, DataConfig) and config.objective.name == "next_token":
        texts = held_out_texts(config.data)
        if not texts:
            raise ClearheadError(f"the run of {folder} held out no whole text; name files to evaluate on after it")
        return measure_texts(model, texts, window=window, stride=stride, progress=_share(progress, _n_bytes(texts)))
    if window is not None or stride is not None:
        raise UsageError(f"window and stride are of running text, and the run of {folder} learnt something else")
    with tempfile.TemporaryDirectory() as temporary:
        where = path.parent if (path.parent / DATA).is_dir() else Path(temporary)
        found = prepare(config, where, quiet=True).measure(model)
    if not found:
        raise ClearheadError(f"the run of {folder} held nothing out; name files to evaluate on after it")
    return found


def read_texts(data: str | Path | Sequence[str | Path]) -> Iterator[tuple[str, str]]:
    """The texts of files, by name."""
    for name in [data] if isinstance(data, str | Path) else data:
        try:
            yield str(name), Path(name).expanduser().read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ClearheadError(f"{name} is not UTF-8 text (byte {error.start}); convert it first") from None
        except OSError as error:
            raise ClearheadError(f"{name} can't be read: {error.strerror}") from None


def _tables(data: Data, columns: tuple[str, ...], label: str | None) -> list[Corpus]:
    """The files as tables, where columns are named."""
    if not columns and label is None:
        return []
    if isinstance(data, Mapping | Corpus):
        raise UsageError("columns are those of files; these are texts in memory, or a corpus that names its own")
    columns = columns or ("text",)
    if len(columns) > 2 or (label is not None and len(columns) > 1):
        raise UsageError(
            f"{len(columns)} columns{' and a label' if label is not None else ''} can't be evaluated: name one of "
            "texts, two for source and target, or one and a label"
        )
    paths = [data] if isinstance(data, str | Path) else data
    return [Corpus(path=str(path), columns=columns, label=label) for path in paths]


def _texts(
    model: Transformer,
    texts: Mapping[str, str],
    window: int | None,
    stride: int | None,
    seed: int,
    progress: Callable[[float], Any] | None,
) -> Scores:
    config = model.config
    if config.encoder is not None and config.decoder is not None:
        raise ClearheadError("this model writes targets from sources: name the two columns of files of pairs (columns)")
    if config.decoder is None and config.heads.tokens is not None:
        if stride is not None:
            raise UsageError("this model reads each window by itself, so there is no stride")
        batches = list(hidden(model, texts, window=window, seed=seed))
        slots = sum(batch.inputs["tokens_BT"].numel() for batch in batches)
        return measure_masked(model, batches, progress=_share(progress, slots))
    told = _share(progress, _n_bytes(texts))
    return measure_texts(model, texts, window=window, stride=stride, progress=told)


def _labels(
    model: Transformer, records: list[tuple[str, str]], progress: Callable[[float], Any] | None
) -> LabelScores | ValueScores:
    batches, told = labelled(model, records), _share(progress, len(records))
    if n_labels_of(model) == 1:
        return measure_values(model, batches, progress=told)
    return measure_labels(model, batches, progress=told)


def _n_bytes(texts: Mapping[str, str]) -> int:
    return sum(len(text.encode()) for text in texts.values())


def _share(progress: Callable[[float], Any] | None, total: int) -> Callable[[int], Any] | None:
    """What is told a number is, of `total`."""
    return None if progress is None else lambda done: progress(done / max(total, 1))
