"""Who waits, who runs together, and that nobody pays for another."""

import asyncio
import threading
import time

import pytest

from regard.serve.http.batching import Batcher, DeadlineExceeded, QueueFull, ShuttingDown


class Model:
    """Remembers the groups it was given; doubles numbers, once it is let go."""

    def __init__(self, shut=False):
        self.groups, self.gate, self.began = [], threading.Event(), threading.Event()
        if not shut:
            self.gate.set()

    def __call__(self, items):
        self.began.set()
        assert self.gate.wait(10)
        self.groups.append(items)
        if "bad" in items:
            raise ValueError("a bad one")
        return [2 * item for item in items]


@pytest.fixture
def batcher():
    made = []

    def make(**how):
        made.append(Batcher(**{"wait": 0.0} | how))
        return made[-1]

    yield make
    for each in made:
        each.close(2)


def occupied(batcher, model):
    """One request that runs until the model is let go; so that others have to wait."""
    first = batcher.put("first", [0], model)
    assert model.began.wait(5)
    return first


def test_requests_that_wait_run_together_and_each_gets_its_own_answers(batcher):
    queue, model = batcher(), Model(shut=True)
    first = occupied(queue, model)
    jobs = [queue.put("k", items, model) for items in ([1], [2, 3], [], [4])]
    model.gate.set()
    assert [job.future.result(5) for job in (first, *jobs)] == [[0], [2], [4, 6], [], [8]]
    assert model.groups == [[0], [1, 2, 3, 4]]


def test_only_requests_of_one_kind_run_together_and_the_oldest_goes_first(batcher):
    queue, model = batcher(), Model(shut=True)
    occupied(queue, model)
    jobs = [queue.put(key, [item], model) for key, item in (("a", 1), ("b", 2), ("a", 3), ("b", 4))]
    model.gate.set()
    assert [job.future.result(5) for job in jobs] == [[2], [4], [6], [8]]
    assert model.groups == [[0], [1, 3], [2, 4]]


def test_a_group_holds_no_more_than_it_may(batcher):
    queue, model = batcher(max_batch_size=3), Model(shut=True)
    occupied(queue, model)
    jobs = [queue.put("k", items, model) for items in ([1, 2], [3, 4], [5], [6] * 5)]
    heavy = queue.put("k", [7], model, weight=3)
    model.gate.set()
    for job in (*jobs, heavy):
        job.future.result(5)
    assert model.groups == [[0], [1, 2, 5], [3, 4], [6] * 5, [7]]


def test_an_idle_model_waits_for_company_but_not_once_a_group_is_full(batcher):
    queue, model = batcher(wait=30.0, max_batch_size=2), Model()
    began = time.monotonic()
    jobs = [queue.put("k", [item], model) for item in (1, 2)]
    assert [job.future.result(5) for job in jobs] == [[2], [4]]
    assert time.monotonic() - began < 5
    assert model.groups == [[1, 2]]


def test_a_full_queue_refuses_and_says_when_to_come_back(batcher):
    queue, model = batcher(max_queue_size=2), Model(shut=True)
    occupied(queue, model)
    waiting = [queue.put("k", [n], model) for n in (1, 2)]
    with pytest.raises(QueueFull, match="2 requests wait") as refused:
        queue.put("k", [3], model)
    assert 1 <= refused.value.retry_after <= 60
    waiting[0].future.cancel()  # whoever has left makes room
    last = queue.put("k", [4], model)
    model.gate.set()
    assert last.future.result(5) == [8]
    assert model.groups == [[0], [2, 4]]


def test_what_one_request_breaks_the_others_of_its_group_do_not_pay_for(batcher):
    queue, model = batcher(), Model(shut=True)
    occupied(queue, model)
    good, bad, other = (queue.put("k", [item], model) for item in (1, "bad", 2))
    model.gate.set()
    assert (good.future.result(5), other.future.result(5)) == ([2], [4])
    with pytest.raises(ValueError, match="a bad one"):
        bad.future.result(5)


def test_a_request_that_is_late_is_told_so_and_never_runs(batcher):
    queue, model = batcher(), Model(shut=True)
    occupied(queue, model)
    with pytest.raises(DeadlineExceeded, match=r"within 0\.05 s"):
        asyncio.run(queue.ask("k", [1], model, 0.05))
    model.gate.set()
    assert queue.put("k", [2], model).future.result(5) == [4]
    assert model.groups == [[0], [2]]


def test_generators_take_turns_and_are_told_of_by_their_own_requests(batcher):
    queue, order, told = batcher(), [], []
    both = threading.Event()

    def long(name, steps):
        def run(items):
            assert both.wait(5)
            for step in range(steps):
                order.append(name)
                yield [(place, f"{item}{step}") for place, item in enumerate(items)]
            return [name] * len(items)

        return run

    def tell(who):
        return lambda item, news: told.append((who, item, news))

    one = queue.put("a", ["x"], long("a", 3), tell("one"))
    two = queue.put("b", ["y", "z"], long("b", 2), tell("two"))
    both.set()
    assert (one.future.result(5), two.future.result(5)) == (["a"], ["b", "b"])
    assert order[:4] in (["a", "b", "a", "b"], ["a", "a", "b", "a"])
    assert [news for who, _, news in told if who == "one"] == ["x0", "x1", "x2"]
    assert [(item, news) for who, item, news in told if who == "two"] == [(0, "y0"), (1, "z0"), (0, "y1"), (1, "z1")]


def test_a_short_request_does_not_wait_for_a_long_text(batcher):
    queue, short = batcher(), threading.Event()

    def endless(items):
        while not short.is_set():
            yield []
        return items

    long = queue.put("long", [1], endless)
    assert queue.put("short", [1], Model()).future.result(5) == [2]
    short.set()
    assert long.future.result(5) == [1]


def test_a_text_nobody_waits_for_is_not_written_to_its_end(batcher):
    queue, closed = batcher(), threading.Event()

    def endless(_):
        try:
            while True:
                time.sleep(0.001)
                yield []
        finally:
            closed.set()

    job = queue.put("k", [1], endless)
    time.sleep(0.05)
    job.future.cancel()
    assert closed.wait(5)


def test_at_the_end_what_waits_is_finished_and_nothing_more_is_taken():
    queue, model = Batcher(wait=0.0), Model(shut=True)
    occupied(queue, model)
    waiting = queue.put("k", [1], model)
    closing = threading.Thread(target=queue.close, args=(5,))
    closing.start()
    time.sleep(0.05)
    with pytest.raises(ShuttingDown):
        queue.put("k", [2], model)
    model.gate.set()
    closing.join(5)
    assert waiting.future.result(0) == [2]


def test_what_is_not_done_within_the_grace_is_given_up():
    queue, model = Batcher(wait=0.0), Model(shut=True)
    occupied(queue, model)
    waiting = queue.put("k", [1], model)
    queue.close(0.05)
    with pytest.raises(ShuttingDown):
        waiting.future.result(1)
    model.gate.set()


def test_pieces_of_a_group_reach_the_request_that_holds_their_item(batcher):
    queue, told = batcher(), {}
    model = Model(shut=True)
    occupied(queue, model)

    def run(items):
        for number, item in [*enumerate(items)][::-1]:  # the last item first
            yield [(number, item.upper())]
        return items

    def put(who, items):
        told[who] = []
        return queue.put("k", items, run, lambda item, piece: told[who].append((item, piece)))

    jobs = [put("one", ["a", "b"]), put("two", ["c"]), put("none", []), put("three", ["d", "e", "f"])]
    model.gate.set()
    assert [job.future.result(5) for job in jobs] == [["a", "b"], ["c"], [], ["d", "e", "f"]]
    assert told == {
        "one": [(1, "B"), (0, "A")], "two": [(0, "C")], "none": [], "three": [(2, "F"), (1, "E"), (0, "D")]
    }  # fmt: skip
