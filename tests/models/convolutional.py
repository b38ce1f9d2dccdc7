"""What the tests of the three convolutional models share: small models, batches, and simple twins."""

import torch

import regard

SMALL = {
    "convs2s": {"width": 12, "hidden": 10, "encoder_layers": 2, "decoder_layers": 2, "wider": ((14, 3), (6, 1))},
    "bytenet": {"width": 12, "encoder_layers": 3, "decoder_layers": 4, "dilations": (1, 2, 4)},
    "multiplicative": {"width": 12, "encoder_layers": 2, "decoder_layers": 3, "block": "multiplicative"},
    "neural_gpu": {"width": 6, "rows": 3, "spare": 2.0},
    "image": {"width": 6, "rows": 3, "spare": 2.0, "writer": "image"},
}
FAMILY = {"multiplicative": "bytenet", "image": "neural_gpu"}
EOS = 2


def small(name, seed=0, louder=2.0, **settings):
    """A small model with larger weights: sharper, more varied outputs than a fresh one's."""
    torch.manual_seed(seed)
    model = regard.build(FAMILY.get(name, name), vocab=11, **SMALL[name] | {"dropout": 0.1} | settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(louder)
    return model.double().eval()


def ragged(batch=6, longest=9, vocab=11, seed=1):
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (batch,), generator=g)
    source = torch.randint(3, vocab, (batch, longest), generator=g)
    source[torch.arange(longest)[None] >= lengths[:, None]] = 0
    return source[:, : int(lengths.max())], lengths


def targets(batch=6, length=7, vocab=11, seed=2):
    target = torch.randint(3, vocab, (batch, length), generator=torch.Generator().manual_seed(seed))
    target[:, 0] = 1
    return target


def brute_beam(model, source, limit, beams, penalty):
    """Beam search on Python lists that runs the whole model again for every word; stops as tasks/search.py does."""

    def scores(tokens):
        with torch.no_grad():
            return model(source[None], torch.tensor([[model.config.bos, *tokens]]))[0, -1].log_softmax(-1).tolist()

    live, pool = [([], 0.0)], []
    for t in range(1, limit + 1):
        grown = [(total + p, tokens, word) for tokens, total in live for word, p in enumerate(scores(tokens))]
        grown = sorted(grown, key=lambda c: -c[0])[: 2 * beams]
        pool += [(total / t**penalty, tokens) for total, tokens, word in grown[:beams] if word == EOS]
        pool = sorted(pool, key=lambda h: -h[0])[:beams]
        live = [([*tokens, word], total) for total, tokens, word in grown if word != EOS][:beams]
        if t == limit:
            cut = sorted(((total / t**penalty, tokens) for tokens, total in live), key=lambda h: -h[0])
            return pool + cut[: beams - len(pool)]
        if len(pool) == beams and live[0][1] / t**penalty <= pool[-1][0]:
            return pool
    return pool
