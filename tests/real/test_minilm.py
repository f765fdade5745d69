"""MiniLM-L6, a sentence encoder with BERT's architecture, against `transformers` and mean pooling."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import clearhead
from clearhead.checkpoints import open_checkpoint
from tests.oracles import error

pytestmark = pytest.mark.xdist_group("minilm")

PAIRS = [
    ("A man is playing the guitar.", "Somebody strums a guitar."),
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
    ("Shares fell sharply on Monday.", "The stock market dropped at the start of the week."),
    ("How do I reset my password?", "I can't log in and need a new password."),
    ("It will rain in the north tomorrow.", "The forecast says showers up north."),
    ("The train to Bern was late again.", "Our railway journey to Switzerland's capital was delayed."),
    ("She baked bread this morning.", "Fresh loaves came out of her oven today."),
    ("Water boils at a hundred degrees.", "At sea level, the boiling point of water is 100 °C."),
    ("The match ended without a goal.", "Neither team scored in the game."),
    ("He was elected president of the club.", "Members chose him as the head of their society."),
]
SENTENCES = [sentence for pair in PAIRS for sentence in pair]


@pytest.fixture(scope="module")
def folder() -> Path:
    with open_checkpoint("minilm-l6") as checkpoint:
        return Path(checkpoint.where)


@pytest.fixture(scope="module")
def ours():
    return clearhead.load("minilm-l6")


@pytest.fixture(scope="module")
def theirs(folder):
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(SENTENCES, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        x = model(**batch).last_hidden_state
    present = batch["attention_mask"][..., None]
    return F.normalize((x * present).sum(1) / present.sum(1), dim=-1)


def test_embeddings_equal_transformers(ours, theirs):
    """Measured: equal in every bit."""
    assert len(SENTENCES) == 20
    assert error(clearhead.embed(ours, SENTENCES), theirs) <= 1e-5
    assert error(clearhead.embed(ours, SENTENCES, batch_tokens=20), theirs) <= 1e-5
    assert error(clearhead.embed(ours, SENTENCES[3]), theirs[3]) <= 1e-5


def test_the_nearest_sentence_is_the_one_that_means_the_same(ours):
    vectors = clearhead.embed(ours, SENTENCES)
    likeness = vectors @ vectors.T - 2 * torch.eye(20)
    assert likeness.argmax(dim=1).tolist() == [i ^ 1 for i in range(20)]


def test_pooled_vector_and_stream_equal_transformers(ours, folder):
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    tokens = torch.tensor([ours.tokenizer.encode(SENTENCES[0])])
    with torch.no_grad():
        a, b = ours(tokens), model(tokens)
    assert error(a.stream, b.last_hidden_state) <= 1e-5
    assert error(a.pooled, b.pooler_output) <= 1e-5


def test_a_saved_folder_still_says_how_to_pool(ours, tmp_path, folder):
    clearhead.save(ours, tmp_path / "saved")
    saved = tmp_path / "saved" / "1_Pooling" / "config.json"
    assert saved.read_bytes() == (folder / "1_Pooling" / "config.json").read_bytes()
    again = clearhead.load(tmp_path / "saved")
    assert torch.equal(clearhead.embed(again, SENTENCES), clearhead.embed(ours, SENTENCES))
    saved.unlink()
    with pytest.raises(clearhead.ClearheadError, match="is missing"):
        clearhead.embed(again, "one")
    assert clearhead.embed(again, "one", pooling="mean").shape == (384,)
