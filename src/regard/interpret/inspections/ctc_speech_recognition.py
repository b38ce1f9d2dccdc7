"""Inspection of CTC speech recognition. Two maps over time, and those of the encoder where it attends (Conformer):

    lattice    states × frames     posterior probability of each state at each frame, over all alignments of the text
    labels     labels × frames     the probability of every label, the blank among them

A row is a state (a word or letter of the text, or a blank between two) or a label; a column is a frame.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.attention.capture.map_store import LazyMap, StoredMap, watch_lazy
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.interpret.inspection import NO_POSITION, Axis, Inspection, Position
from regard.interpret.inspections.audio_axes import audio_frames, spectrogram, time_axis
from regard.modalities.audio import Audio
from regard.tasks.audio.ctc_speech_recognition import CTCSpeechRecognizer


class CTCInspection(Inspection):
    """A recording and its transcript; `target_text` is another text to align."""

    task = "ctc_speech_recognition"
    input_types: ClassVar[dict[str, Any]] = {"audio": (bytes, Audio), "beam_size": int, "target_text": str}
    input_axis = "frames"
    figure = "ctc_lattice"
    predictor: CTCSpeechRecognizer

    def read(self) -> None:
        beams = self.inputs.get("beam_size", 4)
        if not 1 <= beams <= 64:
            raise BadInput(f"{beams} beams cannot be searched with here; give 1 to 64")
        frames = audio_frames(self.predictor, self.inputs["audio"])
        found = self.analysis = self.predictor.analyze(frames, beams, self.inputs.get("target_text"))
        many, seconds = len(found.path), found.seconds
        preprocess = self.predictor.preprocess
        assert preprocess is not None
        self.audio = spectrogram(found.frames, preprocess.n_mels, many * seconds)
        self.output = found.transcript.to_json()
        states, labels = list(found.states), list(found.labels)
        self.axes = {
            "frames": time_axis(many, seconds),
            "states": Axis(
                "states", states, _state_times(found.path, len(states), seconds), [s == "-" for s in states]
            ),
            "labels": Axis("labels", labels, [NO_POSITION] * len(labels), [label == "-" for label in labels]),
        }
        self.model_inputs = self.predictor.single_batch(frames)[1:]
        with torch.no_grad(), watch_lazy(self.predictor.model, max_bytes=self._most, required=False) as self.store:
            self.predictor.model(*self.model_inputs)
        for name, map_ in (("lattice", found.share), ("labels", found.probabilities)):
            self.store.add(
                StoredMap(name=name, kind=name, heads=1, normalised=False, recorded=(map_.T[None, None].contiguous(),))
            )

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        return {"lattice": "states", "labels": "labels"}.get(held.name, "frames"), "frames"


def _state_times(path: Int[Tensor, " N"], states: int, seconds: float) -> list[Position]:
    """Return the time span of each state on the best path."""
    positions = list[Position]()
    for state in range(states):
        at = (path == state).nonzero()[:, 0].tolist()
        positions.append({"time": [round(at[0] * seconds, 4), round((at[-1] + 1) * seconds, 4)]} if at else NO_POSITION)
    return positions
