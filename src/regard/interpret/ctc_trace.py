"""Trace of CTC decoding, frame by frame: the lattice of all alignments of the text, and the search that found it.

    lattice    states (blanks and labels in turn) x frames: the share of all ways that are there, and the likeliest way
    greedy     at each frame the likeliest label, and whether it was written down (a blank or a repetition is not)
    beam       at each frame the prefixes that stayed, in their two parts (ending in a blank, in a label), and the best
               of those that were dropped

The recognizer runs its own search, observed through decoding.search_observer; the lattice comes from
`CTCSpeechRecognizer.analyze`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from regard.core.errors import BadInput
from regard.core.shapes import Bool, Int, Tensor
from regard.decoding.search_observer import SearchObserver, observe_search
from regard.tasks.audio.ctc_speech_recognition import CTCSpeechRecognizer

MAX_FRAMES = 2000  # frames that can be followed: 20 seconds
SHOWN_PRUNED = 4  # prefixes that are written down though they did not stay, a frame
MIN_LOG_PROB = -40.0  # what is less likely is as good as never, and JSON has no infinity


class CTCSearchRecorder(SearchObserver):
    """A search through frames, as it ran."""

    def __init__(self) -> None:
        self.labels: list[int] = []  # greedy: the likeliest at each frame
        self.written: list[bool] = []
        self.frames: list[tuple[list[dict[str, Any]], list[dict[str, Any]], int]] = []  # beam: kept, dropped, how many

    def on_ctc_greedy(self, labels: Int[Tensor, "B T"], kept: Bool[Tensor, "B T"]) -> None:
        """All frames at once."""
        self.labels, self.written = labels[0].tolist(), kept[0].tolist()

    def on_ctc_frame(self, prefixes: Sequence[tuple[tuple[int, ...], Any]], beam_size: int) -> None:
        """One frame."""
        plain = [
            {"labels": list(labels), "score": one.score, "blank": one.blank, "label": one.label}
            for labels, one in prefixes[: beam_size + SHOWN_PRUNED]
        ]
        self.frames.append((plain[:beam_size], plain[beam_size:], len(prefixes)))


def trace_ctc(predictor: CTCSpeechRecognizer, sound: Any, beam_size: int) -> dict[str, Any]:
    """Return the lattice and the search of one recording, as plain values."""
    frames = predictor.frames(sound)
    if not len(frames) or len(frames) > MAX_FRAMES:
        raise BadInput(f"the recording has {len(frames)} frames; the search view shows 1 to {MAX_FRAMES}")
    told = CTCSearchRecorder()
    with observe_search(told):
        looked = predictor.analyze(frames, beam_size)
    names = predictor.text.pieces(range(predictor.text.size))
    return {
        "kind": "ctc",
        "seconds": looked.seconds,
        "labels": list(looked.labels),
        "states": list(looked.states),
        "spectrum": _to_uint8(looked.frames),
        "probabilities": _rounded(looked.probabilities),
        "share": _rounded(looked.share),
        "path": looked.path.tolist(),
        "steps": _steps(told, names, len(looked.path)),
        "hypotheses": [{"text": looked.transcript.text, "score": round(looked.transcript.score, 5), "words": [asdict(word) for word in looked.transcript.words]}],  # noqa: E501
    }  # fmt: skip


def _steps(told: CTCSearchRecorder, names: Sequence[str], frames: int) -> list[dict[str, Any]]:
    """Return the search at each frame."""
    if told.frames:
        return [
            {"kept": [_prefix(one, names) for one in kept], "pruned": [_prefix(one, names) for one in dropped],
             "of": many}
            for kept, dropped, many in told.frames
        ]  # fmt: skip
    so_far: list[str] = []
    steps = []
    for label, written in zip(told.labels[:frames], told.written, strict=False):
        blank = label >= len(names)
        so_far = [*so_far, names[label]] if written else so_far
        why = "written" if written else "a blank" if blank else "a repetition"
        steps.append({"label": "-" if blank else names[label], "reason": why, "text": so_far})
    return steps


def _prefix(one: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    parts = {
        part: round(max(one[part], MIN_LOG_PROB), 4)
        for part in ("score", "blank", "label")
        if not math.isnan(one[part])
    }
    return {"text": [names[label] for label in one["labels"]], **parts}


def _to_uint8(spectrum: Tensor) -> list[list[int]]:
    """Frames as shades from 0 to 255."""
    low, high = spectrum.min(), spectrum.max()
    shades: list[list[int]] = ((spectrum - low) / (high - low).clamp(min=1e-9) * 255).round().int().tolist()
    return shades


def _rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, 4) for value in row] for row in values.double().tolist()]
