"""Sounds prepared as the published extractor does it, and what is refused."""

from __future__ import annotations

import json
import wave

import numpy as np
import pytest
import torch
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

from clearhead.errors import ClearheadError
from clearhead.inputs.audio import AudioProcessor, mono, read_sound
from clearhead.inputs.mel import from_mel, mel_filters, to_mel

LIMIT = 1e-4
"""What the issue asks for; measured: 0, the same operations in the same order."""


def sound(seconds: float, rate: int = 16000, seed: int = 0) -> np.ndarray:
    """A gliding tone, a hum and noise."""
    t = np.arange(int(seconds * rate)) / rate
    noise = np.random.default_rng(seed).normal(size=len(t))
    return (0.4 * np.sin(2 * np.pi * (200 + 300 * t) * t) + 0.2 * np.sin(2 * np.pi * 50 * t) + 0.05 * noise).astype(
        np.float32
    )


def write_wav(path, samples, width: int = 2, rate: int = 16000) -> None:
    """`samples`: (n) or (n, channels), from -1 to 1."""
    whole = np.rint(np.clip(samples, -1, 1) * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    if width == 1:
        data = (whole + 128).astype(np.uint8).tobytes()
    else:
        data = whole.reshape(-1)[:, None].astype("<i8").view(np.uint8)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setparams((1 if whole.ndim == 1 else whole.shape[1], width, rate, 0, "NONE", ""))
        file.writeframes(data)


@pytest.mark.parametrize("n_mels", [80, 128])
def test_equal_to_the_published_extractor(n_mels):
    theirs = WhisperFeatureExtractor(feature_size=n_mels)
    ours = AudioProcessor(n_mels=n_mels)
    sounds = [sound(1.37), sound(29.99, seed=1), sound(30.0, seed=2), np.zeros(4000, np.float32), sound(0.01)]
    expected = torch.from_numpy(theirs(sounds, sampling_rate=16000)["input_features"])
    found = ours(sounds)
    assert found.shape == (5, n_mels, 3000)
    assert (found - expected).abs().max() <= LIMIT
    alone = torch.cat([ours(one) for one in sounds])
    assert (alone - expected).abs().max() <= LIMIT


def test_equal_to_the_published_extractor_in_another_size():
    theirs = WhisperFeatureExtractor(feature_size=20, n_fft=256, hop_length=100, chunk_length=2, sampling_rate=22050)
    ours = AudioProcessor(n_mels=20, n_fft=256, hop=100, seconds=2, rate=22050)
    expected = theirs(sound(1.2, 22050), sampling_rate=22050)["input_features"]
    assert (ours(sound(1.2, 22050)) - torch.from_numpy(expected)).abs().max() <= LIMIT


@pytest.mark.parametrize(("n_mels", "n_fft", "rate"), [(80, 400, 16000), (128, 400, 16000), (20, 512, 22050)])
def test_filters(n_mels, n_fft, rate):
    options = {"min_frequency": 0.0, "max_frequency": 8000.0, "norm": "slaney", "mel_scale": "slaney"}
    expected = mel_filter_bank(n_fft // 2 + 1, n_mels, sampling_rate=rate, **options)
    assert np.abs(mel_filters(n_mels, n_fft, rate).numpy() - expected.T).max() <= 1e-15


def test_the_mel_scale():
    """The scale's own figures: 15 mel at its break, 27 more for a factor of 6.4."""
    hz = torch.tensor([0.0, 200 / 3, 500.0, 1000.0, 6400.0], dtype=torch.float64)
    assert torch.allclose(to_mel(hz), torch.tensor([0.0, 1.0, 7.5, 15.0, 42.0], dtype=torch.float64))
    many = torch.linspace(0, 8000, 999, dtype=torch.float64)
    assert torch.allclose(from_mel(to_mel(many)), many)


def test_a_config_is_read(tmp_path):
    raw = WhisperFeatureExtractor(feature_size=128, chunk_length=20).to_dict()
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**raw, "mel_filters": [[0.0]]}))
    assert AudioProcessor.from_folder(tmp_path) == AudioProcessor(n_mels=128, seconds=20)
    (tmp_path / "preprocessor_config.json").unlink()
    (tmp_path / "processor_config.json").write_text(json.dumps({"feature_extractor": raw}))
    assert AudioProcessor.from_folder(tmp_path) == AudioProcessor(n_mels=128, seconds=20)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"feature_extractor_type": "SeamlessM4TFeatureExtractor"}, "SeamlessM4T"),
        ({"dither": 0.1}, "'dither' = 0.1"),
        ({"padding_side": "left"}, "padding_side"),
        ({"hop_length": 0}, "hop is 0"),
        ({"stride": 2}, "'stride' = 2"),
    ],
)
def test_a_config_that_is_not_understood_is_refused(raw, message):
    with pytest.raises(ClearheadError, match=message):
        AudioProcessor.from_config(raw)


def test_a_folder_that_says_nothing_is_refused(tmp_path):
    with pytest.raises(ClearheadError, match="put the model's preprocessor_config"):
        AudioProcessor.from_folder(tmp_path)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files(tmp_path, width, channels):
    both = np.stack([sound(0.3, seed=c) for c in range(channels)], axis=1)
    write_wav(tmp_path / "a.wav", both if channels > 1 else both[:, 0], width)
    samples, rate = read_sound(tmp_path / "a.wav")
    assert rate == 16000
    assert samples.dtype == np.float32
    assert np.abs(samples - both).max() <= 2.0 ** (2 - 8 * width) + 1e-6
    expected = torch.from_numpy(WhisperFeatureExtractor()(mono(samples), sampling_rate=16000)["input_features"])
    assert (AudioProcessor()(tmp_path / "a.wav") - expected).abs().max() <= LIMIT


def test_arrays_of_every_kind_are_the_same_sound():
    samples, ours = sound(0.2), AudioProcessor(seconds=1)
    expected = ours(samples)
    whole = np.rint(samples * 2**15).astype(np.int16)
    for given in (torch.from_numpy(samples), samples.astype(np.float64), samples[:, None], samples[None], [samples]):
        assert torch.equal(ours(given), expected)
    assert torch.equal(ours(samples.tolist()), expected)
    assert torch.equal(ours(samples, rate=16000), expected)
    assert (ours(whole) - expected).abs().max() < 0.05
    assert np.allclose(mono(np.stack([samples, -samples], axis=1)), 0)


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_another_rate_is_refused_with_the_remedy(tmp_path, rate):
    write_wav(tmp_path / "a.wav", sound(0.1, rate), rate=rate)
    for call in (lambda: AudioProcessor()(tmp_path / "a.wav"), lambda: AudioProcessor()(sound(0.1), rate=rate)):
        with pytest.raises(ClearheadError, match=rf"{rate:,} samples a second, and this model hears 16,000; resample"):
            call()


def test_a_longer_sound_is_cut_only_if_asked(tmp_path):
    long, ours = sound(2.5), AudioProcessor(seconds=2)
    with pytest.raises(ClearheadError, match=r"lasts 2.5 s, and this model hears 2 s at a time"):
        ours(long)
    expected = WhisperFeatureExtractor(chunk_length=2)(long, sampling_rate=16000)["input_features"]
    assert (ours(long, cut=True) - torch.from_numpy(expected)).abs().max() <= LIMIT


def test_what_is_no_sound_is_refused(tmp_path):
    ours = AudioProcessor()
    (tmp_path / "a.wav").write_text("not a sound")
    write_wav(tmp_path / "whole.wav", sound(0.1))
    (tmp_path / "cut.wav").write_bytes((tmp_path / "whole.wav").read_bytes()[:30])
    for name in ("a.wav", "cut.wav"):
        with pytest.raises(ClearheadError, match=f"{name} can't be read as a"):
            ours(tmp_path / name)
    with pytest.raises(ClearheadError, match="there is no file"):
        ours(tmp_path / "none.wav")
    for given, message in (
        (np.zeros((2, 3, 4)), "is no sound"),
        (np.zeros(0), "is no sound"),
        (np.array([0.0, float("nan")]), "not numbers"),
        (np.zeros(4, np.uint8), "no known range"),
        ({"a": 1}, "is no sound"),
        ([], "no sounds"),
    ):
        with pytest.raises(ClearheadError, match=message):
            ours(given)
