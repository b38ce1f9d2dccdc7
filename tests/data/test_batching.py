import itertools
import threading
import time

import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import BatchStream, LengthBucketedBatches, RowBatches, StreamPosition, TokenBatches, prefetch


def lengths(n=500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(1, 40, (n,), generator=generator)
    return source, (source + torch.randint(-3, 4, (n,), generator=generator)).clamp(min=1)


def stream(seed=3, tokens=256):
    s, t = lengths()
    return BatchStream(lambda epoch: TokenBatches(s, t, tokens=tokens, seed=seed, epoch=epoch), lambda rows: rows, len)


def test_epoch_has_every_row_once():
    batches = TokenBatches(*lengths(), tokens=256)
    assert sorted(torch.cat(list(batches)).tolist()) == list(range(500))


@pytest.mark.parametrize("multiple", [1, 8])
def test_batches_are_within_the_token_limit_and_nearly_full(multiple):
    s, t = lengths()
    sizes = []
    for rows in TokenBatches(s, t, tokens=512, multiple=multiple):
        longest = max(int(s[rows].max()), int(t[rows].max()))
        sizes.append(len(rows) * -(-longest // multiple) * multiple)
    assert max(sizes) <= 512
    assert sum(size < 400 for size in sizes) <= 0.15 * len(sizes) + 1


def test_little_of_a_batch_is_padding():
    s, t = lengths(5000)
    real = padded = 0
    for rows in TokenBatches(s, t, tokens=2048):
        real += int(s[rows].sum())
        padded += len(rows) * int(s[rows].max())
    assert real / padded > 0.9


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        return [rows.tolist() for rows in TokenBatches(*lengths(), tokens=256, seed=seed, epoch=epoch)]

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)
    assert order(1, 2) != order(2, 1)


def test_batching_does_not_use_the_global_generator():
    before = torch.get_rng_state()
    TokenBatches(*lengths(), tokens=256)
    assert torch.equal(before, torch.get_rng_state())


def test_row_longer_than_a_batch_says_what_to_do():
    with pytest.raises(BadInput, match=r"data\.batch_tokens"):
        TokenBatches(torch.tensor([5, 70]), torch.tensor([5, 5]), tokens=64)


def test_no_rows_is_an_error():
    with pytest.raises(BadInput, match="no usable sentence pair"):
        TokenBatches(torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long))


def test_stream_can_be_resumed_anywhere():
    full = list(itertools.islice(stream().start(StreamPosition()), 150))
    assert full[-1].next_position.epoch >= 2  # the law is worth little within one epoch
    for k in (0, 1, 17, 60, 120):
        place = full[k].next_position
        again = list(itertools.islice(stream().start(place), 10))
        for a, b in zip(full[k + 1 : k + 11], again, strict=True):
            assert torch.equal(a.batch, b.batch)
            assert a.next_position == b.next_position


def test_a_position_beyond_the_data_is_refused():
    with pytest.raises(BadInput, match="not the data"):
        next(stream().start(StreamPosition(0, 10_000)))


@pytest.mark.parametrize("shares", [1, 2, 3, 7, 64])
def test_replicas_together_give_the_batch(shares):
    full = list(itertools.islice(stream().start(StreamPosition()), 60))
    parts = [list(itertools.islice(stream().start(StreamPosition(), i, shares), 60)) for i in range(shares)]
    for k, item in enumerate(full):
        own = [part[k] for part in parts]
        assert sorted(row for d in own if d.count for row in d.batch.tolist()) == sorted(item.batch.tolist())
        assert sum(d.count for d in own) == item.count
        assert {d.next_position for d in own} == {item.next_position}


def test_a_replica_without_rows_gets_the_first_one_and_counts_zero():
    first = next(stream().start(StreamPosition())).batch
    item = next(stream().start(StreamPosition(), 998, 999))
    assert item.count == 0
    assert item.batch.tolist() == first[:1].tolist()


@pytest.mark.parametrize("share", [-1, 2])
def test_an_invalid_replica_is_refused(share):
    with pytest.raises(BadInput, match="replica must be 0 to 1"):
        stream().start(StreamPosition(), share, 2)


def test_data_without_a_batch_raises():
    empty = BatchStream(lambda epoch: [], lambda rows: rows, len)
    with pytest.raises(BadInput, match="the data have no batch"):
        next(empty.start(StreamPosition()))


def uneven(seed=3):
    """A stream whose batches finish out of order."""
    made = stream(seed)

    def collate(rows):
        time.sleep(0.003 * (int(rows[0]) % 4))
        return rows

    return BatchStream(made.order, collate, len)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_order_is_the_same_for_any_number_of_workers(workers):
    plain = list(itertools.islice(stream().start(StreamPosition()), 100))
    with prefetch(uneven().start(StreamPosition()), ahead=4, workers=workers) as items:
        for a, b in zip(plain, itertools.islice(items, 100), strict=True):
            assert torch.equal(a.batch, b.batch)
            assert (a.count, a.next_position) == (b.count, b.next_position)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("k", [0, 17, 60])
def test_a_prefetched_stream_can_be_resumed_anywhere_with_any_number_of_workers(workers, k):
    full = list(itertools.islice(stream().start(StreamPosition()), 80))
    with prefetch(uneven().start(full[k].next_position, 1, 2), workers=workers) as items:
        for a, b in zip(full[k + 1 : k + 13], itertools.islice(items, 12), strict=True):
            assert torch.equal(a.batch[1::2], b.batch)
            assert a.next_position == b.next_position


def test_workers_run_in_parallel():
    together = threading.Barrier(3)  # none of the three gets on before all are there

    def collate(rows):
        if not together.broken:
            together.wait(timeout=20)
        return rows

    with prefetch(BatchStream(stream().order, collate, len).start(StreamPosition()), workers=3) as items:
        assert len(list(itertools.islice(items, 3))) == 3
        assert not together.broken
        together.abort()  # whoever waits for the next three


@pytest.mark.parametrize("workers", [1, 4])
def test_worker_error_is_raised_in_order_and_again(workers):
    def collate(rows):
        if torch.equal(rows, bad):
            raise BadInput("the shard is gone")
        return rows

    order = stream().order
    bad = order(0)[5]
    with prefetch(BatchStream(order, collate, len).start(StreamPosition()), workers=workers) as items:
        for i in range(5):
            assert torch.equal(next(items).batch, order(0)[i])
        for _ in range(2):
            with pytest.raises(BadInput, match="gone"):
                next(items)


@pytest.mark.parametrize("workers", [1, 4])
def test_exit_ends_all_workers(workers):
    running = set(threading.enumerate())
    with prefetch(uneven().start(StreamPosition()), ahead=2, workers=workers) as items:
        next(items)
        assert len(set(threading.enumerate()) - running) == workers
    assert set(threading.enumerate()) <= running
    assert list(items) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_prefetch_respects_its_limit(workers):
    made = []
    with prefetch(
        BatchStream(stream().order, lambda rows: made.append(1), lambda _: 1).start(StreamPosition()), 4, None, workers
    ):
        time.sleep(0.1)
        assert len(made) == 4


def test_no_worker_is_refused():
    with pytest.raises(BadInput, match="1 or more"):
        prefetch(iter(range(3)), workers=0)


def test_prefetch_gives_the_same_items_and_ends_its_thread():
    running = threading.active_count()
    with prefetch(iter(range(1000)), ahead=4, prepare=lambda x: 2 * x) as items:
        assert list(itertools.islice(items, 100)) == [2 * i for i in range(100)]
    assert threading.active_count() == running


def test_prefetch_ends_with_its_source():
    with prefetch(iter(range(5))) as items:
        assert list(items) == [0, 1, 2, 3, 4]


def test_an_error_in_the_thread_is_raised_by_next():
    def failing():
        yield 1
        raise BadInput("the file is gone")

    with prefetch(failing()) as items:
        assert next(items) == 1
        with pytest.raises(BadInput, match="gone"):
            next(items)


def test_row_batches_have_every_row_once():
    order = RowBatches(100, 8, key=3)
    rows = torch.cat([order[i] for i in range(len(order))])
    assert len(order) == 12
    assert len(set(rows.tolist())) == 96
    assert rows.tolist() != torch.cat([RowBatches(100, 8, key=4)[i] for i in range(12)]).tolist()
    assert RowBatches(5, 8, key=3)[0].shape == (5,)  # less than a batch is one
    assert len(RowBatches(0, 8, key=3)) == 0
    with pytest.raises(IndexError):
        order[12]
    with pytest.raises(BadInput, match="batch_size must be 1 or more"):
        RowBatches(5, 0, key=3)


def test_length_bucketed_batches():
    long = lengths(2000)[0]
    order, other = LengthBucketedBatches(long, 8, key=3), LengthBucketedBatches(long, 8, key=4)
    rows = [order[i] for i in range(len(order))]
    assert len(set(torch.cat(rows).tolist())) == 2000
    assert {len(batch) for batch in rows} == {8}
    padding = sum(int(long[batch].max()) * 8 - int(long[batch].sum()) for batch in rows) / int(long.sum())
    assert padding < 0.1  # of rows as they come it is more than four fifths
    assert {frozenset(b.tolist()) for b in rows}.isdisjoint({frozenset(other[i].tolist()) for i in range(len(other))})
    heights = [int(long[batch].max()) for batch in rows]
    assert heights != sorted(heights)  # short and long ones come in turn
