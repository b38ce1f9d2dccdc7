"""The service under load: many clients at once, requests that run together beside requests that run one at a time.

    python benchmarks/serve.py            200 clients, 60 s, about six minutes      -> results/serve.json
    python benchmarks/serve.py --quick    20 clients, 3 s a turn, nothing written

Three questions to ``regard serve en-de``, whose clients live in a process of their own and ask again as soon as they
are answered, each on one connection:

    load       does every request get its answer, how long does that take, does memory stay where it is?
    together   how many more are answered in a second than with --max-batch-size 1? The two services take turns.
    beyond     with a short queue: is what cannot be taken refused with 429 and a time to come back, and nothing else?

Every client asks for sentences of its own, from a fixed list, and the answers are compared with those of a lone client.

Memory rises at first, whoever computes: oneDNN keeps a kernel for every number of rows it has met (up to 1,024 of
them), and the C library keeps what was freed, in heaps of 64 MiB for each thread, so that what is in memory goes up and
down in large steps while what is in use stands still. Neither is growth. So the load is laid on in short turns until
the highest mark of the process (VmHWM, which cannot wander) rises by less than a percent in three of them together:
that is `warm-up`. What it rises by afterwards, over the whole load, is `growth`; a leak would show there, in proportion
to the answers. That the same requests again leave nothing behind is what tests/serve/http/test_memory.py says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import harness

SENTENCES = [
    f"{who} {does} {where}."
    for who in ("A man", "Two dogs", "The little girl", "A young woman in a red dress", "Three children", "People")
    for does in ("is running", "are playing with a ball", "waits for the bus", "sits and reads a book")
    for where in ("in the snow", "at the beach", "in front of a large building", "on the street")
]

TURNS, STILL, AS_LONG = 15, 0.01, 3  # warming up: turns at most; until in so many the mark rises by less than a share


# -- the clients, in a process of their own ----------------------------------------------------------------------------


class Client:
    """One connection that is kept, and the smallest HTTP that speaks over it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, text: str, beams: int) -> tuple[int, dict[str, str], Any]:
        """A translation: status, headers, JSON."""
        if self.writer is None or self.writer.is_closing():
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        assert self.reader is not None
        body = json.dumps({"inputs": [text], "options": {"beam_size": beams}}).encode()
        head = f"POST /v1/translate HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head_lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head_lines[1:] if line)}
        content = await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.writer.close()
        return int(head_lines[0].split()[1]), headers, json.loads(content)


async def load(
    host: str, port: int, clients: int, seconds: float, beams: int, expected: dict[str, str]
) -> dict[str, Any]:
    """So many clients for so long; what they were told."""
    statuses: Counter[str] = Counter()
    latencies, num_wrong, num_without_retry = list[float](), 0, 0
    end = time.monotonic() + seconds

    async def run_client(number: int) -> None:
        nonlocal num_wrong, num_without_retry
        client, turn = Client(host, port), number
        while time.monotonic() < end:
            text = SENTENCES[turn % len(SENTENCES)]
            turn += 7
            began = time.monotonic()
            try:
                status, headers, answer = await client.ask(text, beams)
            except (OSError, asyncio.IncompleteReadError) as error:
                statuses[type(error).__name__] += 1
                client.writer = None
                await asyncio.sleep(0.1)
                continue
            statuses[str(status)] += 1
            if status == 200:
                latencies.append(time.monotonic() - began)
                translation = answer["outputs"][0]["text"]
                num_wrong += translation != expected.get(text, translation)
            else:
                num_without_retry += status == 429 and not headers.get("retry-after", "").isdigit()
                await asyncio.sleep(0.05)
        if client.writer is not None:
            client.writer.close()

    began = time.monotonic()
    await asyncio.gather(*(run_client(number) for number in range(clients)))
    spent, latencies = time.monotonic() - began, sorted(latencies)
    percentiles = (
        {f"p{p}": round(latencies[min(len(latencies) - 1, len(latencies) * p // 100)], 3) for p in (50, 95, 99)}
        if latencies
        else {}
    )
    return {
        "statuses": dict(statuses), "per_second": round(len(latencies) / spent, 1), "seconds": percentiles,
        "wrong_answers": num_wrong, "429 without Retry-After": num_without_retry,
    }  # fmt: skip


async def single_client(host: str, port: int, beams: int) -> dict[str, str]:
    """Every sentence once, one after another."""
    client, found = Client(host, port), {}
    for text in SENTENCES:
        status, _, answer = await client.ask(text, beams)
        if status != 200:
            raise SystemExit(f"a lone request was answered with {status}: {answer}")
        found[text] = answer["outputs"][0]["text"]
    return found


class Clients:
    """What the child process does."""

    def __init__(self) -> None:
        self.expected: dict[str, str] = {}

    def __call__(self, do: str, **options: Any) -> Any:
        if do == "single_client":
            began = time.monotonic()
            self.expected = asyncio.run(single_client(**options))
            return {"per_second": round(len(SENTENCES) / (time.monotonic() - began), 1)}
        return asyncio.run(load(**options, expected=self.expected))


# -- the service -------------------------------------------------------------------------------------------------------


class Service:
    """``regard serve`` as a user starts it."""

    def __init__(self, *options: str, model: str, threads: int) -> None:
        command = [sys.executable, "-c", "from regard.cli import main; main()", "serve", model, "--port", "0", *options]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(harness.HERE.parent / "src")}
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://([\w.]+):(\d+)", line):
                self.address = {"host": found[1], "port": int(found[2])}
                return
        raise SystemExit(f"the service did not start: status {self.process.wait()}")

    def memory(self) -> dict[str, float] | None:
        """MiB of this process that are in memory, and the most that ever were (Linux)."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        marks = {"current": "VmRSS:", "peak": "VmHWM:"}
        return {name: round(int(status.split(mark)[1].split()[0]) / 1024, 1) for name, mark in marks.items()}

    def close(self) -> int:
        """Tell it to stop; its status."""
        self.process.terminate()
        return self.process.wait(30)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn", type=float, default=15, help="seconds of a round")
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return harness.serve_requests(Clients())
    if args.quick:
        args.clients, args.seconds, args.rounds, args.turn = 20, 3, 1, 3
    record = harness.machine() | {"model": args.model, "clients": args.clients, "beams": args.beam_size}
    clients = harness.Child("clients", __file__, [], 1)
    options = {"clients": args.clients, "beams": args.beam_size}
    services = {
        "batched": Service(model=args.model, threads=args.threads),
        "unbatched": Service("--max-batch-size", "1", "--wait", "0", model=args.model, threads=args.threads),
        "short queue": Service(
            "--max-queue-size", "8", "--max-batch-size", "4", model=args.model, threads=args.threads
        ),
    }
    try:
        batched = services["batched"]
        record["single_client"] = clients.ask(do="single_client", **batched.address, beams=args.beam_size)
        record["load"] = _load(batched, clients, args.seconds, options)
        turns = [
            {
                name: clients.ask(do="load", **services[name].address, seconds=args.turn, **options)
                for name in ("batched", "unbatched")
            }
            for _ in range(args.rounds)
        ]
        record["turns"] = turns
        ratios = [turn["batched"]["per_second"] / max(turn["unbatched"]["per_second"], 1e-9) for turn in turns]
        record["batching_speedup"] = harness.median_and_range(ratios)
        record["overload"] = clients.ask(
            do="load", **services["short queue"].address, seconds=min(10.0, args.turn), **options
        )
    finally:
        record["exit_status"] = {name: service.close() for name, service in services.items()}
        clients.close()
    _print(record)
    if not args.quick:
        print("written:", os.path.relpath(harness.write("serve.json", record)))


def _load(service: Service, clients: harness.Child, seconds: float, how: dict[str, Any]) -> dict[str, Any]:
    """The long turn, in four parts, with the memory before, between and after; short turns before it warm up."""
    turns = [service.memory()]
    for _ in range(TURNS):
        clients.ask(do="load", **service.address, seconds=min(10.0, seconds), **how)
        turns.append(service.memory())
        before, after = turns[max(0, len(turns) - 1 - AS_LONG)], turns[-1]
        if before is None or after is None or after["peak"] < before["peak"] * (1 + STILL):
            break
    memory, parts = [turns[-1]], []
    for _ in range(4):
        parts.append(clients.ask(do="load", **service.address, seconds=seconds / 4, **how))
        memory.append(service.memory())
    statuses: Counter[str] = Counter()
    for part in parts:
        statuses.update(part["statuses"])
    rises = {"warm-up": _rise(turns), "growth": _rise(memory)}
    return {
        "statuses": dict(statuses),
        "memory_mib": {"warm-up": turns, "load": memory, "increase": rises},
        "parts": parts,
    }


def _rise(memory: list[dict[str, float] | None]) -> float | None:
    """By how much the highest mark rose."""
    first, last = memory[0], memory[-1]
    return None if first is None or last is None else round(last["peak"] - first["peak"], 1)


def _print(record: dict[str, Any]) -> None:
    rows = [["what", "answers/s", "p50 s", "p95 s", "p99 s", "statuses", "wrong_answers"]]

    def add(name: str, part: dict[str, Any]) -> None:
        at = [part["seconds"].get(p, "-") for p in ("p50", "p95", "p99")]
        rows.append([name, part["per_second"], *at, part["statuses"], part["wrong_answers"]])

    for number, part in enumerate(record["load"]["parts"]):
        add(f"load, part {number + 1}", part)
    for turn in record["turns"]:
        for name, part in turn.items():
            add(name, part)
    add("short queue", record["overload"])
    print(harness.table(rows))
    print(f"a lone client: {record['single_client']['per_second']} answers/s")
    memory = record["load"]["memory_mib"]
    for name in ("warm-up", "load"):
        marks = ["?" if mark is None else f"{mark['current']} (most {mark['peak']})" for mark in memory[name]]
        print(f"memory, MiB, {name}: {', '.join(marks)}")
    rise = memory["increase"]
    print(f"the highest mark rose by {rise['warm-up']} MiB while warming up, by {rise['growth']} MiB under the load")
    print(f"all statuses of the load: {record['load']['statuses']}")
    print(f"together over one at a time: {record['batching_speedup']}")
    print(
        f"429 without Retry-After: {record['overload']['429 without Retry-After']}; ended with {record['exit_status']}"
    )


if __name__ == "__main__":
    main()
