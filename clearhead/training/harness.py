"""The tasks of EleutherAI's `lm-eval` harness on any model here: it asks, and this answers.

With the package of that name installed, `clearhead evaluate SOURCE --tasks NAME`; and in Python, once this module is
imported, `lm_eval.simple_evaluate("clearhead", {"source": SOURCE}, tasks=[...])`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from clearhead.checkpoints.load import load
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import generate
from clearhead.generation.prompts import window as context_of
from clearhead.generation.source import beginning
from clearhead.model.transformer import Transformer
from clearhead.training.measures.texts import BATCH_SLOTS, DEFAULT_WINDOW, Piece, begin_marks, in_batches, score
from clearhead.training.trainer import evaluating

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


def installed() -> bool:
    """Whether the harness is there to ask."""
    return importlib.util.find_spec("lm_eval") is not None


def _of_the_harness() -> tuple[Any, Callable[[str], Callable[[type], type]]]:
    """What its models are made from, and how one is made known to it. Without it, this module can still be imported."""
    if not installed():
        return object, lambda name: lambda made: made
    model, registry = (importlib.import_module(f"lm_eval.api.{name}") for name in ("model", "registry"))
    return model.TemplateLM, registry.register_model


Base, register = _of_the_harness()
NEW_TOKENS = 256
"""Where a task does not say how long an answer may be; as the harness has it for other models."""
TAKEN = ("temperature", "top_k", "top_p", "min_p", "seed", "repetition_penalty")
PASSED_OVER = ("do_sample", "until", "max_gen_toks")
"""Words of tasks that are said otherwise here."""

Request = tuple[Any, list[int], list[int]]
"""What was asked, the ids it stands behind, and the ids to score."""


@register("clearhead")
class HarnessModel(Base):  # type: ignore[misc, valid-type]
    """A model as the harness wants it. One with an encoder has the context as its source."""

    def __init__(
        self,
        source: str | Transformer,
        dtype: str | None = None,
        device: str = "cpu",
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
    ) -> None:
        """source: what `clearhead.load` reads, or what it gave. Batches are made by how many tokens they have, so the
        sizes that the harness passes on are not needed.

        Raises:
            ClearheadError: the model can't write, or has no tokenizer.
        """
        _need()
        super().__init__()
        model = source if isinstance(source, Transformer) else load(source, dtype, device)
        if getattr(model.config, "decoder", None) is None or model.config.heads.tokens is None:
            raise ClearheadError("the harness's tasks are for models that write: a decoder with a head over tokens")
        if model.tokenizer is None:
            raise ClearheadError("this model has no tokenizer, so it can't read the harness's texts")
        self.model = model
        self.backend = "causal" if model.config.encoder is None else "seq2seq"
        self._device = model.device

    @property
    def eot_token_id(self) -> int:
        marks = [*self.model.tokenizer.eos_ids, *self.model.config.ids.eos]
        if not marks:
            raise ClearheadError("this model has no mark that ends a text")
        return int(marks[0])

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text that has nothing before it."""
        bos = self.model.tokenizer.bos_id
        return bos if bos is not None else next(iter(begin_marks(self.model)), self.eot_token_id)

    @property
    def max_length(self) -> int:
        return context_of(self.model.config) or DEFAULT_WINDOW

    @property
    def tokenizer_name(self) -> str:
        return str(self.model.tokenizer.where)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        ids: list[int] = self.model.tokenizer.encode(string, bos=add_special_tokens is not False)
        return ids

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-probability of whole texts, in windows that each know as much as there is room for."""
        from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

        asked: list[Request] = []
        counts = []
        for (text,) in (request.args for request in requests):
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(text),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            pairs = [make_disjoint_window(window) for window in windows]
            asked += [(None, context, told) for context, told in pairs]
            counts.append(len(pairs))
        found = iter(self._loglikelihood_tokens(asked))
        totals = [sum(next(found)[0] for _ in range(n)) for n in counts]
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def _loglikelihood_tokens(self, requests: Sequence[Request], **kwargs: Any) -> list[tuple[float, bool]]:
        if not all(told for _, _, told in requests):
            raise ClearheadError("a task asks for the probability of an empty text")
        with evaluating(self.model):
            score_all = self._score_texts if self.backend == "causal" else self._score_targets
            found = score_all([(context, told) for _, context, told in requests])
        for (asked, _, _), answer in zip(requests, found, strict=True):
            if asked is not None:
                self.cache_hook.add_partial("loglikelihood", asked, answer)
        return found

    def _score_texts(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """The log-probability of the second part of each text, and whether each of its tokens is the likeliest."""
        rows = [torch.tensor((context + told)[-(self.max_length + 1) :]) for context, told in pairs]
        pieces = [
            Piece(i, 0, len(row) - 1, max(len(row) - len(told), 1))
            for i, (row, (_, told)) in enumerate(zip(rows, pairs, strict=True))
        ]
        found = [(0.0, False)] * len(pairs)
        for batch in in_batches(pieces, self.model.config.vocab_size):
            nats_B, right_B = score(self.model, rows, batch)
            for piece, nats, right in zip(batch, nats_B.tolist(), right_B.tolist(), strict=True):
                found[piece.row] = (-nats, right == piece.n_scored)
        return found

    def _score_targets(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """As above, with the first part as the source."""
        start = beginning(self.model, {}, None)
        found = [(0.0, False)] * len(pairs)
        order = sorted(range(len(pairs)), key=lambda i: (-len(pairs[i][1]), -len(pairs[i][0])))
        longest = max((len(told) + len(context) for context, told in pairs), default=1)
        n = max(1, BATCH_SLOTS // longest)
        for which in (order[i : i + n] for i in range(0, len(order), n)):
            sources = [pairs[i][0][-self.max_length :] for i in which]
            targets = [pairs[i][1] for i in which]
            source_BS, source_present = _padded(sources)
            tokens_BT, present = _padded([[*start, *told[:-1]] for told in targets])
            logits = self.model(
                tokens_BT.to(self.model.device),
                source=source_BS.to(self.model.device),
                source_present=source_present.to(self.model.device),
                present=present.to(self.model.device),
            )
            logits_BTV = logits if isinstance(logits, torch.Tensor) else logits.tokens
            for i, told, logits_TV in zip(which, targets, logits_BTV, strict=True):
                scored_TV = logits_TV[len(start) - 1 :][: len(told)].float()
                told_T = torch.tensor(told, device=scored_TV.device)
                nats = F.cross_entropy(scored_TV, told_T, reduction="none").double().sum()
                found[i] = (-float(nats), bool((scored_TV.argmax(dim=-1) == told_T).all()))
        return found

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """What the model writes behind each text, up to the first of the task's stop texts."""
        answers = [""] * len(requests)
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(i)
        for which in groups.values():
            options = self._options(requests[which[0]].args[1])
            order = sorted(which, key=lambda i: -len(requests[i].args[0]))
            longest = len(self.tok_encode(requests[order[0]].args[0])) + options["max_new_tokens"]
            n = max(1, BATCH_SLOTS // longest)
            for some in (order[i : i + n] for i in range(0, len(order), n)):
                results = generate(self.model, [requests[i].args[0] for i in some], overflow="cut_left", **options)
                for i, result in zip(some, results, strict=True):
                    answers[i] = result.text
                    self.cache_hook.add_partial("generate_until", requests[i].args, result.text)
        return answers

    def _options(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What `generate` is told, in its own words."""
        from lm_eval.models.utils import normalize_gen_kwargs

        said = normalize_gen_kwargs(asked, NEW_TOKENS)
        odd = [name for name in said if name not in TAKEN + PASSED_OVER]
        if odd:
            raise ClearheadError(f"a task asks to generate with {odd[0]}={said[odd[0]]!r}, which is not known here")
        until = said.get("until") or []
        options = {name: said[name] for name in TAKEN if said.get(name) is not None}
        if options.get("temperature", 0) == 0:
            options = {name: options[name] for name in ("temperature", "repetition_penalty") if name in options}
        room = max(self.max_length // 2, 1)
        return {
            **options,
            "max_new_tokens": min(int(said["max_gen_toks"]), room),
            "stop": [text for text in ([until] if isinstance(until, str) else until) if text],
        }


def _padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of ids as one tensor, and where they are."""
    width = max(map(len, rows))
    ids_BT = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    lengths_B1 = torch.tensor([[len(row)] for row in rows])
    return ids_BT, torch.arange(width) < lengths_B1


def _need() -> None:
    if not installed():
        raise ClearheadError('tasks are run by the package `lm_eval`. Run: pip install "clearhead[lm-eval]"')


def run_tasks(
    model: Transformer,
    tasks: Sequence[str],
    folders: Sequence[str | Path] = (),
    *,
    limit: int | None = None,
) -> dict[str, Any]:
    """The numbers of some of the harness's tasks, by task and measure.

    Args:
        model: what `clearhead.load` gave.
        tasks: by name.
        folders: with definitions of more tasks (YAML files).
        limit: ask only so many questions of each.

    Raises:
        UsageError: there is no task of a name.
        ClearheadError: a task's data can't be had, or it asks for what the model can't do.
    """
    _need()
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    missing = [str(folder) for folder in folders if not Path(folder).expanduser().is_dir()]
    if missing:
        raise ClearheadError(f"{missing[0]} is no folder with definitions of tasks")
    manager = TaskManager(include_path=[str(Path(folder).expanduser()) for folder in folders] or None)
    unknown = [task for task in tasks if not manager.match_tasks([task])]
    if unknown:
        raise UsageError(f"the harness has no task {unknown[0]!r}; `lm_eval ls tasks` lists them")
    try:
        found = simple_evaluate(
            HarnessModel(model), tasks=list(tasks), task_manager=manager, limit=limit, bootstrap_iters=0
        )
    except ClearheadError:
        raise
    except Exception as problem:  # whatever a task's own code, or the reader of its data, raises
        raise ClearheadError(f"the harness could not run {', '.join(tasks)}: {problem}") from problem
    return {
        f"{task} {measure.removesuffix(',none').replace(',', ' ')}": value
        for task, numbers in (found or {"results": {}})["results"].items()
        for measure, value in numbers.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and measure != "sample_len"
    }
