"""Draw the alignments of attention-based recognisers on a recording of AN4, for docs/how/transcribe.md.

    python docs/make_speech_figures.py an4-attention.png "from scratch=runs/an4-attention" \\
        "encoder initialised from CTC=runs/an4-attention-from-ctc-1"
    python docs/make_speech_figures.py an4-online.png "online=runs/an4-online-attention"

The recording is the longest of the test split; figures go to docs/assets/.
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
    """Return the transcript of a model and its alignment."""
    transcribe = regard.load(f"{folder}/model")
    frames = max((frames for frames, _ in AN4().load("test", transcribe.text).examples), key=len)[None]
    letters = search_recordings(transcribe.model, frames, torch.tensor([frames.shape[1]]), 8, transcribe.text)[0].tokens
    with torch.no_grad(), watch(transcribe.model) as captured:
        transcribe.model(frames, torch.tensor([[transcribe.text.bos, *letters]]))
    (trace,) = captured.traces("align")
    columns = [f"{transcribe.seconds * n:.1f}" for n in range(trace.weights.shape[-1])]
    return transcribe.text.decode([letters])[0], trace.with_labels(
        transcribe.text.pieces([*letters, transcribe.text.eos]), columns
    )


def main(name: str, *runs: str) -> Path:
    """Draw one figure of all runs, each given as LABEL=FOLDER."""
    parts = {}
    for run in runs:
        label, _, folder = run.rpartition("=")
        transcript, trace = transcript_and_alignment(folder)
        parts[f"{label}: {transcript}"] = trace
    return see.save(see.compare_alignments(parts, title="frames attended to for each letter"), ASSETS / name)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
