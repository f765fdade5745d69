"""The socket: answers in order, the latest wins, long ones end when nobody waits, and nothing ends the server."""

from __future__ import annotations

import json
import socket as sockets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from clearhead.studio.guard import INSIDE
from clearhead.studio.settings import Limits
from tests.studio.asked import Seen, operations_of_tests
from tests.studio.served import Served, ask, pages, receive, send, serving

LIMITS = Limits(message_bytes=1 << 20, lines=8, streams=3, stream_seconds=0.5, send_seconds=1.0, answer_bytes=32 << 20)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Seen]]:
    with operations_of_tests() as seen, serving(pages(tmp_path_factory.mktemp("static")), limits=LIMITS) as served:
        yield served, seen


@pytest.fixture
def served(started: tuple[Served, Seen]) -> Served:
    return started[0]


@pytest.fixture
def seen(started: tuple[Served, Seen]) -> Seen:
    started[1].begun.clear()
    started[1].closed.clear()
    return started[1]


@pytest.fixture
def socket(served: Served) -> Iterator[ClientConnection]:
    with served.socket() as one:
        yield one


def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until something holds, which it does soon."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_an_answer(socket: ClientConnection) -> None:
    told, arrays = ask(socket, "test.arrays", id="figure", seq=41)
    assert (told["id"], told["seq"], told["last"]) == ("figure", 41, True)
    assert told["data"] == {} and told["ms"] > 0
    assert arrays["half"].tolist() == [0, 1, 2] and arrays["yes"].tolist() == [[1], [0]]
    assert arrays["whole"].tolist() == [-2, -1, 0, 1, 2]
    assert arrays["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert arrays["none"].shape == (0, 4) and arrays["one"].tolist() == 1.5


def test_what_operations_refuse_and_what_breaks(socket: ClientConnection, caplog: pytest.LogCaptureFixture) -> None:
    assert ask(socket, "test.refuse")[0]["error"] == "there is no such thing; take another"
    assert "perhaps test.echo" in ask(socket, "test.ech")[0]["error"]
    assert "number: input should be a valid number" in ask(socket, "test.echo", {"number": "x"})[0]["error"]
    for how in ("division", "exit", "memory", "stop"):
        told, _ = ask(socket, "test.defect", {"how": how})
        assert told == {"id": "a", "seq": 1, "last": True, "error": INSIDE}
    assert "larger than 32 MiB" in ask(socket, "test.huge")[0]["error"]
    assert ask(socket, "test.unsendable")[0]["error"] == INSIDE
    assert ask(socket, "test.echo", {"value": "x"})[0]["data"]["value"] == "x"
    assert "test.defect failed" in caplog.text and "ZeroDivisionError" in caplog.text
    assert "test.refuse" not in caplog.text


def test_no_answer_has_nan(socket: ClientConnection) -> None:
    send(socket, "test.nan")
    frame = socket.recv(10)
    assert isinstance(frame, bytes) and b"NaN" not in frame and b"Infinity" not in frame


def test_the_newest_question_of_a_place_waits_and_those_between_are_dropped(
    socket: ClientConnection, seen: Seen
) -> None:
    for seq in range(20):
        send(socket, "test.slow", {"value": seq}, seq=seq)
    answers = [receive(socket)[0], receive(socket)[0]]
    assert [(one["seq"], one["data"]["value"]) for one in answers] == [(0, 0), (19, 19)]
    assert ask(socket, "test.echo", seq=20)[0]["seq"] == 20  # nothing else was under way
    assert seen.begun == [0, 19]


def test_places_do_not_wait_for_each_other(socket: ClientConnection) -> None:
    send(socket, "test.slow", {"value": 1, "seconds": 0.5}, id="slow")
    send(socket, "test.echo", {"value": "quick"}, id="quick")
    assert [receive(socket)[0]["id"] for _ in range(2)] == ["quick", "slow"]


def test_a_long_one_tells_each_answer_and_its_end(socket: ClientConnection, seen: Seen) -> None:
    send(socket, "test.count", {"to": 3}, seq=5)
    frames = [receive(socket)[0] for _ in range(4)]
    assert [one["last"] for one in frames] == [False, False, False, True]
    assert [one["data"]["number"] for one in frames[:3]] == [0, 1, 2]
    assert "data" not in frames[3] and "error" not in frames[3] and frames[3]["seq"] == 5
    assert seen.closed == [3]


@pytest.mark.parametrize(("refused", "why"), [(True, "it ends here; begin anew"), (False, INSIDE)])
def test_a_long_one_that_breaks_says_so_after_what_it_had(socket: ClientConnection, refused: bool, why: str) -> None:
    send(socket, "test.breaks", {"refused": refused})
    assert receive(socket)[0]["data"] == {"number": 0}
    told, _ = receive(socket)
    assert told["last"] and told["error"] == why


def test_a_newer_question_ends_a_long_one(socket: ClientConnection, seen: Seen) -> None:
    send(socket, "test.count", {"to": 10_000, "pause": 0.02}, seq=1)
    receive(socket)
    send(socket, "test.echo", {"value": "new"}, seq=2)
    told = receive(socket)[0]
    while told["seq"] == 1:
        told = receive(socket)[0]
    assert told["seq"] == 2 and told["data"]["value"] == "new"
    assert seen.closed == [10_000]


def test_a_cancel_ends_a_long_one_and_what_waits(socket: ClientConnection, seen: Seen) -> None:
    send(socket, "test.count", {"to": 1000, "pause": 0.02}, seq=1)
    receive(socket)
    send(socket, "test.count", {"to": 2000, "pause": 0.02}, seq=2)
    socket.send(json.dumps({"id": "a", "op": "cancel"}))
    until(lambda: seen.closed == [1000])
    told, _ = ask(socket, "test.echo", id="b")
    assert told["id"] == "b" or told["seq"] == 1
    time.sleep(0.1)
    assert seen.begun == [1000]
    socket.send(json.dumps({"id": "nobody", "op": "cancel"}))  # no such place: nothing happens


def test_closing_the_tab_ends_its_long_ones(served: Served, seen: Seen) -> None:
    with served.socket() as socket:
        send(socket, "test.count", {"to": 10_000, "pause": 0.01})
        receive(socket)
    until(lambda: seen.closed == [10_000])
    assert served.lives()


def test_a_tab_that_vanishes_ends_its_long_ones(served: Served, seen: Seen) -> None:
    """Without a word: the line is cut."""
    with served.socket() as socket:
        send(socket, "test.count", {"to": 10_000, "pause": 0.01})
        receive(socket)
        socket.socket.shutdown(sockets.SHUT_RDWR)
        until(lambda: seen.closed == [10_000])
    assert served.lives()


def test_a_long_one_has_an_end(socket: ClientConnection, seen: Seen) -> None:
    send(socket, "test.count", {"to": 10_000, "pause": 0.02})
    told = receive(socket)[0]
    while not told["last"]:
        told = receive(socket)[0]
    assert told["error"].startswith("stopped after") and "start it again" in told["error"]
    assert seen.closed == [10_000]


def test_only_so_many_long_ones_at_once(served: Served, seen: Seen) -> None:
    with served.socket() as socket:
        for number in range(LIMITS.streams):
            send(socket, "test.count", {"to": 500, "pause": 0.05}, id=str(number))
        until(lambda: len(seen.begun) == LIMITS.streams)
        send(socket, "test.count", {"to": 1}, id="one-more")
        told = receive(socket)[0]
        while told["id"] != "one-more":
            told = receive(socket)[0]
        assert "too many long computations" in told["error"]
        # What is short goes on.
        send(socket, "test.echo", id="short")
        while told["id"] != "short":
            told = receive(socket)[0]
        assert "error" not in told
    until(lambda: len(seen.closed) == LIMITS.streams)
    with served.socket() as socket:
        send(socket, "test.count", {"to": 1})
        assert receive(socket)[0]["data"] == {"number": 0}


def test_only_so_many_places_at_once(socket: ClientConnection) -> None:
    for number in range(LIMITS.lines + 1):
        send(socket, "test.slow", {"value": number, "seconds": 0.3}, id=str(number))
    told = receive(socket)[0]
    assert told["id"] == str(LIMITS.lines) and "questions are open already" in told["error"]
    assert sorted(receive(socket)[0]["id"] for _ in range(LIMITS.lines)) == sorted(map(str, range(LIMITS.lines)))


def test_a_browser_that_takes_nothing_is_let_go_of(served: Served, seen: Seen) -> None:
    """It does not hold a thread for ever, and others are served meanwhile."""
    with served.socket(max_queue=1, close_timeout=0.1) as deaf:
        send(deaf, "test.count", {"to": 1000, "wide": 1 << 21})  # 8 MB a frame, far beyond what buffers take
        until(lambda: seen.begun == [1000])
        began = time.monotonic()
        assert served.lives()
        assert time.monotonic() - began < 5
        until(lambda: seen.closed == [1000], 20)
    assert served.lives()


def test_20_sockets_at_once(served: Served) -> None:
    ready = threading.Barrier(20)

    def tab(number: int) -> list[str]:
        with served.socket() as socket:
            ready.wait(20)
            told = []
            for seq in range(10):
                send(socket, "test.echo", {"value": f"{number}.{seq}"}, seq=seq)
                told.append(receive(socket)[0]["data"]["value"])
            return told

    with ThreadPoolExecutor(20) as tabs:
        for number, told in enumerate(tabs.map(tab, range(20))):
            assert told == [f"{number}.{seq}" for seq in range(10)]
    assert served.lives()


def test_frames_that_are_no_questions(served: Served) -> None:
    with served.socket() as socket:
        socket.send(b"\x00\x01")
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1003
    with served.socket() as socket:
        socket.send(json.dumps({"id": "a", "seq": 1, "op": "test.echo", "args": {"value": "x" * (1 << 20)}}))
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(10)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    assert served.lives()


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("", "not JSON"),
        ("null", "a question is an object"),
        ("[1]", "a question is an object"),
        ("{}", "id must be"),
        ('{"id": 5, "op": "test.echo"}', "id must be"),
        ('{"id": "", "op": "test.echo"}', "id must be"),
        (json.dumps({"id": "x" * 201, "op": "test.echo"}), "id must be"),
        ('{"id": "a", "seq": -1, "op": "test.echo"}', "seq must be"),
        ('{"id": "a", "seq": true, "op": "test.echo"}', "seq must be"),
        ('{"id": "a", "seq": 4294967296, "op": "test.echo"}', "seq must be"),
        ('{"id": "a", "seq": 1.5, "op": "test.echo"}', "seq must be"),
        ('{"id": "a", "seq": 1}', "op must be"),
        ('{"id": "a", "seq": 1, "op": ["test.echo"]}', "op must be"),
        ('{"id": "a", "seq": 1, "op": "test.echo", "args": [1]}', "args must be"),
        ('{"id": "a", "seq": 1, "op": "test.echo", "args": {"number": NaN}}', "NaN is no number"),
    ],
)
def test_questions_that_are_none(socket: ClientConnection, message: str, why: str) -> None:
    socket.send(message)
    told, _ = receive(socket)
    assert why in told["error"] and told["last"]
    assert ask(socket, "test.echo", {"value": "on"})[0]["data"]["value"] == "on"
