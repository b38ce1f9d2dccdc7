"""Draws where models listened while they wrote a recording of AN4, for docs/how/transcribe.md, into docs/assets/.

    python docs/make_listening.py an4-listening.png "from scratch=runs/an4-listen" \\
        "begun with the encoder of CTC=runs/an4-begun-1"
    python docs/make_listening.py an4-online.png "written while it is being said=runs/an4-online"

The recording is the longest of the test part.
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


def main(name: str, *runs: str) -> Path:
    """One picture of all runs, each given as WHAT=FOLDER."""
    parts = {}
    for run in runs:
        what, _, folder = run.rpartition("=")
        said, trace = listened(folder)
        parts[f"{what}: {said}"] = trace
    return see.save(see.compare(parts, title="where it listened for each letter"), ASSETS / name)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
