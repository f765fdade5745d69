"""Texts to vectors: what is pooled, in which order, and what happens to texts that are empty or too long."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import embed as module
from clearhead.generation.embed import batches, embedding_plan, nearest, tells_documents_apart
from tests import tiny
from tests.oracles import error

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = ["a b c", "d", "", "e f g h i j k", "a b c", "   ", "c b a"]


def stored(folder: Path, name: str = "pooled") -> Path:
    tiny.make("bert", name).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join([*MARKS, *"abcdefghijklmnopqrstuvwxyz"]))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return clearhead.load(stored(tmp_path_factory.mktemp("sentences")))


def by_hand(model, text: str, pooling: str) -> torch.Tensor:
    tokens = torch.tensor([model.tokenizer.encode(text)])
    with torch.no_grad():
        out = model(tokens)
    x = {
        "mean": out.stream.mean(1),
        "first": out.stream[:, 0],
        "last": out.stream[:, -1],
        "head": out.pooled,
    }[pooling][0]
    return x / x.norm()


@pytest.mark.parametrize("pooling", ["mean", "first", "last", "head"])
@pytest.mark.parametrize("batch_tokens", [1, 12, 4096])
def test_every_text_gives_what_it_gives_alone(model, pooling, batch_tokens):
    told: list[int] = []
    found = clearhead.embed(model, TEXTS, pooling=pooling, batch_tokens=batch_tokens, progress=told.append)
    assert found.shape == (7, 64)
    assert sum(told) == 5
    for text, vector in zip(TEXTS, found, strict=True):
        expected = by_hand(model, text, pooling) if text.strip() else torch.zeros(64)
        assert error(vector, expected) <= 1e-5
    assert error(clearhead.embed(model, "c b a", pooling=pooling), found[-1]) <= 1e-6


def test_the_stream_is_pooled_whatever_head_the_model_has(model, tmp_path):
    masked = clearhead.load(stored(tmp_path, "masked"))
    with torch.no_grad():
        x = clearhead.look(masked, "a b c", "final")["final"][0].mean(0)
    assert error(clearhead.embed(masked, "a b c"), x / x.norm()) <= 1e-5
    with pytest.raises(ClearheadError, match="no pooled vector"):
        clearhead.embed(masked, "a", pooling="head")


def test_a_long_text_is_read_as_far_as_the_context_goes(model):
    long = "a b c d e f g " * 10
    tokens = model.tokenizer.encode(long)
    assert len(tokens) == 72 > model.config.context == 40
    cut = torch.tensor([[*tokens[:39], tokens[-1]]])
    with torch.no_grad():
        x = model(cut).stream[0].mean(0)
    assert error(clearhead.embed(model, long), x / x.norm()) <= 1e-5


def sentence_files(folder: Path, **modes: bool) -> None:
    (folder / "modules.json").write_text(
        json.dumps([{"path": ""}, {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **modes}))


def test_what_the_checkpoint_says_of_pooling_goes(tmp_path):
    stored(tmp_path)
    sentence_files(tmp_path, pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7}))
    model = clearhead.load(tmp_path)
    plan = embedding_plan(model)
    assert (plan.pooling, plan.limit) == ("first", 7)
    assert error(clearhead.embed(model, "a b"), by_hand(model, "a b", "first")) <= 1e-5
    assert error(clearhead.embed(model, "a b", pooling="mean"), by_hand(model, "a b", "mean")) <= 1e-5


@pytest.mark.parametrize("modes", [{"pooling_mode_max_tokens": True}, {}])
def test_a_pooling_that_is_not_understood_is_refused(tmp_path, modes):
    stored(tmp_path)
    sentence_files(tmp_path, **modes)
    with pytest.raises(ClearheadError, match=r"1_Pooling/config.json.*--pool"):
        clearhead.embed(clearhead.load(tmp_path), "a")


def test_errors(model, tmp_path):
    with pytest.raises(UsageError, match="there are mean, first, last, head"):
        clearhead.embed(model, "a", pooling="max")  # type: ignore[arg-type]
    tiny.make("bert", "pooled").save_pretrained(tmp_path)
    with pytest.raises(ClearheadError, match="no tokenizer"):
        clearhead.embed(clearhead.load(tmp_path), "a")


def test_no_texts_give_no_vectors(model):
    assert clearhead.embed(model, []).shape == (0, 64)


def test_batches_hold_rows_of_like_length():
    rows = [[1] * n for n in (3, 9, 0, 4, 8, 1)]
    assert list(batches(rows, 18)) == [[1, 4], [3, 0, 5]]
    assert list(batches(rows, 1)) == [[1], [4], [3], [0], [5]]
    assert list(batches(rows, 18, padded=False)) == [[1, 4], [3, 0, 5]]
    assert list(batches(rows, 21, padded=False)) == [[1, 4, 3], [0, 5]]
    assert list(batches(rows, 21)) == [[1, 4], [3, 0, 5]]
    assert list(batches([], 8)) == []


@pytest.mark.parametrize(
    "family",
    ["bert", "roberta", "modernbert", "distilbert", "albert", "esm", "roformer", "llama", "gemma3_text", "qwen3"],
)
def test_texts_in_one_row_give_what_they_give_alone(family, tmp_path):
    """Without a mask written out, of any length, wherever the model takes positions from."""
    tiny.make(family).save_pretrained(tmp_path)
    model = clearhead.load(tmp_path)
    assert tells_documents_apart(model.config)
    rows = [[5 + (7 * i + 3 * k) % 24 for k in range(n)] for i, n in enumerate((12, 7, 7, 7, 5, 5, 1))]
    with torch.no_grad():
        alone = torch.cat([model(torch.tensor([row]), read=False)[0] for row in rows])
        assert error(module._stream(model, rows), alone) <= 1e-5
        assert error(module._stream_of_padded(model, rows), alone) <= 1e-5


@pytest.mark.parametrize("family", ["gpt_oss", "mamba"])
def test_models_that_can_not_tell_texts_apart_have_padding(family, tmp_path):
    """Sinks are one more key each; a scan goes on from one token to the next."""
    tiny.make(family).save_pretrained(tmp_path)
    model = clearhead.load(tmp_path)
    assert not tells_documents_apart(model.config)
    rows = [[5 + (7 * i + 3 * k) % 24 for k in range(n)] for i, n in enumerate((12, 7, 1))]
    with torch.no_grad():
        alone = torch.cat([model(torch.tensor([row]), read=False)[0] for row in rows])
        assert error(module._stream_of_padded(model, rows), alone) <= 1e-5


def test_nearest_lines():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    assert [i for i, _ in nearest(vectors, torch.tensor([1.0, 0.0]), 10)] == [0, 2, 3]
    assert nearest(vectors, torch.tensor([0.0, 1.0]), 1) == [(2, pytest.approx(0.8))]
