"""Log-mel frames: audio as a sequence of spectra, one every hundredth of a second.

    wave        x_n, samples from -1 to 1
    window      y_{t,n} = x_{tH+n} w_n                     W samples at a time, H apart, w a raised cosine
    power       P_{t,k} = |Σ_n y_{t,n} exp(-2πi kn/K)|²    K: the next power of two at or above W
    mel         M_{t,f} = Σ_k A_{f,k} P_{t,k}              triangles, evenly spread over m(f) = 2595 log10(1 + f/700)
    log         L_{t,f} = log max(M_{t,f}, ε max M)        ε: 80 dB below the loudest; silence has no logarithm
    normal      (L_{t,f} - mean_t) / deviation_t           of each feature, over the recording; or one mean and
                                                           deviation of all, which keeps the mean spectrum

The last two lines make frames independent of the loudness of a recording. Deltas are slopes over five frames, and
slopes of slopes: d_t = Σ_n n (c_{t+n} - c_{t-n}) / 2Σ_n n², n = 1, 2.

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
SINC_ZEROS = 16  # zero crossings on either side of the resampling kernel


@dataclass(frozen=True)
class LogMelSpectrogram:
    """Log-mel features of a wave."""

    sample_rate: int = 8000  # Hz
    window_ms: float = 25.0  # milliseconds
    hop_ms: float = 10.0  # milliseconds from one frame to the next
    n_mels: int = 40
    f_min: float = 60.0  # Hz, start of the lowest triangle; the highest ends at half the sample rate
    deltas: int = 0  # 1: append slopes, 2: and slopes of slopes
    per_feature: bool = True  # normalise every feature by itself; False: all by one mean and deviation

    def __post_init__(self) -> None:
        if (
            self.sample_rate < 1000
            or self.n_mels < 1
            or self.deltas not in (0, 1, 2)
            or self.hop_length < 1
            or self.win_length < 2
        ):
            raise BadInput(
                f"{self} is invalid: sample_rate must be at least 1000 Hz, n_mels at least 1, deltas 0, 1 or 2, and "
                "window_ms and hop_ms must span samples"
            )
        if not 0 <= self.f_min < self.sample_rate / 2:
            raise BadInput(
                f"f_min must be at least 0 and below half the rate of {self.sample_rate} Hz, got {self.f_min}"
            )

    @property
    def win_length(self) -> int:
        """Samples of a window."""
        return round(self.sample_rate * self.window_ms / 1000)

    @property
    def hop_length(self) -> int:
        """Samples from one window to the next."""
        return round(self.sample_rate * self.hop_ms / 1000)

    @property
    def features(self) -> int:
        """Features of a frame."""
        return self.n_mels * (1 + self.deltas)

    def num_frames(self, samples: int) -> int:
        """Return the number of frames of a wave of so many samples: at least 1."""
        return 1 + max(0, samples - self.win_length) // self.hop_length

    def __call__(self, wave: Float[Tensor, " samples"]) -> Float[Tensor, "T F"]:
        """Return the normalised frames of a recording, with deltas; a short one is padded with silence."""
        x = normalize_features(self.log_mel(wave), self.per_feature)
        return append_deltas(x, self.deltas)

    def log_mel(self, wave: Float[Tensor, " samples"]) -> Float[Tensor, "T F"]:
        """Return the log energy in each triangle."""
        if wave.ndim != 1 or not wave.is_floating_point():
            raise BadInput(f"a wave must be a 1-D float tensor, got {wave.dtype} of shape {tuple(wave.shape)}")
        wave = F.pad(wave, (0, max(0, self.win_length - len(wave))))
        shape = torch.hann_window(self.win_length, dtype=wave.dtype, device=wave.device)
        size = 2 ** (self.win_length - 1).bit_length()
        power = torch.fft.rfft(wave.unfold(0, self.win_length, self.hop_length) * shape, size).abs().square()
        mel = power @ mel_filterbank(self.sample_rate, size, self.n_mels, self.f_min).to(power).mT
        return mel.clamp(min=max(float(mel.max()) * DYNAMIC_RANGE, torch.finfo(mel.dtype).tiny)).log()


def normalize_features(x: Float[Tensor, "T F"], per_feature: bool = True) -> Float[Tensor, "T F"]:
    """Scale each feature, or all together, to mean 0 and deviation 1 over the recording; a constant one becomes 0."""
    over = [0] if per_feature else [0, 1]
    return (x - x.mean(over)) / x.std(over, correction=0).clamp(min=1e-3)


def append_deltas(x: Float[Tensor, "T F"], times: int) -> Float[Tensor, "T more"]:
    """Append the slopes of the features (1), and the slopes of these (2)."""
    parts = [x]
    for _ in range(times):
        parts.append(delta_features(parts[-1]))
    return torch.cat(parts, -1)


def delta_features(x: Float[Tensor, "T F"]) -> Float[Tensor, "T F"]:
    """Return the slope of each feature at each frame, by least squares over five; the ends are repeated."""
    wide = torch.cat([x[:1], x[:1], x, x[-1:], x[-1:]])
    n = len(x)
    return (wide[3 : n + 3] - wide[1 : n + 1] + 2 * (wide[4 : n + 4] - wide[:n])) / 10


@lru_cache(maxsize=8)
def mel_filterbank(sample_rate: int, size: int, n_mels: int, f_min: float) -> Float[Tensor, "F K"]:
    """Return triangular filters over the frequencies of an FFT of `size`, between neighbouring mel centres."""
    ends = torch.tensor([_mel(f_min), _mel(sample_rate / 2)], dtype=torch.float64)
    centres = 700 * (10 ** (torch.linspace(0, 1, n_mels + 2, dtype=torch.float64) * (ends[1] - ends[0]) + ends[0]) - 1)
    f = torch.arange(size // 2 + 1, dtype=torch.float64) * sample_rate / size
    left, middle, right = (centres[i : i + n_mels, None] for i in range(3))
    found = torch.minimum((f - left) / (middle - left), (right - f) / (right - middle)).clamp(min=0)
    narrow = found.sum(1) == 0  # a triangle between two neighbouring frequencies: take the nearest
    found[narrow, (middle[narrow, 0] * size / sample_rate).round().long()] = 1.0
    return found


def _mel(f: float) -> float:
    return math.log10(1 + f / 700)  # the factor 2595 cancels


# -- resampling --------------------------------------------------------------------------------------------------------


def resample(wave: Float[Tensor, " samples"], old: int, new: int) -> Float[Tensor, " fewer"]:
    """Resample a wave by windowed sinc interpolation, without aliasing.

    Output n lies at n·old/new between the samples. With the fraction in lowest terms, outputs that are `up` apart have
    the same phase: one kernel a phase, one product of a strided view with it.
    """
    if old < 1 or new < 1:
        raise BadInput(f"cannot resample from {old} to {new} Hz; rates must be at least 1")
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
    """Return, for each phase, a sinc under a raised cosine at the samples around it; each kernel sums to 1."""
    cut = min(1.0, up / down) * 0.95  # cutoff, as a fraction of half the old rate
    half = math.ceil(SINC_ZEROS / cut)
    phase = torch.arange(up, dtype=torch.float64) * down / up
    distance = torch.arange(-half, half + 1, dtype=torch.float64) - (phase - phase.floor())[:, None]
    found = torch.sinc(distance * cut) * torch.cos(distance * math.pi / (2 * (half + 1))).square()
    return found / found.sum(1, keepdim=True)
