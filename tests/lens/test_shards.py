"""What was seen over a data set, on disk: what `look` gives, resumable after a kill, never mixed with anything else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens import look, shards
from clearhead.lens.shards import SeenFolder, look_through
from tests.lens.conftest import make_model

GENERATOR = torch.Generator().manual_seed(5)
DATA = [torch.randint(0, 50, (1 + n % 2, 3 + n % 4), generator=GENERATOR) for n in range(7)]
ADDRESSES = ("layers.*.resid_post", "layers.1.resid_pre", "layers.0.mixer.pattern")
HOW = {"per_shard": 3}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_read_back_is_what_look_gives(model, tmp_path):
    seen = look_through(model, DATA, tmp_path, *ADDRESSES, **HOW)
    assert sorted(files(tmp_path)) == ["00000.safetensors", "00001.safetensors", "00002.safetensors", "seen.json"]
    assert len(seen) == len(DATA) == len(list(seen))
    for item, tokens in zip(seen, DATA, strict=True):
        expected = look(model, tokens, *ADDRESSES)
        assert list(item) == list(expected)
        assert all(torch.equal(item[name], expected[name]) for name in expected)
        assert item.tokens == expected.tokens
        assert str(item) == str(expected)
    assert torch.equal(seen[-1]["blocks.0.hook_resid_post"], seen[6]["layers.0.resid_post"])
    assert [one.tokens for one in seen[1:3]] == [seen[1].tokens, seen[2].tokens]
    with pytest.raises(IndexError, match="items 0 to 6, not 7"):
        seen[7]
    without_model = SeenFolder(tmp_path)[0]
    assert without_model.tokens == [[str(token) for token in row] for row in DATA[0].tolist()]


def test_positions_and_texts_and_padding(model, tmp_path):
    present = torch.tensor([[False, True, True], [True, True, True]])
    data = ["keys", {"tokens": torch.tensor([[3, 4, 5], [6, 7, 8]]), "present": present}]
    seen = look_through(model, iter(data), tmp_path, "final", positions=[-1], show=True)
    for item, given in zip(seen, data, strict=True):
        expected = look(model, given, "final", positions=[-1])
        assert torch.equal(item["final"], expected["final"])
        assert item.tokens == expected.tokens
    assert torch.equal(seen[1].slots("").present_BT, present)


def test_a_run_that_was_stopped_goes_on(model, tmp_path, monkeypatch):
    folder, looked = tmp_path / "seen", []

    def counted(*args, **kwargs):
        looked.append(1)
        if len(looked) == 5:
            raise KeyboardInterrupt
        return look(*args, **kwargs)

    monkeypatch.setattr(shards, "look", counted)
    with pytest.raises(KeyboardInterrupt):
        look_through(model, DATA, folder, *ADDRESSES, **HOW)
    assert sorted(files(folder)) == ["00000.safetensors", "seen.json"]
    with pytest.raises(ClearheadError, match="not finished"):
        SeenFolder(folder)
    again = look_through(model, DATA, folder, *ADDRESSES, **HOW)
    assert len(looked) == 5 + 4
    whole = look_through(model, DATA, tmp_path / "whole", *ADDRESSES, **HOW)
    assert files(again.folder) == files(whole.folder)


def test_the_data_may_grow(model, tmp_path):
    look_through(model, DATA[:5], tmp_path / "a", *ADDRESSES, **HOW)
    look_through(model, DATA, tmp_path / "a", *ADDRESSES, **HOW)
    look_through(model, DATA, tmp_path / "b", *ADDRESSES, **HOW)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_other_work_is_refused_and_nothing_is_changed(model, tmp_path):
    look_through(model, DATA, tmp_path, *ADDRESSES, **HOW)
    before = files(tmp_path)
    other = make_model()
    with torch.no_grad():
        other.layers[1].ffn.up_proj.weight[3, 5] += 1e-3
    changed = [*DATA[:4], DATA[4] + 1, *DATA[5:]]
    for call, words in (
        (lambda: look_through(other, DATA, tmp_path, *ADDRESSES, **HOW), "another model"),
        (
            lambda: look_through(model, changed, tmp_path, *ADDRESSES, **HOW),
            "00001.safetensors was made from other data",
        ),
        (lambda: look_through(model, DATA[:3], tmp_path, *ADDRESSES, **HOW), "holds more than the 3 items"),
        (lambda: look_through(model, DATA, tmp_path, "final", **HOW), "another addresses"),
        (lambda: look_through(model, DATA, tmp_path, *ADDRESSES, positions=[0], **HOW), "another positions"),
        (lambda: look_through(model, DATA, tmp_path, *ADDRESSES, per_shard=2), "another per_shard"),
        (lambda: look_through(model, DATA, tmp_path, "final", per_shard=0), "at least one item"),
        (lambda: look_through(model, DATA, tmp_path, "layers.9.resid_pre"), "its layers are 0 to 1"),
        (
            lambda: look_through(model, [{"tokens": DATA[0], "state": model.new_state()}], tmp_path, *ADDRESSES, **HOW),
            "state",
        ),
    ):
        with pytest.raises(ClearheadError, match=words):
            call()
        assert files(tmp_path) == before, words


def test_a_folder_of_something_else(model, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ClearheadError, match="holds other files"):
        look_through(model, DATA, tmp_path)
    with pytest.raises(ClearheadError, match=r"no seen\.json"):
        SeenFolder(tmp_path)
    with pytest.raises(ClearheadError, match="can't be written"):
        look_through(model, DATA, tmp_path / "mine.txt" / "below")


def test_a_broken_file_is_named(model, tmp_path):
    seen = look_through(model, DATA, tmp_path, *ADDRESSES, **HOW)
    path = tmp_path / "00001.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ClearheadError, match=r"00001\.safetensors can't be read"):
        seen[3]
    with pytest.raises(ClearheadError, match=r"00001\.safetensors can't be read.*delete it"):
        look_through(model, DATA, tmp_path, *ADDRESSES, **HOW)


KILLED = """
import sys, time, torch
torch.set_num_threads(1)
from tests.lens.conftest import make_model
from tests.lens.test_shards import ADDRESSES, DATA, HOW
from clearhead.lens import look_through

def slow():
    for item in DATA:
        time.sleep(0.1)
        yield item

look_through(make_model(), slow(), sys.argv[1], *ADDRESSES, **HOW)
"""


@pytest.mark.slow
def test_a_kill_leaves_whole_files_and_the_next_call_finishes(model, tmp_path):
    folder = tmp_path / "seen"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], cwd=Path(clearhead.__file__).parents[1])
    deadline = time.monotonic() + 120
    while not (folder / "00000.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (folder / ".00001.safetensors.0123abcd.tmp").write_bytes(b"half")
    look_through(model, DATA, folder, *ADDRESSES, **HOW)
    look_through(model, DATA, tmp_path / "whole", *ADDRESSES, **HOW)
    assert files(folder) == files(tmp_path / "whole")
