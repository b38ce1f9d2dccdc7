"""Shared by inspections of audio: frames as positions in time, and the spectrogram as a picture."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.shapes import Float, Tensor
from regard.interpret.inspection import Axis
from regard.modalities.audio import Audio
from regard.modalities.base import Limits

if TYPE_CHECKING:
    from regard.tasks.audio.speech_base import SpeechRecognizerBase

MAX_SECONDS = 120.0  # longest recording


def audio_frames(recognizer: SpeechRecognizerBase, recording: bytes | Audio) -> Float[Tensor, "T F"]:
    """Return the frames that a model reads of a recording, or of the bytes of its file."""
    return recognizer.frames(Audio.read(recording, Limits(seconds=MAX_SECONDS)))


def time_axis(many: int, seconds: float) -> Axis:
    """Return the axis of frames of so many seconds each."""
    begins = [round(n * seconds, 4) for n in range(many + 1)]
    positions = [{"time": [a, b]} for a, b in pairwise(begins)]
    return Axis("frames", [f"{a:.2f}" for a in begins[:-1]], positions, [False] * many)


def spectrogram(frames: Float[Tensor, "T F"], mels: int, seconds: float) -> dict[str, Any]:
    """Return the frames as a grey picture, one column per frame, low frequencies at the bottom, and their duration."""
    from PIL import Image

    values = frames[:, :mels].float().cpu().numpy().T[::-1]
    low, high = np.percentile(values, (1, 99.5))
    grey = np.clip((values - low) / max(high - low, 1e-6), 0, 1) * 255
    file = io.BytesIO()
    Image.fromarray(grey.astype(np.uint8)).save(file, "PNG")
    return {"seconds": seconds, "spectrogram": file.getvalue()}
