"""Reading a page as a browser would: its elements, the data of its script, and the numbers packed beside it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from typing import Any

import numpy as np
import torch


class Page(HTMLParser):
    """tags: every element that is opened. scripts: the text of each script, those with an id by their id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.tags, self.scripts = text, list[str](), dict[str, str]()
        self._in = ""
        self.feed(text)
        self.data: dict[str, Any] = json.loads(self.scripts["data"])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "script":
            self._in = dict(attrs).get("id") or f"script {len(self.scripts)}"
            self.scripts[self._in] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in:
            self.scripts[self._in] += data

    def numbers(self, name: str, shape: list[int], kind: str = "share") -> torch.Tensor:
        """What `unpack` in the page's script makes of a pack, written once more from its description."""
        raw = np.frombuffer(zlib.decompress(base64.b64decode(self.scripts[name])), np.uint8)
        cells = raw.reshape(-1, int(np.prod(shape))).T.astype(np.int64)
        if kind == "share":
            return torch.tensor((cells[:, 0] * 256 + cells[:, 1]) / 10_000).reshape(shape)
        bits = (cells * [1 << 24, 1 << 16, 1 << 8, 1]).sum(1).astype(np.uint32)
        return torch.tensor(bits.view(np.float32)).reshape(shape)

    def stands_alone(self) -> bool:
        """Nothing is fetched, no mark of the template is left, and both themes are there."""
        code = re.sub(r"<script (?:type=\"text/plain\"|type=\"application/json\")[^>]*>.*?</script>", "", self.text)
        fetched = re.search(r"https?:|\bsrc=|\bhref=|@import|url\(", code)
        return fetched is None and not re.search(r"@[A-Z]+@", code) and "prefers-color-scheme: dark" in code
