"""One side of benchmarks/training.py, in a process of its own: makes a model, then takes steps when it is asked to, a
line of JSON each way. `python -m benchmarks.training_worker TASK`, the task being a `Task` as JSON.

A step is the same for all: the mean loss over every target, backward, gradients clipped to a length of 1, AdamW in
torch's fused kernel. In bfloat16 all compute products by autocast, and keep weights in float32.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.worker import MISSING

LR, BETAS, DECAY, CLIP = 3e-4, (0.9, 0.95), 0.1, 1.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A GPT-2 without dropout, and the batch that it is trained on."""

    d_model: int
    n_layers: int
    n_heads: int
    vocab_size: int
    context: int
    rows: int
    length: int

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def flops(self) -> float:
        """Of a step: six a token and weight of a matrix (the table of tokens is the head's), and attention's two
        products, half of them hidden, once forward and twice back.
        """
        n_weights = self.n_layers * 12 * self.d_model**2 + self.vocab_size * self.d_model
        return float(self.tokens * 6 * (n_weights + self.n_layers * self.d_model * self.length))


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a side does."""

    library: str
    shape: Shape
    dtype: str
    compiled: bool
    threads: int
    weights: str
    """A folder, into which `transformers` writes its random weights, and from which clearhead reads them."""
    code: str = ""
    """A folder to import the library from."""


Stepper = Callable[[int], float]
"""Takes the step of a number, and gives its mean loss."""


def batch(shape: Shape, number: int) -> tuple[Any, Any]:
    """The tokens and targets of a step, (rows, length) each: the same on every side."""
    import torch

    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(shape.vocab_size, (shape.rows, shape.length + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


class Given:
    """The benchmark's batches as a trainer asks for them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def step(self, number: int) -> Any:
        from clearhead.training.data.batches import Batch

        tokens, targets = batch(self.shape, number)
        return Batch({"tokens_BT": tokens}, targets)

    def describe(self) -> dict[str, Any]:
        return {}

    def held_out(self) -> Any:
        return iter(())

    def check(self, config: Any) -> None:
        """Made for the model."""


def clearhead(task: Task) -> tuple[Any, Stepper]:
    """The trainer itself, with the objective and the config of a run."""
    from clearhead.checkpoints.load import load
    from clearhead.training import config as c
    from clearhead.training.data.documents import Corpus
    from clearhead.training.objectives import from_config
    from clearhead.training.trainer import Trainer

    model = load(task.weights)
    dtype: Any = task.dtype
    config = c.TrainConfig(
        model=c.ModelConfig(family=model.origin.family.model_type, config=model.config),
        data=c.DataConfig(corpus=Corpus(path="made up")),
        batch=c.BatchConfig(rows=task.shape.rows, length=task.shape.length),
        optim=c.OptimConfig(lr=LR, betas=BETAS, weight_decay=DECAY, clip=CLIP, decay_embeddings=True),
        schedule=c.ScheduleConfig(kind="constant", warmup=0),
        run=c.RunConfig(dtype=dtype, compile=task.compiled),
    )
    trainer = Trainer(config, model, from_config(config.objective), Given(task.shape))
    return model, lambda number: trainer.step().loss


def transformers(task: Task) -> tuple[Any, Stepper]:
    import torch
    import transformers as t

    t.logging.set_verbosity_error()
    t.logging.disable_progress_bar()
    torch.manual_seed(0)
    s = task.shape
    config = t.GPT2Config(
        n_embd=s.d_model,
        n_layer=s.n_layers,
        n_head=s.n_heads,
        vocab_size=s.vocab_size,
        n_positions=s.context,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation="sdpa",
    )
    model: Any = t.GPT2LMHeadModel(config)
    if not (Path(task.weights) / "config.json").exists():
        model.save_pretrained(task.weights)

    def loss(model: Any, tokens: Any, targets: Any) -> Any:
        return model(input_ids=tokens, labels=tokens, shift_labels=targets, use_cache=False).loss

    return model, plain(task, model, loss)


def litgpt(task: Task) -> tuple[Any, Stepper]:
    """Its nearest to GPT-2: rotary positions on a quarter of each head, where GPT-2 has a table of its own."""
    import torch
    from torch.nn import functional as F

    s = task.shape
    config = import_module("litgpt.config").Config(
        n_embd=s.d_model,
        n_layer=s.n_layers,
        n_head=s.n_heads,
        vocab_size=s.vocab_size,
        padded_vocab_size=s.vocab_size,
        block_size=s.context,
        parallel_residual=False,
        attn_bias=True,
        gelu_approximate="tanh",
    )
    torch.manual_seed(0)
    model = import_module("litgpt.model").GPT(config)
    model.apply(model._init_weights)
    model.lm_head.weight = model.transformer.wte.weight

    def loss(model: Any, tokens: Any, targets: Any) -> Any:
        return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())

    return model, plain(task, model, loss)


def nanogpt(task: Task) -> tuple[Any, Stepper]:
    import torch

    s, file = task.shape, import_module("model")
    torch.manual_seed(0)
    config = file.GPTConfig(s.context, s.vocab_size, s.n_layers, s.n_heads, s.d_model, dropout=0.0, bias=True)
    model = file.GPT(config)
    return model, plain(task, model, lambda model, tokens, targets: model(tokens, targets)[1])


LIBRARIES: dict[str, Callable[[Task], tuple[Any, Stepper]]] = {
    "clearhead": clearhead,
    "transformers": transformers,
    "litgpt": litgpt,
    "nanogpt": nanogpt,
}
IMPORTS = {
    "clearhead": "clearhead.training.trainer",
    "transformers": "transformers.models.gpt2.modeling_gpt2",
    "litgpt": "litgpt.model",
    "nanogpt": "model",
}


def plain(task: Task, model: Any, loss_of: Callable[[Any, Any, Any], Any]) -> Stepper:
    """The loop that the others' own scripts have."""
    import torch

    model.train()
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=LR, betas=BETAS, fused=True)
    if task.compiled:
        model = torch.compile(model)

    def step(number: int) -> float:
        tokens, targets = batch(task.shape, number)
        with torch.autocast("cpu", torch.bfloat16) if task.dtype == "bfloat16" else nullcontext():
            loss = loss_of(model, tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


def status(field: str) -> int:
    """A number of /proc/self/status, in bytes: VmRSS, or VmHWM, the most since it was last forgotten."""
    return int(Path("/proc/self/status").read_text().split(field + ":")[1].split()[0]) * 1024


def forget_peak() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def main() -> None:
    said = json.loads(sys.argv[1])
    task = Task(**{**said, "shape": Shape(**said["shape"])})
    # Only answers go to the pipe: whatever a library prints goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    torch.set_num_threads(task.threads)
    if task.code:
        sys.path.insert(0, task.code)
    try:
        import_module(IMPORTS[task.library])
    except ImportError as problem:
        print(problem, file=sys.stderr)
        sys.exit(MISSING)
    gc.collect()
    imported = status("VmRSS")
    model, step = LIBRARIES[task.library](task)
    n_parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({"parameters": n_parameters}), file=answers, flush=True)
    number = 0
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("forget"):
            forget_peak()
        losses, start, cpu = [], time.perf_counter(), time.process_time()
        for _ in range(request["steps"]):
            losses.append(step(number))
            number += 1
        answer = {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": time.process_time() - cpu,
            "losses": losses,
            "peak_bytes": status("VmHWM") - imported,
        }
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
