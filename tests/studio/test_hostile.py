"""What a hostile page, a hostile text and a broken tool could send: refused or harmless, and the server lives on."""

from __future__ import annotations

import inspect
import json
import socket as sockets
import typing
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

import clearhead.studio.catalogue  # noqa: F401 - registers the operations
from clearhead.errors import ClearheadError
from clearhead.studio.frames import dumps, pack
from clearhead.studio.guard import INSIDE
from clearhead.studio.operations import OPERATIONS, Answer
from clearhead.studio.operations import ask as ask_operation
from tests.studio.asked import operations_of_tests
from tests.studio.served import Served, ask, pages, receive, serving

REAL = sorted(OPERATIONS)
TEXTS = {
    "script": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "right to left": "abc \u202e\u2066\u200fcba\u2069 \u05d0\u05d1\u05d2",
    "long word": "w" * 400,
    "half emoji": "half \ud83d and \udc00",
    "nuls": "a\x00b\x00\x01\x1b[31m",
    "long": "The cat sat. " * 7700,
    "empty": "",
    "blank": " \t\n\u00a0\u200b",
    "special tokens": "<|endoftext|><eos>[MASK]<pad>",
    "combining": "Z" + "\u0301" * 300,
    "emoji": "👩‍👩‍👧‍👦" * 20,
    "format": "%s %n {0} ${x} ../../etc/passwd",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = pages(tmp_path_factory.mktemp("static"))
    (folder.parent / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    with operations_of_tests(), serving(folder) as one:
        yield one


# ---- paths


PATHS = [
    "/../secret.txt", "/assets/../../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/%2e%2e%2fsecret.txt",
    "/assets/%2e%2e/%2e%2e/secret.txt", "/..%5csecret.txt", "/..\\secret.txt", "/....//secret.txt",
    "/%00", "/secret.txt%00.html",
    "//etc/passwd", "/%2fetc/passwd", "/file:///etc/passwd", "/C:/windows", "/./../secret.txt",
    "/%c0%ae%c0%ae/secret.txt",
    "/%252e%252e/secret.txt", "/link.txt", "/assets/", "/assets", "/" + "a" * 5000, "/" + "a/" * 2000,
    "/%ff%fe", "/%ed%a0%80",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_leads_to_pages_alone(served: Served, path: str) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in served.cookie.items())
    head = f"GET {path} HTTP/1.1\r\nHost: {served.host}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    with sockets.create_connection(("127.0.0.1", served.settings.port), 10) as line:
        line.sendall(head.encode("latin-1"))
        answer = b""
        while piece := line.recv(65536):
            answer += piece
    status = int(answer.split(b" ")[1])
    assert status in (200, 400, 404), answer[:200]
    assert b"secret" not in answer.split(b"\r\n\r\n", 1)[1] and b"root:" not in answer
    if status == 200:
        assert b"<title>studio" in answer


@pytest.mark.parametrize(
    "path", ["/learn/3-attention?q=7", "/explore/clear-gpt/attention", "/nothing/at/all", "/claims/ten-words"]
)
def test_pages_know_their_own_addresses(served: Served, path: str) -> None:
    with served.client() as client:
        answer = client.get(path)
        assert answer.status_code == 200 and "<title>studio" in answer.text
        assert client.head(path).status_code in (200, 405)


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/v1/nothing", "/api/v2/models", "/api/../etc", "/assets/none.js"]
)
def test_what_is_not_there_is_not_a_page(served: Served, path: str) -> None:
    with served.client() as client:
        answer = client.get(path)
    assert answer.status_code == 404 or path == "/api/../etc"


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
def test_other_methods(served: Served, method: str) -> None:
    with served.client() as client:
        assert client.request(method, "/api/v1/models").status_code in (400, 404, 405)


def test_pages_that_are_not_built_say_how(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("nothing")) as unbuilt, unbuilt.client() as client:
        answer = client.get("/learn/3-attention")
        assert answer.status_code == 503 and "make studio" in answer.text
        assert client.get("/api/v1/models").status_code == 200


# ---- JSON over HTTP


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"null", b"[]", b"[" * 100_000, b'{"model": "clear-gpt"}', b'{"model": 5, "text": "a"}', b"\xff\xfe",
        b'{"model": "clear-gpt", "text": NaN}', b'{"model": "clear-gpt", "text": "a", "extra": 1}',
        b'{"model": "clear-gpt", "text": ["a"]}', b'{"model": "clear-gpt", "text": "\\ud800"}',
        b'{"model": "../x", "text": "a"}', b'{"model": "clear-vit", "text": "a"}', b'{"model": ' + b"9" * 10_000 + b"}",
        json.dumps({"model": "clear-gpt", "text": "x" * 100_001}).encode(),
        json.dumps({"model": "m" * 1000, "text": "a"}).encode(),
    ],
)  # fmt: skip
def test_bodies_that_are_refused(served: Served, body: bytes) -> None:
    with served.client() as client:
        answer = client.post("/api/v1/tokenize", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422), answer.text[:300]
    assert 0 < len(answer.json()["error"]) <= 1000
    assert served.settings.token not in answer.text


@pytest.mark.parametrize("model", ["clear-gpt", "clear-bert", "clear-translate", "minilm-l6"])
@pytest.mark.parametrize(
    "text", [text for name, text in TEXTS.items() if name != "half emoji"], ids=lambda text: text[:8]
)
def test_texts_come_back_as_tokens_with_their_places(served: Served, model: str, text: str) -> None:
    with served.client() as client:
        answer = client.post("/api/v1/tokenize", json={"model": model, "text": text[:100_000]})
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    for token in answer.json()["tokens"]:
        assert token["text"] and 0 <= token["start"] <= token["end"] <= len(text)


# ---- the socket


@pytest.mark.parametrize(
    "op", ["", "__import__", "os.system", "../x", "test.echo\0", "\ud800", "ask", "x" * 100, "<script>", "\u202e"]
)
def test_names_of_no_operation(served: Served, op: str) -> None:
    with served.socket() as socket:
        told, _ = ask(socket, op)
        assert "no operation" in told["error"] and len(told["error"]) < 300
        assert ask(socket, "test.echo", {"value": "on"})[0]["data"]["value"] == "on"


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_comes_back_as_it_was_or_is_refused(served: Served, text: str) -> None:
    with served.socket() as socket:
        told, _ = ask(socket, "test.echo", {"value": text})
        if "error" in told:
            assert told["error"] != INSIDE and ("\ud83d" in text or len(text) > 100_000)
        else:
            assert told["data"]["value"] == text


@pytest.mark.parametrize(
    "message",
    [
        '{"id": "a", "seq": 1, "op": "test.echo", "args": ' + '{"value":' * 200 + "1" + "}" * 200 + "}",
        "[" * 200_000,
        '{"id": "a", "seq": 1, "op": "test.echo", "args": {"number": 1e400}}',
        '{"id": "a", "seq": 1, "op": "test.echo", "args": {"number": ' + "9" * 5000 + "}}",
        '{"id": "a", "seq": 1, "op": "test.echo", "args": {"__proto__": {"x": 1}}}',
        '{"id": "a", "seq": 1, "op": "test.echo", "args": {"": 1}}',
        '{"id": "a", "seq": 1, "op": "test.echo", "args": {"\\u0000": 1, "self": 2, "value": "x", "value": 3}}',
        '{"id": "\\ud800", "seq": 1, "op": "test.nothing"}',
        '\ufeff{"id": "a", "seq": 1, "op": "test.echo"}',
        "\x00",
    ],
)
def test_hostile_questions(served: Served, message: str) -> None:
    with served.socket() as socket:
        socket.send(message)
        told, _ = receive(socket)
        assert told["error"] and told["error"] != INSIDE
        assert ask(socket, "test.echo", {"value": "on"})[0]["data"]["value"] == "on"
    assert served.lives()


# ---- runs and their tensors


def refusal(answer: httpx.Response) -> str:
    """Why something was refused: in words, and never as a failure of the server."""
    assert answer.status_code in (200, 400, 404, 422) and answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    return str(answer.json()["error"])


@pytest.fixture(scope="module")
def run(served: Served) -> str:
    with served.client() as client:
        answer = client.post("/api/v1/runs", json={"model": "clear-2l", "text": "The cat sat."})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run"])


@pytest.mark.parametrize(
    "name",
    [
        "layers.0.mixer.nothing", "layers.99.mixer.pattern", "..%2F..%2Fetc%2Fpasswd", "%2e%2e", "%00",
        "layers.*.*.*.*", "**", "__class__", "layers.-1.mixer.pattern", "%ed%a0%80", "x" * 199, "x" * 5000,
        "layers.0.mixer.pattern%0d%0aX-Bad:1",
        "%3Cscript%3E", "%E2%80%AE",
    ],
)  # fmt: skip
def test_names_of_no_tensor(served: Served, run: str, name: str) -> None:
    with served.client() as client:
        answer = client.get(f"/api/v1/runs/{run}/tensor/{name}")
    assert refusal(answer) not in ("", INSIDE) and len(answer.text) < 2000 and "x-bad" not in answer.headers


@pytest.mark.parametrize(
    "query",
    [
        "layers=99", "layers=-1", "heads=0:0", "rows=5-1", "cols=x", "rows=" + "9" * 2500, "pool=0", "pool=-3",
        "pool=1e9",
        "pool=NaN", "as=exe", "heads=0%00", "layers=0,1", "rows=%D9%A0",
    ],
)  # fmt: skip
def test_parts_of_no_tensor(served: Served, run: str, query: str) -> None:
    with served.client() as client:
        answer = client.get(f"/api/v1/runs/{run}/tensor/layers.0.mixer.pattern?{query}")
        fine = client.get(f"/api/v1/runs/{run}/tensor/layers.0.mixer.pattern?heads=0")
    assert fine.status_code == 200 and fine.headers["x-shape"].startswith("1,")
    if "x-shape" not in answer.headers:
        assert refusal(answer) not in ("", INSIDE)


@pytest.mark.parametrize("id", ["x", "0" * 64, "..", "%2e%2e%2f", "A" * 64, "0" * 63 + "%00", "\u0660" * 64])
def test_runs_that_are_none(served: Served, id: str) -> None:
    with served.client() as client:
        for path in (f"/api/v1/runs/{id}", f"/api/v1/runs/{id}/tensor/embed"):
            assert refusal(client.get(path)) not in ("", INSIDE)


@pytest.mark.parametrize(
    "text", [text for name, text in TEXTS.items() if name != "half emoji"], ids=lambda text: text[:8]
)
def test_a_hostile_text_is_run_or_refused(served: Served, text: str) -> None:
    with served.client() as client:
        answer = client.post("/api/v1/runs", json={"model": "clear-2l", "text": text[:100_000]})
    if answer.status_code == 201:
        assert all(token["text"] for token in answer.json()["tokens"])
    else:
        assert refusal(answer) not in ("", INSIDE)


@pytest.mark.parametrize("path", ["/api/v1/pictures", "/api/v1/sounds"])
@pytest.mark.parametrize(
    "data", [b"", b"x" * 1000, b"\x89PNG\r\n\x1a\n" + b"\0" * 50, b"RIFF\xff\xff\xff\xffWAVE", b"<svg/>"]
)
def test_files_that_are_none(served: Served, path: str, data: bytes) -> None:
    with served.client() as client:
        answer = client.post(path, content=data)
    assert refusal(answer) not in ("", INSIDE)


# ---- every operation there is


def arguments(name: str) -> dict[str, Any]:
    """What an operation takes besides the Studio: names and what kind they are said to be."""
    function = inspect.unwrap(OPERATIONS[name].ask)
    kinds = typing.get_type_hints(function, include_extras=False, globalns=vars(inspect.getmodule(function)))
    keywords = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {one: kinds[one] for one in keywords}


def outcome(served: Served, name: str, args: dict[str, Any]) -> str:
    """Ask: an answer that can be sent, or an error that is meant to be read, which is given back."""
    try:
        found = ask_operation(served.server.app.state.studio, name, args)
        for answer in [found] if isinstance(found, Answer) else islice(found, 1):
            pack(answer, id="a", seq=1, ms=0, last=True)
    except ClearheadError as error:
        return str(error)
    return "an answer"


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_every_operation_takes_hostile_arguments(served: Served, name: str) -> None:
    for argument, kind in arguments(name).items():
        values: list[Any] = [None, [], {}, "x", True, -1, 10**30, 0.5, [[[]]], "\ud800"]
        if kind is str or str in typing.get_args(kind):
            values += TEXTS.values()
        for value in values:
            assert 0 < len(dumps(outcome(served, name, {argument: value}))) < 3000
