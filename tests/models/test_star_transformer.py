"""The Star-Transformer against a loop written from the paper."""

import torch

import regard
from regard.models import build

from .sequence_checks import check_encoder_equals_loop


def small(**settings):
    model = build("star_transformer", vocab=19, width=12, heads=3, layers=2, length=16, **settings)
    return model.eval()


def attend(mixer, query, context):
    """Multi-head attention of one query over a list of vectors."""
    q, (k, v) = mixer.project.project_q(query[None, None]), mixer.project.project_kv(torch.stack(context)[None])
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return mixer.join(weights @ v)[0, 0]


def by_loop(model, tokens):
    """The updates of the paper for one text, token by token."""
    e = list(model.embed(tokens) + model.positions.table.weight[: len(tokens)])
    h, s, n = e, torch.stack(e).mean(0), len(e)
    for layer in model.layers:
        h = [
            layer.ring_norm(attend(layer.ring, h[i], [h[i - 1], h[i], h[(i + 1) % n], e[i], s]).relu())
            for i in range(n)
        ]
        s = layer.relay_norm(attend(layer.relay, s, [*h, s]).relu())
    return torch.stack(h), (s + torch.stack(h).amax(0)) / 2


def test_it_is_the_loop_of_the_paper_in_value_and_gradient(double):
    model = small()
    tokens, lengths = torch.randint(19, (4, 9)), torch.tensor([9, 6, 2, 1])
    check_encoder_equals_loop(model, by_loop, tokens, lengths)


def test_watch_sees_the_ring_and_the_relay():
    model = small(head="classes(3)")
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randint(19, (2, 5)), lengths=torch.tensor([5, 3]))
    ring, relay = seen["layers.0.ring"].weights, seen["layers.1.relay"].weights
    assert ring.shape == (2, 3, 5, 11)
    assert relay.shape == (2, 3, 1, 6)
    for weights in (ring, relay):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    assert (ring[0, 0] > 0).sum(-1).tolist() == [5] * 5  # two neighbours, itself, its embedding, the relay
    assert ring[0, 0, 0, 4] > 0  # the ring is closed
    assert ring[1, 0, 0, 2] > 0  # where the text ends
    assert relay[1, ..., 3:5].max() == 0


def test_heads_of_tokens_need_no_last_relay():
    model = small(head="tags(4)")
    assert model(torch.randint(19, (2, 5))).shape == (2, 5, 4)
    assert model.layers[1].relay is None
    model.train()(torch.randint(19, (2, 5))).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
