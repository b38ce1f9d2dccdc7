"""Sums: correct, reproducible, longer from epoch to epoch, none shared by two splits."""

import pytest
import torch

from regard.core.errors import BadInput, UnknownName
from regard.data.batching import StreamPosition
from regard.data.synthetic.arithmetic import EOS, FIRST_DIGIT, Arithmetic


def number(digits, base):
    return sum(int(d) * base**i for i, d in enumerate(digits))


@pytest.mark.parametrize("base", [2, 7, 10])
@pytest.mark.parametrize("layout", ["aligned", "line"])
def test_sums_are_correct(base, layout):
    data = Arithmetic(base=base, layout=layout)
    for digits in (1, 2, 9, 40):
        batch = next(data.load("val").eval_batches(digits))
        assert batch.source.max() < data.vocab_size
        assert batch.source_lengths.tolist() == [batch.source.shape[1]] * len(batch.source)
        for source, target in zip(batch.source, batch.target, strict=True):
            assert source[-1] == target[-1] == EOS
            read = source[:-1] - FIRST_DIGIT
            a, b = (read // base, read % base) if layout == "aligned" else (read[:digits], read[digits + 1 :])
            assert len(a) == len(b) == digits
            assert number(a, base) + number(b, base) == number(target[1:-1] - FIRST_DIGIT, base)


def test_curriculum_grows_to_the_longest_sums():
    data = Arithmetic(digits=9, initial_digits=2, digits_per_epoch=2, batch_size=4, batches_per_epoch=30)
    stream = data.load("train").stream(3)
    longest = [max(int(rows[0]) % (1 << 16) for rows in map(stream.order(e).__getitem__, range(30))) for e in range(6)]
    assert longest == [2, 4, 6, 8, 9, 9]
    every = {int(stream.order(5)[i][0]) % (1 << 16) for i in range(30)}
    assert len(every) > 4  # short ones come up again


def test_resumed_stream_continues():
    stream = Arithmetic(digits=6, batch_size=4, batches_per_epoch=5).load("train").stream(3)
    full = stream.start(StreamPosition())
    drawn = [next(full) for _ in range(12)]
    again = stream.start(drawn[6].next_position)
    for expected in drawn[7:]:
        for a, b in zip(next(again).batch, expected.batch, strict=True):
            assert torch.equal(a, b)


def test_splits_and_lengths_have_different_sums():
    data = Arithmetic(digits=30)
    batches = [next(data.load(part).eval_batches(30)).source for part in ("train", "val", "test")]
    rows = {tuple(row.tolist()) for batch in batches for row in batch}
    assert len(rows) == 150
    assert not torch.equal(next(data.load("val").eval_batches(20)).source[:, :20], batches[1][:, :20])


def test_bad_settings_are_refused():
    for settings, message in (
        ({"base": 11}, "data.base must be from 2 to 10, got 11"),
        ({"digits": 0}, "data.digits must be at least 1, got 0"),
        ({"test_digits": (0, 3)}, "data.test_digits must be at least 1"),
        ({"digits": 1 << 17}, "at most"),
    ):
        with pytest.raises(BadInput, match=message):
            Arithmetic(**settings)
    with pytest.raises(UnknownName, match="no split 'dev'"):
        Arithmetic().split("dev")
