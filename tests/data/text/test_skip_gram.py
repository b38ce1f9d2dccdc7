"""Context windows: subsampling, contexts, negatives; each batch depends on its position alone."""

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition
from regard.data.ragged import RaggedTensor
from regard.data.shuffle import random_bits
from regard.data.text.skip_gram import NO_WORD, AliasTable, ContextWindows, keep_probability

SENTENCES = [[4, 5, 6, 7, 8, 9], [10, 3, 11], [12], [5, 6]]  # 3 is not known


def nearby(**settings):
    text = RaggedTensor.from_rows(SENTENCES)
    counts = np.bincount(text.values.numpy(), minlength=14)
    counts[3] = 0
    return ContextWindows(text, counts, **{"batch_size": 4, "window": 3, "negatives": 2, "sample": 0.0} | settings)


def test_negatives_are_sampled_by_frequency_to_the_power():
    counts = np.array([0, 1, 5, 40, 200, 0, 13])
    draw = AliasTable(np.where(counts > 0, counts**0.75, 0.0))
    n = 400_000
    found = np.bincount(draw(random_bits(7, np.arange(n))), minlength=7) / n
    expected = counts**0.75 / (counts**0.75).sum()
    assert found[0] == found[5] == 0
    assert np.abs(found - expected).max() < 4 * np.sqrt(0.25 / n)
    flat = np.bincount(AliasTable(counts.astype(float))(random_bits(7, np.arange(n))), minlength=7) / n
    assert abs(flat[4] - expected[4]) > 0.05  # the power matters


def test_alias_table_represents_the_weights_exactly():
    weights = np.random.default_rng(0).random(37) ** 3
    table = AliasTable(weights)
    mass = table.share.copy()
    np.add.at(mass, table.other, 1 - table.share)
    np.testing.assert_allclose(mass / 37, weights / weights.sum(), atol=1e-12)
    with pytest.raises(BadInput, match="weights must not be negative"):
        AliasTable(np.zeros(3))


def test_subsampling_probability_equals_the_formula():
    counts = np.array([100_000, 1000, 10, 0])
    keep = keep_probability(counts, 1e-3)
    f = counts / counts.sum()
    np.testing.assert_allclose(keep[0], np.sqrt(1e-3 / f[0]) + 1e-3 / f[0])
    assert keep[2] == keep[3] == 1
    assert (keep_probability(counts, 0.0) == 1).all()
    text = RaggedTensor.from_rows([[0] * 100 + [1]] * 1000)
    count = ContextWindows(text, np.array([100_000, 1000]), batch_size=8, sample=1e-3)
    stored = [count.subsampled(0, e).words for e in (0, 1)]
    assert abs((stored[0] == 0).mean() * len(stored[0]) / 100_000 - keep[0]) < 0.003
    assert len(stored[0]) != len(stored[1]) or (stored[0] != stored[1]).any()  # drawn anew each epoch


def test_windows_stay_within_their_sentence_and_reach():
    found, sizes = nearby(), []
    batches = list(found.eval_batches())
    words = torch.cat([b.words for b in batches]).tolist()
    assert words == [4, 5, 6, 7, 8, 9, 10, 11, 12, 5, 6]
    contexts = torch.cat([b.contexts for b in batches])
    rows = [[w for w in row if w != NO_WORD] for row in contexts.tolist()]
    assert set(rows[0]) <= {5, 6, 7}
    assert rows[6] == [11]  # the unknown word between them is passed over
    assert rows[7] == [10]
    assert rows[8] == []
    assert rows[9] == [6]
    for epoch in range(60):
        place = epoch * len(found) + 2  # the word 6 of the first sentence
        row = found.collate(torch.tensor([place])).contexts[0].tolist()
        reach = max(i for i in range(1, 4) if row[2 + i] != NO_WORD)
        assert row[3 : 3 + reach] == [7, 8, 9][:reach]
        assert row[3 - min(reach, 2) : 3] == [4, 5][2 - min(reach, 2) :]
        sizes.append(reach)
    assert {sizes.count(n) for n in (1, 2, 3)} <= set(range(9, 32))  # each about a third


def test_a_batch_depends_on_its_position_alone():
    a = [next_ for next_, _ in zip(nearby(sample=0.05).stream(3).start(StreamPosition()), range(9), strict=False)]
    again = nearby(sample=0.05).stream(3).start(a[4].next_position)
    for drawn_ in a[5:]:
        other = next(again)
        assert other.next_position == drawn_.next_position
        assert all(torch.equal(x, y) for x, y in zip(other.batch, drawn_.batch, strict=True))
    halves = [next(nearby(sample=0.05).stream(3).start(StreamPosition(), share, 2)).batch for share in (0, 1)]
    full = a[0].batch
    assert torch.equal(full.contexts[::2], halves[0].contexts)
    assert torch.equal(full.negatives[1::2], halves[1].negatives)


def test_epoch_has_every_kept_word_once():
    found = nearby()
    stream = found.stream(0).start(StreamPosition())
    words = []
    while True:
        drawn_ = next(stream)
        words += drawn_.batch.words.tolist()
        if drawn_.next_position.epoch:
            break
    assert sorted(words) == sorted(found.subsampled(0, 0).words.tolist())


def test_invalid_windows_are_refused():
    with pytest.raises(BadInput, match="1 or more"):
        nearby(window=0)
    with pytest.raises(BadInput, match="fewer than two"):
        ContextWindows(RaggedTensor.from_rows([[3]]), np.zeros(5, int), batch_size=2)
