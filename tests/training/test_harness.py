"""The adapter to the `lm-eval` harness, against the harness's own model of `transformers` on the same folder."""

from __future__ import annotations

import importlib
import json
import types
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.cli import main
from clearhead.errors import ClearheadError, UsageError
from clearhead.training import harness
from clearhead.training.data.tokenizers import TokenizerConfig, train_tokenizer
from tests.tiny import families

needs_harness = pytest.mark.skipif(not harness.installed(), reason="lm_eval is not installed: the extra lm-eval")
TEXTS = ["the cat sat on the mat", "on", " where the dog saw it, and the cat saw the dog"]
QUESTIONS = [("the cat", " sat on the mat"), ("", "dog"), ("a b c " * 30, " d"), ("the cat ", "saw"), ("x", " y z")]


def saved(family: str, folder: Path, **changes: Any) -> Path:
    """A random tiny model of `transformers` with a tokenizer of bytes, as a folder."""
    marks = (("bos_token", "<s>"), ("eos_token", "</s>"), ("pad_token", "</s>"))
    tokenizer = train_tokenizer([], TokenizerConfig(kind="bytes", marks=marks, around=family == "llama"))
    ids = {"vocab_size": tokenizer.vocab_size, "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": 257}
    families()[family][0].make(**ids, **changes).save_pretrained(folder)
    for name, content in tokenizer.files().items():
        (folder / name).write_bytes(content)
    return folder


def asked(*args: Any) -> Any:
    return types.SimpleNamespace(args=args)


def both(folder: Path, backend: str) -> tuple[Any, Any]:
    theirs = importlib.import_module("lm_eval.models.huggingface").HFLM(
        pretrained=str(folder), device="cpu", dtype="float32", backend=backend, batch_size=2
    )
    return harness.HarnessModel(str(folder), dtype="float32"), theirs


@needs_harness
def test_probabilities_and_texts_are_those_of_the_harness(tmp_path: Path) -> None:
    ours, theirs = both(saved("llama", tmp_path, max_position_embeddings=64), "causal")
    assert (ours.max_length, ours.eot_token_id, ours.prefix_token_id) == (64, 257, 256)
    questions = [asked(*question) for question in QUESTIONS]
    for mine, other in zip(ours.loglikelihood(questions), theirs.loglikelihood(questions), strict=True):
        assert mine[0] == pytest.approx(other[0], rel=1e-5)
        assert mine[1] == other[1]
    rolled = [asked(text) for text in [*TEXTS, "long " * 40]]
    assert ours.loglikelihood_rolling(rolled) == pytest.approx(theirs.loglikelihood_rolling(rolled), rel=1e-5)
    # What the likeliest tokens say is told to be the likeliest.
    (text,) = ours.generate_until([asked("the cat", {"max_gen_toks": 3, "until": []})])
    assert ours.loglikelihood([asked("the cat", text)])[0][1] or "�" in text
    wanted = [asked(text, {"max_gen_toks": 12, "until": ["e"], "do_sample": False}) for text in TEXTS]
    assert ours.generate_until(wanted) == theirs.generate_until(wanted)


@needs_harness
def test_a_context_is_the_source_of_a_model_with_an_encoder(tmp_path: Path) -> None:
    ours, theirs = both(saved("bart", tmp_path, decoder_start_token_id=257), "seq2seq")
    questions = [asked(*question) for question in QUESTIONS if question[0] and len(question[0]) < 60]
    for mine, other in zip(ours.loglikelihood(questions), theirs.loglikelihood(questions), strict=True):
        assert mine[0] == pytest.approx(other[0], rel=1e-5)
        assert mine[1] == other[1]


def tasks(folder: Path) -> Path:
    """A folder with a task of two questions, and one of two texts."""
    folder.mkdir()
    rows = [
        {"question": "the cat", "choices": [" sat", " flew"], "answer": 0},
        {"question": "the dog", "choices": [" sat", " saw"], "answer": 1},
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = [
        "dataset_path: json",
        f"dataset_kwargs: {{data_files: {{test: {folder / 'rows.jsonl'}}}}}",
        "test_split: test",
    ]
    choice = [
        "task: two_animals",
        *data,
        "output_type: multiple_choice",
        'doc_to_text: "{{question}}"',
        'doc_to_choice: "{{choices}}"',
        'doc_to_target: "{{answer}}"',
        "metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]",
    ]
    (folder / "choice.yaml").write_text("\n".join(choice))
    rolled = [
        "task: two_texts",
        *data,
        "output_type: loglikelihood_rolling",
        'doc_to_text: ""',
        'doc_to_target: "{{question}}"',
        "metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]",
    ]
    (folder / "rolled.yaml").write_text("\n".join(rolled))
    return folder


@needs_harness
def test_tasks_run_from_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, folder = saved("llama", tmp_path / "model"), tasks(tmp_path / "tasks")
    assert main(["evaluate", str(model), str(folder), "--tasks", "two_animals,two_texts", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    loaded = clearhead.load(model)
    right = sum(
        clearhead.evaluate(loaded, {"a": question + good}).files[0].nats
        < clearhead.evaluate(loaded, {"b": question + bad}).files[0].nats
        for question, good, bad in (("the cat", " sat", " flew"), ("the dog", " saw", " sat"))
    )
    assert found["two_animals acc"] == right / 2
    measured = clearhead.evaluate(loaded, {"a": "the cat", "b": "the dog"})
    assert found["two_texts bits_per_byte"] == pytest.approx(measured.bits_per_byte, rel=1e-5)
    with pytest.raises(UsageError, match="no task 'three_animals'"):
        harness.run_tasks(loaded, ["three_animals"])
    with pytest.raises(ClearheadError, match="gone is no folder"):
        harness.run_tasks(loaded, ["two_animals"], [tmp_path / "gone"])
    (folder / "rows.jsonl").unlink()
    with pytest.raises(ClearheadError, match="could not run two_texts"):
        harness.run_tasks(loaded, ["two_texts"], [folder])


def test_without_the_harness_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "installed", lambda: False)
    with pytest.raises(ClearheadError, match=r'pip install "clearhead\[lm-eval\]"'):
        harness.HarnessModel("x")
