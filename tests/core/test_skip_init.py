"""skip_init: zeros in place of random weights, everything else unchanged."""

import pytest
import torch

from regard.core.skip_init import skip_init
from regard.models import build

SMALL = {
    "gpt": {"vocab": 40, "width": 16, "heads": 2, "layers": 2},
    "rnnsearch": {"vocab": 40, "width": 16, "hidden": 16},
    "swin": {"image_size": 32, "patch_size": 4, "width": 16, "layers": (2, 2), "heads": (1, 2), "window_size": 4},
    "cct": {"image_size": 16, "width": 16, "heads": 2, "layers": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_random_weights_are_zero_and_constants_are_the_same(name):
    drawn, again = build(name, **SMALL[name]), build(name, **SMALL[name])
    with skip_init():
        skipped, other = build(name, **SMALL[name]), build(name, **SMALL[name])
    one, two, found, twice = (model.state_dict() for model in (drawn, again, skipped, other))
    assert list(one) == list(found)
    for key, value in found.items():
        assert value.isfinite().all(), key
        assert torch.equal(value, twice[key]), key
        if torch.equal(one[key], two[key]):  # a constant
            assert torch.equal(value, one[key]), key
    assert sum(not value.any() for value in found.values()) > sum(not value.any() for value in one.values())
    for (key, buffer), (_, same) in zip(drawn.named_buffers(), skipped.named_buffers(), strict=True):
        assert torch.equal(buffer, same), key  # non-persistent ones too


def test_the_global_random_state_does_not_change():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with skip_init():
        build("gpt", **SMALL["gpt"])
    assert torch.equal(torch.rand(4), expected)
    torch.nn.init.normal_(x := torch.zeros(5))
    assert x.all()  # outside the block numbers are drawn


def test_meta_tensors_stay_meta():
    with torch.device("meta"), skip_init():
        model = build("gpt", **SMALL["gpt"])
    assert all(p.is_meta for p in model.parameters())
