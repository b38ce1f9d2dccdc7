"""Inspection of speech recognition with a decoder: its attention over the frames, and that of an encoder that attends.

Frames are those after subsampling.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.attention.capture.map_store import LazyMap
from regard.core.errors import BadInput
from regard.interpret.inspection import Inspection
from regard.interpret.inspections import text_axes
from regard.interpret.inspections.audio_axes import audio_frames, spectrogram, time_axis
from regard.modalities.audio import Audio
from regard.tasks.audio.speech_recognition import SpeechRecognizer

OVER_FRAMES = ("align", "cross")  # kinds of maps with a row for every word


class SpeechRecognitionInspection(Inspection):
    """A recording and its transcript; `target_text` is another text to align."""

    task = "speech_recognition"
    input_types: ClassVar[dict[str, Any]] = {"audio": (bytes, Audio), "beam_size": int, "target_text": str}
    input_axis = "frames"
    figure = "audio_alignment"
    predictor: SpeechRecognizer

    def read(self) -> None:
        """Transcribe unless `target_text` is given, then run the model once on both."""
        hearer, text, beams = self.predictor, self.predictor.text, self.inputs.get("beam_size", 4)
        if not 1 <= beams <= 64:
            raise BadInput(f"{beams} beams cannot be searched with here; give 1 to 64")
        frames, wide, lengths = hearer.single_batch(audio_frames(hearer, self.inputs["audio"]))
        said, score = self.inputs.get("target_text"), None
        if said is None:
            with torch.inference_mode():
                best = hearer.best(frames, wide, lengths, beams)
            ids, score = list(best.tokens), best.log_probability
        else:
            ids = hearer.token_ids(said)
        (line,) = text.decode([ids])
        self._run(wide, torch.tensor([[text.bos, *ids]], device=wide.device))
        many = max(held.columns for held in self.store.values() if held.kind in OVER_FRAMES)
        preprocess = hearer.preprocess
        assert preprocess is not None
        self.frames = frames
        self.audio = spectrogram(frames, preprocess.n_mels, many * hearer.seconds)
        self.output = {"text": line, "score": score}
        positions = text_axes.output_positions(text, ids, line)
        self.axes = {
            "frames": time_axis(many, hearer.seconds),
            "target": text_axes.text_axis("target", text, [*ids, text.eos], positions, line, (0, 1)),
        }
        if any(held.kind == "self" and held.name.startswith("decoder") for held in self.store.values()):
            self.axes["written"] = text_axes.text_axis("written", text, [text.bos, *ids], positions, line, (1, 0))

    def axes_of(self, held: LazyMap) -> tuple[str, str]:
        if held.kind in OVER_FRAMES:
            return "target", "frames"
        return ("target", "written") if held.name.startswith("decoder") else ("frames", "frames")
