"""`clearhead studio`: what is wrong is said before the long import, the link is a promise, and Ctrl-C is quiet."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from clearhead.cli import main, studio

# The pages may not be built where the tests run; what is tested here does not look at them.
BUILT = "import clearhead.studio.settings as s; s.is_built = lambda *_: True; import clearhead.cli as c; c.main({!r})"


@contextmanager
def started(*args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", BUILT.format(["studio", *args])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # Where the tests run in the background, the signal by which it is stopped is ignored in its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_link_lets_in_and_ctrl_c_ends_quietly_whatever_goes_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with started("--port", str(port), "--json") as process:
            assert process.stdout is not None
            link = json.loads(process.stdout.readline())["url"]
            origin, token = link.split("/?token=")
            assert origin.startswith("http://127.0.0.1:") and len(token) >= 32
            assert port < int(origin.rsplit(":", 1)[1]) < port + 20
            with httpx.Client(follow_redirects=True) as client:
                assert client.get(f"{origin}/api/v1/models").status_code == 403
                assert client.get(link).status_code in (200, 503)  # there may be no pages
                listing = client.get(f"{origin}/api/v1/models").json()
                assert "clear-gpt" in [one["id"] for one in listing]
                cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
            how = {"origin": origin, "additional_headers": {"Cookie": cookie}, "compression": None}
            with connect(f"{origin.replace('http', 'ws')}/api/v1/live", **how) as tab:
                tab.send(json.dumps({"id": "a", "seq": 1, "op": "claims.measure", "args": {"name": "knife-edge"}}))
                tab.recv(20)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=20)
            assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.slow
def test_what_a_person_reads() -> None:
    with started("--port", "0") as process:
        assert process.stdout is not None
        line, more = process.stdout.readline(), process.stdout.readline()
        assert line.startswith("The Studio is open at http://127.0.0.1:") and "?token=" in line
        assert more == "It answers this machine alone. Ctrl-C ends it.\n"


def test_without_its_packages_it_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(studio, "find_spec", lambda name: None if name == "fastapi" else find_spec(name))
    assert main(["studio"]) == 1
    assert capsys.readouterr().err == (
        'clearhead: error: the Studio needs fastapi. Run: pip install "clearhead[studio]"\n'
    )


def test_without_pages_it_says_how_to_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import clearhead.studio.settings as settings

    monkeypatch.setattr(settings, "is_built", lambda *_: False)
    assert main(["studio", "--port", "0"]) == 1
    assert "pages are not built" in (said := capsys.readouterr().err) and "make studio" in said


@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (["--port", "70000"], 2, "--port is 70000"),
        (["--port", "-1"], 2, "--port is -1"),
        (["--runs", "/nowhere"], 1, "there is no folder /nowhere"),
        (["--claims", "/nowhere"], 1, "there is no folder /nowhere"),
    ],
)
def test_wrong_calls(args: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["studio", *args]) == code
    assert why in capsys.readouterr().err


def test_when_no_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.errors import ClearheadError
    from clearhead.studio.serve import listen

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ClearheadError, match="no port from"):
            listen(taken.getsockname()[1], tries=1)
    with pytest.raises(ClearheadError, match="no port from"):
        listen(65536)


def test_the_flags_reach_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import clearhead.studio.serve as serve
    import clearhead.studio.settings as settings

    seen = []

    class Stub:
        def __init__(self, given: settings.Settings, reached: object) -> None:
            seen.append(given)

        def run(self, sockets: list[socket.socket]) -> None:
            sockets[0].close()

    monkeypatch.setattr(serve, "Server", Stub)
    monkeypatch.setattr(settings, "is_built", lambda *_: True)
    args = ["--model", "a/b", "--model", "c.gguf", "--runs", str(tmp_path), "--claims", str(tmp_path), "--port", "0"]
    assert main(["studio", *args]) == 0
    (given,) = seen
    assert given.sources == ("a/b", "c.gguf") and given.folders == (tmp_path,) and given.claims == tmp_path
    assert given.token not in repr(given)
