"""A text written token by token, with what else could have been written at each step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import ConfigDict, Field
from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import generate as write
from clearhead.generation.api import end_tokens
from clearhead.generation.decode import PACKS_FROM
from clearhead.generation.kept import Kept
from clearhead.generation.prompts import window
from clearhead.generation.source import beginning
from clearhead.lens.edit import edit
from clearhead.nn.packing import packed
from clearhead.ops.sampling import adjust
from clearhead.studio.explore.passes import Opened, code, named, opened, read_out, refuse_changed
from clearhead.studio.explore.predict import RunId
from clearhead.studio.explore.worked import log_sum
from clearhead.studio.operations import Answer, operation
from clearhead.taps import Recorder

if TYPE_CHECKING:
    from clearhead.generation.result import Result
    from clearhead.studio.context import Studio

MOST = 256
"""New tokens of one text."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is drawn; at temperature 0 the best is taken."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    temperature: Annotated[float, Field(ge=0, le=5)] = 0.0
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0


GREEDY = Sampling()


@operation("explore.generate")
def generate(
    studio: Studio,
    *,
    run: RunId,
    chosen: Annotated[tuple[Annotated[int, Field(ge=0, le=10_000_000)], ...], Field(max_length=MOST)] = (),
    n: Annotated[int, Field(ge=1, le=MOST)] = 24,
    sampling: Sampling = GREEDY,
    alternatives: Annotated[int, Field(ge=1, le=30)] = 10,
    chat: bool = False,
    anew: bool = False,
) -> Iterator[Answer]:
    """Write on from a run's text, and from the tokens `chosen` behind it. An answer a token.

    chosen: tokens that stand after the text already: those of an earlier answer up to a step, and another one in place
        of what was drawn there. They come first, from one pass over them.
    chat: the text is what a person says, in the model's chat template.
    anew: of a decoder beside an encoder, from its beginning and not behind the text that the run has.
    Each answer has the token, its probability, the likeliest others with what temperature, top-k and top-p left of
    them, the text in whole code points, the bytes of the model's memory, and the milliseconds of the step.
    """
    asked = opened(studio, run, what="writing")
    refuse_changed(asked, "writing")
    if anew and asked.model.encoder is None:
        raise UsageError("this model reads its own text alone, so it writes on from that; there is no source")
    prompt = _conversation(asked) if chat else beginning(asked.model, {}, None) if anew else list(asked.ids)
    writer = _Writer(asked, prompt, chosen, chat, asdict(sampling))
    n = min(n, MOST - len(chosen))
    yield from writer.before(alternatives)
    # As `clearhead.generate` does for texts of some length, whose numbers these are to the last bit.
    steps = writer.steps(n, alternatives)
    yield from packed(steps) if n >= PACKS_FROM else steps


class _Writer:
    """One text under way. Every step is a call of `clearhead.generate` for one token, from the memory of the last."""

    def __init__(
        self, asked: Opened, prompt: list[int], chosen: Sequence[int], chat: bool, options: dict[str, Any]
    ) -> None:
        self.asked, self.model, self.options, self.chat = asked, asked.model, options, chat
        if self.model.config.decoder is None:
            raise UsageError("this model sees both ways and writes no text; it fills blanks: see its next-token page")
        size = self.model.unembedding.shape[0]
        if any(token >= size for token in chosen):
            raise UsageError(f"there is no token {max(chosen)}; this model's are 0 to {size - 1}")
        self.prompt = prompt
        self.chosen = list(chosen)
        self.new: list[int] = []
        self.logprobs: list[float] = []
        self.kept: Kept | None = None
        self.finished: str | None = None
        self.ends = end_tokens(self.model)
        longest = window(self.model.config)
        if longest is not None and len(self.prompt) + len(chosen) >= longest:
            raise UsageError(f"the text fills this model's window of {longest:,} tokens; there is no room to write")
        self.size = size if self.model.tokenizer is None else min(size, self.model.tokenizer.vocab_size)
        self.decoder = None
        if self.model.tokenizer is not None:
            self.decoder = self.model.tokenizer.stream(skip_special=self.model.config.encoder is not None)
            for token in self.prompt:
                self.decoder.push(token)
        self.text = ""

    def before(self, alternatives: int) -> Iterator[Answer]:
        """What might have stood in the place of each token that was chosen."""
        if not self.chosen:
            return
        inputs = {**self.asked.inputs, "tokens": torch.tensor([[*self.prompt, *self.chosen]]), "read": False}
        with self.asked.studio.models.lock(self.asked.run.model):
            stream_BTD = edit(self.model, inputs, {})
        for place, token in enumerate(self.chosen):
            at = len(self.prompt) + place - 1
            logits_V = read_out(self.model, stream_BTD[:, [at]])[0, 0, : self.size]
            piece = "" if self.decoder is None else self.decoder.push(token)
            self.text += piece
            data = self._said(logits_V, token, alternatives)
            yield Answer(data={**data, **self._where(place, piece), "chosen": True})

    def _where(self, place: int, piece: str) -> dict[str, Any]:
        return {
            "place": place,
            "piece": piece,
            "text": self.text,
            "new": len(self.new),
            "finished": self.finished,
            "prompt": len(self.prompt),
            "cache_bytes": None,
            "cache": [],
            "step_ms": None,
            "chosen": False,
            "drawn": self.options["temperature"] > 0,
        }

    def steps(self, n: int, alternatives: int) -> Iterator[Answer]:
        """At most `n` tokens."""
        for _ in range(n):
            yield self.step(alternatives)
            if self.finished is not None:
                return

    def step(self, alternatives: int) -> Answer:
        begun = time.perf_counter()
        # The stream and not the logits: those of the whole prompt would be most of the work.
        recorder = Recorder(["final"])
        with self.asked.studio.models.lock(self.asked.run.model):
            result = self._call(recorder)
        took = 1000 * (time.perf_counter() - begun)
        self.kept = result.state
        token, place = result.tokens[0], len(self.chosen) + len(self.new)
        self.new.append(token)
        self.logprobs.append((result.logprobs or [0.0])[0])
        self.finished = result.finish_reason if result.finish_reason in ("stop", "context") else None
        piece = ""
        if self.decoder is not None and self.finished != "stop":
            piece = self.decoder.push(token)
        self.text += piece
        logits_V = read_out(self.model, recorder.values["final"][:, -1:])[0, 0, : self.size]
        data = self._said(logits_V, token, alternatives)
        data |= self._where(place, piece)
        data |= {"cache_bytes": self.kept.state.nbytes if self.kept is not None else 0, "step_ms": took}
        data["cache"] = [] if self.kept is None else _held(self.kept)
        return Answer(data=data, python=self._code(), printed=(*map(float, self.new), *self.logprobs))

    def _call(self, recorder: Recorder) -> Result:
        """One token more."""
        how: dict[str, Any] = {**self.options, "max_new_tokens": 1, "keep": True, "logprobs": True}
        if self.options["temperature"] == 0:
            how = {name: value for name, value in how.items() if name not in ("top_k", "top_p")}
        if self.kept is not None:
            found = write(self.model, [], state=self.kept, taps=recorder, **how)
        elif self.model.config.encoder is not None:
            found = write(self.model, self._source(), decoder_prompt=[*self.prompt, *self.chosen], taps=recorder, **how)
        else:
            found = write(self.model, [*self.prompt, *self.chosen], taps=recorder, **how)
        return _one(found)

    def _source(self) -> Any:
        inputs = self.asked.inputs
        if "frames" in inputs:
            return inputs["frames"][0]
        return inputs["source"][0].tolist()

    def _said(self, logits_V: Tensor, token: int, n: int) -> dict[str, Any]:
        """The token and its rivals: what the model expected, and what was left of it to draw from."""
        p_V = logits_V.softmax(-1)
        adjusted_V: Tensor | None = None
        temperature = self.options["temperature"]
        if temperature == 0:
            after_V = torch.zeros_like(p_V)
            # The best is taken, whatever was chosen in its place.
            after_V[int(logits_V.argmax())] = 1.0
        else:
            adjusted_V = adjust(
                logits_V[None], temperature=temperature, top_k=self.options["top_k"], top_p=self.options["top_p"]
            )[0]
            after_V = adjusted_V.softmax(-1)
        best = logits_V.topk(min(n, len(logits_V))).indices.tolist()
        ids = best if token in best else [*best, token]
        names = named(self.model, ids)
        above = int((logits_V > logits_V[token]).sum())
        return {
            "id": token,
            "name": named(self.model, [token])[0],
            "logit": float(logits_V[token]),
            "p": float(p_V[token]),
            "after": float(after_V[token]),
            "rank": 1 + above,
            "above": above,
            "entropy": float(torch.special.entr(p_V).sum()),
            "kept": int((after_V > 0).sum()),
            "of": len(p_V),
            "log_sum": log_sum(logits_V),
            "log_sum_after": None if adjusted_V is None else log_sum(adjusted_V),
            "sampling": {name: self.options[name] for name in ("temperature", "top_k", "top_p")},
            "others": [
                {
                    "id": i,
                    "text": name,
                    "logit": float(logits_V[i]),
                    "p": float(p_V[i]),
                    "after": float(after_V[i]),
                    "kept": bool(after_V[i] > 0),
                }
                for i, name in zip(ids, names, strict=True)
            ],
        }

    def _code(self) -> str:
        options = [f"max_new_tokens={len(self.new)}", *(f"{name}={value!r}" for name, value in self._options())]
        lines = []
        if self.model.config.encoder is not None:
            prompt = 'inputs["frames"]' if "frames" in self.asked.inputs else 'inputs["source"]'
            options.append(f"decoder_prompt={[*self.prompt, *self.chosen]}")
        elif self.chat:
            lines.append("said = [{'role': 'user', 'content': inputs}]")
            prompt = f"model.tokenizer.chat.encode(said){self._behind()}"
        elif self.chosen:
            prompt = f"model.tokenizer.encode(inputs){self._behind()}" if self._is_text else f"inputs{self._behind()}"
        else:
            prompt = "inputs"
        lines += [
            f"result = clearhead.generate(model, {prompt}, {', '.join([*options, 'logprobs=True'])})",
            "print(*result.tokens)",
            "print(*result.logprobs)",
        ]
        return code(self.asked, [], *lines)

    @property
    def _is_text(self) -> bool:
        return self.asked.run.given.text is not None and self.asked.run.given.ids is None

    def _behind(self) -> str:
        return f" + {self.chosen}" if self.chosen else ""

    def _options(self) -> list[tuple[str, Any]]:
        if self.options["temperature"] == 0:
            return []
        off = {"top_k": 0, "top_p": 1.0}
        return [(name, value) for name, value in self.options.items() if value != off.get(name)]


def _held(kept: Kept) -> list[dict[str, Any]]:
    """What the memory is made of: tensors of one shape and size of number, and how many there are of them."""
    every = [x for layer in kept.state.layers for x in layer.tensors().values()]
    alike = Counter((tuple(x.shape), x.element_size()) for x in every)
    return [{"n": n, "shape": list(shape), "bytes": size} for (shape, size), n in alike.items()]


def _one(found: Any) -> Result:
    result: Result = found[0] if isinstance(found, list) else found
    return result


def _conversation(asked: Opened) -> list[int]:
    """The text as what a person says to the model, and the beginning of its answer."""
    tokenizer = asked.model.tokenizer
    if tokenizer is None or tokenizer.chat is None:
        raise ClearheadError("this model has no chat template, so it holds no conversation; write on from the text")
    if asked.run.given.text is None:
        raise UsageError("a conversation begins with a text; write one")
    ids: list[int] = tokenizer.chat.encode([{"role": "user", "content": asked.run.given.text}])
    return ids
