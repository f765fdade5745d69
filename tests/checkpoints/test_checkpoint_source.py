"""From a name to files: shipped models, Hub ids, and what is said about names that lead nowhere."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants, errors
from safetensors.torch import save_file

from clearhead.checkpoints import hub, open_checkpoint, shipped
from clearhead.checkpoints.hub import is_hub_id
from clearhead.errors import ClearheadError, UsageError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def refusal(source: str | Path, **options: str) -> str:
    with pytest.raises(ClearheadError) as caught:
        open_checkpoint(source, **options)
    return str(caught.value)


# ---- names that lead nowhere


@pytest.mark.parametrize("name", ["gema3-270m", "gemma3-270", "Gemma3-270M"])
def test_a_misspelled_shipped_name_names_the_nearest(name: str) -> None:
    assert "Did you mean gemma3-270m?" in refusal(name)


def test_a_misspelled_path_names_the_nearest_beside_it(tmp_path: Path) -> None:
    (tmp_path / "my-model").mkdir()
    (tmp_path / "weights.gguf").touch()
    assert f"Did you mean {tmp_path / 'my-model'}?" in refusal(tmp_path / "my-modle")
    assert f"Did you mean {tmp_path / 'weights.gguf'}?" in refusal(str(tmp_path / "weight.gguf"))
    assert "Did you mean" not in refusal(tmp_path / "zzzzzz")
    assert "no file or folder" in refusal(tmp_path / "none" / "zzzzzz")


@pytest.mark.parametrize("source", ["", "  "])
def test_an_empty_source_says_what_can_be_given(source: str) -> None:
    assert "gemma3-270m" in refusal(source)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "not a GGUF file" in refusal(path)


def test_a_revision_is_only_for_the_hub(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="revision"):
        open_checkpoint(tmp_path, revision="main")


# ---- the Hub: always offline here, with a cache made by hand


@pytest.mark.parametrize("source", ["gpt2", "openai-community/gpt2", "a/b.c_d-1", "a/b/c.gguf", "a/b/sub/c.gguf"])
def test_hub_ids(source: str) -> None:
    assert is_hub_id(source)


@pytest.mark.parametrize(
    "source", ["./a", "../a", "a/", "/a/b", "a/b/c", "a b", "~/a", "a//b", "a\\b", "m.gguf", "d/m.gguf"]
)
def test_paths_are_no_hub_ids(source: str) -> None:
    assert not is_hub_id(source)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cached(cache: Path, repo: str) -> Path:
    """A repository as the Hub's library keeps it."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    return snapshot


def test_a_cached_model_opens_offline(cache: Path) -> None:
    snapshot = cached(cache, "owner/model")
    save_file({"x": torch.ones(2)}, snapshot / "model.safetensors")
    for revision in (None, "main", COMMIT):
        with open_checkpoint("owner/model", revision=revision) as checkpoint:
            assert checkpoint.where == str(snapshot)
            assert checkpoint.read("x").tolist() == [1.0, 1.0]


def test_a_cached_model_with_only_a_pickle_opens(cache: Path) -> None:
    torch.save({"x": torch.ones(2)}, cached(cache, "owner/model") / "pytorch_model.bin")
    with open_checkpoint("owner/model") as checkpoint:
        assert checkpoint.format == "pickle"


def test_offline_and_not_cached_says_what_to_do(cache: Path) -> None:
    for source in ("owner/model", "owner/model/file.gguf"):
        text = refusal(source)
        assert "HF_HUB_OFFLINE is set" in text
        assert str(cache) in text
        assert "Go online" in text


def test_a_cached_model_without_weights_says_so(cache: Path) -> None:
    cached(cache, "owner/model")
    assert "owner/model has no safetensors or PyTorch weights" in refusal("owner/model")


def test_downloads_ask_for_no_more_than_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def download(repo: str, **options: Any) -> str:
        asked.append({"repo": repo, **options})
        if "pytorch_model.bin" in options["allow_patterns"]:
            torch.save({"x": torch.ones(1)}, tmp_path / "pytorch_model.bin")
        return str(tmp_path)

    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    open_checkpoint("owner/model", revision="v1", token="secret").close()
    assert [call["revision"] for call in asked] == ["v1", "v1"]
    assert [call["token"] for call in asked] == ["secret", "secret"]
    assert not any(".bin" in pattern for pattern in asked[0]["allow_patterns"])
    assert not any("safetensors" in pattern for pattern in asked[1]["allow_patterns"])


class Answer:
    """As much of an HTTP response as the Hub's errors look at."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.status_code = 404
        self.request = None


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (errors.GatedRepoError, "gated: accept its terms"),
        (errors.RepositoryNotFoundError, "no model owner/model"),
        (errors.RevisionNotFoundError, "no revision 'v9'"),
        (errors.HfHubHTTPError, "could not be downloaded: broken"),
    ],
)
def test_what_the_hub_answers_is_translated(
    monkeypatch: pytest.MonkeyPatch, problem: type[errors.HfHubHTTPError], says: str
) -> None:
    def download(repo: str, **options: Any) -> str:
        raise problem("broken\nmore", response=Answer())  # type: ignore[arg-type]

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert says in refusal("owner/model", revision="v9")


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo: str, **options: Any) -> str:
        raise TypeError("a defect")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(TypeError, match="a defect"):
        hub.hub_path("owner/model")


# ---- models that packages ship


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package like the one of Gemma 3, with two small parts."""
    parts = [tmp_path / "part0", tmp_path / "part1"]
    for part, data in zip(parts, (b"GGUF", b"rest"), strict=True):
        part.write_bytes(data)
    module: Any = ModuleType("shipped_for_a_test")
    module.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("shipped_for_a_test", None)
    module.chunk_paths = lambda: parts
    module.default_output_path = lambda: tmp_path / "cache" / "m.gguf"
    module.EXPECTED_SHA256 = hashlib.sha256(b"GGUFrest").hexdigest()
    (tmp_path / "cache").mkdir()
    monkeypatch.setitem(sys.modules, "shipped_for_a_test", module)
    monkeypatch.setitem(shipped.SHIPPED, "tiny", shipped.Shipped("shipped_for_a_test", "tiny-extra"))
    return module


def test_parts_are_put_together_once(package: Any) -> None:
    path = shipped.shipped_file("tiny")
    assert path.read_bytes() == b"GGUFrest"
    before = path.stat().st_mtime_ns
    assert shipped.shipped_file("tiny").stat().st_mtime_ns == before
    path.write_bytes(b"GGU")  # as a writer that was stopped half-way leaves it
    assert shipped.shipped_file("tiny").read_bytes() == b"GGUFrest"


def test_stopping_half_way_leaves_no_file_under_the_final_name(package: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(parts: list[Path], out: IO[bytes]) -> str:
        out.write(b"GG")
        raise KeyboardInterrupt

    monkeypatch.setattr(shipped, "_join", stop)
    with pytest.raises(KeyboardInterrupt):
        shipped.shipped_file("tiny")
    assert list(package.default_output_path().parent.iterdir()) == []


def test_damaged_parts_are_refused(package: Any) -> None:
    package.chunk_paths()[1].write_bytes(b"rust")
    assert "expected SHA-256" in refusal("tiny")
    assert list(package.default_output_path().parent.iterdir()) == []
    package.chunk_paths()[1].unlink()
    assert 'pip install --force-reinstall "clearhead[tiny-extra]"' in refusal("tiny")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(shipped.SHIPPED, "tiny", shipped.Shipped("no_such_module_here", "tiny-extra"))
    assert 'pip install "clearhead[tiny-extra]"' in refusal("tiny")
