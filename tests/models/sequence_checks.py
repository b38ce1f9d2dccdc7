"""What must hold for every model from a source and a target to logits of the next token, and for text encoders."""

import torch


def check_batch_equals_singles(model, source, target, lengths, written=None, **tolerance):
    """`written`: the lengths of the targets, which the model is then told; None: all of the same."""
    ends = [target.shape[1]] * len(source) if written is None else written.tolist()
    found = model(source, target, lengths) if written is None else model(source, target, lengths, written)
    for row, (length, end) in enumerate(zip(lengths.tolist(), ends, strict=True)):
        single = model(source[row : row + 1, :length], target[row : row + 1, :end])
        torch.testing.assert_close(found[row : row + 1, :end], single, **tolerance)


def check_padding_has_no_influence(model, source, target, lengths):
    padding = torch.arange(source.shape[1])[None] >= lengths[:, None]
    found = model(source, target, lengths)
    loud = torch.where(padding, torch.randint(3, 11, source.shape), source)
    torch.testing.assert_close(model(loud, target, lengths), found, rtol=0, atol=0)
    wider = torch.cat([source, torch.full((len(source), 5), 7)], 1)
    torch.testing.assert_close(model(wider, target, lengths), found)


def check_padding_gets_no_gradient(model, source, target, lengths):
    """Of all tokens, only padding is a 7."""
    padding = torch.arange(source.shape[1])[None] >= lengths[:, None]
    quiet = torch.where(source == 7, 8, source).masked_fill(padding, 7)
    model(quiet, torch.where(target == 7, 8, target), lengths).square().sum().backward()
    assert model.embed.weight.grad[7].abs().max() == 0
    assert model.embed.weight.grad[8].abs().max() > 0


def check_steps_equal_one_forward(model, source, target, lengths, capacity=None):
    steps = target.shape[1]
    whole = model(source, target, lengths)
    first, state = model.start(source, lengths, capacity=steps if capacity is None else capacity)
    assert first.tolist() == [[model.config.bos]] * len(source)
    for t in range(steps):
        logits, state = model.step(target[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t], rtol=1e-9, atol=1e-9)


def check_encoder_equals_loop(model, by_loop, tokens, lengths):
    """`by_loop` gives the vectors of the tokens of one text and that of the text, as a paper has them."""
    hidden, pooled = model.encode(tokens, lengths=lengths)
    found = total = 0.0
    for b, n in enumerate(lengths.tolist()):
        expected = by_loop(model, tokens[b, :n])
        for ours, reference in zip((hidden[b, :n], pooled[b]), expected, strict=True):
            torch.testing.assert_close(ours, reference)
            found, total = found + ours.square().sum(), total + reference.square().sum()
    gradients = (torch.autograd.grad(x, list(model.parameters())) for x in (found, total))
    for ours, reference in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, reference)
