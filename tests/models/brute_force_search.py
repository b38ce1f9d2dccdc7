"""Ragged batches, and a search that is too simple to be wrong: Python lists, the whole model re-run at every step."""

import torch

EOS = 2


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


def all_log_probs(model, source, outputs):
    """The model re-run from nothing: for outputs of one length, log-probabilities of the token after bos + tokens."""
    target = torch.tensor([[model.config.bos, *tokens] for tokens in outputs])
    with torch.no_grad():
        return model(source.expand(len(outputs), -1), target)[:, -1].log_softmax(-1).tolist()


def log_probs(model, source, tokens):
    """The same of one output."""
    return all_log_probs(model, source, [tokens])[0]


def brute_beam(model, source, limit, beams, penalty, groups=1, diversity=0.0):
    """Score, tokens and whether it ended of every output, best first; stops as decoding/beam_search.py does."""
    each = beams // groups
    live = [[([], 0.0)] for _ in range(groups)]
    pools = [[] for _ in range(groups)]
    for t in range(1, limit + 1):
        used = {}
        for g in range(groups):
            grown = []
            everything = all_log_probs(model, source, [tokens for tokens, _ in live[g]])
            for (tokens, total), scores in zip(live[g], everything, strict=True):
                grown += [(total + s - diversity * used.get(w, 0), total + s, tokens, w) for w, s in enumerate(scores)]
            grown = sorted(grown, key=lambda c: -c[0])[: 2 * each]
            for _, total, tokens, word in grown[:each]:
                if word == EOS:
                    pools[g].append((total / t**penalty, tokens, True))
            pools[g] = sorted(pools[g], key=lambda h: -h[0])[:each]
            live[g] = [([*tokens, word], total) for _, total, tokens, word in grown if word != EOS][:each]
            for tokens, _ in live[g]:
                used[tokens[-1]] = used.get(tokens[-1], 0) + 1
        if t == limit:
            for g in range(groups):
                spare = each - len(pools[g])
                cut = sorted(((total / t**penalty, tokens, False) for tokens, total in live[g]), key=lambda h: -h[0])
                pools[g] += cut[:spare]
            break
        if all(len(p) == each and live[g][0][1] / t**penalty <= p[-1][0] for g, p in enumerate(pools)):
            break
    ended = sorted((h for p in pools for h in p if h[2]), key=lambda h: -h[0])
    return ended + sorted((h for p in pools for h in p if not h[2]), key=lambda h: -h[0])
