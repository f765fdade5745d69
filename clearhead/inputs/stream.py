"""Text from ids as they come, in whole code points."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Callable


class StreamDecoder:
    """Push ids one by one; what was pushed so far, with what `flush` gives at the end, is `decode` of them all.

    A character spread over several tokens comes with its last byte; bytes that can't become one come as U+FFFD.
    Each push costs the length of its token, however long the text has grown.
    """

    def __init__(self, bytes_of: Callable[[int], bytes], starts_text: Callable[[int], bool]) -> None:
        """`starts_text` says of the first id whether the space that leads the text is the tokenizer's own."""
        self._bytes_of = bytes_of
        self._starts_text = starts_text
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._any = False
        self._strip = False

    def push(self, token_id: int) -> str:
        """The characters that this id completes: often a word, sometimes nothing."""
        if not self._any:
            self._any, self._strip = True, self._starts_text(token_id)
        raw = self._bytes_of(token_id)
        if self._strip and raw:
            self._strip, raw = False, raw.removeprefix(b" ")
        return self._utf8.decode(raw)

    def flush(self) -> str:
        """What is left: nothing, or one U+FFFD for a character cut short. Then the decoder is as new."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        self._any = self._strip = False
        return rest

    def __copy__(self) -> StreamDecoder:
        """Another one that goes on from here by itself."""
        other = StreamDecoder(self._bytes_of, self._starts_text)
        other._utf8 = copy.copy(self._utf8)
        other._any, other._strip = self._any, self._strip
        return other
