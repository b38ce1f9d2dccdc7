"""What a service has done, in the text form that Prometheus reads: counters, one histogram, and gauges read when asked.

regard_requests_total{route, status}      answers, by route (never by path: a stranger cannot make new lines)
regard_request_seconds{route}                     how long they took
regard_batches_total{model} ...            groups that ran, the items in them, the seconds they took
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
GROUPS = {
    "regard_batches_total": "Groups of requests that ran together.",
    "regard_batched_requests_total": "Requests in these groups.",
    "regard_batched_items_total": "Texts, pictures or sounds in these groups.",
    "regard_busy_seconds_total": "Seconds that these groups took.",
}


class Metrics:
    """Numbers of a service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)
        self._groups: dict[str, list[float]] = {}
        self._gauges: list[tuple[str, str, str, Callable[[], Mapping[str, float]]]] = []

    def answered(self, route: str, status: int, seconds: float) -> None:
        """One answer."""
        with self._lock:
            self._requests[route, status] += 1
            self._buckets[route][bisect_left(BOUNDS, seconds)] += 1
            self._seconds[route] += seconds

    def group(self, model: str) -> Callable[[int, int, float], None]:
        """Where the groups of a model are counted."""
        totals = self._groups.setdefault(model, [0.0] * len(GROUPS))

        def seen(jobs: int, items: int, seconds: float) -> None:
            with self._lock:
                for i, more in enumerate((1, jobs, items, seconds)):
                    totals[i] += more

        return seen

    def gauge(self, name: str, about: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        """A number that is read when it is asked for, one for each value of a label ("": one without)."""
        self._gauges.append((name, about, label, read))

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        lines: list[str] = []
        with self._lock:
            lines += _heading("regard_requests_total", "Answers by route and status.", "counter")
            for (route, status), count in sorted(self._requests.items()):
                lines.append(f'regard_requests_total{{route="{_quoted(route)}",status="{status}"}} {count}')
            lines += _heading("regard_request_seconds", "How long an answer took.", "histogram")
            for route, buckets in sorted(self._buckets.items()):
                total, named = 0, f'route="{_quoted(route)}"'
                for bound, count in zip((*BOUNDS, "+Inf"), buckets, strict=True):
                    total += count
                    lines.append(f'regard_request_seconds_bucket{{{named},le="{bound}"}} {total}')
                lines.append(f"regard_request_seconds_sum{{{named}}} {self._seconds[route]:.6f}")
                lines.append(f"regard_request_seconds_count{{{named}}} {total}")
            for i, (name, about) in enumerate(GROUPS.items()):
                lines += _heading(name, about, "counter")
                lines += [f'{name}{{model="{_quoted(model)}"}} {t[i]:.6g}' for model, t in self._groups.items()]
        for name, about, label, read in self._gauges:
            lines += _heading(name, about, "gauge")
            for value, number in read().items():
                lines.append(
                    f'{name}{{{label}="{_quoted(value)}"}} {number:.10g}' if label else f"{name} {number:.10g}"
                )
        return "\n".join(lines) + "\n"


def memory() -> float:
    """Bytes that this process holds in memory; 0 where the system does not say."""
    import os

    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0.0


def _heading(name: str, about: str, kind: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
