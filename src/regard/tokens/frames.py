"""Frames: a sound as a sequence of spectra, one every hundredth of a second.

    wave        x_n, samples from -1 to 1
    window      y_{t,n} = x_{tH+n} w_n                     W samples at a time, H apart, w a raised cosine
    power       P_{t,k} = |Σ_n y_{t,n} exp(-2πi kn/K)|²    K: the next power of two at or above W
    mel         M_{t,f} = Σ_k A_{f,k} P_{t,k}              triangles, evenly spread over m(f) = 2595 log10(1 + f/700)
    log         L_{t,f} = log max(M_{t,f}, ε max M)        ε: 80 dB below the loudest; silence has no logarithm
    normal      (L_{t,f} - mean_t) / deviation_t           of each feature, over the recording

The last two lines make frames independent of how loud a recording is. Deltas are slopes over five frames, and slopes of
slopes: d_t = Σ_n n (c_{t+n} - c_{t-n}) / 2Σ_n n², n = 1, 2.

Davis, Mermelstein: Comparison of Parametric Representations for Monosyllabic Word Recognition. IEEE ASSP 1980
Furui: Speaker-Independent Isolated Word Recognition Using Dynamic Features of Speech Spectrum. IEEE ASSP 1986
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor

DYNAMIC_RANGE = 1e-8  # 80 dB in power
SINC_ZEROS = 16  # of the sinc on either side, when a sound is resampled


@dataclass(frozen=True)
class LogMelSpectrogram:
    """How a wave becomes frames of numbers."""

    sample_rate: int = 8000  # samples a second
    window_ms: float = 25.0  # milliseconds
    hop_ms: float = 10.0  # milliseconds from one frame to the next
    n_mels: int = 40
    f_min: float = 60.0  # Hz, where the lowest triangle begins; the highest ends at half the rate
    deltas: int = 0  # 1: slopes too, 2: slopes of slopes too

    def __post_init__(self) -> None:
        if (
            self.sample_rate < 1000
            or self.n_mels < 1
            or self.deltas not in (0, 1, 2)
            or self.hop_length < 1
            or self.win_length < 2
        ):
            raise BadInput(f"no frames can be made so: {self}; the rate is in Hz, window and hop in milliseconds")
        if not 0 <= self.f_min < self.sample_rate / 2:
            raise BadInput(
                f"the lowest frequency is {self.f_min} Hz, which is not below half the rate of {self.sample_rate}"
            )

    @property
    def win_length(self) -> int:
        """Samples in a window."""
        return round(self.sample_rate * self.window_ms / 1000)

    @property
    def hop_length(self) -> int:
        """Samples from one window to the next."""
        return round(self.sample_rate * self.hop_ms / 1000)

    @property
    def features(self) -> int:
        """Numbers a frame."""
        return self.n_mels * (1 + self.deltas)

    def num_frames(self, samples: int) -> int:
        """How many frames so many samples give: at least one."""
        return 1 + max(0, samples - self.win_length) // self.hop_length

    def __call__(self, wave: Float[Tensor, " samples"]) -> Float[Tensor, "T F"]:
        """The frames of a recording, normalised, with their slopes where wanted; what is too short ends in silence."""
        x = normalize_features(self.log_mel(wave))
        return append_deltas(x, self.deltas)

    def log_mel(self, wave: Float[Tensor, " samples"]) -> Float[Tensor, "T F"]:
        """The logarithms of the energies in each triangle."""
        if wave.ndim != 1 or not wave.is_floating_point():
            raise BadInput(f"frames are made of one row of samples, not of {tuple(wave.shape)} {wave.dtype}")
        wave = F.pad(wave, (0, max(0, self.win_length - len(wave))))
        shape = torch.hann_window(self.win_length, dtype=wave.dtype, device=wave.device)
        size = 2 ** (self.win_length - 1).bit_length()
        power = torch.fft.rfft(wave.unfold(0, self.win_length, self.hop_length) * shape, size).abs().square()
        mel = power @ mel_filterbank(self.sample_rate, size, self.n_mels, self.f_min).to(power).mT
        return mel.clamp(min=max(float(mel.max()) * DYNAMIC_RANGE, torch.finfo(mel.dtype).tiny)).log()


def normalize_features(x: Float[Tensor, "T F"]) -> Float[Tensor, "T F"]:
    """Every feature with mean 0 and deviation 1 over the recording; one that never changes gives zeros."""
    return (x - x.mean(0)) / x.std(0, correction=0).clamp(min=1e-3)


def append_deltas(x: Float[Tensor, "T F"], times: int) -> Float[Tensor, "T more"]:
    """The features with their slopes (1), and the slopes of these (2)."""
    parts = [x]
    for _ in range(times):
        parts.append(delta_features(parts[-1]))
    return torch.cat(parts, -1)


def delta_features(x: Float[Tensor, "T F"]) -> Float[Tensor, "T F"]:
    """The slope of each feature at each frame, by least squares over five; ends go on as they are."""
    wide = torch.cat([x[:1], x[:1], x, x[-1:], x[-1:]])
    n = len(x)
    return (wide[3 : n + 3] - wide[1 : n + 1] + 2 * (wide[4 : n + 4] - wide[:n])) / 10


@lru_cache(maxsize=8)
def mel_filterbank(sample_rate: int, size: int, n_mels: int, f_min: float) -> Float[Tensor, "F K"]:
    """Triangles over the frequencies of a transform of `size`: each rises from one mel centre and falls to the next."""
    ends = torch.tensor([_mel(f_min), _mel(sample_rate / 2)], dtype=torch.float64)
    centres = 700 * (10 ** (torch.linspace(0, 1, n_mels + 2, dtype=torch.float64) * (ends[1] - ends[0]) + ends[0]) - 1)
    f = torch.arange(size // 2 + 1, dtype=torch.float64) * sample_rate / size
    left, middle, right = (centres[i : i + n_mels, None] for i in range(3))
    found = torch.minimum((f - left) / (middle - left), (right - f) / (right - middle)).clamp(min=0)
    narrow = (
        found.sum(1) == 0
    )  # a triangle between two neighbouring frequencies would hear nothing: give it the nearest
    found[narrow, (middle[narrow, 0] * size / sample_rate).round().long()] = 1.0
    return found


def _mel(f: float) -> float:
    return math.log10(1 + f / 700)  # the factor 2595 cancels


# -- other rates -------------------------------------------------------------------------------------------------------


def resample(wave: Float[Tensor, " samples"], old: int, new: int) -> Float[Tensor, " fewer"]:
    """The same sound at another rate, without what the new rate cannot hold.

    Output n stands at n·old/new between the samples. With the fraction in lowest terms, outputs that are `up` apart
    stand alike between their neighbours: one kernel a phase, one product of a strided view with it.
    """
    if old < 1 or new < 1:
        raise BadInput(f"a sound cannot go from {old} to {new} samples a second")
    up, down = new // math.gcd(old, new), old // math.gcd(old, new)
    if up == down:
        return wave
    kernels = _kernels(up, down).to(wave)
    total = -(-len(wave) * up // down)
    half = kernels.shape[1] // 2
    padded = F.pad(wave, (half, half + down + 1))
    out = wave.new_zeros(total)
    for phase in range(min(up, total)):
        start, many = phase * down // up, -(-(total - phase) // up)
        views = padded[start:].unfold(0, kernels.shape[1], down)[:many]
        out[phase::up] = views @ kernels[phase]
    return out


@lru_cache(maxsize=8)
def _kernels(up: int, down: int) -> Float[Tensor, "P K"]:
    """For each phase the sinc at the samples around it, under a raised cosine; each sums to one."""
    cut = min(1.0, up / down) * 0.95  # of half the old rate
    half = math.ceil(SINC_ZEROS / cut)
    phase = torch.arange(up, dtype=torch.float64) * down / up
    away = torch.arange(-half, half + 1, dtype=torch.float64) - (phase - phase.floor())[:, None]
    found = torch.sinc(away * cut) * torch.cos(away * math.pi / (2 * (half + 1))).square()
    return found / found.sum(1, keepdim=True)
