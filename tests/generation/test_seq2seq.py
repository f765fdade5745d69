"""Writing behind an encoder: the tokens are those of `transformers`, and a batch is what each source gets alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import BeamResult, generate, stream
from clearhead.inputs.audio import AudioProcessor
from clearhead.model.transformer import Transformer
from tests import tiny
from tests.oracles import TOLERANCE, error

SOURCES = [[5, 6, 7, 60], [9, 33], [3, 1, 4, 15, 50, 9, 22, 61, 35, 73]]
TEXTS = [("marian", "swish"), ("marian", "two_vocabularies"), ("bart", "plain"), ("t5", "plain"), ("t5", "version_1_1")]
SOUNDS = [("whisper", "plain")]
PAD = 98
N = 8

advised: dict[str, dict[str, Any]] = {
    # Random models like to say one token again and again, whatever the source.
    "marian": {"bad_words_ids": [[98], [40, 41]], "forced_eos_token_id": 0, "no_repeat_ngram_size": 1},
    "bart": {"forced_bos_token_id": 11, "forced_eos_token_id": 2, "no_repeat_ngram_size": 2, "min_length": 6},
    "t5": {"no_repeat_ngram_size": 1},
    "whisper": {"no_repeat_ngram_size": 1},
}
"""What each family's generation config says in this test."""

Both = tuple[Any, Transformer]


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A tiny model of theirs, and ours of the same weights and the same generation config."""
    family, name = request.param
    theirs = tiny.make(family, name)
    for key, value in advised[family].items():
        setattr(theirs.generation_config, key, value)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    return theirs, clearhead.load(folder)


every = pytest.mark.parametrize("both", [*TEXTS, *SOUNDS], indirect=True, ids="-".join)
texts = pytest.mark.parametrize("both", TEXTS, indirect=True, ids="-".join)
one = pytest.mark.parametrize("both", TEXTS[:1], indirect=True, ids="-".join)
sounds = pytest.mark.parametrize("both", SOUNDS, indirect=True, ids="-".join)


def prompts_for(model: Transformer) -> Any:
    """Sources of unequal lengths, or sounds."""
    front = model.config.encoder.embed.front
    if hasattr(front, "n_mels"):
        noise = torch.randn(3, front.n_mels, 60, generator=torch.Generator().manual_seed(1))
        return noise * torch.tensor([0.3, 1.0, 3.0])[:, None, None]
    return SOURCES


def theirs_of(model: Any, prompts: Any, n_prompt: int = 1, **how: Any) -> Any:
    """What their generate gives; Whisper's own, which listens piece by piece, is gone around."""
    from transformers import GenerationMixin

    if isinstance(prompts, Tensor):
        inputs = {"input_features": prompts}
    else:
        width = max(map(len, prompts))
        inputs = {
            "input_ids": torch.tensor([ids + [PAD] * (width - len(ids)) for ids in prompts]),
            "attention_mask": torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids in prompts]),
        }
    with torch.no_grad():
        return GenerationMixin.generate(
            model,
            **inputs,
            max_new_tokens=N,
            do_sample=False,
            pad_token_id=PAD,
            return_dict_in_generate=True,
            output_scores=True,
            use_cache=False,  # theirs has as many layers as the encoder, whatever the decoder has
            **how,
        )


def new_tokens(sequences: Tensor, ends: tuple[int, ...], n_prompt: int = 1) -> list[list[int]]:
    """What was written, up to the end token."""
    rows = sequences[:, n_prompt:].tolist()
    return [row[: next((i + 1 for i, token in enumerate(row) if token in ends), N)] for row in rows]


@every
def test_greedy_tokens(both: Both) -> None:
    theirs, ours = both
    prompts = prompts_for(ours)
    right = new_tokens(theirs_of(theirs, prompts).sequences, ours.config.ids.eos)
    results = generate(ours, prompts, max_new_tokens=N, logprobs=True)
    assert len({result.logprobs[-1] for result in results}) == 3  # the source matters
    assert [result.tokens for result in results] == right
    assert [result.tokens for result in (generate(ours, prompt, max_new_tokens=N) for prompt in prompts)] == right
    given = [[]] * 3 if isinstance(prompts, Tensor) else SOURCES
    assert [result.prompt_tokens for result in results] == given


@every
@pytest.mark.parametrize(
    "how",
    [
        {"n_beams": 2, "length_penalty": 1.0, "early_stopping": False},
        {"n_beams": 4, "length_penalty": 2.0, "early_stopping": True},
        {"n_beams": 4, "length_penalty": 0.0, "early_stopping": "never"},
        {"n_beams": 3, "length_penalty": -1.0, "early_stopping": False},
    ],
)
def test_beam_search(both: Both, how: dict[str, Any]) -> None:
    theirs, ours = both
    prompts = prompts_for(ours)
    # Tokens that do come up end a text, beside the model's own.
    free = generate(ours, prompts, max_new_tokens=N, stop_tokens=())
    ends = [*ours.config.ids.eos, free[0].tokens[3], free[1].tokens[2]]
    same = {**how, "num_beams": how["n_beams"], "num_return_sequences": 2, "eos_token_id": ends}
    del same["n_beams"]
    out = theirs_of(theirs, prompts, **same)
    right = new_tokens(out.sequences, tuple(ends))
    results = generate(ours, prompts, max_new_tokens=N, stop_tokens=ends, n_best=2, **how)
    found: list[BeamResult] = [beam for result in results for beam in result.beams]
    assert [beam.tokens for beam in found] == right
    assert error(torch.tensor([beam.score for beam in found]), out.sequences_scores) <= TOLERANCE[torch.float32]


def test_rules_are_seen_in_what_is_written(tmp_path: Path) -> None:
    theirs = tiny.make("bart", "plain")
    theirs.generation_config.forced_eos_token_id = None
    theirs.save_pretrained(tmp_path)
    free = generate(clearhead.load(tmp_path), SOURCES[0], max_new_tokens=N).tokens
    rules = {
        "forced_bos_token_id": 11,
        "forced_eos_token_id": 2,
        "suppress_tokens": [free[1], free[2]],
        "begin_suppress_tokens": [free[0]],
        "bad_words_ids": [[free[-1]]],
    }
    generation_config = tmp_path / "generation_config.json"
    generation_config.write_text(json.dumps({**json.loads(generation_config.read_text()), **rules}))
    model = clearhead.load(tmp_path)
    ruled = generate(model, SOURCES[0], max_new_tokens=N).tokens
    assert (ruled[0], ruled[-1]) == (11, 2)
    assert ruled[1] != free[0]
    assert not {free[1], free[2], free[-1]} & set(ruled)
    assert generate(model, SOURCES[0], max_new_tokens=N, follow_config=False).tokens == free
    theirs.generation_config.update(**rules)
    assert new_tokens(theirs_of(theirs, [SOURCES[0]]).sequences, (2,)) == [ruled]


def test_rules_of_an_older_file_are_in_its_config(tmp_path: Path) -> None:
    theirs = tiny.make("bart", "plain")
    theirs.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "forced_bos_token_id": 11}))
    tokens = generate(clearhead.load(tmp_path), SOURCES[0], max_new_tokens=N).tokens
    assert (tokens[0], tokens[-1]) == (11, 2)


# ---- the decoder's beginning


@sounds
def test_a_decoder_prompt(both: Both) -> None:
    theirs, ours = both
    prompts = prompts_for(ours)
    start = ours.config.ids.decoder_start
    out = theirs_of(theirs, prompts, decoder_input_ids=torch.tensor([[start, 20, 21]] * 3))
    right = new_tokens(out.sequences, ours.config.ids.eos, n_prompt=3)
    for given in ([20, 21], [start, 20, 21]):
        results = generate(ours, prompts, decoder_prompt=given, max_new_tokens=N)
        assert [result.tokens for result in results] == right
    assert right != [result.tokens for result in generate(ours, prompts, max_new_tokens=N)]


def test_forced_decoder_ids_begin_the_text(tmp_path: Path) -> None:
    theirs = tiny.make("whisper")
    theirs.save_pretrained(tmp_path)
    file = tmp_path / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "forced_decoder_ids": [[1, 20], [2, 21], [4, 9]]}))
    model = clearhead.load(tmp_path)
    sound = prompts_for(model)[0]
    forced = generate(model, sound, max_new_tokens=N)
    assert forced.tokens == generate(model, sound, decoder_prompt=[20, 21], max_new_tokens=N).tokens


# ---- as for decoders alone


@every
def test_a_draw_does_not_depend_on_its_neighbours(both: Both) -> None:
    _, ours = both
    prompts = prompts_for(ours)
    how: dict[str, Any] = {"temperature": 1.0, "top_k": 20, "seed": 3, "max_new_tokens": N}
    together = generate(ours, prompts, **how)
    assert [r.tokens for r in together] == [generate(ours, prompt, **how).tokens for prompt in prompts]
    twice = generate(ours, [prompts[0], prompts[0]], **how)
    assert twice[0].tokens == together[0].tokens != twice[1].tokens


@every
def test_a_stream_and_a_continued_text(both: Both) -> None:
    _, ours = both
    prompt = prompts_for(ours)[0]
    # Without the rule for the last token, which knows only of its own call.
    how: dict[str, Any] = {"follow_config": False, "stop_tokens": ()}
    whole = generate(ours, prompt, max_new_tokens=N, logprobs=True, **how)
    pieces = list(stream(ours, prompt, max_new_tokens=N, **how))
    assert [token for piece in pieces for token in piece.tokens] == whole.tokens
    first = generate(ours, prompt, max_new_tokens=3, keep=True, **how)
    rest = generate(ours, [], state=first.state, max_new_tokens=N - 3, logprobs=True, **how)
    assert first.tokens + rest.tokens == whole.tokens
    assert error(torch.tensor(rest.logprobs), torch.tensor(whole.logprobs[3:])) <= TOLERANCE[torch.float32]


@texts
def test_the_encoder_runs_once(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ours = both
    encoder, calls = ours.encoder, []
    run = encoder.run
    monkeypatch.setattr(encoder, "run", lambda *args: calls.append(1) or run(*args))
    generate(ours, SOURCES, max_new_tokens=N, n_beams=2)
    assert len(calls) == 1


@one
def test_penalties_count_the_decoders_text_alone(both: Both) -> None:
    theirs, ours = both
    right = new_tokens(theirs_of(theirs, SOURCES, repetition_penalty=1.8).sequences, ours.config.ids.eos)
    results = generate(ours, SOURCES, repetition_penalty=1.8, max_new_tokens=N)
    assert [result.tokens for result in results] == right


@one
def test_what_is_refused(both: Both) -> None:
    _, ours = both
    with pytest.raises(ClearheadError, match="source is empty"):
        generate(ours, [])
    with pytest.raises(ClearheadError, match=r"source is 41 tokens and this model's encoder reads 40; .*cut_left"):
        generate(ours, [5] * 41)
    cut = generate(ours, [6, *[5] * 40], overflow="cut_left", max_new_tokens=2)
    assert cut.prompt_tokens == [5] * 40
    with pytest.raises(ClearheadError, match="no tokenizer"):
        generate(ours, [5], decoder_prompt="text")
    kept = generate(ours, [5], max_new_tokens=2, keep=True).state
    with pytest.raises(UsageError, match="decoder_prompt is for"):
        generate(ours, [5], state=kept, decoder_prompt=[1])


@sounds
def test_sounds_that_are_none(both: Both, tmp_path: Path) -> None:
    _, ours = both
    with pytest.raises(ClearheadError, match="preprocessor_config"):
        generate(ours, torch.zeros(1000))
    with pytest.raises(UsageError, match="of one shape"):
        generate(ours, [torch.zeros(20, 60), torch.zeros(20, 50)])
    with pytest.raises(ClearheadError, match="50 frames, and this model reads exactly 60"):
        generate(ours, torch.zeros(20, 50))


def test_samples_go_through_the_models_own_ear(tmp_path: Path) -> None:
    """One second of 6,000 samples is 60 frames, where the model's folder says so."""
    tiny.make("whisper").save_pretrained(tmp_path)
    ear = {"feature_size": 20, "sampling_rate": 6000, "n_fft": 400, "hop_length": 100, "chunk_length": 1}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(ear))
    model = clearhead.load(tmp_path)
    samples = torch.randn(5000, generator=torch.Generator().manual_seed(1)) * 0.1
    frames = AudioProcessor.from_folder(tmp_path)(samples)
    right = generate(model, frames[0], max_new_tokens=N, logprobs=True)
    assert generate(model, samples, max_new_tokens=N, logprobs=True) == right
    assert generate(model, samples.numpy(), max_new_tokens=N, logprobs=True) == right
    assert generate(model, [samples, samples[:100]], max_new_tokens=N)[0].tokens == right.tokens


def test_texts_go_through_the_tokenizer(tmp_path: Path) -> None:
    """Sources get the end mark that their tokenizer puts, and marks are no part of the answer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    theirs = tiny.make("t5", "plain")
    theirs.save_pretrained(tmp_path)
    words = {"<pad>": 0, "</s>": 1, "<unk>": 2, **{f"▁w{i}": i for i in range(3, 99)}}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    core.add_special_tokens(["<pad>", "</s>", "<unk>"])
    core.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    core.save(str(tmp_path / "tokenizer.json"))
    about = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    model = clearhead.load(tmp_path)
    result = generate(model, "w5 w6 w7", max_new_tokens=N)
    assert result.prompt_tokens == [5, 6, 7, 1]
    assert result.tokens == generate(model, [5, 6, 7, 1], max_new_tokens=N).tokens
    said = [i for i in result.tokens if i > 2]
    assert result.text == " ".join(f"w{i}" for i in said)
    assert "".join(stream(model, "w5 w6 w7", max_new_tokens=N)) == result.text
    first = generate(model, "w5 w6 w7", max_new_tokens=3, keep=True)
    rest = generate(model, "", state=first.state, max_new_tokens=N - 3)
    assert first.text + rest.text == result.text
    begun = generate(model, "w5 w6 w7", decoder_prompt="w9", max_new_tokens=3)
    assert begun.tokens == generate(model, [5, 6, 7, 1], decoder_prompt=[9], max_new_tokens=3).tokens
