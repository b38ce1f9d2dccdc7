"""Work that nobody waits for stops, on every route; a request that fails in a batch fails alone."""

import asyncio
import json
import threading
import time

import pytest

from regard.core.cancellation import Cancelled, cancel_when, check_cancelled
from regard.serve.http.app import make_app
from regard.serve.http.batching import Batcher
from regard.serve.http.settings import Settings
from tests.deadline import wait_until
from tests.serve.http.test_limits import run


@pytest.fixture
def batcher():
    made = Batcher(wait=0.0)
    yield made
    made.close(2)


def test_work_is_cancelled_inside_its_block_only():
    gone = [False]
    with cancel_when(lambda: gone[0]):
        check_cancelled()
        gone[0] = True
        with pytest.raises(Cancelled):
            check_cancelled()
    check_cancelled()


def test_an_inspection_stops_before_its_next_layer(pool):
    classify, layers = pool.get("languages"), []
    with cancel_when(lambda: len(layers) == 1):
        hook = classify.model.encoder.blocks[0].register_forward_hook(lambda *_: layers.append(1))
        try:
            with pytest.raises(Cancelled):
                classify.attention("Two dogs.")
        finally:
            hook.remove()
    assert len(classify.attention("Two dogs.")) > 1


def test_a_batch_that_nobody_waits_for_stops_and_one_with_a_waiting_request_goes_on(batcher):
    steps, begun = [], threading.Event()

    def work(items):
        begun.set()
        for step in range(200):
            check_cancelled()
            steps.append(step)
            time.sleep(0.01)
        return items

    job = batcher.put("k", [1], work)
    assert begun.wait(5)
    job.future.cancel()
    assert batcher.put("other", [2], lambda items: items).future.result(5) == [2]
    assert len(steps) < 100
    gate = threading.Event()
    batcher.put("hold", [0], lambda items: [gate.wait(5)])
    steps.clear()
    left, stays = batcher.put("k", [3], work), batcher.put("k", [4], work)
    gate.set()
    wait_until(lambda: steps)
    left.future.cancel()
    assert stays.future.result(10) == [4]


LINE = "Several people are waiting in front of a small wooden house near the beach and look at the sea."


@pytest.mark.parametrize(
    ("path", "model", "body"),
    [
        ("/v1/translate", "en-de", {"inputs": [f"{LINE} {n}" for n in range(60)], "options": {"beam_size": 16}}),
        ("/v1/generate", "shakespeare", {"inputs": ["A"], "options": {"max_new_tokens": 4000, "slide": True}}),
        ("/v1/generate", "shakespeare", {"inputs": ["A"] * 4, "options": {"max_new_tokens": 250, "beam_size": 4}}),
        ("/v1/classify", "languages", {"inputs": [LINE * 3] * 60}),
    ],
)
def test_work_stops_when_the_client_leaves_or_time_is_up(pool, monkeypatch, path, model, body):
    """The model's thread is free again soon after, long before the work would have been done."""
    if model == "languages":  # a fast model: one row at a time, slowly
        monkeypatch.setattr("regard.tasks.text.encoder_base.BATCH_TOKENS", 1)
        slow = pool.get(model).model.register_forward_pre_hook(lambda *_: time.sleep(0.1))
    content = json.dumps(body).encode()
    try:
        for settings, leaves in ((Settings(timeout=0.4), None), (Settings(), 0.4)):
            app = make_app(pool, settings)
            said = run(app, content, path=path, leaves=leaves)
            assert said.get("status") == (504 if leaves is None else None), said
            began = time.monotonic()
            assert pool.batcher(model).put("after", [1], lambda items: items).future.result(10) == [1]
            assert time.monotonic() - began < 1.5
    finally:
        if model == "languages":
            slow.remove()


def test_a_request_that_fails_in_a_streamed_batch_fails_alone_and_the_others_are_told_once(batcher):
    told, gate = {"good": [], "bad": [], "other": []}, threading.Event()

    def stream(items):
        for step in range(4):
            if step == 2 and "bad" in items:
                raise ValueError("a bad one")
            yield [(place, f"{item}{step}") for place, item in reversed(list(enumerate(items)))]
        return [item.upper() for item in items]

    batcher.put("hold", [0], lambda items: [gate.wait(5)])
    jobs = {
        name: batcher.put("k", [name], stream, lambda item, news, name=name: told[name].append((item, news)))
        for name in told
    }
    gate.set()
    assert jobs["good"].future.result(5) == ["GOOD"]
    assert jobs["other"].future.result(5) == ["OTHER"]
    with pytest.raises(ValueError, match="a bad one"):
        jobs["bad"].future.result(5)
    for name in ("good", "other"):
        assert told[name] == [(0, f"{name}{step}") for step in range(4)]
    assert told["bad"] == [(0, "bad0"), (0, "bad1")]


def test_a_client_that_cannot_be_told_fails_alone(batcher):
    gate, told = threading.Event(), []

    def stream(items):
        for step in range(3):
            yield [(place, step) for place in range(len(items))]
        return items

    def closed(item, news):
        raise RuntimeError("Event loop is closed")

    batcher.put("hold", [0], lambda items: [gate.wait(5)])
    bad = batcher.put("k", ["bad"], stream, closed)
    good = batcher.put("k", ["good"], stream, lambda item, news: told.append(news))
    gate.set()
    assert good.future.result(5) == ["good"]
    assert told == [0, 1, 2]
    with pytest.raises(RuntimeError, match="closed"):
        bad.future.result(5)


def test_answers_that_are_too_few_are_nobodys(batcher):
    gate = threading.Event()

    def loses_one(items):
        return items if len(items) == 1 else items[1:]

    batcher.put("hold", [0], lambda items: [gate.wait(5)])
    jobs = [batcher.put("k", items, loses_one) for items in (["a"], ["b"], ["c", "d"])]
    gate.set()
    assert [job.future.result(5) for job in jobs[:2]] == [["a"], ["b"]]  # tried again, alone
    with pytest.raises(RuntimeError, match="2 items got 1 answers"):
        jobs[2].future.result(5)


def test_a_call_that_is_cancelled_cancels_its_job(batcher):
    async def leave():
        asking = asyncio.ensure_future(batcher.ask("k", [1], slow, 30))
        await asyncio.sleep(0.1)
        asking.cancel()

    stopped = threading.Event()

    def slow(items):
        try:
            while True:
                check_cancelled()
                time.sleep(0.01)
        finally:
            stopped.set()

    asyncio.run(leave())
    assert stopped.wait(5)
