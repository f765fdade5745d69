"""The table of accelerators."""

from __future__ import annotations

import pytest

from clearhead.costs.devices import BYTES, GIB, bytes_of, device, devices
from clearhead.errors import UsageError


def test_every_device_says_what_it_has_and_who_says_so() -> None:
    assert len(devices()) >= 12
    for key, one in devices().items():
        assert one.key == key and one.source and one.name
        assert set(one.peaks) <= set(BYTES) and {"bfloat16", "float16"} & set(one.peaks)
        assert GIB <= one.memory < 1000 * GIB
        # All between a desktop's and what nothing reaches yet: a slip of a factor of 1000 would show.
        assert 1e11 < one.bandwidth < 2e13
        assert all(1e12 < peak < 2e16 for peak in one.peaks.values())
        # Half the width is at least as fast.
        widths = sorted(one.peaks, key=BYTES.__getitem__)
        assert all(one.peaks[a] >= one.peaks[b] for a in widths for b in widths if BYTES[a] < BYTES[b])


def test_an_h100() -> None:
    """989.5e12 operations and 3.35e12 bytes a second: 295.4 operations a byte."""
    h100 = device("H100 SXM")
    assert h100.memory == 80 * 2**30
    assert h100.balance("bfloat16") == pytest.approx(295.37, abs=0.01)
    two = h100.times(2)
    assert (
        two.memory == 160 * 2**30 and two.peak("float8") == 2 * 1979e12 and two.balance("int8") == h100.balance("int8")
    )
    assert two.name == "2 x NVIDIA H100 SXM 80GB"
    assert h100.times(1) is h100


@pytest.mark.parametrize(
    ("name", "nearest"), [("h100", "h100-pcie, h100-sxm"), ("a100_80", "a100-80gb"), ("mi300", "mi300x")]
)
def test_an_unknown_one_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match="here: this machine") as refused:
        device(name)
    assert all(near in str(refused.value).split(". There are")[0] for near in nearest.split(", "))


def test_what_is_not_known_of_one_is_refused() -> None:
    with pytest.raises(UsageError, match="NVIDIA T4 has no peak for bfloat16; there are float32, float16, int8"):
        device("t4").peak("bfloat16")
    with pytest.raises(UsageError, match="'int3' is not known"):
        bytes_of("int3")
