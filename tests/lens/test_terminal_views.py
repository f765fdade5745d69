"""The map in a terminal: right cells, straight columns, nothing wider than the screen."""

from __future__ import annotations

import io
import re

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from clearhead.lens import look
from clearhead.lens.views.labels import names, shorten, visible
from clearhead.lens.views.screen import theme_of
from clearhead.lens.views.terminal import attention_map, bars, links
from tests.lens.conftest import LABELS, make_report, random_pattern


def screen(width: int = 100, colour: bool = False) -> Console:
    return Console(
        width=width,
        file=io.StringIO(),
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        no_color=not colour,
        legacy_windows=False,
    )


def text_of(console: Console, *parts: object) -> list[str]:
    for part in parts:
        console.print(part, soft_wrap=True)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (" the", "·the"),
        ("  ", "··"),
        ("\n", "⏎"),
        ("", "∅"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\ud83d", "\\ud83d"),
        ("\u200d", "\\u200d"),
        ("\u202e", "\\u202e"),
        ("\u0301", "◌\u0301"),
        ("中", "中"),
    ],
)
def test_every_token_is_visible_and_none_is_obeyed(piece, shown):
    assert visible(piece) == shown
    assert visible(shown) == shown


def test_names_tell_repeated_tokens_apart_and_fit():
    assert names(["<bos>", "·the", "·a", "the"]) == ["<bos>", "the₁", "a", "the₃"]
    assert cell_len(shorten("中" * 20, 9)) <= 9
    assert shorten("abc", 3) == "abc"


@pytest.mark.parametrize("causal", [True, False])
def test_numbers_in_the_map_are_the_pattern_in_percent(causal):
    labels = [visible(label) for label in LABELS]
    pattern_TS = random_pattern(len(labels), causal)
    lines = text_of(screen(), attention_map(pattern_TS, labels, width=100, theme=None))[0 if causal else 1 :]
    for query, label in enumerate(labels):
        line = lines[query].rstrip()
        assert line.startswith(f"{query:>2} ")
        assert label in line
        cells = line.replace(f"{query:>2} ", "", 1).replace(label, "", 1).replace("·", "0")
        shown = [int(number) for number in cells.split()]
        assert shown == [round(100 * weight) for weight in pattern_TS[query, : len(shown)].tolist()]
        assert len(shown) == (query + 1 if causal else len(labels))


def test_columns_stand_straight_below_wide_characters():
    labels = ["中文", "a", "日本語", "b"]
    lines = text_of(screen(), attention_map(random_pattern(4, False), labels, width=100, theme=None))
    starts = {cell_len(line[: re.search(r"(\s+(\d+|·))+\s*$", line).start()]) for line in lines[1:5]}  # type: ignore[union-attr]
    widths = {cell_len(line.rstrip()) for line in lines[1:5]}
    assert len(widths) == 1
    assert len(starts) <= 3  # labels of several widths, padded to one


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("n", [1, 2, 12, 30, 90])
def test_the_map_fits_the_screen(n, width, colour, causal):
    report = make_report(n, causal)
    labels = [token.text for token in report.tokens]
    console = screen(width, colour)
    drawing = attention_map(report.pattern_TS, labels, width=width, theme=theme_of(console), key=False)
    lines = text_of(console, drawing)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    cut = re.match(rf"the last (\d+) of {n} tokens; column … adds up the (\d+) before", plain[0])
    assert bool(cut) == (n > width - 25)
    if cut:
        assert int(cut.group(1)) + int(cut.group(2)) == n
    assert max(map(cell_len, plain[bool(cut) :])) <= width


def test_what_is_cut_away_is_added_up():
    n = 200
    pattern_TS = torch.full((n, n), 1.0 / n)
    labels = ["x"] * n
    lines = text_of(screen(60), attention_map(pattern_TS, labels, width=60, theme=None, key=False))
    shown = int(re.match(r"the last (\d+) of", lines[0]).group(1))  # type: ignore[union-attr]
    assert 20 < shown < 60
    assert len(lines) == shown + 2
    assert lines[2].split()[2] == "█"  # nearly all of each row lies before


def test_colour_is_painted_only_where_there_is_some(report, monkeypatch):
    monkeypatch.delenv("COLORFGBG", raising=False)
    coloured, plain = screen(colour=True), screen()
    report.show(console=coloured)
    report.show(console=plain)
    assert "\x1b[" in coloured.file.getvalue()
    assert "\x1b" not in plain.file.getvalue()
    assert theme_of(coloured) == "dark"
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert theme_of(coloured) == "light"


def test_a_report_says_everything(report):
    console = screen()
    report.show(console=console)
    text = console.file.getvalue()
    for words in ("Layer 5, head 0", "because it was asked for", "Strongest links", "What comes next", "31.0 %"):
        assert words in text
    assert re.search(r"^ *<bos> ← itself 1.00$", text, re.M)
    assert re.search(r"^layer  head 0 ", text, re.M)


def test_links_are_the_three_largest_weights_that_matter():
    pattern_TS = torch.zeros(5, 5)
    pattern_TS[0, 0] = 1
    pattern_TS[1, :2] = torch.tensor([0.97, 0.03])
    pattern_TS[3, :4] = torch.tensor([0.25, 0.41, 0.22, 0.12])
    pattern_TS[4, :] = torch.tensor([0.042, 0.01, 0.02, 0.03, 0.04])
    lines = text_of(screen(), links(pattern_TS, ["<bos>", "The", "·keys", "·are", "The"]))
    assert lines == [
        "<bos> ← itself 1.00",
        " The₁ ← <bos> 0.97",
        " keys ← nothing",
        "  are ← The₁ 0.41, <bos> 0.25, keys 0.22",
        " The₄ ← <bos> 0.04",
    ]
    assert text_of(screen(), links(pattern_TS, list("abcde"), rows=2))[0] == "… 3 tokens before"


def test_bars_are_as_long_as_their_shares():
    lines = text_of(screen(), bars(["are", "is"], [0.4, 0.1], width=80, theme=None))
    assert lines[0].count("█") == 4 * lines[1].count("█")
    assert lines[0].endswith("40.0 %")


def test_seen_draws_the_same_map(model):
    seen = look(model, "keys")
    console = screen()
    seen.show("layers.1.mixer.pattern", head=2, console=console)
    shown = console.file.getvalue()
    assert shown.splitlines()[0] == "layers.1.mixer, head 2"
    last = shown.splitlines()[5]
    percents = [int(number) for number in last.replace(" · ", " 0 ").replace(seen.tokens[0][-1], "").split()[1:]]
    assert percents == [round(100 * weight) for weight in seen["layers.1.mixer.pattern"][0, 2, -1].tolist()]
