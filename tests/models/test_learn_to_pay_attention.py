"""Learn to Pay Attention: what is pooled, what its maps depend on."""

import torch
import torch.nn.functional as F

import regard
from regard.interpret.image_attribution import pooling_attributions
from regard.models import build


def test_each_grid_is_pooled_by_its_compatibility_with_the_global_features():
    for score in ("dot", "parametrised"):
        model = build("learn_to_pay_attention", size="tiny", score=score).double().eval()
        x = torch.randn(2, 3, 20, 28, dtype=torch.float64)
        grids = model.features(x)
        assert [tuple(each.shape[1:]) for each in grids] == [(16, 20, 28), (32, 10, 14), (32, 5, 7)]
        expected = []
        for pool, local in zip(model.pools, (each.flatten(2) for each in grids), strict=True):  # B C N
            if score == "dot":
                scores = torch.einsum("bcn,bc->bn", local, pool.adapt(model.tail(grids[-1])))
            else:  # with any global features
                anything = torch.randn(2, local.shape[1], 1, dtype=torch.float64)
                scores = (pool.query.weight[0, :, None] * (local + anything)).sum(1)
            expected.append(torch.einsum("bn,bcn->bc", scores.softmax(-1), local))
        torch.testing.assert_close(model.pooled(x), torch.cat(expected, 1), rtol=1e-10, atol=1e-10)


def test_a_learned_query_of_zeros_is_mean_pooling():
    model = build("learn_to_pay_attention", size="tiny", score="parametrised").double().eval()
    for pool in model.pools:
        torch.nn.init.zeros_(pool.query.weight)
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    means = torch.cat([F.adaptive_avg_pool2d(each, 1).flatten(1) for each in model.features(x)], 1)
    torch.testing.assert_close(model.pooled(x), means)


def test_maps_of_three_depths_lie_on_the_pixels():
    model = build("learn_to_pay_attention", size="tiny").eval()
    with regard.watch(model) as seen, torch.no_grad():
        model(torch.randn(1, 3, 32, 32))
    maps = pooling_attributions(seen.last_pass())
    assert list(maps) == ["pools.0", "pools.1", "pools.2"]
    for n, each in enumerate(maps.values()):
        drawn = each.heads(-1)[0]
        assert drawn.shape == (32, 32)
        assert abs(float(drawn.sum()) - 1) < 1e-5
        side = 2**n  # cells of a coarser grid cover squares of pixels
        assert torch.equal(drawn, drawn[::side, ::side].repeat_interleave(side, 0).repeat_interleave(side, 1))


def test_images_smaller_than_its_strides_work():
    model = build("learn_to_pay_attention", size="tiny").eval()
    with torch.no_grad():
        assert model(torch.randn(2, 3, 1, 5)).shape == (2, 10)
