"""The verbs on a real, tiny model: what is printed is what the library gives."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from clearhead.cli import main
from tests.tiny import mamba2

TEXT = "The keys"


def test_generate_prints_what_the_library_writes(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = clearhead.generate(clearhead.load(tiny_folder), TEXT, max_new_tokens=12, logprobs=True)
    assert main(["generate", str(tiny_folder), TEXT, "--max-new-tokens", "12"]) == 0
    assert capsys.readouterr().out == result.text + "\n"
    assert main(["generate", str(tiny_folder), TEXT, "--max-new-tokens", "12", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tokens"] == result.tokens
    assert printed["logprobs"] == result.logprobs
    assert printed["finish_reason"] == result.finish_reason


def test_the_same_seed_prints_the_same(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("1", "1", "2"):
        assert main(["generate", str(tiny_folder), TEXT, "--max-new-tokens", "20", "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--top-k", "-1"], 2),
        (["--top-p", "1.5"], 2),
        (["--temperature", "-1"], 2),
        (["--temperature", "nan"], 2),
        (["--stop", ""], 2),
        (["--max-new-tokens", "-3"], 2),
        (["--device", "nowhere"], 1),
    ],
)
def test_options_out_of_range_are_one_clear_line(
    flags: list[str], code: int, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A wrong call is told before anything is loaded, or even looked for.
    source = "./no/such/folder" if code == 2 else str(tiny_folder)
    assert main(["generate", source, TEXT, *flags]) == code
    error = capsys.readouterr().err
    assert error.startswith("clearhead: error: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("gemma3-270", "gemma3-270m"),
        ("./no/such/folder", "no file or folder"),
        ("", "empty"),
    ],
)
@pytest.mark.parametrize("verb", ["generate", "inspect"])
def test_an_unknown_source_names_the_nearest(
    verb: str, source: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, source, *([TEXT] if verb == "generate" else [])]) == 1
    assert words in capsys.readouterr().err


def test_a_prompt_beyond_the_window_is_refused_or_cut(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["generate", str(tiny_folder), "x" * 100, "--max-new-tokens", "3"]
    assert main(args) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "64" in error
    assert main([*args, "--overflow", "cut_left"]) == 0


def test_chat_on_a_model_with_a_template(
    tiny_folder: Path, stdin: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    stdin(b"hi\nyes\n")  # type: ignore[operator]
    assert main(["chat", str(tiny_folder), "--max-new-tokens", "5", "--json"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["role"] for answer in answers] == ["assistant", "assistant"]
    model = clearhead.load(tiny_folder)
    ids = model.tokenizer.chat.encode([{"role": "user", "content": "hi"}])
    assert answers[0]["content"] == clearhead.generate(model, ids, max_new_tokens=5).text
    conversation = [{"role": "user", "content": "hi"}, answers[0], {"role": "user", "content": "yes"}]
    ids = model.tokenizer.chat.encode(conversation)
    # What was kept of the first turn changes nothing.
    assert answers[1]["content"] == clearhead.generate(model, ids, max_new_tokens=5).text


def test_look_prints_the_pattern_that_the_library_gives(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen = clearhead.look(clearhead.load(tiny_folder), TEXT, "layers.1.mixer.pattern")
    pattern_TS = seen["layers.1.mixer.pattern"][0, 3]
    args = ["look", str(tiny_folder), TEXT, "--layer", "1", "--head", "3"]
    assert main([*args, "--json", "--save", str(tmp_path / "map.json")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "map.json").read_text())
    assert torch.equal(torch.tensor(shown["pattern"]), pattern_TS)
    assert len(shown["next"]) == 8
    assert main(args) == 0
    screen = capsys.readouterr().out
    assert "Layer 1, head 3" in screen
    for ending in ("svg", "png", "html"):
        assert main([*args, "--save", str(tmp_path / f"map.{ending}")]) == 0
        assert (tmp_path / f"map.{ending}").stat().st_size > 500


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--layer", "2"], 1, "0 to 1"),
        (["--layer", "0", "--head", "9"], 1, "0 to 3"),
        (["--head", "1"], 2, "--layer"),
        (["--top", "0"], 2, "at least one"),
        (["--save", "map.gif"], 2, ".svg"),
        (["--save", "/no/such/folder/map.svg"], 1, "no folder"),
    ],
)
def test_look_says_what_is_there(
    flags: list[str], code: int, words: str, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["look", str(tiny_folder), TEXT, *flags]) == code
    assert words in capsys.readouterr().err


def test_inspect_lists_all_parameters(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tiny_folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    stored = load_file(tiny_folder / "model.safetensors")
    n_numbers = sum(tensor.numel() for tensor in stored.values())
    assert found["parameters"] == n_numbers
    assert sum(part["parameters"] * max(1, len(part["layers"])) for part in found["parts"]) == n_numbers
    assert found["stored"] == {"float32": {"tensors": len(stored), "numbers": n_numbers}}
    assert found["memory"]["float32"]["weights"] == 4 * n_numbers
    # Two layers, keys and values, two heads of eight, two bytes each.
    assert found["memory"]["bfloat16"]["state of one token"] == 2 * 2 * 2 * 8 * 2
    assert found["config"]["decoder"]["blocks"][1]["mixer"]["op"]["n_kv_heads"] == 2
    assert main(["inspect", str(tiny_folder)]) == 0
    screen = capsys.readouterr().out
    for words in ("causal", "rotary 10000", "q_proj.weight 32 x 32", "4 heads of 8 on 2 kv", f"{n_numbers:,}"):
        assert words in screen


def test_inspect_has_a_word_for_infinity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mamba-2's steps have no upper limit, and JSON no number for that."""
    mamba2.make().save_pretrained(tmp_path)
    capsys.readouterr()
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["config"]["decoder"]["blocks"][0]["mixer"]["op"]["dt_limit"] == [0.0, "Infinity"]


def test_inspect_reads_no_weights(tiny_folder: Path, tmp_path: Path) -> None:
    """The file's numbers may be anything; and torch's compiler, which takes seconds to import, stays out."""
    folder = tmp_path / "damaged"
    folder.mkdir()
    for path in tiny_folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-4:] = b"\xff\xff\xff\xff"  # NaN
    (folder / "model.safetensors").write_bytes(data)
    code = "import sys; from clearhead.cli import main; print(main(sys.argv[1:]), 'torch._dynamo' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code, "inspect", str(folder)], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "0 False"
    assert main(["generate", str(folder), TEXT]) == 1


def test_convert_writes_the_same_model(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(tiny_folder), str(tmp_path / "same"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert set(written["files"]) == {path.name for path in tiny_folder.iterdir()}
    for name in written["files"]:
        assert (tmp_path / "same" / name).read_bytes() == (tiny_folder / name).read_bytes(), name
    assert main(["convert", str(tiny_folder), str(tmp_path / "half"), "--dtype", "float16"]) == 0
    stored, half = load_file(tiny_folder / "model.safetensors"), load_file(tmp_path / "half" / "model.safetensors")
    assert all(torch.equal(half[name], tensor.half()) for name, tensor in stored.items())
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "float16"


def test_convert_overwrites_nothing(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["convert", str(tiny_folder), str(tmp_path)]) == 1
    assert "not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_convert_pools_key_value_heads(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(tiny_folder), str(tmp_path / "one"), "--kv-heads", "1"]) == 0
    one, two = clearhead.load(tmp_path / "one"), clearhead.load(tiny_folder)
    assert {block.mixer.op.n_kv_heads for block in one.config.stack.blocks} == {1}
    k_1K, k_2K = one.layers[1].mixer.k_proj.weight, two.layers[1].mixer.k_proj.weight
    assert torch.allclose(k_1K, (k_2K[:8] + k_2K[8:]) / 2, atol=1e-7)
    assert main(["convert", str(tiny_folder), str(tmp_path / "three"), "--kv-heads", "3"]) == 1
    assert "possible are 1, 2" in capsys.readouterr().err
    assert main(["convert", str(tiny_folder), str(tmp_path / "two"), "--kv-heads", "2"]) == 1
    assert "2 key-value heads already" in capsys.readouterr().err
    assert not (tmp_path / "three").exists() and not (tmp_path / "two").exists()


@pytest.mark.parametrize("rope", ["linear:4", "yarn:4:64", '{"rope_type": "dynamic", "factor": 4}'])
def test_rope_stretches_the_window(rope: str, tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["generate", str(tiny_folder), "x" * 100, "--max-new-tokens", "3"]
    assert main(args) == 1
    assert main([*args, "--rope", rope]) == 0
    assert main(["look", str(tiny_folder), TEXT, "--rope", rope]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("rope", "code", "words"),
    [("yarn", 2, "KIND:FACTOR"), ("yarn:x", 2, "KIND:FACTOR"), ("{", 2, "not JSON"), ("yarm:2", 1, "yarm")],
)
def test_a_rope_that_is_none(
    rope: str, code: int, words: str, tiny_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(tiny_folder), TEXT, "--rope", rope]) == code
    assert words in capsys.readouterr().err


def test_families_lists_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    from clearhead.families import FAMILIES

    assert main(["families"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[1 : 1 + len(FAMILIES)]] == list(FAMILIES)
    assert table[-1].startswith(f"{len(FAMILIES)} families: ")
    assert main(["families", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["family"] for row in printed["families"]] == list(FAMILIES)
    assert "BertForMaskedLM" in {name for row in printed["families"] for name in row["classes"]}
