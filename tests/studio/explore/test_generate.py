"""Writing step by step: the text of `clearhead.generate`, its alternatives, and branches of it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.context import Studio
from clearhead.studio.explore.given import Given
from clearhead.studio.explore.runs import Runs
from clearhead.studio.models import Models
from clearhead.studio.operations import ask
from tests.studio.explore.asking import CAT, all_of, asked, run_of, studio
from tests.studio.snippets import assert_prints

HOW: list[dict[str, Any]] = [
    {},
    {"temperature": 0.9, "top_k": 50, "top_p": 0.95, "seed": 3},
    {"temperature": 1.3, "seed": 1},
]


@pytest.mark.parametrize("how", HOW, ids=["greedy", "nucleus", "hot"])
def test_a_step_a_token_and_the_text_is_the_librarys(how: dict[str, Any]) -> None:
    answers = all_of("explore.generate", run=run_of(), n=12, sampling=how)
    model = studio().models.get("clear-gpt")
    whole = clearhead.generate(model, CAT, max_new_tokens=12, logprobs=True, **how)
    assert [answer.data["id"] for answer in answers] == whole.tokens
    assert answers[-1].data["text"] == whole.text
    assert [answer.data["p"] for answer in answers] == pytest.approx(
        torch.tensor(whole.logprobs).exp().tolist(), abs=1e-5
    )
    assert "".join(answer.data["piece"] for answer in answers) == whole.text
    for answer in (answers[0], answers[-1]):
        assert_prints(answer, least=2)


def test_the_memory_grows_by_a_token_a_step() -> None:
    sizes = [answer.data["cache_bytes"] for answer in all_of("explore.generate", run=run_of(), n=4)]
    op = studio().models.get("clear-gpt").config.stack.blocks[0].mixer.op
    a_token = 4 * 2 * op.n_kv_heads * op.d_head * 4
    assert [b - a for a, b in pairwise(sizes)] == [a_token] * 3


def test_what_may_still_be_drawn_sums_to_one() -> None:
    answer = asked(
        "explore.generate", run=run_of(), n=1, sampling={"temperature": 0.8, "top_k": 5, "seed": 2}, alternatives=10
    )
    kept = [other for other in answer.data["others"] if other["kept"]]
    assert len(kept) == answer.data["kept"] == 5
    assert sum(other["after"] for other in kept) == pytest.approx(1.0, abs=1e-6)


def test_a_branch_goes_on_behind_another_token() -> None:
    model = studio().models.get("clear-gpt")
    first = all_of("explore.generate", run=run_of(), n=5)
    tokens = [answer.data["id"] for answer in first]
    other = first[2].data["others"][1]["id"]
    branch = all_of("explore.generate", run=run_of(), chosen=[*tokens[:2], other], n=3)
    ids = [*model.tokenizer.encode(CAT), *tokens[:2], other]
    assert [answer.data["id"] for answer in branch[:3]] == [*tokens[:2], other]
    assert [answer.data["id"] for answer in branch[3:]] == clearhead.generate(model, ids, max_new_tokens=3).tokens
    assert [answer.data["place"] for answer in branch] == [0, 1, 2, 3, 4, 5]
    assert [answer.data["chosen"] for answer in branch] == [True] * 3 + [False] * 3
    assert branch[1].data["p"] == pytest.approx(first[1].data["p"], abs=1e-5)
    assert branch[2].data["p"] == pytest.approx(first[2].data["others"][1]["p"], abs=1e-5)
    assert branch[-1].data["text"] == model.tokenizer.decode([answer.data["id"] for answer in branch])
    assert_prints(branch[-1])


def test_a_translator_writes_to_its_end() -> None:
    run = run_of("clear-translate", source="two hundred and forty one", text="zwei")
    answers = all_of("explore.generate", run=run, n=20)
    assert answers[-1].data["finished"] == "stop"
    assert len(answers) < 20
    assert_prints(answers[-1])


def test_a_translation_is_written_anew() -> None:
    model = studio().models.get("clear-translate")
    run = run_of("clear-translate", source="two hundred and forty one")
    answers = all_of("explore.generate", run=run, n=20, anew=True)
    assert answers[-1].data["text"] == clearhead.generate(model, "two hundred and forty one").text
    assert_prints(answers[-1])
    with pytest.raises(UsageError, match="no source"):
        asked("explore.generate", run=run_of(), anew=True)


def test_text_comes_in_whole_code_points() -> None:
    model = studio().models.get("clear-gpt")
    clef = model.tokenizer.encode("\N{MUSICAL SYMBOL G CLEF}", bos=False)
    answer = asked("explore.generate", run=run_of(), chosen=clef[:3], n=1)
    assert "\ufffd" not in answer.data["text"] or answer.data["id"] != clef[3]
    whole = asked("explore.generate", run=run_of(), chosen=clef, n=1)
    assert whole.data["text"].startswith(model.tokenizer.decode(clef))


def test_it_stops_between_two_tokens() -> None:
    answers = ask(studio(), "explore.generate", {"run": run_of(), "n": 200})
    assert next(answers).data["new"] == 1  # type: ignore[call-overload]
    answers.close()  # type: ignore[union-attr]
    assert asked("explore.generate", run=run_of(), n=1).data["new"] == 1


def test_what_cannot_write_says_so() -> None:
    with pytest.raises(UsageError, match="writes no text"):
        asked("explore.generate", run=run_of("clear-bert", text="A cat."))
    with pytest.raises(ClearheadError, match=r"vectors, not tokens|package"):
        asked("explore.generate", run=run_of("minilm-l6", text="A cat."))
    with pytest.raises(ClearheadError, match="no chat template"):
        asked("explore.generate", run=run_of(), chat=True)
    with pytest.raises(UsageError, match="there is no token"):
        asked("explore.generate", run=run_of(), chosen=[99_999])
    with pytest.raises(UsageError, match="no room to write"):
        asked("explore.generate", run=run_of(text=" the" * 511))


TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}model: {% endif %}"
)
SIZES = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 256,
    "eos_token_id": 257,
}


@pytest.fixture
def chatty(tmp_path: Path) -> Path:
    """A random model whose tokens are bytes, with a chat template."""
    from clearhead.families import family_of
    from clearhead.model.transformer import Transformer

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(name, special=True) for name in ("<bos>", "<eos>")])
    torch.manual_seed(1)
    config = family_of({"model_type": "llama"}, "here").read(SIZES, "here")
    folder = tmp_path / "chatty"
    clearhead.save(Transformer(config), folder, family="llama")
    core.save(str(folder / "tokenizer.json"))
    about = {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder


def test_a_conversation_begins_with_the_template(chatty: Path) -> None:
    known = Models([str(chatty)])
    own = Studio(models=known, runs=Runs(known))
    name = known.named[0]
    run = own.runs.make(name, Given(text="Hello")).id
    sampling = {"temperature": 1.0, "seed": 5}
    answers = list(ask(own, "explore.generate", {"run": run, "chat": True, "n": 6, "sampling": sampling}))  # type: ignore[arg-type]
    model = clearhead.load(str(chatty))
    prompt = [256, *b"user: Hello", 257, *b"model: "]
    spelled = model.tokenizer.encode("user: Hello", bos=False)
    assert answers[0].data["prompt"] == len(prompt)
    ids = model.tokenizer.chat.encode([{"role": "user", "content": "Hello"}])
    assert len(ids) == len(prompt) and ids[0] == 256 and ids[1 : 1 + len(spelled)] == spelled
    whole = clearhead.generate(model, ids, max_new_tokens=6, **sampling)
    assert [answer.data["id"] for answer in answers] == whole.tokens
    assert [answer.data["drawn"] for answer in answers] == [True] * len(answers)
    assert_prints(answers[-1])
    plain = list(ask(own, "explore.generate", {"run": run, "n": 1}))  # type: ignore[arg-type]
    assert plain[0].data["prompt"] == 1 + len("Hello")
    assert not plain[0].data["drawn"]
