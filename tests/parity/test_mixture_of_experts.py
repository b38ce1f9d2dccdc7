"""transformers' Mixtral block and our experts, from the same weights: values and gradients, router included."""

import pytest
import torch

from regard.blocks.mixture_of_experts import MixtureOfExperts

transformers = pytest.importorskip("transformers")
mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")


@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("implementation", ["loop", "dense"])
def test_mixture_of_experts_equals_mixtral(double, top_k, implementation):
    config = transformers.MixtralConfig(
        hidden_size=10, intermediate_size=14, num_local_experts=4, num_experts_per_tok=top_k, router_jitter_noise=0.0
    )
    config._experts_implementation = "eager"
    theirs = mixtral.MixtralSparseMoeBlock(config)
    ours = MixtureOfExperts(4, top_k, expert="swiglu", implementation=implementation, width=10, hidden=14, bias=False)
    with torch.no_grad():
        for p in theirs.parameters():
            p.normal_(std=0.5)
        ours.router.weight.copy_(theirs.gate.weight)
        gate, up = theirs.experts.gate_up_proj.chunk(2, dim=1)
        ours.gate.weight.copy_(gate)
        ours.up.weight.copy_(up)
        ours.down.weight.copy_(theirs.experts.down_proj)
    x, y = (torch.randn(3, 7, 10).requires_grad_() for _ in range(2))
    with torch.no_grad():
        y.copy_(x)
    expected, found = theirs(x), ours(y)
    # they take the softmax in float32, whatever the rest is in
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    wanted = torch.randn(3, 7, 10)
    (expected * wanted).sum().backward()
    (found * wanted).sum().backward()
    pairs = {
        "x": (y.grad, x.grad),
        "router": (ours.router.weight.grad, theirs.gate.weight.grad),
        "in": (torch.cat([ours.gate.weight.grad, ours.up.weight.grad], 1), theirs.experts.gate_up_proj.grad),
        "down": (ours.down.weight.grad, theirs.experts.down_proj.grad),
    }
    for name, (a, b) in pairs.items():
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=name)
