"""Perplexity, bits per byte and accuracy, against sums written out token by token."""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.training.config import DataConfig, DecoderConfig, ModelConfig, ObjectiveConfig, RunConfig, TrainConfig
from clearhead.training.data.documents import Corpus
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.evaluate import evaluate, evaluate_run
from clearhead.training.measures import texts as module
from clearhead.training.measures.texts import _pieces, xz_bits_per_byte
from clearhead.training.models import decoder
from clearhead.training.run import train
from tests.training.samples import tiny

SIZES = DecoderConfig(family="llama", d_model=16, n_layers=2, n_heads=2, n_kv_heads=1, d_ff=24)
SIZES_BERT = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
}
SEQ2SEQ = {
    "vocab_size": 300,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 32,
    "decoder_start_token_id": 256,
}
TEXTS = {"a": "the cat sat on the mat, and naïve", "b": "x", "c": "", "d": "on " * 30}


def model(family: str, architecture: str, **changes: Any) -> ModelConfig:
    raw = {"model_type": family, "architectures": [architecture], **changes}
    return ModelConfig(family=family, config=FAMILIES[family].read(raw, "here"))


def byte_model(around: bool = True) -> Any:
    tokenizer = train_tokenizer([], TokenizerConfig(kind="bytes", around=around))
    model = build(decoder(SIZES, tokenizer.vocab_size, 16)).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.mul_(10)
    model.tokenizer = tokenizer
    return model


def written_out(model: Any, text: str, window: int, stride: int) -> tuple[float, int]:
    """Nats and right guesses, one token and one pass at a time."""
    ids = [model.tokenizer.bos_id, *model.tokenizer.encode(text, bos=False)]
    nats, right = 0.0, 0
    for at in range(1, len(ids)):
        # The window that scores this token ends here, or where the stride has brought it.
        end = window if at <= window else window + math.ceil((at - window) / stride) * stride
        start = max(min(end, len(ids) - 1) - window, 0)
        scores_V = model(torch.tensor([ids[start:at]]))[0, -1].double()
        nats -= float(scores_V.log_softmax(0)[ids[at]])
        right += int(scores_V.argmax()) == ids[at]
    return nats, right


@pytest.mark.parametrize(("window", "stride"), [(16, 8), (16, 16), (7, 3), (5, 1)])
def test_sliding_windows_are_those_of_the_definition(window: int, stride: int) -> None:
    model = byte_model()
    found = evaluate(model, TEXTS, window=window, stride=stride)
    with torch.no_grad():
        expected = [written_out(model, text, window, stride) for text in TEXTS.values()]
    for file, (nats, right) in zip(found.files, expected, strict=True):
        assert file.nats == pytest.approx(nats, rel=1e-5)
        assert file.n_right == right
        assert file.n_tokens == file.n_bytes == len(TEXTS[file.name].encode())
    total, n_bytes = sum(nats for nats, _ in expected), sum(len(text.encode()) for text in TEXTS.values())
    assert found.loss == pytest.approx(total / n_bytes, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(total / n_bytes), rel=1e-5)
    assert found.bits_per_byte == pytest.approx(total / n_bytes / math.log(2), rel=1e-5)
    assert found.accuracy == sum(right for _, right in expected) / n_bytes


def test_how_texts_are_put_together_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = byte_model()
    together = evaluate(model, TEXTS)
    monkeypatch.setattr(module, "BATCH_SLOTS", 1)
    told: list[float] = []
    alone = evaluate(model, TEXTS, progress=told.append)
    for a, b in zip(together.files, alone.files, strict=True):
        assert a.nats == pytest.approx(b.nats, rel=1e-5)
        assert (a.n_right, a.n_tokens) == (b.n_right, b.n_tokens)
    assert sum(told) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("length", "window", "stride"), [(2, 4, 2), (5, 4, 2), (6, 4, 2), (40, 7, 3), (41, 7, 7), (1, 4, 2)]
)
def test_every_token_but_the_first_is_scored_once_with_enough_before_it(length: int, window: int, stride: int) -> None:
    scored = []
    for piece in _pieces(0, length, window, stride):
        assert 0 < piece.n_read <= window
        assert piece.start == 0 or piece.scored - piece.start >= window - stride
        scored += range(piece.scored, piece.end + 1)
    assert scored == list(range(1, length))


def test_without_a_mark_to_begin_with_a_first_token_costs_a_blind_guess() -> None:
    with_mark = byte_model()
    marked = evaluate(with_mark, {"x": "x"})
    assert marked.files[0].nats != pytest.approx(math.log(with_mark.config.vocab_size))
    tokenizer = train_tokenizer([], TokenizerConfig(kind="bytes", marks=()))
    bare = build(decoder(SIZES, tokenizer.vocab_size, 16)).eval()
    bare.tokenizer = tokenizer
    found = evaluate(bare, {"x": "x"})
    assert (found.n_tokens, found.loss) == (1, pytest.approx(math.log(tokenizer.vocab_size)))


def test_files_are_read(tmp_path: Path) -> None:
    model = byte_model()
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for path, text in zip(paths, TEXTS.values(), strict=False):
        path.write_text(text, encoding="utf-8")
    assert evaluate(model, paths).bits_per_byte == evaluate(model, {n: TEXTS[n] for n in "ab"}).bits_per_byte
    assert len(clearhead.evaluate(model, paths[0]).files) == 1
    with pytest.raises(ClearheadError, match=r"gone\.txt can't be read"):
        evaluate(model, tmp_path / "gone.txt")
    paths[1].write_bytes(b"ab\xff")
    with pytest.raises(ClearheadError, match=r"b\.txt is not UTF-8 text \(byte 2\)"):
        evaluate(model, paths)


def test_what_makes_no_sense_is_refused() -> None:
    model = byte_model()
    with pytest.raises(UsageError, match="window is 17"):
        evaluate(model, TEXTS, window=17)
    with pytest.raises(UsageError, match="stride is 9"):
        evaluate(model, TEXTS, window=8, stride=9)
    with pytest.raises(ClearheadError, match="all files are empty"):
        evaluate(model, {"a": ""})
    model.tokenizer = None
    with pytest.raises(ClearheadError, match="no tokenizer"):
        evaluate(model, TEXTS)


def test_xz_is_what_the_program_makes_of_each_file() -> None:
    texts = ["a" * 1000, "the cat " * 50]
    sizes = [len(lzma.compress(text.encode(), format=lzma.FORMAT_XZ, preset=9)) for text in texts]
    assert xz_bits_per_byte(texts) == 8 * sum(sizes) / 1400


def table(path: Path, head: str, rows: list[str]) -> Corpus:
    path.write_text("\n".join([head, *rows]) + "\n")
    return Corpus(path=str(path), columns=tuple(head.split("\t")[:2]))


def finished(config: TrainConfig, out: Path) -> tuple[Any, Path, dict[str, Any]]:
    """A run's model as it was saved, where, and what the run measured in the end."""
    done = train(replace(config, run=RunConfig(steps=1)), out=out, quiet=True)
    assert done.report is not None and done.checkpoint is not None
    return clearhead.load(done.checkpoint), done.checkpoint, done.report


@pytest.mark.parametrize("objective", ["source_to_target", "labels", "masked_tokens"])
def test_a_checkpoint_is_measured_as_its_run_was(objective: str, tmp_path: Path) -> None:
    rows = [f"cat {i}\t{i % 2}" for i in range(40)]
    corpus = table(tmp_path / "t.tsv", "a\tb", rows)
    if objective != "source_to_target":
        corpus = replace(corpus, columns=("a",), label="b" if objective == "labels" else None)
    kind = "bytes" if objective == "source_to_target" else "wordpiece"
    architecture = {"labels": "BertForSequenceClassification", "masked_tokens": "BertForMaskedLM"}
    made = (
        model("marian", "MarianMTModel", **SEQ2SEQ)
        if objective == "source_to_target"
        else model("bert", architecture[objective], **SIZES_BERT)
    )
    config = tiny(
        model=made,
        data=DataConfig(corpus=corpus, tokenizer=kind, vocab_size=60, held_out=0.2),
        objective=ObjectiveConfig(name=objective),
    )
    loaded, checkpoint, report = finished(config, tmp_path / "run")
    found = evaluate_run(loaded, checkpoint)
    assert isinstance(found, dict)
    assert found == {name: pytest.approx(report[name]) for name in found}
    assert set(found) >= {"source_to_target": {"exact", "bleu"}}.get(objective, {"accuracy", "loss"})
    with pytest.raises(UsageError, match="learnt something else"):
        evaluate_run(loaded, checkpoint, window=4)


def test_a_model_without_a_run_needs_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no checkpoint of a run"):
        evaluate_run(byte_model(), tmp_path)
    torch.save({"config": {"model": {}}}, tmp_path / "training.pt")
    with pytest.raises(ClearheadError, match="written by another version"):
        evaluate_run(byte_model(), tmp_path)


def test_texts_in_tables_and_from_a_corpus(tmp_path: Path) -> None:
    model = byte_model()
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("the cat", "x")))
    found = evaluate(model, tmp_path / "t.jsonl", columns=["text"])
    assert [file.nats for file in found.files] == [
        file.nats for file in evaluate(model, {"a": "the cat", "b": "x"}).files
    ]
    assert evaluate(model, Corpus(path=str(tmp_path / "t.jsonl"))).loss == found.loss
    with pytest.raises(UsageError, match="columns are those of files"):
        evaluate(model, {"a": "x"}, columns=["text"])
