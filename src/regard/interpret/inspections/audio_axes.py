"""What looks at sounds share: frames as places in time, and the spectrum as a picture."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.interpret.inspection import Side
from regard.modalities.audio import read_audio

if TYPE_CHECKING:
    from regard.tasks.audio.ctc_speech_recognizer import SpeechPredictor

MAX_SECONDS = 120.0  # seconds that are looked at


def audio_frames(sounds: SpeechPredictor, content: bytes) -> Float[Tensor, "T F"]:
    """The frames that a model reads of a sound file's bytes."""
    if sounds.front is None:
        raise BadInput("this model reads frames that were made elsewhere, not sounds")
    wave = read_audio(content, sounds.front.sample_rate, MAX_SECONDS)
    return sounds.to_frames([wave])[0]


def time_axis(many: int, seconds: float) -> Side:
    """Frames of so many seconds each."""
    begins = [round(n * seconds, 4) for n in range(many + 1)]
    places = [{"time": [a, b]} for a, b in pairwise(begins)]
    return Side("frames", [f"{a:.2f}" for a in begins[:-1]], places, [False] * many)


def spectrogram(frames: Float[Tensor, "T F"], mels: int, seconds: float) -> dict[str, Any]:
    """The frames as a grey picture, a column a frame, low tones at the bottom; and how long they last."""
    from PIL import Image

    values = frames[:, :mels].float().cpu().numpy().T[::-1]
    low, high = np.percentile(values, (1, 99.5))
    grey = np.clip((values - low) / max(high - low, 1e-6), 0, 1) * 255
    file = io.BytesIO()
    Image.fromarray(grey.astype(np.uint8)).save(file, "PNG")
    return {"seconds": seconds, "spectrogram": file.getvalue()}
