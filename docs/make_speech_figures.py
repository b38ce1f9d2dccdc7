"""Draws where models listened while they wrote a recording of AN4, for docs/how/transcribe.md, into docs/assets/.

    python docs/make_speech_figures.py an4-attention.png "from scratch=runs/an4-attention" \\
        "begun with the encoder of CTC=runs/an4-attention-from-ctc-1"
    python docs/make_speech_figures.py an4-online.png "written while it is being said=runs/an4-online-attention"

The recording is the longest of the test part.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import regard
from regard import see
from regard.attention.capture.watch import watch
from regard.core.trace import Trace
from regard.data.audio.an4 import AN4
from regard.tasks.audio.speech_recognition import search_recordings

ASSETS = Path(__file__).resolve().parent / "assets"


def transcript_and_alignment(folder: str) -> tuple[str, Trace]:
    """What one has written, and where it listened for each letter of it."""
    hear = regard.load(f"{folder}/model")
    frames = max((frames for frames, _ in AN4().load("test", hear.text).rows), key=len)[None]
    letters = search_recordings(hear.model, frames, torch.tensor([frames.shape[1]]), 8, hear.text)[0].tokens
    with torch.no_grad(), watch(hear.model) as seen:
        hear.model(frames, torch.tensor([[hear.text.bos, *letters]]))
    (trace,) = seen.traces("align")
    columns = [f"{hear.seconds * n:.1f}" for n in range(trace.weights.shape[-1])]
    return hear.text.decode([letters])[0], trace.with_labels(hear.text.pieces([*letters, hear.text.eos]), columns)


def main(name: str, *runs: str) -> Path:
    """One picture of all runs, each given as WHAT=FOLDER."""
    parts = {}
    for run in runs:
        what, _, folder = run.rpartition("=")
        said, trace = transcript_and_alignment(folder)
        parts[f"{what}: {said}"] = trace
    return see.save(see.compare_alignments(parts, title="where it listened for each letter"), ASSETS / name)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
