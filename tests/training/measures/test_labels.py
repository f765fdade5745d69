"""Labels and values, against scikit-learn's counts and formulas in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error

from clearhead.errors import ClearheadError, UsageError
from clearhead.families import FAMILIES
from clearhead.model.build import build
from clearhead.ops.losses import IGNORE
from clearhead.training.data.batches import Batch
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from clearhead.training.evaluate import evaluate
from clearhead.training.measures.labels import labelled, measure_labels, measure_values

SIZES = {
    "vocab_size": 80,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 12,
}
RECORDS = [("the cat sat", "1"), ("on the mat", "0"), ("dog", "2"), ("the dog saw the cat on the mat " * 3, "1")]


def classifier(n: int, architecture: str = "BertForSequenceClassification") -> Any:
    tokenizer = train_tokenizer([text for text, _ in RECORDS] * 9, TokenizerConfig(kind="wordpiece", size=80))
    raw = {"model_type": "bert", "architectures": [architecture], **SIZES, "num_labels": n}
    raw["id2label"] = {str(i): f"LABEL_{i}" for i in range(n)}
    model = build(FAMILIES["bert"].read(raw, "here")).eval()
    for p in model.parameters():
        p.data.mul_(5)
    model.tokenizer = tokenizer
    return model


def scores(model: Any) -> np.ndarray:
    """What the head says of each record, read alone."""
    with torch.no_grad():
        return np.stack([_logits(model, text) for text, _ in RECORDS])


def _logits(model: Any, text: str) -> np.ndarray:
    ids = model.tokenizer.encode(text, bos=False)[:10]
    whole = [*model.tokenizer.encode("", bos=True)[:1], *ids, *model.tokenizer.encode("", bos=True)[-1:]]
    made = model(torch.tensor([whole]))
    logits = made if isinstance(made, torch.Tensor) else made.logits
    return np.asarray(logits[0].double().numpy())


def table(path: Path, records: list[tuple[str, str]]) -> Path:
    path.write_text("words\tkind\n" + "".join(f"{text}\t{label}\n" for text, label in records))
    return path


def test_labels_are_counted_as_scikit_learn_counts_them(tmp_path: Path) -> None:
    model = classifier(3)
    told: list[float] = []
    found = evaluate(model, table(tmp_path / "t.tsv", RECORDS), columns=["words"], label="kind", progress=told.append)
    logits = scores(model)
    true = [int(label) for _, label in RECORDS]
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert found.summary() == {
        "labelled": 4,
        "accuracy": pytest.approx(accuracy_score(true, logits.argmax(-1))),
        "loss": pytest.approx(log_loss(true, shares, labels=[0, 1, 2]), rel=1e-5),
    }
    assert sum(told) == pytest.approx(1)


def test_values_are_compared_by_their_squares(tmp_path: Path) -> None:
    model = classifier(1)
    records = [(text, f"{i / 2}") for i, (text, _) in enumerate(RECORDS)]
    found = evaluate(model, table(tmp_path / "t.tsv", records), columns=["words"], label="kind").summary()
    said, true = scores(model)[:, 0], [0.0, 0.5, 1.0, 1.5]
    assert found["values"] == 4
    assert found["mean_squared_error"] == pytest.approx(mean_squared_error(true, said), rel=1e-5)
    assert found["correlation"] == pytest.approx(np.corrcoef(true, said)[0, 1], rel=1e-4)
    flat = measure_values(model, labelled(model, [(RECORDS[0][0], "2")] * 2)).summary()
    assert "correlation" not in flat


def test_what_has_no_target_is_not_counted() -> None:
    model = classifier(3)
    batch = Batch({"tokens_BT": torch.tensor([[2, 9, 3], [2, 8, 3]])}, torch.tensor([1, IGNORE]))
    assert measure_labels(model, [batch]).n == 1
    with pytest.raises(ClearheadError, match="nothing to label"):
        measure_labels(model, [Batch(batch.inputs, torch.tensor([IGNORE, IGNORE]))])
    values = Batch(batch.inputs, torch.tensor([float("nan")] * 2))
    with pytest.raises(ClearheadError, match="nothing to tell"):
        measure_values(classifier(1), [values])


def test_labels_go_by_name_where_the_model_has_names() -> None:
    model = classifier(3)
    model.origin = type("Origin", (), {"raw_config": {"id2label": {"0": "bad", "1": "good", "2": "odd"}}})()
    by_name = labelled(model, [("the cat", "odd"), ("dog", "0")])
    assert sorted(t for batch in by_name for t in batch.targets.tolist()) == [0, 2]
    with pytest.raises(ClearheadError, match="'fine', which is none of the model's labels: bad, good, odd"):
        list(labelled(model, [("the cat", "fine")]))


def test_bad_labels_are_named(tmp_path: Path) -> None:
    model = classifier(3)
    with pytest.raises(ClearheadError, match="'3', which is none of the model's labels: 0 to 2"):
        list(labelled(model, [("a", "3")]))
    with pytest.raises(ClearheadError, match="'red', which is no number"):
        list(labelled(classifier(1), [("a", "red")]))
    with pytest.raises(ClearheadError, match="no head for labels"):
        list(labelled(classifier(3, "BertForMaskedLM"), [("a", "0")]))
    with pytest.raises(UsageError, match="2 columns and a label"):
        evaluate(model, tmp_path / "t.tsv", columns=["a", "b"], label="kind")
