"""Shared by the benchmarks: contenders in their own processes, taking turns; a description of the machine; a table.

Two OpenMP runtimes in one process slow both, so every contender has its own child process. The children load once
and then wait; the parent hands out turns, A B C A B C ..., so that a noisy machine is noisy for all of them alike, and
ratios are taken within each round.

Records are written to benchmarks/results, or to the folder that $REGARD_RESULTS names.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.metadata
import json
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RESULTS = Path(os.environ.get("REGARD_RESULTS") or HERE / "results")
PACKAGES = ("regard", "torch", "transformers", "ctranslate2", "onnxruntime", "numpy")
MAX_LOAD = 2.0  # of the host by other programs; a timing above it is marked


class Child:
    """A contender in its own process; answers JSON lines on stdin with JSON lines on stdout."""

    def __init__(self, name: str, script: str, arguments: Sequence[str], threads: int) -> None:
        self.name, self.unread = name, b""
        self.command = [sys.executable, "-W", "ignore", script, "--child", name, *arguments]
        self.environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(HERE.parent / "src")])),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        }
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment, bufsize=0
        )

    def ask(self, **request: Any) -> Any:
        """Send one request and return its answer; without one, end the benchmark."""
        self.send(**request)
        found = self.answer()
        if isinstance(found, Lost):
            raise SystemExit(f"the contender '{self.name}' failed: {found['failed']}; its message is above")
        return found

    def try_ask(self, seconds: float, **request: Any) -> Any:
        """Return the answer to a request, or that there was none in so many seconds; start the process if it has ended.

        What hangs or crashes so loses only itself.
        """
        if self.process.poll() is not None:
            self.close()
            self.process = self._start()
        self.send(seconds=seconds, **request)
        return self.answer(seconds + MARGIN)

    def send(self, seconds: float | None = None, **request: Any) -> None:
        """Send a request; after so many seconds the child says where it is and ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: the answer will say so
            self.process.stdin.write(json.dumps({"seconds": seconds, "request": request}).encode() + b"\n")

    def poll(self, seconds: float | None = 0.0) -> bool:
        """Wait so long for an answer or the end of the process (None: without limit); return whether it is there."""
        assert self.process.stdout is not None
        ends = None if seconds is None else time.monotonic() + seconds
        while True:
            while b"\n" in self.unread and not self.unread.startswith(_ANSWER):  # other output of a library
                self.unread = self.unread.partition(b"\n")[2]
            if b"\n" in self.unread:
                return True
            left = None if ends is None else max(0.0, ends - time.monotonic())
            if not select.select([self.process.stdout], [], [], left)[0]:
                return False
            if not (more := os.read(self.process.stdout.fileno(), 2**16)):
                return True
            self.unread += more

    def answer(self, seconds: float | None = None) -> Any:
        """Return the answer to the last request, or why there is none; the process has then ended."""
        if not self.poll(seconds):
            self.kill()
            return Lost(failed=f"error: no answer in {seconds:.0f} s")
        line, newline, self.unread = self.unread.partition(b"\n")
        if newline:
            return json.loads(line[len(_ANSWER) :])
        return Lost(failed=f"error: its process ended with status {self.process.wait()}")

    def close(self) -> None:
        """Close the pipes and wait for the process, not forever."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.unread = b""
        try:
            self.process.wait(MARGIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.close()


class Lost(dict[str, Any]):
    """In place of an answer, of a process that has ended or was ended: {"failed": why}."""


MARGIN = 5.0  # seconds after its time limit, within which a child must have ended itself
_ANSWER = b"\x02"  # marks answers, so that other output of a library is ignored


def serve_requests(do: Callable[..., Any]) -> None:
    """In the child: call `do` with every request until the parent closes the pipe.

    After the time limit of a request the process says on stderr where it is and ends, also if the parent has ended.
    """
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["seconds"]:
            faulthandler.dump_traceback_later(asked["seconds"], exit=True)
        answer = json.dumps(do(**asked["request"]))
        faulthandler.cancel_dump_traceback_later()
        print(_ANSWER.decode() + answer, flush=True)


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process like Ctrl-C: children are closed on the way out."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def rounds(
    children: Sequence[Child], number: int, pause: float = 0.3, seconds: float | None = None, **request: Any
) -> list[dict[str, Any]]:
    """Run `number` rounds of turns; return answers by name. In the pause, spinning OpenMP threads go to sleep.

    With a limit in seconds, a contender that does not answer has {"failed": why} instead, and no further turns.
    """
    turns = list[dict[str, Any]]()
    for _ in range(number):
        turn = {}
        for child in children:
            if seconds and turns and "failed" in turns[-1][child.name]:
                turn[child.name] = turns[-1][child.name]
                continue
            time.sleep(pause)
            turn[child.name] = child.try_ask(seconds, **request) if seconds else child.ask(**request)
        turns.append(turn)
    return turns


class Case(NamedTuple):
    """A case of a benchmark: `key`, in the row that `run` returns, tells it from the others of its list."""

    rows: str  # name of the list in the record
    key: dict[str, Any]
    run: Callable[[Sequence[Child]], dict[str, Any]]


def run_cases(
    file: str,
    record: dict[str, Any],
    cases: Sequence[Case],
    start: Callable[[], list[Child]],
    minutes: float = 1e9,
    seconds: float = 1e9,
    keep: bool = True,
) -> dict[str, Any]:
    """Run the cases that the result file lacks, in their order, and write it after each; return the record.

    No case begins after `minutes`. One that fails, or takes more than `seconds`, loses only itself: all children start
    anew. The same command goes on where it stopped; rows of another machine or other settings are not kept. With
    keep=False no file is read or written.
    """
    began, children = time.monotonic(), list[Child]()
    older = json.loads((RESULTS / file).read_text("utf-8")) if keep and (RESULTS / file).exists() else {}
    if keep and (changed := [key for key in record if key not in _OF_A_RUN and record[key] != older.get(key)]):
        older = {}
        print(f"{file} is begun anew: new or other {', '.join(changed)}", flush=True)
    for case in cases:
        record.setdefault(case.rows, older.get(case.rows, []))
    for case in cases:
        rows, name = record[case.rows], " ".join(str(value) for value in case.key.values())
        if any(case.key.items() <= row.items() for row in rows):
            continue
        if time.monotonic() - began > 60 * minutes:
            print(f"{name}: no time was left; the same command goes on", flush=True)
            continue
        children = children or start()
        timer = threading.Timer(seconds, lambda some=children: [child.process.kill() for child in some])
        timer.start()
        try:
            rows.append({**case.key, **case.run(children)} | lap())
        except (Exception, SystemExit) as error:
            print(f"{name}: failed: {error}", flush=True)
            for child in children:
                child.kill()
            children = []
            continue
        finally:
            timer.cancel()
        print(f"[{time.monotonic() - began:.0f} s] {rows[-1]}", flush=True)
        if keep:
            write(file, record)
    for child in children:
        child.close()
    return record


_OF_A_RUN = {"date", "command", "python", "versions", "load_at_start"}  # may differ where rows are kept


def median_and_range(values: Iterable[float], digits: int = 3) -> dict[str, float]:
    """Return median, minimum and maximum."""
    values = list(values)
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: float(f"{value:.{digits + 1}g}") for name, value in found.items()}


class Steal:
    """The share of CPU time that the hypervisor gave to others since this was made (Linux)."""

    def __init__(self) -> None:
        self.before = self._read()

    @staticmethod
    def _read() -> list[int] | None:
        try:
            return [int(count) for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        except OSError:
            return None

    def share(self) -> float | None:
        """Return steal over all CPU time, 0 to 1; None if unknown."""
        after = self._read()
        if after is None or self.before is None:
            return None
        spent = [b - a for a, b in zip(self.before, after, strict=True)]
        return round(spent[7] / max(sum(spent[:8]), 1), 4)


class HostLoad:
    """The load of the host by other programs: its load average without the cores that this benchmark keeps busy.

    On a quiet machine it is near 0, whatever the benchmark does.
    """

    def __init__(self) -> None:
        self.began, self.spent = time.monotonic(), _own_cpu_seconds()

    def read(self) -> float | None:
        """Return the load since this was made; None if unknown."""
        if not hasattr(os, "getloadavg"):
            return None
        seconds = time.monotonic() - self.began
        # the load average looks back about a minute, so a shorter measurement counts for its share of one
        own = (_own_cpu_seconds() - self.spent) / max(seconds, 60)
        return round(max(0.0, os.getloadavg()[0] - own), 2)


def _own_cpu_seconds() -> float:
    """Return the CPU time of this process and its children, running or ended (running ones on Linux only)."""
    total = sum(os.times()[:4])
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[1]) == os.getpid():
            total += sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return total


def lap() -> dict[str, Any]:
    """Return under which conditions the case was measured that ends now: its command, date, versions and host load.

    It began at the lap before, or when `machine` was asked. A case that is kept beside later ones keeps its own.
    """
    global _load
    found = {"command": _command(), "date": _today(), "versions": versions(), "load": _load.read()}
    _load = HostLoad()
    return {"measured": found}


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def _command() -> str:
    return " ".join(["python", os.path.relpath(sys.argv[0], HERE.parent), *sys.argv[1:]])


_load = HostLoad()  # since the last lap


def machine(device: str = "cpu") -> dict[str, Any]:
    """Return the date, command, hardware and versions to store with a result."""
    global _load
    _load = HostLoad()
    record: dict[str, Any] = {
        "date": _today(),
        "command": _command(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions(),
    }
    if hasattr(os, "getloadavg"):
        record["load_at_start"] = round(os.getloadavg()[0], 2)
    if device == "cuda":
        import torch

        record["gpu"] = torch.cuda.get_device_name()
        record["cuda"] = torch.version.cuda
    return record


def versions() -> dict[str, str]:
    """Return the versions of the compared packages."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            if package == "regard":
                text = (HERE.parent / "src" / "regard" / "__init__.py").read_text()
                found[package] = text.split('__version__ = "')[1].split('"')[0]
    return found


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in lines.items()}
        name = fields.get("model name", platform.processor())
        widest = next(
            (flag for flag in ("avx512_vnni", "avx512f", "avx2") if flag in fields.get("flags", "").split()), ""
        )
        family = f"family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else ""
        return " ".join(part for part in (name, family, widest) if part)
    return platform.processor()


def write(name: str, record: dict[str, Any]) -> Path:
    """Write a result file atomically; cases without conditions of their own get those of the last lap.

    A timing taken while the host was busy is named here and marked on the results page.
    """
    path = RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if bare := [case for case in cases(record) if "measured" not in case]:
        found = lap()
        for case in bare:
            case.update(found)
    loads = [case["measured"].get("load") or 0 for case in cases(record)]
    if max(loads, default=0) > MAX_LOAD:
        _mark(max(loads))
    temporary = path.with_suffix(".part")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return path


@cache
def _mark(load: float) -> None:  # said once, however often a record is written
    print(f"marked: a host load of up to {load} by other programs while measuring", file=sys.stderr)


def cases(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases of a record: the mappings in its lists, or those in `cases` by name; else the record itself."""
    lists = [rows for rows in record.values() if isinstance(rows, list)]
    if isinstance(named := record.get("cases"), dict):
        lists = [list(named.values())]
    return [row for rows in lists for row in rows if isinstance(row, dict)] or [record]


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Format rows as aligned columns; the first row is the heading."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in texts) for column in range(len(texts[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in texts]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
