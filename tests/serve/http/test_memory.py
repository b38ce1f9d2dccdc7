"""The service does not grow: the same requests again leave nothing behind, neither objects nor memory in use.

What is in memory (RSS) is no measure: the C library keeps what was freed. What is in use is (mallinfo2), once every
shape has been met, since kernels are kept for each.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

ASKS = """
import asyncio, ctypes, gc, json, httpx, torch
from regard.serve.http import app
from regard.serve.http.model_pool import ModelPool
from regard.serve.http.settings import Settings

class Told(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

told = ctypes.CDLL(None).mallinfo2
told.restype = Told
torch.set_num_threads(1)
pool = ModelPool(["en-de", "fill-en"], device="cpu")
pool.load()
made = app.make_app(pool, Settings(explore=True))
LINES = ["A dog.", "Two dogs are playing in the snow.", "The little girl sits on the street and reads a book."]

async def once(client):
    for number, line in enumerate(LINES):
        some = LINES[: number + 1]
        assert (await client.post("/v1/translate", json={"inputs": some, "model": "en-de"})).status_code == 200
        wrong = {"inputs": [line], "options": {"beam_size": 0}}
        assert (await client.post("/v1/translate", json=wrong)).status_code == 422
        assert (await client.post("/v1/fill", json={"inputs": ["A [MASK] dog."]})).status_code == 200
        assert (await client.get("/v1/models")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200

async def main():
    transport = httpx.ASGITransport(made)
    found = []
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for turn in range(9):
            await once(client)
            gc.collect()
            now = told()
            found.append((len(gc.get_objects()), now.uordblks + now.hblkhd))
    print(json.dumps(found))

asyncio.run(main())
pool.close()
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33, which tells what is in use")
def test_the_same_requests_again_leave_nothing_behind():
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    (objects, used), (objects_after, used_after) = found[4], found[-1]  # four turns, 60 requests, between them
    assert objects_after - objects < 20, found  # fewer than one in three requests
    assert used_after - used < 2**16, found  # about a KiB a request
