"""The log-mel spectrogram: how loud each band of pitch is, a hundred times a second."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

BREAK_HZ = 1000.0
PER_MEL = 200.0 / 3
LOG_STEP = math.log(6.4) / 27


def to_mel(hz: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Pitch as heard: even steps of 200/3 Hz below 1000 Hz, even ratios above (Slaney 1998, Auditory Toolbox)."""
    above = BREAK_HZ / PER_MEL + torch.log(hz.clamp(min=BREAK_HZ) / BREAK_HZ) / LOG_STEP
    return torch.where(hz < BREAK_HZ, hz / PER_MEL, above)


def from_mel(mel: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The inverse of `to_mel`."""
    at_break = BREAK_HZ / PER_MEL
    above = BREAK_HZ * torch.exp(LOG_STEP * (mel - at_break).clamp(min=0))
    return torch.where(mel < at_break, mel * PER_MEL, above)


def mel_filters(n_mels: int, n_fft: int, rate: int, highest: float = 8000.0) -> Float[Tensor, "M W"]:
    """Triangles over the Fourier bins, evenly spaced as heard, each of the same area."""
    double = torch.float64
    ends = to_mel(torch.tensor([0.0, highest], dtype=double))
    corners = from_mel(torch.linspace(float(ends[0]), float(ends[1]), n_mels + 2, dtype=double))
    bins_W = torch.linspace(0, rate / 2, n_fft // 2 + 1, dtype=double)
    left, middle, right = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (bins_W - left) / (middle - left), (right - bins_W) / (right - middle)
    return torch.minimum(rising, falling).clamp(min=0) * 2.0 / (right - left)


def log_mel(
    sound_BN: Float[Tensor, "B N"], filters_MW: Float[Tensor, "M W"], n_fft: int, hop: int
) -> Float[Tensor, "B M F"]:
    """log10 of the energy in each band, at most 80 dB below the loudest, near -1 to 1 (Radford 2022, section 2.2)."""
    window = torch.hann_window(n_fft, device=sound_BN.device)
    waves_BWF = torch.stft(sound_BN, n_fft, hop, window=window, return_complex=True)
    energy_BWF = waves_BWF[..., :-1].abs().square()
    bands_BMF = (filters_MW.to(energy_BWF) @ energy_BWF).clamp(min=1e-10).log10()
    loudest_B11 = bands_BMF.amax(dim=(1, 2), keepdim=True)
    return (torch.maximum(bands_BMF, loudest_B11 - 8.0) + 4.0) / 4.0
