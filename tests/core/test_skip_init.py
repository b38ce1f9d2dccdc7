"""Models whose weights are read next are not drawn first: zeros there, and everything else as it always is."""

import pytest
import torch

from regard.core.skip_init import skip_init
from regard.models import build

SMALL = {  # what a model must be told, and what makes it small
    "gpt": {"vocab": 40, "width": 16, "heads": 2, "layers": 2},
    "rnnsearch": {"vocab": 40, "width": 16, "hidden": 16},
    "swin": {"image_size": 32, "patch_size": 4, "width": 16, "layers": (2, 2), "heads": (1, 2), "window_size": 4},
    "cct": {"image_size": 16, "width": 16, "heads": 2, "layers": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_nothing_is_drawn_and_what_never_was_is_the_same(name):
    drawn, again = build(name, **SMALL[name]), build(name, **SMALL[name])
    with skip_init():
        hollow, other = build(name, **SMALL[name]), build(name, **SMALL[name])
    one, two, found, twice = (model.state_dict() for model in (drawn, again, hollow, other))
    assert list(one) == list(found)
    for key, value in found.items():
        assert value.isfinite().all(), key
        assert torch.equal(value, twice[key]), key
        if torch.equal(one[key], two[key]):  # a constant
            assert torch.equal(value, one[key]), key
    assert sum(not value.any() for value in found.values()) > sum(not value.any() for value in one.values())
    for (key, buffer), (_, same) in zip(drawn.named_buffers(), hollow.named_buffers(), strict=True):
        assert torch.equal(buffer, same), key  # those that no file holds too


def test_random_numbers_of_the_caller_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with skip_init():
        build("gpt", **SMALL["gpt"])
    assert torch.equal(torch.rand(4), expected)
    torch.nn.init.normal_(x := torch.zeros(5))
    assert x.all()  # only within


def test_on_the_meta_device_nothing_is_done():
    with torch.device("meta"), skip_init():
        model = build("gpt", **SMALL["gpt"])
    assert all(p.is_meta for p in model.parameters())
