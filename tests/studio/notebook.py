"""A stand-in for a notebook's page: anywidget's model, whose messages go to a widget of Python and back."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from playwright.sync_api import Page

from clearhead.studio.widgets import built

PAGE = """<!doctype html><html lang="en"><head><title>notebook</title></head><body><main><h1>Notebook</h1>
<div id="output"></div></main><script type="module">
const handlers = {}, state = STATE;
const model = {
  get: name => state[name],
  set: (name, value) => { state[name] = value; },
  save_changes: () => window.python({ kind: 'state', state: state.state }),
  send: content => window.python(content),
  on: (event, hear) => (handlers[event] ??= []).push(hear),
  off: (event, hear) => { handlers[event] = (handlers[event] ?? []).filter(one => one !== hear); },
};
window.hear = (content, buffers) => {
  const views = buffers.map(text => new DataView(Uint8Array.from(atob(text), sign => sign.charCodeAt(0)).buffer));
  for (const hear of [...(handlers['msg:custom'] ?? [])]) hear(content, views);
};
window.take = now => {
  state.state = now;
  for (const hear of [...(handlers['change:state'] ?? [])]) hear();
};
const loader = await import(URL.createObjectURL(new Blob([LOADER], { type: 'text/javascript' })));
window.end = await loader.default.render({ model, el: document.getElementById('output') });
window.drawn = true;
</script></body></html>"""


class Notebook:
    """A widget on a page. `settle` lets the two talk until both are done."""

    def __init__(self, page: Page, widget: Any) -> None:
        self.page, self.widget = page, widget
        self.asked: list[dict[str, Any]] = []
        self.sent: list[tuple[dict[str, Any], list[str]]] = []
        widget.send = self._send
        page.expose_function("python", lambda content: self.asked.append(content))
        state = {"figure": widget.figure, "state": widget.state, "_bundle": widget._bundle}
        loader = json.dumps(built("loader.js").decode()).replace("</", "<\\/")
        page.set_content(PAGE.replace("STATE", json.dumps(state)).replace("LOADER", loader))
        self.settle()

    def _send(self, content: dict[str, Any], buffers: list[bytes]) -> None:
        self.sent.append((content, [base64.b64encode(one).decode() for one in buffers]))

    def settle(self, seconds: float = 20) -> None:
        quiet, end = 0, time.monotonic() + seconds
        while quiet < 6:
            assert time.monotonic() < end, "the widget and its kernel never came to rest"
            self.page.wait_for_timeout(25)
            quiet = 0 if self.asked or self.sent else quiet + 1
            while self.asked:
                content = self.asked.pop(0)
                if content["kind"] == "state":
                    self.widget.state = content["state"]
                else:
                    self.widget._hear(self.widget, content, [])
            while self.sent:
                content, buffers = self.sent.pop(0)
                self.page.evaluate("([content, buffers]) => hear(content, buffers)", [content, buffers])
            if not self.page.evaluate("() => window.drawn === true"):
                quiet = 0
