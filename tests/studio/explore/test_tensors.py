"""Tensors over HTTP: parts, pools and codes are those of the library, and nothing that is asked ends the server."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from threading import Event

import httpx
import numpy as np
import pytest
import torch
from PIL import Image

import clearhead
from clearhead.errors import UsageError
from clearhead.studio.explore import runs as runs_module
from clearhead.studio.explore import tensors as tensors_module
from clearhead.studio.explore.coding import as_bytes, decode, encode, pooled
from clearhead.studio.explore.tensors import chosen
from tests.studio.explore.opened import TEXT
from tests.studio.served import Served, pages, serving

PATTERN = "layers.2.mixer.pattern"
N = 21
"""Tokens of the text."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    torch.set_num_threads(1)
    with serving(pages(tmp_path_factory.mktemp("static"))) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[httpx.Client]:
    with served.client() as found:
        yield found


def run_of(client: httpx.Client, **asked: object) -> dict[str, object]:
    answer = client.post("/api/v1/runs", json={"model": "clear-gpt", "text": TEXT, **asked})
    assert answer.status_code == 201, answer.text
    told: dict[str, object] = answer.json()
    return told


def tensor(client: httpx.Client, run: object, name: str, **part: object) -> np.ndarray:
    answer = client.get(f"/api/v1/runs/{run}/tensor/{name}", params=part)
    assert answer.status_code == 200, answer.text
    kind = {"u8": "u1", "f16": "<f2", "f32": "<f4"}[answer.headers["x-dtype"]]
    shape = [int(n) for n in answer.headers["x-shape"].split(",")]
    return np.frombuffer(answer.content, kind).reshape(shape)


def test_a_run(client: httpx.Client) -> None:
    told = run_of(client, capture=["*.pattern"])
    assert told["model"] == "clear-gpt" and told["text"] == TEXT and len(told["tokens"]) == N
    assert told["ms"] > 0 and told["bytes"] > 4 * 4 * 4 * N * N
    assert {one["name"] for one in told["tensors"]} == {f"layers.{i}.mixer.pattern" for i in range(4)} | {"final"}
    assert client.get(f"/api/v1/runs/{told['run']}").json() == told


def test_numbers_are_the_librarys(client: httpx.Client) -> None:
    run = run_of(client)["run"]
    seen = clearhead.look(
        clearhead.load("clear-gpt"), TEXT, "layers.*.mixer.pattern", "layers.1.mixer.q", "layers.0.resid_post"
    )
    all_LHTS = torch.cat([seen[f"layers.{i}.mixer.pattern"] for i in range(4)])
    assert np.array_equal(tensor(client, run, "layers.*.mixer.pattern"), all_LHTS)
    assert np.array_equal(
        tensor(client, run, "layers.*.mixer.pattern", layers="1-2", heads="0,3"), all_LHTS[1:3, [0, 3]]
    )
    assert np.array_equal(tensor(client, run, PATTERN, rows="2:5", cols="4"), all_LHTS[2, :, 2:5, 4:5])
    assert np.array_equal(tensor(client, run, "layers.1.mixer.q", rows="20"), seen["layers.1.mixer.q"][0, :, 20:])
    assert np.array_equal(tensor(client, run, "layers.0.resid_post"), seen["layers.0.resid_post"][0])
    half = tensor(client, run, PATTERN, **{"as": "f16"})
    assert np.abs(half - all_LHTS[2].numpy()).max() < 1e-3
    code = tensor(client, run, PATTERN, **{"as": "u8sqrt"})
    assert np.abs(code / 255 - all_LHTS[2].sqrt().numpy()).max() <= 1 / 255
    assert ((code == 0) == (all_LHTS[2] == 0).numpy()).all()


def test_the_largest_of_the_heads(client: httpx.Client) -> None:
    run = run_of(client)["run"]
    whole = tensor(client, run, PATTERN)
    assert np.array_equal(tensor(client, run, PATTERN, most="true"), whole.max(0, keepdims=True))
    part = tensor(client, run, PATTERN, most="true", heads="0,2", rows="3:9", cols="1", pool=2)
    by_hand = whole[[0, 2], 3:9, 1].max(0).reshape(3, 2).max(1)
    assert np.array_equal(part, by_hand.reshape(1, 3, 1))
    code = tensor(client, run, PATTERN, most="true", **{"as": "u8sqrt"})
    assert np.abs(code / 255 - np.sqrt(whole.max(0))).max() <= 1 / 255


def test_nothing_is_copied_of_what_is_too_much(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors_module, "MAX_ANSWER", 4 * 4 * N * N - 4)
    monkeypatch.setattr(tensors_module, "part_of", lambda *_: pytest.fail("it was copied first"))
    with served.client() as client:
        run = run_of(client)["run"]
        for part in ({}, {"rows": ",".join(map(str, reversed(range(N))))}):
            answer = client.get(f"/api/v1/runs/{run}/tensor/{PATTERN}", params=part)
            assert "more than one answer holds" in answer.json()["error"]
        # A star counts all that it names.
        answer = client.get(f"/api/v1/runs/{run}/tensor/layers.*.mixer.pattern", params={"heads": "0-1"})
        assert f"{4 * 2 * N * N:,} numbers" in answer.json()["error"]


def test_pools_keep_the_largest(client: httpx.Client) -> None:
    run = run_of(client)["run"]
    whole = tensor(client, run, PATTERN)
    small = tensor(client, run, PATTERN, pool=4)
    assert small.shape == (4, 6, 6)
    by_hand = [
        [[whole[h, 4 * i : 4 * i + 4, 4 * j : 4 * j + 4].max() for j in range(6)] for i in range(6)] for h in range(4)
    ]
    assert np.array_equal(small, np.array(by_hand, np.float32))


def test_an_etag_spares_the_answer(client: httpx.Client) -> None:
    run = run_of(client)["run"]
    at = f"/api/v1/runs/{run}/tensor/{PATTERN}"
    first = client.get(at)
    again = client.get(at, headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304 and not again.content
    assert client.get(at, params={"pool": 2}).headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize(
    ("name", "part", "words"),
    [
        ("layers.9.mixer.pattern", {}, "its layers are 0 to 3"),
        ("nothing", {}, "this model has nothing called"),
        ("../../etc/passwd", {}, ""),
        (PATTERN, {"heads": "4"}, "heads are 0 to 3"),
        (PATTERN, {"rows": "3:99"}, "rows are 0 to 20"),
        (PATTERN, {"rows": "5:2"}, "rows are 0 to 20"),
        (PATTERN, {"rows": "a"}, "not understood"),
        (PATTERN, {"rows": "0,0"}, "the same ones over again"),
        ("layers.0.resid_post", {"most": "true"}, "has no heads"),
        (PATTERN, {"layers": "0"}, "where its name has a star"),
        (PATTERN, {"pool": "0"}, "greater than or equal"),
        (PATTERN, {"as": "f64"}, "u8sqrt"),
        ("layers.0.resid_post", {"as": "u8sqrt"}, "patterns alone"),
        ("layers.0.resid_post", {"heads": "0"}, "has no heads"),
        ("layers.*.*.out", {"layers": "0"}, None),
        ("layers.*", {}, "several shapes"),
    ],
)
def test_what_is_not_there_is_refused(client: httpx.Client, name: str, part: dict[str, str], words: str | None) -> None:
    run = run_of(client)["run"]
    answer = client.get(f"/api/v1/runs/{run}/tensor/{name}", params=part)
    assert answer.status_code == (404 if "/" in name else 200)
    if words is None:
        assert answer.headers["x-shape"]
    elif "/" not in name:
        assert words in answer.json()["error"]
    assert run_of(client)["run"] == run


@pytest.mark.parametrize(
    "body",
    [
        {"model": "clear-gpt"},
        {"model": "/etc/passwd", "text": "a"},
        {"model": "clear-gpt", "text": "a", "path": "/etc"},
        {"model": "clear-gpt", "text": "a" * 100_001},
        {"model": "clear-gpt", "text": "a", "capture": ["x"] * 65},
        {"model": "clear-gpt", "text": "a", "capture": ["nothing.*"]},
        {"model": "clear-gpt", "text": "a", "ablate": [{"layer": -1}]},
        {"model": "clear-gpt", "text": "a", "ablate": [{"layer": 0, "part": "all"}]},
        {"model": "clear-gpt", "ids": [1e9]},
        {"model": "clear-gpt", "ids": list(range(5000))},
        {"model": "clear-vit", "picture": "0" * 64},
    ],
)
def test_a_bad_question_is_told_so(client: httpx.Client, body: dict[str, object]) -> None:
    answer = client.post("/api/v1/runs", json=body)
    assert answer.status_code == 200 and answer.json().keys() == {"error"}
    assert "no longer kept" in refused(client, "0" * 64)
    assert "pattern" in refused(client, "nonsense")


def refused(client: httpx.Client, run: str) -> str:
    """What is said of a run that is not there; a browser takes nothing of it for a failure of the page."""
    answer = client.get(f"/api/v1/runs/{run}")
    assert answer.status_code == 200
    error: str = answer.json()["error"]
    return error


def test_half_a_character_is_told_of(client: httpx.Client) -> None:
    body = b'{"model": "clear-gpt", "text": "half \\ud83d"}'
    answer = client.post("/api/v1/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200 and "half a character" in answer.json()["error"]


def test_pictures_of_ones_own(client: httpx.Client) -> None:
    data = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 30, 30)).save(data, "PNG")
    name = client.post("/api/v1/pictures", content=data.getvalue()).json()["picture"]
    told = run_of(client, model="clear-vit", text=None, picture=name)
    assert told["picture"] == name and told["reads"][0]["grid"] == [4, 4]
    for bad in (b"", b"GIF89a", b"<svg/>", data.getvalue()[:60], b"\x00" * 1000):
        answer = client.post("/api/v1/pictures", content=bad)
        assert answer.status_code == 200 and "picture" in answer.json()["error"]


def test_a_picture_that_would_fill_the_memory_is_not_decoded(client: httpx.Client) -> None:
    data = io.BytesIO()
    Image.new("1", (6_000, 5_000)).save(data, "PNG")
    answer = client.post("/api/v1/pictures", content=data.getvalue())
    assert "pixels" in answer.json()["error"]


def test_sounds_of_ones_own(client: httpx.Client) -> None:
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(22_050)
        file.writeframes((np.sin(np.arange(22_050)) * 9000).astype("<i2").repeat(2).tobytes())
    name = client.post("/api/v1/sounds", content=data.getvalue()).json()["sound"]
    told = run_of(client, model="clear-speech", text=None, sound=name)
    assert len(told["sources"]) == 75 and told["sources"][1]["text"] == "0.04 s"
    for bad in (b"", b"RIFF", data.getvalue()[:30], b"RIFF\xff\xff\xff\xffWAVEfmt "):
        assert "sound" in (said := client.post("/api/v1/sounds", content=bad).json()["error"]) or "WAV" in said


def test_codes() -> None:
    share = torch.tensor([0.0, 1e-9, 0.25, 0.5, 1.0])
    assert encode(share).tolist() == [0, 1, 128, 180, 255]
    assert (decode(encode(share)).sqrt() - share.sqrt()).abs().max() <= 1 / 255
    assert pooled(torch.arange(9.0).view(1, 3, 3), 2).tolist() == [[[4, 5], [7, 8]]]
    assert as_bytes(torch.tensor([1.5]), "f32") == (b"\x00\x00\xc0\x3f", "f32")


def test_choices() -> None:
    assert chosen("", 3, "rows") == [0, 1, 2]
    assert chosen("2,0", 3, "rows") == [2, 0]
    assert chosen("1-2", 3, "rows") == [1, 2] and chosen("1:2", 3, "rows") == [1]
    assert chosen("1:", 3, "rows") == [1, 2] and chosen(":2", 3, "rows") == [0, 1]
    for bad in ("3", "2-1", "x", "0,0", "0:2,1", "0,0,0,0,0,0,0,0,0,0,0,0,0", "1:1", "9" * 2001):
        with pytest.raises(UsageError):
            chosen(bad, 3, "rows")


def test_a_run_that_nobody_waits_for_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()

    def endless(*_: object, cancelled: Event, **__: object) -> None:
        assert cancelled.wait(20), "nobody told that the browser had gone"
        ended.set()
        raise UsageError("the run was cancelled")

    monkeypatch.setattr(runs_module, "record", endless)
    with served.client(timeout=0.5) as hasty, pytest.raises(httpx.TimeoutException):
        hasty.post("/api/v1/runs", json={"model": "clear-gpt", "text": "nobody waits"})
    assert ended.wait(10)
    monkeypatch.undo()
    with served.client() as client:
        assert run_of(client, text="somebody waits")["tokens"]
