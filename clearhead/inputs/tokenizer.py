"""Text to ids and back, the same for every file a tokenizer can come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

from tokenizers import pre_tokenizers

from clearhead.errors import ClearheadError
from clearhead.inputs.chat import ChatTemplate
from clearhead.inputs.gguf_vocabulary import read_gguf
from clearhead.inputs.spelling import Spelling, readable
from clearhead.inputs.stream import StreamDecoder
from clearhead.inputs.tokenizer_folder import read_folder
from clearhead.inputs.vocabulary import ROLES, Vocabulary


class Tokenizer:
    """Encodes and decodes. Special tokens become special only where that is asked for; one BOS, never two.

    Safe to use from several threads.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        core = vocabulary.core
        core.no_truncation()  # files of sentence encoders say to cut and to pad; the caller decides
        core.no_padding()
        self.vocabulary = vocabulary
        self.core = core
        self.where = vocabulary.where
        self._lock = Lock()
        self._spelling = Spelling(core)
        added = core.get_added_tokens_decoder()
        self.special: dict[int, str] = {i: token.content for i, token in added.items() if token.special}
        ids = {role: core.token_to_id(token) for role, token in vocabulary.names.items() if role in ROLES}
        self.bos_id = ids.get("bos_token")
        self.pad_id = ids.get("pad_token")
        self.unk_id = ids.get("unk_token")
        self.eos_ids = vocabulary.eos_ids
        self._n_marks: int = core.num_special_tokens_to_add(False)
        self.adds_bos = self.bos_id is not None and self.bos_id in core.encode("").ids[:1]
        pre = core.pre_tokenizer
        first = isinstance(pre, pre_tokenizers.Metaspace) and pre.prepend_scheme == "first"
        self._space_before_text: Any = pre if first else None
        self.chat = ChatTemplate(self, vocabulary.templates) if vocabulary.templates else None

    @classmethod
    def from_folder(cls, path: str | Path) -> Tokenizer:
        """A folder in the Hub's layout. Raises ClearheadError when it holds no tokenizer that can be read."""
        return cls(read_folder(Path(path)))

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], where: str = "the GGUF file") -> Tokenizer:
        """The vocabulary in a GGUF's metadata. Raises ClearheadError naming `where` when it can't be rebuilt."""
        return cls(read_gguf(metadata, where))

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size:,} ids, from {self.where})"

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        if self.vocabulary.size is not None:
            return self.vocabulary.size
        return max(self.core.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def check_matches(self, vocab_size: int, where: str) -> None:
        """Refuse a tokenizer that can give ids the model at `where` has no row for; fewer ids than rows is fine."""
        if self.vocab_size > vocab_size:
            raise ClearheadError(
                f"The tokenizer of {self.where} has {self.vocab_size:,} ids, but the model of {where} knows only "
                f"{vocab_size:,}: they don't belong together. Use the tokenizer that came with the model."
            )

    def encode(self, text: str, *, bos: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of a text. `bos`: with the marks the model's tokenizer puts around a text (most often one BOS before it).

        `parse_special`: "<eos>" in the text becomes that token; otherwise it is text like any other.
        """
        ids = self._ids(text, marks=bos, parse_special=parse_special)
        if parse_special:
            return self.with_one_bos(ids) if bos else ids
        if sum(map(self._leaks, ids)) <= (self._n_marks if bos else 0):
            return ids
        body = self._ids(text, marks=False, parse_special=False)
        begin = next(i for i in range(len(ids)) if ids[i : i + len(body)] == body)
        return ids[:begin] + self._plain(body) + ids[begin + len(body) :]

    def encode_special(self, text: str) -> list[int]:
        """Ids of a text whose special tokens are meant, as a rendered chat template; a BOS is added if it lacks one."""
        return self.encode(text, parse_special=True)

    def encode_inner(self, text: str) -> list[int]:
        """Ids of plain text that stands after something else: no marks, and no space put before it."""
        return self._plain(self._ids(text, marks=False, parse_special=False, inner=True))

    def _ids(self, text: str, marks: bool, parse_special: bool, inner: bool = False) -> list[int]:
        with self._lock:
            self.core.encode_special_tokens = not parse_special
            spaces = self._space_before_text if inner else None
            if spaces is not None:
                spaces.prepend_scheme = "never"
            try:
                ids: list[int] = self.core.encode(text, add_special_tokens=marks).ids
            except (TypeError, UnicodeEncodeError) as problem:
                what = "text with half a surrogate pair" if isinstance(text, str) else f"a {type(text).__name__}"
                raise ClearheadError(f"Only text can be tokenized, and this is {what}: {text!r:.80}") from problem
            finally:
                if spaces is not None:
                    spaces.prepend_scheme = "first"
        return ids

    def _plain(self, ids: list[int]) -> list[int]:
        """`ids` of plain text, with special tokens that merges happened to put together spelled out."""
        if not any(map(self._leaks, ids)):
            return ids
        return [part for i in ids for part in (self._spelled_out(self.special[i]) if self._leaks(i) else [i])]

    def with_one_bos(self, ids: list[int]) -> list[int]:
        """`ids` with exactly one BOS before them, where the tokenizer adds one; else as they are."""
        if not self.adds_bos or self.bos_id is None:
            return ids
        begin = next((at for at, i in enumerate(ids) if i != self.bos_id), len(ids))
        return [self.bos_id, *ids[begin:]]

    def _leaks(self, i: int) -> bool:
        return i in self.special and i != self.unk_id

    def _spelled_out(self, token: str) -> list[int]:
        """A special token's text as ordinary ids."""
        if len(token) < 2:
            raise ClearheadError(
                f"{token!r} can't be written with the tokenizer of {self.where}: it is a special token"
            )
        return self.encode_inner(token[:1]) + self.encode_inner(token[1:])

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of ids; what is no UTF-8 becomes U+FFFD. Ids beyond the vocabulary give nothing.

        Some tokenizers put a space before a text: it is taken off again where the ids begin one (with a BOS, that is
        skipped; or where there is no BOS to tell). Ids that go on from something keep their space.
        """
        stream = self.stream(skip_special=skip_special)
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self, *, skip_special: bool = False) -> StreamDecoder:
        """Decodes ids as they come; in the end the same text as `decode`."""
        hidden = self.special if skip_special else {}
        spell = self._spelling.bytes_of

        def starts_text(first: int) -> bool:
            return self._spelling.strip_first and (not self.adds_bos or (first == self.bos_id and first in hidden))

        return StreamDecoder(lambda i: b"" if i in hidden else spell(i), starts_text)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token as something to look at, none empty: `·the` for " the", `⏎`, `<0xF0>` for part of an emoji."""
        return [readable(self._spelling.bytes_of(i)) or self.core.id_to_token(i) or f"<{i}>" for i in ids]

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it, or None."""
        i: int | None = self.core.token_to_id(token)
        return i

    def is_special(self, i: int) -> bool:
        """Whether the id is a mark (BOS, end of turn) rather than text."""
        return i in self.special

    def files(self) -> dict[str, bytes]:
        """The tokenizer's files for a folder in the Hub's layout, by name."""
        return self.vocabulary.files()
