"""What comparisons of image models have in common."""

import copy

import torch

from regard.weights.table import write


def shaken(model, by=0.3):
    """A model in float64, every tensor of it away from its initial value."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * by)
    return model


def same(found, expected, far=1e-10):
    torch.testing.assert_close(found, expected, rtol=far, atol=far)


def gradients_agree(theirs, expected, ours, found, table, named=lambda state: state):
    """The gradients of all their parameters, for one pull at the answers, are ours read through the table."""
    pull = torch.randn_like(expected)
    (expected * pull).sum().backward()
    (found * pull).sum().backward()
    held = copy.deepcopy(ours)  # a model that holds the gradients, so that the table can carry them over
    with torch.no_grad():
        for mine, parameter in zip(held.parameters(), ours.parameters(), strict=True):
            mine.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    mapped = write(table, held)
    wanted = {name: p.grad for name, p in named(dict(theirs.named_parameters())).items() if p.grad is not None}
    for name, gradient in wanted.items():
        torch.testing.assert_close(mapped[name], gradient, rtol=1e-7, atol=1e-9, msg=name)
    assert wanted.keys() == mapped.keys()


def round_trip(theirs, table, ours):
    """Their tensors, read into ours and written again, are the same to the bit."""
    back = write(table, ours)
    assert back.keys() == theirs.keys()
    for name, value in theirs.items():
        assert torch.equal(back[name], value), name
