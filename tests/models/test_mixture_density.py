"""The mixture-density head: it integrates to one, equals torch's, is safe at its borders and draws what it says."""

import math

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, MultivariateNormal

from regard.core.errors import BadInput
from regard.models.handwriting import MIN_STD, GaussianMixture, MixtureDensityHead


def mixture(batch=3, bells=4, seed=0, dtype=torch.float64, size=1.0):
    torch.manual_seed(seed)
    head = MixtureDensityHead(6, bells).to(dtype)
    return GaussianMixture(*(x.detach() for x in head(size * torch.randn(batch, 6, dtype=dtype))))


def test_the_density_integrates_to_one():
    found = mixture(size=0.5)
    axis = torch.linspace(-25, 25, 1001, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)  # Y X 2
    for row in range(3):
        one = GaussianMixture(*(x[row] for x in found))
        assert (
            one.std.amin(-1) * (1 - one.correlation.square()).sqrt()
        ).min() > 0.1  # a sum over the grid is an integral
        assert float(_on(one, grid).sum()) * 0.05**2 == pytest.approx(1, abs=1e-4)


def _on(one, grid):
    flat = grid.reshape(-1, 2)
    wide = GaussianMixture(*(x.expand(len(flat), *x.shape) for x in one))
    return wide.log_prob(flat).exp()


def test_the_density_is_that_of_torchs_distributions():
    found, points = mixture(), torch.randn(3, 2, dtype=torch.float64)
    cross = found.correlation * found.std.prod(-1)
    covariance = torch.diag_embed(found.std.square())
    covariance[..., 0, 1] = covariance[..., 1, 0] = cross
    theirs = MixtureSameFamily(Categorical(logits=found.log_weights), MultivariateNormal(found.means, covariance))
    torch.testing.assert_close(found.log_prob(points), theirs.log_prob(points))


def test_the_pen_is_a_coin():
    found = mixture()
    both = found.pen_log_prob(torch.ones(3)).exp() + found.pen_log_prob(torch.zeros(3)).exp()
    torch.testing.assert_close(both, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found.pen_log_prob(torch.ones(3)).exp(), found.pen_logit.sigmoid())


@pytest.mark.parametrize("size", [1e2, 1e4, 1e8, 1e18])
def test_extreme_numbers_give_finite_losses_and_gradients_in_float32(size):
    torch.manual_seed(0)
    head = MixtureDensityHead(5, 3)
    x = (size * torch.randn(7, 5)).requires_grad_()
    found = head(x)
    points = torch.tensor([[0.0, 0.0], [1e3, -1e3], [1e10, 1e10], [-1e18, 1], [1e-30, 0], [5, 5], [-1e38, 1e38]])
    loss = -found.log_prob(points).sum() - found.pen_log_prob(torch.arange(7) % 2 * 1.0).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


def test_a_bell_cannot_close_in_on_a_point():
    head = MixtureDensityHead(1, 1)
    with torch.no_grad():
        head.params.weight.zero_()
        head.params.bias.copy_(torch.tensor([0.0, 0, 0, -200, -200, 0, 0]))
    peak = float(head(torch.zeros(1, 1)).log_prob(torch.zeros(1, 2)).detach())
    assert peak == pytest.approx(-math.log(2 * math.pi * MIN_STD**2), rel=1e-4)


def test_what_is_drawn_has_the_moments_of_the_mixture():
    one = GaussianMixture(*(x[0] for x in mixture(batch=1)))
    n = 200_000
    wide = GaussianMixture(*(x.expand(n, *x.shape) for x in one))
    chance = torch.stack([torch.rand(n), torch.randn(n), torch.randn(n), torch.rand(n)], -1).double()
    drawn = wide.sample(chance)
    share = one.log_weights.exp()
    mean = (share[:, None] * one.means).sum(0)
    second = torch.diag_embed(one.std.square())
    second[:, 0, 1] = second[:, 1, 0] = one.correlation * one.std.prod(-1)
    away = one.means - mean
    covariance = (share[:, None, None] * (second + away[:, :, None] * away[:, None])).sum(0)
    error = covariance.diag().sqrt().max() * 5 / math.sqrt(n)
    torch.testing.assert_close(drawn[:, :2].mean(0), mean, atol=float(error), rtol=0)
    torch.testing.assert_close(drawn[:, :2].T.cov(), covariance, atol=0.03 * float(covariance.abs().max()), rtol=0)
    assert float(drawn[:, 2].mean()) == pytest.approx(float(one.pen_logit.sigmoid()), abs=0.01)


def test_a_bias_sharpens_all_three():
    found = mixture()
    torch.testing.assert_close(found.sharpened(0.0), found)
    neat = found.sharpened(2.0)
    torch.testing.assert_close(neat.std, found.std * math.exp(-2))
    assert (neat.log_weights.exp().amax(-1) >= found.log_weights.exp().amax(-1)).all()
    torch.testing.assert_close(neat.log_weights.exp().sum(-1), torch.ones(3, dtype=torch.float64))
    assert (neat.pen_logit.abs() >= found.pen_logit.abs()).all()
    torch.testing.assert_close(neat.means, found.means)


def test_no_bell_is_refused():
    with pytest.raises(BadInput, match="at least 1"):
        MixtureDensityHead(4, 0)
