"""Metrics of the service for Prometheus: counters, one histogram, and gauges read when asked.

regard_requests_total{route, status}      answers, by route; never by path, so that clients cannot create new series
regard_request_seconds{route}             how long they took
regard_batches_total{model} ...           batches that ran, the requests and items in them, the seconds they took
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCHES = {
    "regard_batches": "Batches of requests that ran together.",
    "regard_batched_requests": "Requests in these batches.",
    "regard_batched_items": "Texts, images or recordings in these batches.",
    "regard_busy_seconds": "Seconds that these batches took.",
}


class Metrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "regard_requests", "Answers by route and status.", ["route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "regard_request_seconds", "How long an answer took.", ["route"], buckets=SECONDS, registry=self.registry
        )
        self._gauges: dict[str, _Gauge] = {}
        self._batches = [Counter(name, about, ["model"], registry=self.registry) for name, about in BATCHES.items()]

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def group(self, model: str) -> Callable[[int, int, float], None]:
        """Return a function that counts a batch of a model: requests, items, seconds."""
        counters = [counter.labels(model) for counter in self._batches]

        def count(requests: int, items: int, seconds: float) -> None:
            for counter, more in zip(counters, (1, requests, items, seconds), strict=True):
                counter.inc(more)

        return count

    def gauge(self, name: str, about: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """Add a number that is read when it is asked for, one for each value of a label ("": one without).

        One of the same name is replaced: several apps may serve one pool of models.
        """
        if name in self._gauges:
            self.registry.unregister(self._gauges[name])
        self._gauges[name] = _Gauge(name, about, label, read)
        self.registry.register(self._gauges[name])

    def text(self) -> str:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry).decode()


class _Gauge(Collector):
    def __init__(self, name: str, about: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        self.name, self.about, self.label, self.read = name, about, label, read

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(self.name, self.about, labels=[self.label] if self.label else [])
        for value, number in self.read().items():
            family.add_metric([value] if self.label else [], float(number))
        yield family

    def describe(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(self.name, self.about)


def memory() -> float:
    """Return the bytes that this process holds in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0.0
