"""What each token id stands for in bytes, and how to show it in a terminal.

Decoding joins bytes and only then reads UTF-8, so that a text decoded in one go and one decoded token by token agree,
whatever the tokens: the package's own decoders give up a whole run of byte tokens for one wrong byte in it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache, cached_property
from typing import Any

from tokenizers import Tokenizer as Core

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's way to write bytes as printable characters: those that print are themselves, the others start at 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


class Spelling:
    """The bytes of each id. `strip_first`: a space before the first word of a text belongs to the tokenizer."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.added = {i: token.content for i, token in core.get_added_tokens_decoder().items()}
        self.known: dict[int, bytes] = {}
        parts = _decoder_parts(core)
        kinds = [part["type"] for part in parts]
        self.strip_first = False
        if "ByteLevel" in kinds:
            self._spell = self._byte_level
        elif kinds and all(_is_sentencepiece(part) for part in parts):
            self._spell = self._sentencepiece
            self.strip_first = any(
                part["type"] == "Strip" or (part["type"] == "Metaspace" and part["prepend_scheme"] != "never")
                for part in parts
            )
        else:
            self._spell = self._by_difference
            self.strip_first = True  # each word comes with the space before it

    def bytes_of(self, i: int) -> bytes:
        """Empty for an id that is no token (a model may have more rows than its tokenizer has tokens)."""
        found = self.known.get(i)
        if found is None:
            token = self.core.id_to_token(i)
            found = self.known[i] = b"" if token is None else self._spell(i, token)
        return found

    def _byte_level(self, i: int, token: str) -> bytes:
        alphabet = byte_alphabet()
        if i in self.added or not all(character in alphabet for character in token):
            return token.encode()
        return bytes(alphabet[character] for character in token)

    def _sentencepiece(self, i: int, token: str) -> bytes:
        byte = BYTE_TOKEN.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()

    def _by_difference(self, i: int, token: str) -> bytes:
        """Any other decoder (WordPiece): what it adds to a text when this token comes next."""
        before = self.core.decode([self._ordinary], skip_special_tokens=False)
        after = self.core.decode([self._ordinary, i], skip_special_tokens=False)
        return after[len(before) :].encode()

    @cached_property
    def _ordinary(self) -> int:
        """An id that is a plain word or letter."""
        return next(i for i in range(self.core.get_vocab_size()) if i not in self.added and self._is_plain(i))

    def _is_plain(self, i: int) -> bool:
        token = self.core.id_to_token(i)
        return token is not None and token.isalnum()


def _decoder_parts(core: Core) -> list[dict[str, Any]]:
    """The decoder's steps as their JSON; empty when it has none."""
    if core.decoder is None:
        return []
    decoder = json.loads(core.decoder.__getstate__())
    parts: list[dict[str, Any]] = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return parts


def _is_sentencepiece(part: dict[str, Any]) -> bool:
    if part["type"] == "Replace":
        return bool(part["pattern"] == {"String": "▁"} and part["content"] == " ")
    if part["type"] == "Strip":
        return bool(part["content"] == " " and part["start"] == 1 and part["stop"] == 0)
    return part["type"] in ("ByteFallback", "Fuse") or (part["type"] == "Metaspace" and part["replacement"] == "▁")


MARKS = {" ": "·", "\n": "⏎", "\r": "␍", "\t": "⇥"}


def readable(raw: bytes) -> str:
    """Bytes as something to look at on one line: `·` a space, `⏎` a newline, `⇥` a tab, `<0xF0>` part of a character,
    `<U+200D>` a character that does not show."""
    shown = []
    for character in raw.decode("utf-8", "surrogateescape"):
        point = ord(character)
        if character in MARKS:
            shown.append(MARKS[character])
        elif 0xDC80 <= point <= 0xDCFF:  # how "surrogateescape" hands over a byte that is no UTF-8
            shown.append(f"<0x{point - 0xDC00:02X}>")
        elif not character.isprintable():
            shown.append(f"<U+{point:04X}>")
        elif unicodedata.combining(character) and not shown:
            shown.append("◌" + character)  # it would sit on whatever is printed before it
        else:
            shown.append(character)
    return "".join(shown)
