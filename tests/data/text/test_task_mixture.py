"""Mixtures: shares, determinism, resuming, truncation."""

from collections import Counter
from dataclasses import dataclass
from itertools import islice

import pytest

from regard.core.errors import BadInput, UnknownName
from regard.data import TEXT_TASKS
from regard.data.batching import StreamPosition, prefetch
from regard.data.text.task_mixture import TaskMixture, _example_order
from regard.data.text.text_tasks import Example


@dataclass(frozen=True)
class Count:
    """A given number of examples: a number, and the number after it."""

    size: int = 10
    name: str = "count"
    metric: str = "accuracy"
    word: str = "tick"

    @property
    def prefix(self):
        return f"{self.name}: "

    def splits(self):
        return ["test", "train", "val"]

    def read(self, split):
        numbers = range(self.size if split == "train" else 3)
        return [Example(f"{self.word} " * (1 + n % 5) + str(n), str(n + 1), (str(n + 1),)) for n in numbers]


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    monkeypatch.setitem(TEXT_TASKS, "count", (__name__, "Count"))


TASKS = ("count(size=90, name='large')", "count(size=30, name='middle')", "count(size=10, name='small')")


def mixture(**settings):
    return TaskMixture(**({"tasks": TASKS, "vocab_size": 320, "batch_tokens": 200, "max_length": 40} | settings))


def load(settings, split="train"):
    return settings.load(split, settings.build_tokenizer())


def names(part, batches):
    """The task of each row of some batches, from its prefix."""
    text = part.tokenizer
    return Counter(line.split(":")[0] for batch in batches for line in text.decode(batch.source.tolist()))


@pytest.mark.parametrize(
    ("temperature", "cap", "shares"),
    [
        (1.0, 2**21, [90 / 130, 30 / 130, 10 / 130]),
        (1.0, 20, [20 / 50, 20 / 50, 10 / 50]),
        (2.0, 2**21, [90**0.5, 30**0.5, 10**0.5]),
        (1e9, 2**21, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_task_shares_equal_the_paper(temperature, cap, shares):
    part = load(mixture(temperature=temperature, max_examples_per_task=cap))
    assert part.shares() == pytest.approx([share / sum(shares) for share in shares])
    drawn = list(islice(part.stream(0).start(StreamPosition()), len(part.stream(0).order(0))))
    assert drawn[-1].next_position == StreamPosition(1, 0)
    found = names(part, [d.batch for d in drawn])
    assert [found[name] for name in ("large", "middle", "small")] == part.counts()
    assert sum(part.counts()) == pytest.approx(sum(min(n, cap) for n in (90, 30, 10)), abs=2)


def test_every_example_occurs_once_per_pass():
    seen = [_example_order(7, begin, 5, key=3).tolist() for begin in range(0, 70, 5)]
    steps = [row for each in seen for row in each]
    for lap in range(10):
        assert sorted(steps[7 * lap : 7 * lap + 7]) == list(range(7))
    assert steps[:7] != steps[7:14]


def test_batches_do_not_depend_on_threads_processes_or_start():
    stream = load(mixture(temperature=2.0)).stream(seed=1)
    full = list(islice(stream.start(StreamPosition()), 40))
    assert max(item.next_position.epoch for item in full) >= 1
    later = list(islice(stream.start(full[12].next_position), 27))
    for a, b in zip(full[13:], later, strict=True):
        assert a.batch.source.equal(b.batch.source)
        assert a.batch.target.equal(b.batch.target)
    with prefetch(stream.start(StreamPosition()), workers=3) as batches:
        for a, b in zip(full, islice(batches, 40), strict=True):
            assert a.batch.target.equal(b.batch.target)
    shares = [list(islice(stream.start(StreamPosition(), share, 2), 4)) for share in range(2)]
    for n in range(4):
        assert full[n].count == shares[0][n].count + shares[1][n].count
    other = next(load(mixture(temperature=2.0)).stream(seed=2).start(StreamPosition())).batch
    assert not (other.source.shape == full[0].batch.source.shape and other.source.equal(full[0].batch.source))


def test_rows_of_different_tasks_share_batches():
    part = load(mixture())
    batches = [d.batch for d in islice(part.stream(0).start(StreamPosition()), 10)]
    assert max(len(names(part, [batch])) for batch in batches) > 1


def test_source_has_its_prefix_and_target_its_special_tokens():
    part = load(mixture())
    text, task = part.tokenizer, part.tasks[1]
    assert text.decode([task.source.row(4)]) == ["middle: tick tick tick tick tick 4"]
    assert task.source.row(4)[-1] == text.eos
    assert task.target.row(4) == [text.bos, *text.encode_one("5"), text.eos]


def test_long_inputs_are_truncated_or_refused():
    long = ("count(size=20, word='a very long word indeed')",)
    part = load(mixture(tasks=long, max_length=20))
    assert part.tasks[0].cut > 0
    assert int(part.tasks[0].source.lengths.max()) == 20
    assert f"{part.tasks[0].cut} cut" in part.card()
    with pytest.raises(BadInput, match=r"raise data\.max_length"):
        load(mixture(tasks=long, max_length=20, overflow="error"))


def test_unknown_tasks_are_refused_with_a_hint():
    with pytest.raises(UnknownName, match="did you mean 'translate'"):
        mixture(tasks=("tranlate",)).parts()
    with pytest.raises(BadInput, match="distinct names"):
        mixture(tasks=("count", "count")).parts()
    with pytest.raises(BadInput, match="temperature"):
        load(mixture(temperature=0.0)).shares()


def test_an_epoch_of_batches_fits_the_limit_of_tokens():
    part = load(mixture())
    for item in islice(part.stream(0).start(StreamPosition()), 20):
        rows, n = item.batch.source.shape
        assert rows * max(n, item.batch.target.shape[1] - 1) <= 200
