"""Routing by agreement against loops over tokens, heads and wholes."""

import math

import pytest
import torch

from regard.attention.joins import JOINS
from regard.attention.mixers import build_mixer
from regard.core.errors import RegardError
from regard.core.spec import build_part
from regard.models import build

SIZES = {"width": 12, "heads": 4, "head_dim": 5}


@pytest.fixture(autouse=True)
def _double(double):
    pass


def join(spec):
    made = build_part(JOINS, spec, "join", **SIZES)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def votes_of(made, heads, token):
    """V[h][s], of one token."""
    return [(heads[h, token] @ made.votes[h]).unflatten(0, (made.capsules, -1)) for h in range(4)]


def simple_by_loop(made, heads, token):
    votes, s = votes_of(made, heads, token), made.capsules
    b = torch.zeros(4, s)
    for _ in range(made.iterations):
        c = b.softmax(-1)
        whole = [sum(c[h, i] * votes[h][i] for h in range(4)) / sum(c[h, i] for h in range(4)) for i in range(s)]
        b = b + torch.stack([torch.stack([whole[i] @ votes[h][i] for i in range(s)]) for h in range(4)])
    return torch.cat(whole) + made.bias


def em_by_loop(made, heads, token):
    votes, s = votes_of(made, heads, token), made.capsules
    active = [torch.sigmoid(heads[h, token] @ made.activation[h]) for h in range(4)]
    shares = torch.full((4, s), 1 / s)
    for _ in range(made.iterations):
        means, variances, a = [], [], []
        for i in range(s):
            r = [shares[h, i] * active[h] for h in range(4)]
            mean = sum(r[h] * votes[h][i] for h in range(4)) / sum(r)
            variance = sum(r[h] * (votes[h][i] - mean) ** 2 for h in range(4)) / sum(r) + 1e-6
            cost = ((made.beta_u[i] + variance.sqrt().log()) * sum(r)).sum()
            a.append(torch.sigmoid((made.beta_a[i] - cost) / made.temperature))
            means.append(mean)
            variances.append(variance)
        density = torch.stack(
            [
                torch.stack(
                    [
                        (torch.exp(-((votes[h][i] - means[i]) ** 2) / (2 * variances[i]))
                         / (2 * math.pi * variances[i]).sqrt()).prod() * a[i]
                        for i in range(s)
                    ]
                )
                for h in range(4)
            ]
        )  # fmt: skip
        shares = density / density.sum(-1, keepdim=True)
    return torch.cat([a[i] * means[i] for i in range(s)]) + made.bias


@pytest.mark.parametrize(
    ("spec", "loop"),
    [("simple_routing(capsules=3)", simple_by_loop), ("em_routing(capsules=3, temperature=2.0)", em_by_loop)],
)
def test_it_is_the_algorithm_in_value_and_gradient(spec, loop):
    made, heads = join(spec), torch.randn(2, 4, 5, 5, requires_grad=True)
    found = made(heads)
    expected = torch.stack([torch.stack([loop(made, heads[b], n) for n in range(5)]) for b in range(2)])
    torch.testing.assert_close(found, expected)
    inputs = [heads, *made.parameters()]
    for a, b in zip(*(torch.autograd.grad(x.square().sum(), inputs) for x in (found, expected)), strict=True):
        torch.testing.assert_close(a, b)


def test_heads_that_agree_outvote_one_that_does_not():
    made = build_part(JOINS, "simple_routing(iterations=4)", "join", **SIZES)
    same, other = torch.randn(5) * 3, torch.randn(5) * 3
    with torch.no_grad():
        made.votes.copy_(made.votes[:1].expand(4, -1, -1))  # all heads speak the same language
        heads = torch.stack([same, same, same, other])[None, :, None]
        votes = made.votes[0]
        routed, mean = made(heads)[0, 0], heads[0, :, 0].mean(0) @ votes
        agreed, alone = same @ votes, other @ votes

    def closer(x):
        return float((x - agreed).norm() / (x - alone).norm())

    assert closer(routed) < closer(mean)


@pytest.mark.parametrize("name", ["simple_routing", "em_routing"])
def test_models_take_it_and_half_precision_stays_finite(name):
    model = build("bert", vocab=11, width=16, heads=2, layers=2, length=8, head=None,
                  attention=f"multihead(join='{name}')")  # fmt: skip
    model(torch.randint(11, (2, 5))).square().sum().backward()
    assert all(
        p.grad is not None and torch.isfinite(p.grad).all() for n, p in model.named_parameters() if "pool" not in n
    )
    half = build_part(JOINS, name, "join", **SIZES).half()
    assert torch.isfinite(half(100 * torch.randn(1, 4, 3, 5).half())).all()


def test_capsules_that_do_not_divide_the_width_are_refused():
    with pytest.raises(RegardError, match="not divisible by 5 capsules"):
        build_mixer("multihead(join='simple_routing(capsules=5)')", width=12, heads=4)
