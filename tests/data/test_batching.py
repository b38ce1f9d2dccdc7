import itertools
import threading

import pytest
import torch

from regard.core.errors import BadInput
from regard.data.batching import Place, Stream, TokenBatches, prefetch


def lengths(n=500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(1, 40, (n,), generator=generator)
    return source, (source + torch.randint(-3, 4, (n,), generator=generator)).clamp(min=1)


def stream(seed=3, tokens=256):
    s, t = lengths()
    return Stream(lambda epoch: TokenBatches(s, t, tokens=tokens, seed=seed, epoch=epoch), lambda rows: rows, len)


def test_every_row_comes_once_an_epoch():
    batches = TokenBatches(*lengths(), tokens=256)
    assert sorted(torch.cat(list(batches)).tolist()) == list(range(500))


@pytest.mark.parametrize("multiple", [1, 8])
def test_no_batch_is_larger_than_asked_and_few_are_much_smaller(multiple):
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


def test_batches_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    TokenBatches(*lengths(), tokens=256)
    assert torch.equal(before, torch.get_rng_state())


def test_a_row_longer_than_a_batch_is_an_error_that_says_what_to_do():
    with pytest.raises(BadInput, match=r"data\.tokens"):
        TokenBatches(torch.tensor([5, 70]), torch.tensor([5, 5]), tokens=64)


def test_no_rows_is_an_error():
    with pytest.raises(BadInput, match="nothing"):
        TokenBatches(torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long))


def test_a_stream_can_be_taken_up_anywhere_also_across_epochs():
    whole = list(itertools.islice(stream().start(Place()), 150))
    assert whole[-1].after.epoch >= 2  # the law is worth little within one epoch
    for k in (0, 1, 17, 60, 120):
        place = whole[k].after
        again = list(itertools.islice(stream().start(place), 10))
        for a, b in zip(whole[k + 1 : k + 11], again, strict=True):
            assert torch.equal(a.batch, b.batch)
            assert a.after == b.after


def test_a_place_beyond_the_data_is_refused():
    with pytest.raises(BadInput, match="not the data"):
        next(stream().start(Place(0, 10_000)))


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
