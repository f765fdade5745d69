"""A prefix saves reading and changes no answer; each family's memory is tested in tests/families/test_prefix.py."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import Prefix, Prefixes, generate, load_prefix, prefix_of, read_prefix, stream
from clearhead.generation.fingerprint import fingerprint
from clearhead.generation.prefix import common, starts
from clearhead.model.transformer import Transformer
from clearhead.ops.quantised import QuantisedTensor
from clearhead.taps import Recorder
from tests.generation.scripted import Words, tiny

TEXT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]

HOW: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 3, "temperature": 0.8, "top_k": 10, "logprobs": True},
    {"temperature": 0, "repetition_penalty": 1.2, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    {"n_beams": 3},
]


class Passes:
    """How many rows and tokens each pass reads."""

    def __init__(self, model: Transformer) -> None:
        self.seen: list[tuple[int, ...]] = []
        model.register_forward_pre_hook(lambda module, given: self.seen.append(tuple(given[0].shape)))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("window", [None, 3])
def test_answers_are_those_without_it(how: dict[str, Any], window: int | None) -> None:
    model = tiny(window=window)
    prefix = read_prefix(model, TEXT)
    prompts = [[*TEXT, 20, 21], TEXT, [*TEXT, 20, 21], [*TEXT[:9], 30, 31, 32], [*TEXT[:2], 40], [1, 2, 3]]
    whole = generate(model, prompts, max_new_tokens=6, **how)
    behind = generate(model, prompts, max_new_tokens=6, prefix=prefix, **how)
    assert [a.tokens for a in whole] == [b.tokens for b in behind]
    assert [a.logprobs is None for a in whole] == [b.logprobs is None for b in behind]
    for a, b in zip(whole, behind, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-4)
    assert [b.cached_tokens for b in behind] == [9, 9, 9, 9, 0, 0]
    assert {a.cached_tokens for a in whole} == {0}
    again = generate(model, prompts[0], max_new_tokens=6, prefix=prefix, **how)
    assert (again.tokens, again.cached_tokens) == (whole[0].tokens, 9)


def test_only_what_is_new_is_read() -> None:
    model = tiny()
    prefix = read_prefix(model, TEXT, prefill_chunk=4)
    passes = Passes(model)
    generate(model, [[*TEXT, 20], [*TEXT, 20, 21]], max_new_tokens=3, prefix=prefix)
    assert passes.seen == [(2, 3), (2, 1), (2, 1)]
    passes.seen.clear()
    # Two of them have hardly anything in common with it, and cost the others nothing.
    generate(model, [[*TEXT, 20], [1, 2], [*TEXT[:3], 4, 4]], max_new_tokens=1, prefix=prefix)
    assert passes.seen == [(1, 2), (2, 5)]
    passes.seen.clear()
    longer = read_prefix(model, [*TEXT, 20, 21, 22], prefix=prefix)
    assert passes.seen == [(1, 3)]
    assert longer.tokens == [*TEXT, 20, 21, 22]
    assert generate(model, [*TEXT, 20, 21, 22, 23], prefix=longer, max_new_tokens=5).tokens == (
        generate(model, [*TEXT, 20, 21, 22, 23], max_new_tokens=5).tokens
    )


def test_streaming_and_keeping_behind_a_prefix() -> None:
    model = tiny()
    prefix = read_prefix(model, TEXT)
    text = stream(model, [*TEXT, 20], max_new_tokens=4, prefix=prefix, keep=True)
    pieces = [token for piece in text for token in piece.tokens]
    assert pieces == generate(model, [*TEXT, 20], max_new_tokens=4).tokens
    assert text.result.cached_tokens == 9
    # What was kept is a text of its own, and a prefix like any other.
    kept = text.result.state
    assert kept is not None
    said = [*kept.tokens, 30]
    whole = generate(model, said, max_new_tokens=4).tokens
    ours = prefix_of(model, kept)
    assert generate(model, said, max_new_tokens=4, prefix=ours).tokens == whole
    assert generate(model, said, max_new_tokens=4, prefix=ours).cached_tokens == len(said) - 2
    assert generate(model, [30], max_new_tokens=4, state=kept).tokens == whole
    with pytest.raises(ClearheadError, match="continued already"):
        prefix_of(model, kept)


def test_a_row_of_a_batch_as_a_prefix() -> None:
    model = tiny(window=4)
    kept = generate(model, [TEXT, [1, 2], TEXT[3:]], max_new_tokens=[5, 3, 9], keep=True)
    for result in kept:
        assert result.state is not None
        prefix = prefix_of(model, result.state)
        said = [*result.state.tokens, 33, 34]
        behind = generate(model, [said, said[:-1]], max_new_tokens=5, prefix=prefix)
        assert [one.tokens for one in behind] == [
            one.tokens for one in generate(model, [said, said[:-1]], max_new_tokens=5)
        ]
        assert behind[0].cached_tokens == len(said) - 3


def test_text_and_what_it_becomes_when_it_goes_on() -> None:
    model = tiny()
    model.tokenizer = Words([f"w{i}" for i in range(50)], bos_id=0)
    prefix = read_prefix(model, "w5 w6 w7")
    assert (prefix.tokens, prefix.text, prefix.memory.n) == ([0, 5, 6, 7], "w5 w6 w7", 3)
    result = generate(model, "w5 w6 w7 w8", prefix=prefix, max_new_tokens=4)
    assert result.cached_tokens == 3
    assert result.text == generate(model, "w5 w6 w7 w8", max_new_tokens=4).text


def test_who_looks_inside_sees_all_that_is_read() -> None:
    model = tiny()
    prefix = read_prefix(model, TEXT)
    alone, behind = Recorder(("layers.0.mixer.pattern",)), Recorder(("layers.0.mixer.pattern",))
    generate(model, [*TEXT, 20], max_new_tokens=1, taps=alone)
    result = generate(model, [*TEXT, 20], max_new_tokens=1, taps=behind, prefix=prefix)
    assert result.cached_tokens == 0
    assert alone.values.keys() == behind.values.keys()
    for name, value in alone.values.items():
        assert torch.equal(value, behind.values[name])


def test_what_is_no_prefix_is_refused() -> None:
    model = tiny(context=16)
    prefix = read_prefix(model, TEXT)
    wrong: Any = "doc.prefix"
    with pytest.raises(UsageError, match="give what read_prefix or load_prefix returned"):
        generate(model, TEXT, prefix=wrong)
    kept = generate(model, TEXT, max_new_tokens=1, keep=True).state
    with pytest.raises(UsageError, match="leave state or prefix"):
        generate(model, [1], prefix=prefix, state=kept)
    for text in ([5], []):
        with pytest.raises(ClearheadError, match=r"at least two tokens|no token to begin with"):
            read_prefix(model, text)
    with pytest.raises(ClearheadError, match="window 16"):
        read_prefix(model, list(range(17)))
    with pytest.raises(ClearheadError, match="window 16"):
        generate(model, [*TEXT, *range(10)], prefix=prefix)
    # What is cut on the left begins otherwise.
    cut = generate(model, [*TEXT, *range(10)], prefix=prefix, overflow="cut_left", max_new_tokens=4)
    assert cut.cached_tokens == 0


def test_another_model_is_refused_and_so_are_other_weights() -> None:
    model = tiny()
    prefix = read_prefix(model, TEXT)
    with pytest.raises(ClearheadError, match="another model"):
        generate(tiny(seed=1), TEXT, prefix=prefix)
    assert generate(tiny(), TEXT, prefix=prefix, max_new_tokens=1).cached_tokens == 9
    weight, was = model.unembedding, tiny().unembedding[3, 4]
    with torch.no_grad():
        weight[3, 4] += 1e-3
    with pytest.raises(ClearheadError, match="weights have changed"):
        generate(model, TEXT, prefix=prefix)
    with torch.no_grad():
        weight[3, 4] = was
    assert generate(model, TEXT, prefix=prefix, max_new_tokens=1).cached_tokens == 9


def test_a_fingerprint_is_of_every_byte_and_of_the_config() -> None:
    model = tiny()
    first = fingerprint(model)
    assert first == fingerprint(model) == fingerprint(tiny())
    assert fingerprint(tiny(window=3)) != first
    assert fingerprint(tiny().to(torch.bfloat16)) != first
    seen = {first}
    for parameter in model.parameters():
        with torch.no_grad():
            flat = parameter.view(-1)
            # Neighbours that change places; and of norms, which are all ones, one that is another.
            flat[:4] = flat[[2, 3, 0, 1]] + (parameter.ndim == 1) * torch.tensor([1e-6, 0, 0, 0])
        seen.add(fingerprint(model))
    assert len(seen) == 1 + len(list(model.parameters()))


def test_a_fingerprint_of_weights_in_blocks() -> None:
    """They are no plain tensors, and have no memory of their own."""
    model, seen = tiny(), set()
    layer: Any = model.layers[0]
    for byte in (0, 1):
        raw = torch.zeros(32, 34, dtype=torch.uint8)
        raw[3, 5] = byte
        for _ in range(2):
            layer.ffn.up_proj.weight = nn.Parameter(QuantisedTensor(raw, "Q8_0"), requires_grad=False)
            seen.add(fingerprint(model))
    assert len(seen) == 2


def test_reading_ahead_behind_a_prefix() -> None:
    model = tiny()
    prefix = read_prefix(model, TEXT * 3)
    prompt = [*TEXT * 3, 5, 6, 7]
    ahead = generate(model, prompt, prefix=prefix, lookup=True, max_new_tokens=12)
    assert (ahead.tokens, ahead.cached_tokens) == (generate(model, prompt, max_new_tokens=12).tokens, 29)


def test_a_file_is_whole_private_and_found_again(tmp_path: Path) -> None:
    model = tiny(window=4)
    path = tmp_path / "doc.prefix"
    path.write_text("what was there before")
    prefix = read_prefix(model, TEXT)
    prefix.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["doc.prefix"]
    assert path.stat().st_mode & 0o777 == 0o600
    again = load_prefix(str(path), tiny(window=4))
    assert isinstance(again, Prefix)
    assert again.nbytes == prefix.nbytes
    prompts = [[*TEXT, 20], TEXT]
    behind = generate(model, prompts, prefix=again, max_new_tokens=8)
    assert [one.tokens for one in behind] == [one.tokens for one in generate(model, prompts, max_new_tokens=8)]
    assert [one.cached_tokens for one in behind] == [9, 9]


def test_a_file_that_is_not_right_is_refused(tmp_path: Path) -> None:
    model = tiny()
    path = tmp_path / "doc.prefix"
    read_prefix(model, TEXT).save(path)
    whole = path.read_bytes()
    with pytest.raises(ClearheadError, match="other weights or of another dtype"):
        load_prefix(path, tiny(seed=1))
    with pytest.raises(ClearheadError, match="other weights or of another dtype"):
        load_prefix(path, tiny().to(torch.bfloat16))
    for content, what in [
        (whole[:-1], "cut short"),
        (whole[:50], "cut short"),
        (b"", "empty"),
        (b"a text", "cut short"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ClearheadError, match=what):
            load_prefix(path, model)
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    with pytest.raises(ClearheadError, match="damaged"):
        load_prefix(path, model)
    path.write_bytes(whole)
    with safe_open(path, framework="pt") as opened:
        label = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (it is no mapping)
    for change, what in [
        ({"clearhead": "0.0.1"}, r"by clearhead 0\.0\.1"),
        ({"format": "clearhead prefix 2"}, "written as clearhead prefix 2"),
        ({"format": "pt"}, "is not a prefix"),
        ({"about": label["about"].replace('"n": 9', '"n": 8')}, "damaged"),
    ]:
        save_file(tensors, path, metadata={**label, **change})
        with pytest.raises(ClearheadError, match=what):
            load_prefix(path, model)
    save_file(tensors, path)
    with pytest.raises(ClearheadError, match="is not a prefix"):
        load_prefix(path, model)
    with pytest.raises(ClearheadError, match="can't be read"):
        load_prefix(tmp_path / "nothing", model)
    with pytest.raises(ClearheadError, match="can't be written"):
        read_prefix(model, TEXT).save(tmp_path / "no" / "folder")


def test_what_two_texts_have_in_common() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        a, b = (torch.randint(2, (int(n),), generator=generator).tolist() for n in torch.randint(12, (2,)))
        right = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        assert common(a, b) == right


def test_which_prompts_go_together() -> None:
    prefix = read_prefix(tiny(), TEXT)
    assert starts(prefix, []) == []
    (places, start), others = starts(prefix, [[1, 2], [*TEXT, 3], [*TEXT[:6], 1, 1], TEXT[:3]])
    assert (places, start and start.n, others) == ([1, 2], 6, ([0, 3], None))


def test_windows_that_keep_all_can_be_cut_anywhere() -> None:
    model, text = tiny(window=3), list(range(1, 49))
    slid, kept = (read_prefix(model, text, cut_anywhere=cut, prefill_chunk=4) for cut in (False, True))
    assert (slid.memory.least, kept.memory.least) == (32, 0)
    longer = read_prefix(model, [*text, 5, 6, 7], prefix=kept, cut_anywhere=True, prefill_chunk=2)
    assert longer.memory.least == 0
    for n in (4, 25, 40):
        prompt = [*text[:n], 0, 0]
        whole = generate(model, prompt, max_new_tokens=8)
        for prefix, saved in ((slid, n if n >= 32 else 0), (kept, n), (longer, n)):
            behind = generate(model, prompt, max_new_tokens=8, prefix=prefix)
            assert (behind.tokens, behind.cached_tokens) == (whole.tokens, saved)
    # What is read behind them slides as ever.
    layer: Any = kept.state(model, 40).at("layers.0.mixer")
    assert layer.tensors()["k"].shape[2] == 3
    assert layer.held.length <= layer.capacity


# ---- many of them


def test_a_store_finds_by_content_what_saves_most() -> None:
    model, store = tiny(), Prefixes(10**6, shortest=2)
    short, other = read_prefix(model, [1, 2, 3]), read_prefix(model, [4, 5, 6, 7])
    assert store.put(short)
    assert store.put(other)
    start = store.find([4, 5, 6, 9])
    assert start is not None
    assert (start.prefix, start.n) == (other, 3)
    assert store.find([7, 7, 7]) is None
    assert store.find([1]) is None
    assert store.find([]) is None
    uses = store.uses
    assert (uses.asked, uses.found, uses.tokens_asked, uses.tokens_found, uses.dropped) == (4, 1, 8, 3, 0)
    # A longer one takes the place of what it can be cut back to, and that is not kept beside it.
    longer = read_prefix(model, [1, 2, 3, 4, 5])
    assert store.put(longer)
    assert store.put(short)
    assert list(store) == [other, longer]
    start = store.find([1, 2, 3, 30])
    assert start is not None
    assert (start.prefix, start.n) == (longer, 3)
    result = generate(model, [1, 2, 3, 30], prefix=start.prefix, max_new_tokens=4)
    assert result.tokens == generate(model, [1, 2, 3, 30], max_new_tokens=4).tokens


def test_what_can_not_be_cut_back_is_kept_beside_the_longer_one() -> None:
    model, store = tiny(window=3), Prefixes(10**7, shortest=2)
    texts = [list(range(n)) for n in (12, 48)]
    for text in texts:
        store.put(read_prefix(model, text, prefill_chunk=4))
    assert [len(prefix.tokens) for prefix in store] == [12, 48]
    start = store.find([*range(20), 40])
    assert start is not None
    assert (len(start.prefix.tokens), start.n) == (12, 11)


def test_a_store_keeps_within_its_bytes_and_lets_go_of_the_oldest_use() -> None:
    model = tiny()
    prefixes = [read_prefix(model, [i, *range(10, 20)]) for i in range(5)]
    size = prefixes[0].nbytes
    store = Prefixes(3 * size + 1)
    store.shortest = 2
    for prefix in prefixes[:3]:
        assert store.put(prefix)
    assert store.find([0, *range(10, 20)]) is not None
    assert store.put(prefixes[3])
    assert [prefix.tokens[0] for prefix in store] == [2, 0, 3]
    assert (store.nbytes, len(store), store.uses.dropped) == (3 * size, 3, 1)
    assert not store.put(read_prefix(model, list(range(40))))
    assert len(store) == 3
    store.clear()
    assert (store.nbytes, len(store)) == (0, 0)
    assert not Prefixes(0).put(prefixes[0])
    with pytest.raises(UsageError, match="max_bytes is -1"):
        Prefixes(-1)


def test_what_another_model_read_goes() -> None:
    store = Prefixes(10**6)
    store.put(read_prefix(tiny(), TEXT))
    store.put(read_prefix(tiny(seed=1), [1, 2, 3]))
    assert [prefix.tokens for prefix in store] == [[1, 2, 3]]


def test_a_store_is_used_from_many_threads() -> None:
    model = tiny()
    prefixes = [read_prefix(model, [i, *range(10, 20)]) for i in range(8)]
    store = Prefixes(4 * prefixes[0].nbytes, shortest=2)
    wrong: list[object] = []

    def work(first: int) -> None:
        try:
            for i in range(200):
                prefix = prefixes[(first + i) % 8]
                store.put(prefix)
                start = store.find([*prefix.tokens, 1])
                if start is not None and start.prefix.tokens != prefix.tokens:
                    wrong.append(start)
                if store.nbytes > store.max_bytes:
                    wrong.append(store.nbytes)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert (store.uses.asked, len(store)) == (800, 4)
