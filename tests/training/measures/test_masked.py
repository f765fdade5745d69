"""Hidden tokens, against a sum written out and `transformers`' own loss."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from clearhead.errors import ClearheadError, UsageError
from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.ops.losses import IGNORE
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.evaluate import evaluate
from clearhead.training.measures.masked import hidden, measure_masked

SIZES = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
}
TEXTS = {"a": "the cat sat on the mat " * 9, "b": "dog", "c": "the dog saw the cat"}


def reader(kind: str = "BertForMaskedLM") -> Any:
    tokenizer = train_tokenizer(TEXTS.values(), TokenizerConfig(kind="wordpiece", size=60))
    model = build(FAMILIES["bert"].read({"model_type": "bert", "architectures": [kind], **SIZES}, "here")).eval()
    for p in model.parameters():
        p.data.mul_(5)
    model.tokenizer = tokenizer
    return model


def test_each_hidden_token_is_told_from_its_row() -> None:
    model = reader()
    told: list[float] = []
    found = evaluate(model, TEXTS, seed=3, progress=told.append)
    nats, right, n = 0.0, 0, 0
    for batch in hidden(model, TEXTS, seed=3):
        for i, targets in enumerate(batch.targets):
            length = int(batch.inputs["present"][i].sum()) if "present" in batch.inputs else len(targets)
            row = batch.inputs["tokens_BT"][i, :length]
            with torch.no_grad():
                logits = model(row[None])
            scores = (logits if isinstance(logits, torch.Tensor) else logits.tokens)[0].double().log_softmax(-1)
            for at in (targets != IGNORE).nonzero()[:, 0].tolist():
                nats -= float(scores[at, targets[at]])
                right += int(scores[at].argmax()) == int(targets[at])
                n += 1
    assert (found.n_tokens, found.n_right) == (n, right)
    assert found.loss == pytest.approx(nats / n, rel=1e-5)
    assert found.summary()["masked_perplexity"] == pytest.approx(math.exp(nats / n), rel=1e-4)
    assert sum(told) == pytest.approx(1)


def test_the_same_seed_hides_the_same() -> None:
    model = reader()
    assert evaluate(model, TEXTS, seed=1) == evaluate(model, TEXTS, seed=1)
    assert evaluate(model, TEXTS, seed=1) != evaluate(model, TEXTS, seed=2)
    tokens = [int((batch.targets != IGNORE).sum()) for batch in hidden(model, {"a": "the cat " * 500})]
    assert sum(tokens) / 1000 == pytest.approx(0.15, abs=0.02)


def test_what_makes_no_sense_is_refused() -> None:
    model = reader()
    with pytest.raises(UsageError, match="window is 2; it must be from 3 to the 16"):
        evaluate(model, TEXTS, window=2)
    with pytest.raises(UsageError, match="there is no stride"):
        evaluate(model, TEXTS, stride=4)
    with pytest.raises(ClearheadError, match="no token is hidden"):
        measure_masked(model, [])
    with pytest.raises(ClearheadError, match="only a decoder with a head over tokens"):
        evaluate(reader("BertForSequenceClassification"), TEXTS)
