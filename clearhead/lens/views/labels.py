"""Tokens as text that is safe to print and takes a known number of columns."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len, set_cell_size

SPACE, NEWLINE = "\N{MIDDLE DOT}", "\N{RETURN SYMBOL}"
"""The marks that `clearhead.inputs` writes too."""


_SMALL = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def visible(piece: str) -> str:
    """A token with nothing in it that a screen would swallow or obey.

    Control codes (an escape sequence in the text among them), joiners, direction marks and lone surrogates are written
    as escapes; an accent that would land on its neighbour gets a dotted circle to stand on; a space at either end and
    an empty token are drawn.
    """
    text = "".join(char if char.isprintable() else _escape(char) for char in piece)
    if text and unicodedata.category(text[0]).startswith("M"):
        text = "\N{DOTTED CIRCLE}" + text
    body = text.strip(" ")
    if not body:
        return SPACE * len(text) or "\N{EMPTY SET}"
    lead, tail = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return SPACE * lead + body + SPACE * tail


def _escape(char: str) -> str:
    return {"\n": NEWLINE}.get(char, char.encode("unicode_escape", "surrogatepass").decode("ascii"))


def isolated(text: str) -> str:
    """Text to stand within a line of another: what is written from right to left keeps its direction to itself."""
    return f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}" if any(map(_from_right, text)) else text


def leftward(text: str) -> str:
    """The text with its runs of right-to-left letters turned round, for a pen that only writes from the left."""
    runs: list[str] = []
    for right, run in groupby(text, _from_right):
        letters = "".join(run)
        runs.append(letters[::-1] if right else letters)
    return "".join(runs)


def _from_right(char: str) -> bool:
    return unicodedata.bidirectional(char) in ("R", "AL")


def bare(label: str) -> str:
    """A token without the marks of the spaces around it, for use within a sentence."""
    return label.strip(SPACE) or label


def names(labels: Sequence[str], columns: int = 18) -> list[str]:
    """Tokens as words of a sentence, short; one that occurs more than once carries its place as a small number."""
    words = [bare(label) for label in labels]
    often = Counter(words)
    return [
        shorten(word, columns) + (str(place).translate(_SMALL) if often[word] > 1 else "")
        for place, word in enumerate(words)
    ]


def shorten(label: str, columns: int) -> str:
    """`label` in at most `columns` terminal columns; what is cut is marked."""
    if cell_len(label) <= columns:
        return label
    return set_cell_size(label, max(columns - 1, 0)).rstrip(" ") + "\N{HORIZONTAL ELLIPSIS}"
