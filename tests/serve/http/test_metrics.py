"""Metrics for Prometheus: names and bounds are what dashboards ask for."""

import re

from regard.serve.http.metrics import Metrics


def test_answers_are_counted_by_time():
    metrics = Metrics()
    for seconds in (0.005, 0.006, 9.0, 10.0, 11.0, 31.0):
        metrics.answered("/v1/run", 200, seconds)
    found = re.findall(r'regard_request_seconds_bucket\{le="([^"]+)",route="/v1/run"\} ([0-9.]+)', metrics.text())
    assert {bound: float(count) for bound, count in found} == {
        "0.005": 1, "0.01": 2, "0.025": 2, "0.05": 2, "0.1": 2, "0.25": 2, "0.5": 2, "1.0": 2, "2.5": 2, "5.0": 2,
        "10.0": 4, "30.0": 5, "+Inf": 6,
    }  # fmt: skip
    assert 'regard_requests_total{route="/v1/run",status="200"} 6.0' in metrics.text()


def test_a_batch_is_counted_with_its_requests_items_and_seconds():
    metrics = Metrics()
    count = metrics.group("en-de")
    count(2, 5, 0.5)
    count(1, 1, 0.25)
    for name, value in (("batches", 2), ("batched_requests", 3), ("batched_items", 6), ("busy_seconds", 0.75)):
        assert f'regard_{name}_total{{model="en-de"}} {float(value)}' in metrics.text()
