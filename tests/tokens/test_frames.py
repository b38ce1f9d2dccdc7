import cmath
import math

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.tokens.frames import (
    DYNAMIC_RANGE,
    LogMelSpectrogram,
    append_deltas,
    delta_features,
    mel_filterbank,
    normalize_features,
    resample,
)

FRONT = LogMelSpectrogram(sample_rate=1000, window_ms=21.0, hop_ms=8.0, n_mels=7, f_min=20.0)


def wave(samples, seed=0):
    return torch.randn(samples, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def written_out(x, front):
    """The log-mel energies of a wave by plain sums: windows, a transform by its definition, triangles by hand."""
    w, size = front.win_length, 32
    shape = [0.5 - 0.5 * math.cos(2 * math.pi * n / w) for n in range(w)]
    mel = lambda f: 2595 * math.log10(1 + f / 700)  # noqa: E731
    low, high = mel(front.f_min), mel(front.sample_rate / 2)
    centres = [
        700 * (10 ** ((low + (high - low) * i / (front.n_mels + 1)) / 2595) - 1) for i in range(front.n_mels + 2)
    ]
    rows = []
    for start in range(0, len(x) - w + 1, front.hop_length):
        row = [0.0] * front.n_mels
        for k in range(size // 2 + 1):
            value = sum(x[start + n] * shape[n] * cmath.exp(-2j * math.pi * k * n / size) for n in range(w))
            f = k * front.sample_rate / size
            for m in range(front.n_mels):
                a, b, c = centres[m : m + 3]
                row[m] += max(0.0, min((f - a) / (b - a), (c - f) / (c - b))) * abs(value) ** 2
        rows.append(row)
    found = np.array(rows)
    return np.log(np.maximum(found, DYNAMIC_RANGE * found.max()))


def test_log_mel_equals_the_formulas():
    x = wave(100)
    expected = written_out(x.tolist(), FRONT)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(FRONT.log_mel(x).numpy(), expected, rtol=1e-8, atol=1e-8)
    assert FRONT.num_frames(100) == len(expected) == len(FRONT(x))


def test_loudness_has_no_influence():
    x = wave(400, 1).float()
    torch.testing.assert_close(FRONT(x), FRONT(x * 0.01), rtol=1e-4, atol=1e-4)


def test_features_have_mean_zero_and_deviation_one():
    x = FRONT(wave(900, 2))
    torch.testing.assert_close(x.mean(0), torch.zeros(7, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(7, dtype=torch.float64))


@pytest.mark.parametrize("samples", [0, 1, 20, 21, 22, 28, 29])
def test_short_waves_give_one_frame_and_silence_gives_zeros(samples):
    assert FRONT(wave(samples).float()).shape == (FRONT.num_frames(samples), 7)
    assert FRONT(torch.zeros(samples)).abs().max() == 0


def test_a_tone_peaks_at_its_mel_bin():
    front = LogMelSpectrogram()
    n = torch.arange(8000) / 8000
    heard = [int(front.log_mel(torch.sin(2 * math.pi * f * n)).mean(0).argmax()) for f in (200, 500, 1000, 2000, 3500)]
    assert heard == sorted(set(heard))
    peaks = mel_filterbank(8000, 256, 40, 60.0).argmax(1) * 8000 / 256
    assert all(
        abs(float(peaks[m]) - f) < 0.1 * f + 40 for m, f in zip(heard, (200, 500, 1000, 2000, 3500), strict=True)
    )


def test_every_mel_filter_is_nonzero():
    assert (mel_filterbank(8000, 256, 40, 60.0).sum(1) > 0).all()
    assert (mel_filterbank(8000, 64, 60, 0.0).sum(1) > 0).all()  # more triangles than frequencies


def test_slopes_equal_those_of_a_least_squares_line():
    x = torch.arange(20.0, dtype=torch.float64)[:, None] * torch.tensor([[3.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(delta_features(x)[2:-2], torch.tensor([[3.0, -1.0]], dtype=torch.float64).expand(16, 2))
    y = wave(40, 3).view(20, 2)
    fitted = np.polyfit(np.arange(-2, 3), y[5:10].numpy(), 1)[0]
    np.testing.assert_allclose(delta_features(y)[7].numpy(), fitted)
    assert append_deltas(y, 2).shape == (20, 6)
    torch.testing.assert_close(append_deltas(y, 2)[:, 4:], delta_features(delta_features(y)))
    assert delta_features(y[:1]).tolist() == [[0.0, 0.0]]


def test_one_mean_and_deviation_of_all_features_keeps_their_differences():
    x = torch.randn(50, 4) * 3 + torch.tensor([0.0, 5.0, -2.0, 7.0])
    found = normalize_features(x, per_feature=False)
    assert torch.allclose(found.mean(), torch.tensor(0.0), atol=1e-5)
    assert torch.allclose(found.std(correction=0), torch.tensor(1.0), atol=1e-5)
    assert found.mean(0).argsort().tolist() == [2, 0, 1, 3]
    assert normalize_features(x).mean(0).abs().max() < 1e-5


def test_constant_features_are_normalised_to_zero():
    assert normalize_features(torch.full((5, 3), 2.0)).abs().max() == 0


# -- other rates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(44100, 8000), (8000, 16000), (11025, 8000), (8001, 8000), (9, 10), (10, 9)])
def test_a_tone_stays_a_tone_at_another_rate(old, new):
    rate = old if old > 100 else 800 * old
    x = torch.sin(2 * math.pi * 440 * torch.arange(rate // 4, dtype=torch.float64) / rate)
    y = resample(x, old, new)
    assert len(y) == -(-len(x) * new // old)
    at = torch.arange(len(y), dtype=torch.float64) * old / new
    expected = torch.sin(2 * math.pi * 440 * at / rate)
    torch.testing.assert_close(y[100:-100], expected[100:-100], atol=1e-3, rtol=0)


def test_resampling_removes_frequencies_above_the_new_limit():
    n = torch.arange(16000) / 16000
    high, low = (resample(torch.sin(2 * math.pi * f * n), 16000, 8000)[200:-200].abs().max() for f in (6000, 1000))
    assert high < 0.01
    assert low > 0.99


def test_resampling_keeps_the_same_rate_and_short_waves():
    x = wave(50).float()
    assert resample(x, 8000, 8000) is x
    for samples in (0, 1, 2, 7):
        assert len(resample(wave(samples).float(), 44100, 8000)) == -(-samples * 80 // 441)
        assert resample(wave(samples).float(), 8000, 44100).isfinite().all()


def test_invalid_settings_and_waves_raise():
    for wrong in ({"sample_rate": 10}, {"deltas": 3}, {"n_mels": 0}, {"f_min": 4000.0}, {"hop_ms": 0.0}):
        with pytest.raises(BadInput):
            LogMelSpectrogram(**wrong)
    with pytest.raises(BadInput, match="1-D float tensor"):
        FRONT(torch.zeros(2, 100))
    with pytest.raises(BadInput, match="from 0 to 8000"):
        resample(torch.zeros(5), 0, 8000)
