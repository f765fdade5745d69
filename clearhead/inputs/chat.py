"""Chat templates: a conversation as the text a model was trained on, and as ids.

A template is a program from whoever made the model, so it runs in a sandbox. What people write in a conversation is
text: "<eos>" in a message stays five characters. For that, every place in a message where a special token could begin
gets a private character put before it, the template runs, and only special tokens without that character before them,
which the template itself wrote, become ids. Messages that spell no special token reach the template as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    import jinja2

    from clearhead.inputs.tokenizer import Tokenizer

PRIVATE_USE = range(0xE000, 0xF900)
Message = Mapping[str, Any]


class ChatTemplate:
    """The templates of one tokenizer, by name; most have one, "default", some a "tool_use" beside it."""

    def __init__(self, tokenizer: Tokenizer, templates: Mapping[str, str]) -> None:
        self.tokenizer = tokenizer
        self.templates = dict(templates)

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, name: str | None = None, **variables: Any
    ) -> str:
        """The conversation as text. `messages`: {"role": ..., "content": ...}; `variables` are the template's own
        (`tools`, `documents`, `enable_thinking`). Raises ClearheadError when the template fails or refuses."""
        _check(messages)
        name = self._choose(name, variables)
        given = {"tools": None, "documents": None, **self.tokenizer.vocabulary.names, **variables}
        try:
            return compile_template(self.templates[name]).render(
                messages=messages, add_generation_prompt=add_generation_prompt, **given
            )
        except ClearheadError:
            raise
        except Exception as problem:  # a template can fail in every way a program can
            raise ClearheadError(
                f"The chat template of {self.tokenizer.where} failed on this conversation: {problem}"
            ) from problem

    def encode(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, name: str | None = None, **variables: Any
    ) -> list[int]:
        """The conversation as ids, with exactly one BOS where the tokenizer adds one. Special tokens spelled out in
        what was said (contents, tools, documents; not the names of roles) are encoded as text."""
        _check(messages)
        said = {"messages": list(messages)} | {k: variables.pop(k) for k in ("tools", "documents") if variables.get(k)}
        mark = self._free_character(said)
        guarded = self._guard(said, mark)
        text = self.render(guarded.pop("messages"), add_generation_prompt, name, **guarded, **variables)
        if mark in text:
            ids = self._encode_guarded(text, mark)
        else:
            ids = self.tokenizer.encode(text, bos=False, parse_special=True)
        return self.tokenizer.with_one_bos(ids)

    def _choose(self, name: str | None, variables: Mapping[str, Any]) -> str:
        if name is None:
            name = "tool_use" if variables.get("tools") and "tool_use" in self.templates else "default"
        if name not in self.templates:
            raise ClearheadError(
                f"{self.tokenizer.where} has no chat template {name!r}; it has {', '.join(sorted(self.templates))}"
            )
        return name

    @cached_property
    def _special(self) -> SpecialTokens:
        return SpecialTokens(self.tokenizer.special.values())

    def _free_character(self, said: Any) -> str:
        """A private-use character that is neither in the conversation nor in a template."""
        used = set().union(*_texts(said), *self.templates.values(), *self.tokenizer.special.values())
        return next(chr(point) for point in PRIVATE_USE if chr(point) not in used)

    def _guard(self, value: Any, mark: str, key: str = "") -> Any:
        """A copy with `mark` wherever a special token could begin, or one that the template began could end."""
        if isinstance(value, str):
            return self._guard_text(value, mark, edges=key != "role")
        if isinstance(value, Mapping):
            return {k: self._guard(v, mark, k) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._guard(item, mark, key) for item in value]
        return value

    def _guard_text(self, text: str, mark: str, edges: bool) -> str:
        """Templates trim contents, so the edges are those of the text without the white space around it."""
        special, core = self._special, text.strip()
        at = {begin for begin, _ in special.found(core)}
        if edges and core:
            longest = special.lengths[0] if special.lengths else 0
            at |= {n for n in range(max(0, len(core) - longest), len(core)) if core[n:] in special.beginnings}
            at |= {0} if any(core[:n] in special.endings for n in range(1, longest)) else set()
        if not at:
            return text
        cuts = [0, *sorted(at), len(core)]
        guarded = mark.join(core[a:b] for a, b in pairwise(cuts))
        begin = text.index(core)
        return text[:begin] + guarded + text[begin + len(core) :]

    def _encode_guarded(self, text: str, mark: str) -> list[int]:
        """Ids of a text in which special tokens after a mark are text; the marks themselves vanish."""
        tokenizer = self.tokenizer
        flags = {token.content: token for token in tokenizer.core.get_added_tokens_decoder().values()}
        parts, end = [], 0  # text, token, text, ..., text
        for begin, token in self._special.found(text):
            if begin >= end and text[begin - 1 : begin] != mark:
                parts += [text[end:begin], token]
                end = begin + len(token)
        parts.append(text[end:])
        ids: list[int] = []
        for at, part in enumerate(parts):
            if at % 2:
                token_id = tokenizer.token_to_id(part)
                assert token_id is not None
                ids.append(token_id)
                continue
            plain = part.replace(mark, "")
            if at and flags[parts[at - 1]].rstrip:  # the token takes the white space beside it
                plain = plain.lstrip()
            if at + 1 < len(parts) and flags[parts[at + 1]].lstrip:
                plain = plain.rstrip()
            if plain:
                ids += tokenizer.encode_inner(plain) if at else tokenizer.encode(plain, bos=False)
        return ids


class SpecialTokens:
    """Finds special tokens in a text, overlapping ones too. Gemma has 6,249 of them: too many for a pattern."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = set(tokens)
        self.lengths = sorted(set(map(len, self.tokens)), reverse=True)
        firsts = "".join(sorted({token[0] for token in self.tokens if token}))
        self.first = re.compile(f"[{re.escape(firsts)}]" if firsts else "(?!)")

    def found(self, text: str) -> Iterator[tuple[int, str]]:
        """Where a special token begins, and the longest that does."""
        for match in self.first.finditer(text):
            at = match.start()
            token = next((text[at : at + n] for n in self.lengths if text[at : at + n] in self.tokens), None)
            if token is not None:
                yield at, token

    @cached_property
    def beginnings(self) -> set[str]:
        return {token[:n] for token in self.tokens for n in range(1, len(token))}

    @cached_property
    def endings(self) -> set[str]:
        return {token[n:] for token in self.tokens for n in range(1, len(token))}


def _check(messages: Sequence[Message]) -> None:
    if isinstance(messages, str | Mapping) or not all(isinstance(m, Mapping) and "role" in m for m in messages):
        raise ClearheadError(
            'A conversation is a list of messages such as {"role": "user", "content": "Hello"}; '
            f"this is {messages!r:.80}"
        )


def _texts(value: Any) -> Iterable[str]:
    """Every text in nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


@lru_cache(maxsize=16)
def compile_template(source: str) -> jinja2.Template:
    """A template in the environment that `transformers` gives it. Raises ClearheadError when it can't be parsed."""
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _generation_block()]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as problem:
        line = getattr(problem, "lineno", None)
        where = f" (line {line})" if line else ""
        raise ClearheadError(
            f"The chat template can't be read{where}: {problem}. Give the text without a template, or repair the "
            "template in tokenizer_config.json or chat_template.jinja."
        ) from problem


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """jinja2's own escapes what HTML would need."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> NoReturn:
    raise ClearheadError(f"The chat template refuses this conversation: {message}")


@lru_cache(maxsize=1)
def _generation_block() -> type[jinja2.ext.Extension]:
    """`{% generation %}` marks what the assistant said, for training; here its content is just shown."""
    from jinja2 import nodes, parser
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

        def parse(self, parser: parser.Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation
