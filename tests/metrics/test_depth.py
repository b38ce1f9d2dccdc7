import math

import pytest
import torch

from regard.core.errors import BadInput
from regard.metrics.depth import DEPTH_METRICS, DepthErrors


def test_equals_a_loop_over_pixels_and_accumulates():
    true = torch.rand(5, 4, 6) * 9 + 0.5
    found = true * torch.empty_like(true).uniform_(0.5, 1.8)
    true[0, 0], true[1, 1], true[2, 2] = math.nan, 0, math.inf
    found[0, 0] = -1  # unknown there, so anything may be predicted
    mask = torch.rand(5, 4, 6) < 0.8
    mask[4] = False  # an image of which nothing is known
    metric = DepthErrors()
    metric.update(found[:2], true[:2], mask[:2])
    metric.update(found[2:], true[2:], mask[2:])
    images = []
    for b in range(4):
        pixels = list(zip(found[b][mask[b]].tolist(), true[b][mask[b]].tolist(), strict=True))
        pixels = [(d, t) for d, t in pixels if math.isfinite(t) and t > 0]
        n = len(pixels)
        rmse = math.sqrt(sum((d - t) ** 2 for d, t in pixels) / n)
        deltas = [sum(max(d / t, t / d) < 1.25**k for d, t in pixels) / n for k in (1, 2, 3)]
        images.append([sum(abs(d - t) / t for d, t in pixels) / n, rmse, *deltas])
    expected = [sum(column) / 4 for column in zip(*images, strict=True)]
    found = metric.compute()
    assert list(found) == [each.key for each in DEPTH_METRICS]
    assert list(found.values()) == pytest.approx(expected, rel=1e-6)


def test_bad_input_is_refused():
    metric, ones = DepthErrors(), torch.ones(1, 2, 2)
    with pytest.raises(BadInput, match="above 0"):
        metric.update(-ones, ones)
    with pytest.raises(BadInput, match="finite"):
        metric.update(ones * math.nan, ones)
    with pytest.raises(BadInput, match="shapes"):
        metric.update(ones, torch.ones(1, 2, 3))
    metric.update(ones, ones * math.nan)
    with pytest.raises(BadInput, match="known depth"):
        metric.compute()
