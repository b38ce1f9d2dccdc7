"""LR-Net: the published size and cost, strides, what one cell can see."""

import pytest
import torch

from regard.core.errors import BadInput
from regard.interpret.image_attribution import run_with_attribution
from regard.models import build


def test_lr_net_50_has_the_published_parameters():
    with torch.device("meta"):
        assert sum(p.numel() for p in build("lr_net", size="50").parameters()) == 23_399_305  # the paper: 23.3 million


def test_stages_halve_the_grid_with_either_stem():
    for stem, strides in (("large", (4, 8, 16, 32)), ("small", (1, 2, 4, 8))):
        model = build("lr_net", size="tiny", stem=stem).eval()
        with torch.no_grad():
            found = model.features(torch.randn(2, 3, 64, 96))
        wanted = [(2, 16 * 2**n, 64 // stride, 96 // stride) for n, stride in enumerate(strides)]
        assert [tuple(each.shape) for each in found] == wanted


def test_a_cell_reads_only_its_neighbourhood():
    model = build("lr_net", size="tiny", layers=(1,), kernel=5).double().eval()
    torch.nn.init.ones_(model.stages[0].blocks[0].norm3.weight)
    x = torch.randn(1, 3, 17, 17, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(model.features(x)[-1][0, :, 8, 8].sum(), x)
    seen = gradient[0].abs().sum(0) > 0
    assert seen[4:13, 4:13].all()  # two layers of five cells: nine
    assert seen.sum() == 81


def test_attention_is_drawn_on_the_pixels():
    for stem in ("small", "large"):
        model = build("lr_net", size="tiny", stem=stem).eval()
        attribution, _ = run_with_attribution(model, torch.randn(1, 3, 32, 32), gradients=True)
        assert attribution.rollout().shape == attribution.relevance().shape == (32, 32)
        assert abs(float(attribution.rollout().sum()) - 1) < 1e-5
        assert attribution.exact is (stem == "small")


def test_invalid_settings_raise_one_line():
    with pytest.raises(BadInput, match="kernel must be odd"):
        build("lr_net", kernel=6)
