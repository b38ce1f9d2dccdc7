"""Non-local blocks: the paper's formula, pixel by pixel, and the identity at the beginning."""

import torch

from regard.attention.capture.watch import watch
from regard.blocks.non_local import NonLocalBlock
from regard.models import build


def block(channels=6, stride=2):
    torch.manual_seed(0)
    made = NonLocalBlock(channels, stride).double().eval()
    with torch.no_grad():
        for tensor in made.state_dict().values():
            if tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
    return made


def by_the_formula(own, x):
    """z_i = W_z (Σ_j softmax_j(θ(x_i)ᵀ φ(x_j)) g(x_j)) + x_i, one position at a time."""
    theta, phi, g = (part[:, :, 0, 0] for part in own.qkv.weight.chunk(3))
    b_theta, b_phi, b_g = own.qkv.bias.chunk(3)
    rows = []
    for image in x:
        cells = image.flatten(1).T
        scores = torch.stack(
            [torch.stack([(theta @ a + b_theta) @ (phi @ b + b_phi) for b in cells]).softmax(0) for a in cells]
        )
        y = scores @ torch.stack([g @ b + b_g for b in cells])
        z = y @ own.out.weight[:, :, 0, 0].T + own.out.bias
        norm = own.norm
        z = (z - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        rows.append((z + cells).T.unflatten(1, image.shape[1:]))
    return torch.stack(rows)


def test_value_and_gradient_equal_the_papers_formula():
    own, images = block(), torch.randn(2, 3, 6, 10, dtype=torch.float64)
    x = 0.3 * torch.randn(2, 6, 3, 5, dtype=torch.float64)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    pull = torch.randn_like(x)
    found, expected = own(a, images), by_the_formula(own, b)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    mine = torch.autograd.grad((found * pull).sum(), [a, *own.parameters()])
    theirs = torch.autograd.grad((expected * pull).sum(), [b, *own.parameters()])
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_a_new_block_is_the_identity_and_learns():
    made = NonLocalBlock(8, 1).train()
    x = torch.randn(4, 8, 5, 7)
    out = made(x, x)
    assert torch.equal(out, x)
    (out * torch.randn_like(out)).sum().backward()
    assert made.norm.weight.grad.abs().max() > 0


def test_a_trained_network_is_unchanged_by_new_blocks():
    torch.manual_seed(0)
    plain, more = build("resnet", size="tiny").eval(), build("resnet", size="tiny", non_local=(0, 2)).eval()
    missing = more.load_state_dict(plain.state_dict(), strict=False).missing_keys
    assert missing
    assert all(name.startswith("non_local.") for name in missing)
    images = torch.randn(2, 3, 32, 24)
    with torch.no_grad():
        torch.testing.assert_close(more(images), plain(images))


def test_watch_sees_the_maps():
    model = build("resnet", size="tiny", non_local=(0, 2)).eval()
    with torch.no_grad(), watch(model) as seen:
        model(torch.randn(2, 3, 16, 24))
    assert {name: tuple(trace.weights.shape) for name, trace in seen.items()} == {
        "non_local.0": (2, 1, 384, 384),
        "non_local.2": (2, 1, 24, 24),
    }
    torch.testing.assert_close(seen["non_local.2"].weights.sum(-1), torch.ones(2, 1, 24))
