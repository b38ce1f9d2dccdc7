"""ResNet: its sizes, its stems, where it begins."""

import pytest
import torch

from regard.core.errors import BadInput, RegardError
from regard.models import build

PARAMETERS = {"18": 11_689_512, "34": 21_797_672, "50": 25_557_032, "101": 44_549_160, "152": 60_192_808,
    "18-cifar": 11_173_962, "18-cifar-narrow": 3_539_566}  # fmt: skip


@pytest.mark.parametrize("size", PARAMETERS)
def test_sizes_have_the_published_parameters(size):
    with torch.device("meta"):
        assert sum(p.numel() for p in build("resnet", size=size).parameters()) == PARAMETERS[size]


def test_gates_and_non_local_blocks_add_the_papers_parameters():
    gates = sum(2 * (2 * c * r + r + c) for c, r in ((64, 8), (128, 8), (256, 16), (512, 32)))  # two blocks a stage
    non_local = sum(2 * c * c + 3 * c // 2 + c + 2 * c for c in (128, 256))  # θ, φ, g and W, their biases, a norm
    with torch.device("meta"):
        for size, more in (("se-18-cifar", gates), ("non-local-18-cifar", non_local)):
            found = sum(p.numel() for p in build("resnet", size=size).parameters())
            assert found == PARAMETERS["18-cifar"] + more


@pytest.mark.parametrize(("stem", "strides"), [("large", (4, 8, 16, 32)), ("small", (1, 2, 4, 8))])
@pytest.mark.parametrize("block", ["basic", "bottleneck"])
def test_stages_halve_the_grid_with_either_stem(stem, strides, block):
    model = build("resnet", size="tiny", stem=stem, block=block).eval()
    wide = 4 if block == "bottleneck" else 1
    with torch.no_grad():
        found = model.features(torch.randn(2, 3, 64, 96))
    assert [tuple(each.shape) for each in found] == [
        (2, 8 * wide * 2**n, 64 // stride, 96 // stride) for n, stride in enumerate(strides)
    ]


def test_blocks_are_initialised_as_the_identity():
    model = build("resnet", size="tiny", layers=(2, 2, 2, 2)).train()
    for stage, width in zip(model.stages, (8, 16, 32, 64), strict=True):
        x = torch.rand(2, width, 5, 7)  # positive, so that the ReLU at the end changes nothing
        assert torch.equal(stage.blocks[1](x), x)


def test_statistics_are_learned_in_training_and_used_in_evaluation():
    model = build("resnet", size="tiny")
    x = 3 + 2 * torch.randn(8, 3, 32, 32)
    before = model.stem.norm.running_mean.clone()
    with torch.no_grad():
        model.train()(x)
        after = model.stem.norm.running_mean.clone()
        model.eval()(x)
    assert not torch.equal(before, after)
    assert torch.equal(model.stem.norm.running_mean, after)


def test_invalid_settings_raise_one_line():
    with pytest.raises(RegardError, match="'block' is 'wide'"):
        build("resnet", block="wide")
    with pytest.raises(BadInput, match="names stage 4; stages are 0 to 3"):
        build("resnet", size="tiny", non_local=(1, 4))
    with pytest.raises(BadInput, match="with 3 channels, got"):
        build("resnet", size="tiny")(torch.zeros(1, 4, 32, 32))
