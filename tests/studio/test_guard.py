"""Only this machine's browser gets in, by the printed link, and only the Studio's own pages may ask."""

from __future__ import annotations

import socket as sockets
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.studio.asked import operations_of_tests
from tests.studio.served import TOKEN, Served, pages, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = pages(tmp_path_factory.mktemp("static"))
    (folder.parent / "secret.txt").write_text("secret")
    with operations_of_tests(), serving(folder) as one:
        yield one


def raw(served: Served, request: bytes) -> bytes:
    """What comes back for bytes that no client library would send."""
    with sockets.create_connection(("127.0.0.1", served.settings.port), 10) as line:
        line.sendall(request)
        line.settimeout(10)
        answer = b""
        while piece := line.recv(65536):
            answer += piece
    return answer


def cookie(served: Served, token: str = TOKEN) -> str:
    return f"clearhead-{served.settings.port}={token}"


# ---- the token


def test_the_link_lets_in_once_and_the_cookie_from_then_on(served: Served) -> None:
    with httpx.Client(base_url=served.origin) as browser:
        first = browser.get(f"/learn/3-attention?q=7&token={TOKEN}&text=a%20b%26c")
        assert first.status_code == 303
        assert first.headers["location"] == "/learn/3-attention?q=7&text=a+b%26c"
        told = first.headers["set-cookie"]
        assert told.startswith(f"clearhead-{served.settings.port}={TOKEN};")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(told.split("; "))
        second = browser.get(first.headers["location"])
        assert second.status_code == 200 and "<title>studio" in second.text


def test_a_link_that_another_sites_page_held_goes_on_by_a_page_of_ours(served: Served) -> None:
    """The browser would not send a strict cookie along a redirect that began on another site."""
    answer = httpx.get(f"{served.origin}/?token={TOKEN}", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200 and 'http-equiv="refresh" content="0;url=/"' in answer.text
    assert TOKEN in answer.headers["set-cookie"] and TOKEN not in answer.text


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "/%5Cevil.example", "/%2F%2Fevil.example/"])
def test_the_link_leads_to_no_other_machine(served: Served, path: str) -> None:
    answer = raw(
        served, f"GET {path}?token={TOKEN} HTTP/1.1\r\nHost: {served.host}\r\nConnection: close\r\n\r\n".encode()
    )
    (location,) = [line for line in answer.split(b"\r\n") if line.lower().startswith(b"location:")]
    assert location.split(b" ", 1)[1].startswith(b"/evil.example")


def test_the_link_can_bring_no_header_of_its_own(served: Served) -> None:
    answer = httpx.get(f"{served.origin}/x%0d%0aSet-Cookie:%20a=b?token={TOKEN}&y=%0d%0aX-Bad:%201")
    assert answer.status_code == 303
    assert "x-bad" not in answer.headers and answer.headers.get_list("set-cookie")[0].startswith("clearhead-")
    assert len(answer.headers.get_list("set-cookie")) == 1


@pytest.mark.parametrize(
    "token", ["", "a-token-of-test", "a-token-of-tests ", "A-TOKEN-OF-TESTS", "%00", "%ff%fe", "é", "x" * 10_000]
)
def test_another_token_is_none(served: Served, token: str) -> None:
    answer = httpx.get(f"{served.origin}/?token={token}")
    assert answer.status_code == 403 and "set-cookie" not in answer.headers
    assert "the link that its terminal shows" in answer.text
    assert httpx.get(f"{served.origin}/api/v1/models", cookies={cookie(served).split("=")[0]: "x"}).status_code == 403


@pytest.mark.parametrize(
    "line",
    ["", "x", "=;=", "clearhead-0=a-token-of-tests", "clearhead={token}", "{name}=", '{name}="', "{name}", "\xff"],
)
def test_a_cookie_that_is_none(served: Served, line: str) -> None:
    name = cookie(served).split("=")[0]
    headers = {"Cookie": line.format(name=name, token=TOKEN).encode("latin-1")}
    assert httpx.get(f"{served.origin}/", headers=headers).status_code == 403


@pytest.mark.parametrize("path", ["/", "/learn/3-attention", "/assets/main-1a2b.js", "/api/v1/models", "/api/nothing"])
def test_nothing_is_served_without_the_token(served: Served, path: str) -> None:
    answer = httpx.get(served.origin + path)
    assert answer.status_code == 403 and "key is missing" in answer.text


def test_the_cookie_is_found_among_others(served: Served) -> None:
    headers = {"Cookie": f"a=b; {cookie(served)}; clearhead-1=other"}
    assert httpx.get(f"{served.origin}/", headers=headers).status_code == 200


# ---- Host and Origin


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:{port}",
        "evil.example:{port}",
        "",
        "[::]:{port}",
        "0.0.0.0:{port}",
        "127.0.0.1:{port}@evil.example",
        "127.0.0.1:{port}, evil",
        "\xe9:{port}",
    ],
)
def test_another_host_is_refused(served: Served, host: str) -> None:
    host = host.format(port=served.settings.port)
    request = f"GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {cookie(served)}\r\nConnection: close\r\n\r\n"
    assert b" 421 " in raw(served, request.encode("latin-1")).split(b"\r\n")[0] + b" "


def test_two_hosts_and_none_are_refused(served: Served) -> None:
    for hosts in ("", f"Host: {served.host}\r\nHost: evil.example\r\n"):
        request = f"GET / HTTP/1.1\r\n{hosts}Cookie: {cookie(served)}\r\nConnection: close\r\n\r\n"
        assert raw(served, request.encode()).split(b" ")[1] in (b"400", b"421")


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST", "[::1]", "127.0.0.1"])
def test_names_of_this_machine_are_taken(served: Served, name: str) -> None:
    headers = {"Host": f"{name}:{served.settings.port}", "Cookie": cookie(served)}
    assert httpx.get(f"{served.origin}/", headers=headers).status_code == 200


ORIGINS = [
    None,
    "null",
    "http://evil.example",
    "https://127.0.0.1:{port}",
    "http://127.0.0.1:1",
    "http://127.0.0.1",
    "http://localhost:{port}",
    "http://127.0.0.1:{port}.evil.example",
    "file://",
]


@pytest.mark.parametrize("origin", ORIGINS)
def test_another_origin_may_change_nothing(served: Served, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin.format(port=served.settings.port)}
    with served.client(headers=headers) as client:
        answer = client.post("/api/v1/tokenize", json={"model": "clear-gpt", "text": "a"})
    assert answer.status_code == 403 and "own pages" in answer.text


@pytest.mark.parametrize("origin", ORIGINS)
def test_another_origin_gets_no_socket(served: Served, origin: str | None) -> None:
    told = None if origin is None else origin.format(port=served.settings.port)
    with pytest.raises(InvalidStatus) as refused, served.socket(origin=told):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("headers", [{}, {"Cookie": "clearhead-1=x"}, {"Cookie": "{name}=wrong"}])
def test_no_socket_without_the_token(served: Served, headers: dict[str, str]) -> None:
    name = cookie(served).split("=")[0]
    told = {key: value.format(name=name) for key, value in headers.items()}
    with pytest.raises(InvalidStatus) as refused, served.socket(additional_headers=told):
        pass
    assert refused.value.response.status_code == 403


def test_no_socket_for_another_host(served: Served) -> None:
    request = (
        f"GET /api/v1/live HTTP/1.1\r\nHost: evil.example:{served.settings.port}\r\nOrigin: {served.origin}\r\n"
        f"Cookie: {cookie(served)}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with sockets.create_connection(("127.0.0.1", served.settings.port), 10) as line:
        line.sendall(request.encode())
        assert b" 403 " in line.recv(4096)


def test_a_pages_own_origin_may(served: Served) -> None:
    with served.client() as client:
        answer = client.post("/api/v1/tokenize", json={"model": "clear-gpt", "text": "a"})
    assert answer.status_code == 200
    assert served.lives()


# ---- what every answer says


@pytest.mark.parametrize("path", ["/", "/assets/main-1a2b.js", "/api/v1/models", "/api/nothing", "/?token=wrong"])
def test_every_answer_carries_the_policy(served: Served, path: str) -> None:
    with served.client(cookies={} if "token" in path else served.cookie) as client:
        headers = client.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy == {
        "default-src": "'self'",
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self'",
        "connect-src": f"'self' ws://{served.host}",
        "object-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert not any(TOKEN in value for value in headers.values())


def test_what_is_kept_by_the_browser(served: Served) -> None:
    with served.client() as client:
        assert "immutable" in client.get("/assets/main-1a2b.js").headers["cache-control"]
        assert client.get("/").headers["cache-control"] == "no-cache"
        assert client.get("/api/v1/models").headers["cache-control"] == "no-store"


def test_a_body_is_bounded(served: Served) -> None:
    limit = served.settings.limits.message_bytes
    with served.client() as client:
        assert client.post("/api/v1/tokenize", content=b"x" * (limit + 1)).status_code == 413

        def pieces() -> Iterator[bytes]:
            for _ in range(limit // 65536 + 2):
                yield b" " * 65536

        assert client.post("/api/v1/tokenize", content=pieces()).status_code == 413
        head = f"Host: {served.host}\r\nOrigin: {served.origin}\r\nCookie: {cookie(served)}\r\nConnection: close"
        lying = f"POST /api/v1/tokenize HTTP/1.1\r\n{head}\r\nContent-Length: {'9' * 400}\r\n\r\n{{}}"
        assert raw(served, lying.encode()).split(b" ")[1] in (b"400", b"413")
    assert served.lives()
