"""Draws where two listeners looked while they wrote a recording of AN4, for docs/how/transcribe.md, into docs/assets/.

    python docs/make_listening.py runs/an4-listen runs/an4-begun an4-listening.png

The first was trained from scratch, the second began with the encoder of CTC (recipes/an4_listen.py); the recording is
the longest of the test part.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import regard
from regard import see
from regard.attention.capture import watch
from regard.core.trace import Trace
from regard.data.an4 import AN4
from regard.tasks.hearer import searched

ASSETS = Path(__file__).resolve().parent / "assets"


def listened(folder: str) -> tuple[str, Trace]:
    """What one has written, and where it listened for each letter of it."""
    hear = regard.load(f"{folder}/model")
    frames = max((frames for frames, _ in AN4().load("test", hear.text).rows), key=len)[None]
    letters = searched(hear.model, frames, torch.tensor([frames.shape[1]]), 8, hear.text)[0].tokens
    with torch.no_grad(), watch(hear.model) as seen:
        hear.model(frames, torch.tensor([[hear.text.bos, *letters]]))
    (trace,) = seen.traces("align")
    columns = [f"{hear.seconds * n:.1f}" for n in range(trace.weights.shape[-1])]
    return hear.text.decode([letters])[0], trace.label(hear.text.pieces([*letters, hear.text.eos]), columns)


def main(scratch: str, begun: str, name: str) -> Path:
    """One picture of both."""
    parts = {}
    for what, folder in (("from scratch", scratch), ("begun with the encoder of CTC", begun)):
        said, trace = listened(folder)
        parts[f"{what}: {said}"] = trace
    return see.save(see.compare(parts, title="where it listened for each letter"), ASSETS / name)


if __name__ == "__main__":
    print(main(*sys.argv[1:4]))
