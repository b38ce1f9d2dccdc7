"""Memory does not grow with the data. Each measurement has its own process; RssAnon excludes mapped files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.data.shards.index import ShardIndex, fingerprint
from regard.data.shards.shard_writer import ShardWriter

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")

VOCABULARY = 50_257
CONTEXT, ROWS = 1024, 64
BOUND = 128 << 20  # bytes; batches under way take 10 MB, the allocator keeps some more for each thread


def values(start, stop):
    """Made-up tokens: each is a function of its position."""
    place = np.arange(start, stop, dtype=np.uint64)
    return ((place * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) % np.uint64(VOCABULARY)


def made(folder, tokens, block=1 << 22):
    """Write this many tokens in shards of 256 MiB, a document every 4 million."""
    with ShardWriter(folder, {"tokens": tokens}, 1 << 28) as packing:
        (folder / "tokenizer.json").write_text("{}")
        packing.begin("uint16")
        for start in range(0, tokens, block):
            packing.add("train", values(start, min(start + block, tokens)).astype("<u2").tobytes(), True)
        about = {"size": VOCABULARY, "kind": "bytes", "eos": 0, "fingerprint": fingerprint(b"{}")}
        packing.finish(ShardIndex("tokens", "uint16", {}, about))


STREAM = """
import itertools, json, sys, threading, time
import torch
from regard.data.batching import StreamPosition, prefetch
from regard.data.shards.index import ShardIndex
from regard.data.shards.token_shards import TokenShards
sys.path.insert(0, sys.argv[1])
from tests.data.test_memory import values, CONTEXT, ROWS, VOCABULARY
from pathlib import Path

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])

torch.set_num_threads(1)
windows = TokenShards(sys.argv[2], CONTEXT, ROWS).load("train")
most, farthest = 0, 0
before = own()
for workers in (1, 4):
    with prefetch(windows.stream(workers).start(StreamPosition(3, 5)), workers=workers) as items:
        for k, drawn in enumerate(itertools.islice(items, int(sys.argv[3]))):
            most = max(most, own() - before)
    order = windows.stream(workers).order(3)
    for row, start in enumerate(order[5].tolist()[:8]):  # these are the rows they should be
        farthest = max(farthest, start)
        found = windows.collate(order[5]).inputs[row].numpy()
        assert (found == values(start, start + CONTEXT)).all()
for batch in itertools.islice(windows.eval_batches(65536), int(sys.argv[3])):
    most = max(most, own() - before)
began = time.monotonic()
if sys.argv[4] == "check":
    folder = Path(sys.argv[2])
    assert ShardIndex.read(folder).check(folder) == []
    most = max(most, own() - before)
print(json.dumps({"grown": most, "before": before, "farthest": farthest, "tokens": windows.tokens,
                  "check_s": time.monotonic() - began}))
"""

PACK = """
import json, sys, threading, time
from pathlib import Path
from regard.data.shards.packing import pack_text

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])

most, before = 0, own()
def told(what, done, total):
    global most
    most = max(most, own() - before)
if __name__ == "__main__":
    pack_text([sys.argv[1]], sys.argv[2], "bytes(1000)", sys.argv[3], sample=1_000_000, progress=told)
    print(json.dumps({"grown": most, "before": before}))
"""


def child(code, *words):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def require_space(folder, expected):
    if (free := shutil.disk_usage(folder).free) < expected:
        pytest.skip(f"needs {expected >> 30} GiB of free disk, there are {free >> 30}")


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
def test_streaming_takes_less_memory_than_the_data(tmp_path):
    made(tmp_path / "shards", 80_000_000)
    found = child(STREAM, ROOT, tmp_path / "shards", 20, "check")
    assert found["tokens"] == 80_000_000  # 160 MB
    assert found["grown"] < BOUND


@pytest.mark.long
def test_streaming_ten_gigabytes(tmp_path):
    require_space(tmp_path, 14 << 30)
    try:
        made(tmp_path / "shards", 5_000_000_000)
        found = child(STREAM, ROOT, tmp_path / "shards", 500, "check")
    finally:
        shutil.rmtree(tmp_path / "shards", ignore_errors=True)
    print(found)
    assert found["tokens"] == 5_000_000_000
    assert found["farthest"] > 2**31
    assert found["grown"] < BOUND


@pytest.mark.long
@pytest.mark.parametrize("documents", ["file", "line"])
def test_packing_takes_the_same_memory_whatever_the_text(tmp_path, documents):
    found = []
    line = " ".join(f"word{i * i % 997}" for i in range(100)) + "\n"
    for megabytes in (8, 64):
        with open(tmp_path / "text.txt", "w") as file:
            for _ in range(megabytes * 1_000_000 // len(line)):
                file.write(line)
        found.append(child(PACK, tmp_path / "text.txt", tmp_path / f"{megabytes}", documents)["grown"])
    print(found)
    assert found[1] < found[0] + (48 << 20)
