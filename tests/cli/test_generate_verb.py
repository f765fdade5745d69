"""`clearhead generate` and `chat`: what they ask of the library, and what they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import clearhead
from clearhead.cli import main


def test_it_streams(calls: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "The keys", "--dtype", "bfloat16"]) == 0
    assert capsys.readouterr().out == " one two\n"
    assert calls.loaded == [{"source": "m", "dtype": "bfloat16", "device": "cpu", "weights": "auto"}]
    assert calls.asked[0][0] == "The keys"


def test_every_option_arrives(calls: Any) -> None:
    flags = (
        "--temperature 0.7 --top-k 5 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.2 --presence-penalty 0.3 "
        "--frequency-penalty 0.4 --seed 7 --max-new-tokens 9 --max-text 50 --stop END --stop . "
        "--overflow cut_left"
    )
    assert main(["generate", "m", "p", *flags.split()]) == 0
    assert calls.asked[0][1] == {
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.4,
        "seed": 7,
        "max_new_tokens": 9,
        "max_text": 50,
        "stop": ("END", "."),
        "overflow": "cut_left",
    }


@pytest.mark.parametrize(("said", "meant"), [("true", True), ("false", False), ("never", "never")])
def test_a_beam_search_is_printed_at_its_end(
    said: str, meant: Any, calls: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = f"--n-beams 4 --length-penalty 0.6 --early-stopping {said} --decoder-prompt <|en|>"
    assert main(["generate", "m", "p", *flags.split()]) == 0
    assert capsys.readouterr().out == " one two\n"
    how = calls.asked[0][1]
    beams = {name: how[name] for name in ("n_beams", "length_penalty", "early_stopping", "decoder_prompt")}
    assert beams == {"n_beams": 4, "length_penalty": 0.6, "early_stopping": meant, "decoder_prompt": "<|en|>"}


def test_faster_ways(calls: Any) -> None:
    flags = "--shortlist --draft small --n-ahead 5 --temperature 0 --dtype bfloat16"
    assert main(["generate", "m", "p", *flags.split()]) == 0
    how = calls.asked[0][1]
    assert [each["source"] for each in calls.loaded] == ["m", "small"]
    assert {each["dtype"] for each in calls.loaded} == {"bfloat16"}
    assert (how["shortlist"], how["n_ahead"], how["temperature"]) == (True, 5, 0.0)
    assert how["draft"] is not None and "lookup" not in how
    assert main(["generate", "m", "p", "--lookup", "--draft", "small"]) == 2


def test_what_is_not_asked_for_is_left_to_the_library(calls: Any) -> None:
    assert main(["generate", "m", "p"]) == 0
    assert calls.asked[0][1] == {"max_new_tokens": 128, "stop": (), "overflow": "refuse"}


def test_json(calls: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "m", "p", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "prompt": "p",
        "prompt_tokens": [1, 2],
        "text": " one two",
        "tokens": [3, 4],
        "finish_reason": "length",
        "logprobs": [-0.5, -0.25],
    }


@pytest.mark.parametrize(
    ("piped", "prompt"),
    [(b"a text\n", "a text"), (b"two\nlines\n\n", "two\nlines\n"), ("é ".encode(), "é "), (b" \r\n", " ")],
)
@pytest.mark.parametrize("args", [[], ["-"]])
def test_standard_input_is_a_prompt(
    args: list[str], piped: bytes, prompt: str, calls: Any, stdin: Callable[[bytes], None]
) -> None:
    stdin(piped)
    assert main(["generate", "m", *args]) == 0
    assert calls.asked[0][0] == prompt


def test_standard_input_that_is_no_text(
    calls: Any, stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(b"ab\xff")
    assert main(["generate", "m"]) == 1
    assert "not UTF-8 text (byte 2)" in capsys.readouterr().err
    assert not calls.loaded


@pytest.mark.parametrize("verb", ["generate", "look"])
@pytest.mark.parametrize("args", [[""], ["-"], []])
def test_an_empty_prompt_is_refused(
    verb: str, args: list[str], calls: Any, stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(b"\n")
    assert main([verb, "m", *args]) == 1
    assert capsys.readouterr().err == "clearhead: error: the prompt is empty; give at least one word\n"
    assert not calls.loaded


def test_a_prompt_may_begin_with_a_dash(calls: Any) -> None:
    assert main(["generate", "m", "--", "--help me"]) == 0
    assert calls.asked[0][0] == "--help me"


def test_chat_says_when_there_is_no_template(calls: Any, capsys: pytest.CaptureFixture[str]) -> None:
    calls.tokenizer = SimpleNamespace(chat=None)
    assert main(["chat", "m"]) == 1
    error = capsys.readouterr().err
    assert "no chat template" in error
    assert "clearhead generate m" in error


def test_chat_keeps_the_conversation(
    calls: Any, stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    calls.tokenizer = SimpleNamespace(
        chat=SimpleNamespace(encode=lambda messages: [len(m["content"]) for m in messages])
    )
    stdin(b"hello\n\nand then?")
    assert main(["chat", "m", "--system", "be kind", "--max-new-tokens", "5"]) == 0
    assert capsys.readouterr().out == " one two\n one two\n"
    first, second = calls.asked
    assert first[0] == [7, 5]
    assert first[1]["state"] is None
    # The second turn reads what the kept text says is new, not the whole conversation.
    assert second[0] == [7, 5, len(" one two"), len("and then?")][1:]
    assert second[1]["state"] is calls.kept
    assert first[1]["max_new_tokens"] == second[1]["max_new_tokens"] == 5


def test_chat_reads_everything_anew_when_the_memory_cannot_go_back(calls: Any, stdin: Callable[[bytes], None]) -> None:
    calls.tokenizer = SimpleNamespace(chat=SimpleNamespace(encode=lambda messages: [len(messages)]))
    calls.kept.back_to = lambda tokens: None
    stdin(b"hello\nagain\n")
    assert main(["chat", "m"]) == 0
    assert [(prompt, how["state"]) for prompt, how in calls.asked] == [([1], None), ([3], None)]


def test_chat_as_json_lines(calls: Any, stdin: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]) -> None:
    calls.tokenizer = SimpleNamespace(chat=SimpleNamespace(encode=lambda messages: [1]))
    stdin(b"hello\nagain\n")
    assert main(["chat", "m", "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answers == [{"role": "assistant", "content": " one two"}] * 2


class Terminal:
    """A person's standard input."""

    def isatty(self) -> bool:
        return True


def test_ctrl_c_cuts_an_answer_short_and_the_conversation_goes_on(
    calls: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls.tokenizer = SimpleNamespace(chat=SimpleNamespace(encode=lambda messages: [len(messages)]))
    typed = iter(["hello", "again"])

    def read(sign: str) -> str:
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line

    class Stopped:
        result = SimpleNamespace(text=" half", state="half read")

        def __iter__(self) -> Iterator[str]:
            yield " half"
            raise KeyboardInterrupt

    def stream(model: Any, prompt: Any, **how: Any) -> Stopped:
        calls.asked.append((prompt, how))
        return Stopped()

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setitem(vars(clearhead), "stream", stream)
    assert main(["chat", "m"]) == 0
    assert capsys.readouterr().out == " half\n half\n"
    # The second turn knows the first, and does not rely on a memory that was left half way.
    assert [(prompt, how["state"]) for prompt, how in calls.asked] == [([1], None), ([3], None)]


def test_a_person_who_gives_no_prompt_is_told_how(
    calls: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert main(["generate", "m"]) == 2
    assert "no prompt" in capsys.readouterr().err
