"""Tokens as text that is safe to print and takes a known number of columns."""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len, set_cell_size


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
        return "\N{OPEN BOX}" * len(text) or "\N{EMPTY SET}"
    lead, tail = len(text) - len(text.lstrip(" ")), len(text) - len(text.rstrip(" "))
    return "\N{OPEN BOX}" * lead + body + "\N{OPEN BOX}" * tail


def _escape(char: str) -> str:
    return {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\t": "\N{RIGHTWARDS ARROW TO BAR}"}.get(
        char, char.encode("unicode_escape", "surrogatepass").decode("ascii")
    )


def bare(label: str) -> str:
    """A token without the marks of the spaces around it, for use within a sentence."""
    return label.strip("\N{OPEN BOX}\N{LOWER ONE EIGHTH BLOCK}\N{MIDDLE DOT}") or label


def shorten(label: str, columns: int) -> str:
    """`label` in at most `columns` terminal columns; what is cut is marked."""
    if cell_len(label) <= columns:
        return label
    return set_cell_size(label, max(columns - 1, 0)).rstrip(" ") + "\N{HORIZONTAL ELLIPSIS}"
