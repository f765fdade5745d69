"""Writing on: `generate` gives whole answers, `stream` one answer piece by piece."""

from __future__ import annotations

from clearhead.generation.api import end_tokens, generate, stream
from clearhead.generation.kept import Kept
from clearhead.generation.options import Options
from clearhead.generation.prefix import Prefix, prefix_of, read_prefix
from clearhead.generation.prefix_file import load_prefix
from clearhead.generation.prefixes import Prefixes
from clearhead.generation.result import BeamResult, FinishReason, Piece, Result, Stream

__all__ = [
    "BeamResult",
    "FinishReason",
    "Kept",
    "Options",
    "Piece",
    "Prefix",
    "Prefixes",
    "Result",
    "Stream",
    "end_tokens",
    "generate",
    "load_prefix",
    "prefix_of",
    "read_prefix",
    "stream",
]
