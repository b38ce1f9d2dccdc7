"""Audio classification: which class a recording belongs to: a word, an instrument, a bird.

    input        Audio
    output       Classes
    loss         cross-entropy of the label, summed over the recordings; labels smoothed, recordings mixed (mixup)
    metrics      accuracy, loss (nats per recording)

A recording is a picture of one channel, time down and frequency to the right, all of one size: any image model can read
it. Longer recordings are cut to their middle, with a warning.

Gong, Chung, Glass: AST: Audio Spectrogram Transformer. Interspeech 2021. arXiv:2104.01778
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.data.audio.audio_folder import LabeledAudio, LabeledAudioBatch, place_frames
from regard.metrics.base import ACCURACY, loss_metric
from regard.modalities.audio import Audio, AudioPreprocess
from regard.modalities.classes import Classes
from regard.tasks.base import SplitTask, call_with_state
from regard.tasks.predictor import Predictor, check_label_count, config_value

log = logging.getLogger("regard")

BATCH_FRAMES = 20_000  # frames of a batch of the classifier


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    label_smoothing: float = field(0.0, low=0, below=1)
    mixup: float = field(0.0, low=0, high=100)  # alpha; 0: none

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> AudioClassification:
        """Return the task on these data."""
        return AudioClassification(self, data, seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> LabeledAudio:
        """Return the recordings of a folder to evaluate a saved model on, given its config.json."""
        task = saved["task"]
        if other := changes.keys() - {"limit"}:
            raise BadInput(f"audio classifiers are evaluated on all recordings and take no {min(other)}")
        preprocess = from_dict(AudioPreprocess, task["preprocess"])
        data = LabeledAudio(corpus, preprocess=preprocess, max_frames=task["max_frames"], **changes)
        if data.labels() != list(task["labels"]):
            theirs = ", ".join(data.labels())
            raise BadInput(f"{corpus} has the labels {theirs}; this model has {', '.join(task['labels'])}")
        return data


class AudioClassification(SplitTask[Any]):
    """Train and evaluate an audio classifier."""

    metrics = (ACCURACY, loss_metric("nats per recording"))
    split_size = "recordings"
    unit = "recordings"
    name = "audio_classification"
    ragged = False  # all batches have one shape
    data: LabeledAudio

    def __init__(self, config: Config, data: LabeledAudio, seed: int = 0) -> None:
        super().__init__(data, seed)
        from regard.data.augment.mixup import Mixup

        self.config, self.labels = config, data.labels()
        if len(self.labels) < 2:
            raise BadInput(f"classification needs at least 2 labels; {data.corpus} has {', '.join(self.labels)}")
        self.mixing: list[Any] = [Mixup(config.mixup)] if config.mixup else []

    def fit(self, config: Any) -> Any:
        size = (self.data.max_frames, self.data.features)
        return replace(config, num_classes=len(self.labels), channels=1, image_size=size)

    def loss(
        self, model: nn.Module, batch: LabeledAudioBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        from regard.data.augment.batch_mixing import mix_batch

        generator = torch.Generator(batch.frames.device) if rng is None else rng
        targets = F.one_hot(batch.labels, len(self.labels)).float()
        values, targets = mix_batch(batch.frames[:, None], targets, self.mixing, generator, True)
        logits, pass_state = call_with_state(model, values)
        smoothing = self.config.label_smoothing
        total = F.cross_entropy(logits.float(), targets, reduction="sum", label_smoothing=smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def count(self, batch: LabeledAudioBatch) -> int:
        return len(batch.labels)

    def measure(self, model: nn.Module, batch: LabeledAudioBatch) -> dict[str, Tensor]:
        logits = model(batch.frames[:, None]).float()
        nll = F.cross_entropy(logits, batch.labels, reduction="sum")
        return {"loss": nll, "accuracy": (logits.argmax(-1) == batch.labels).sum()}

    def describe(self) -> dict[str, Any]:
        shown = to_dict(self.data.preprocess)
        return {"name": self.name, "labels": self.labels, "preprocess": shown, "max_frames": self.data.max_frames}

    def card(self) -> str:
        train: Any = self.dataset("train")
        seconds = self.data.max_frames * self.data.preprocess.hop_ms / 1000
        return f"{self.data.corpus}, {len(train):,} recordings of {seconds:.1f} s, {len(self.labels)} labels"


# -- the predictor -----------------------------------------------------------------------------------------------------


class AudioClassifier(Predictor):
    """Recordings in, labels with their probabilities out.

        classify = AudioClassifier(model, ["no", "yes"], AudioPreprocess(16000), max_frames=100)
        classify("yes.wav")                        Classes("yes", 0.98, {"yes": 0.98, "no": 0.02})
        classify(["a.wav", samples])               a list: paths, bytes of files, arrays and tensors of samples

    Other recordings of a batch do not change an output.
    """

    inputs = {"audio": Audio}  # noqa: RUF012
    outputs = Classes

    def __init__(
        self,
        model: nn.Module,
        labels: Sequence[str],
        preprocess: AudioPreprocess | Mapping[str, Any],
        max_frames: int,
    ) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(AudioPreprocess, preprocess)
        check_label_count(labels, config_value(model, "num_classes"))
        self.model, self.labels, self.preprocess = model.eval(), list(labels), preprocess
        self.max_frames = max_frames

    def frames(self, recording: Any) -> Float[Tensor, "T F"]:
        """Return a recording as the frames that the model reads."""
        found = self.preprocess.frames(recording)
        if len(found) > self.max_frames:
            read, whole = (n * self.preprocess.hop_ms / 1000 for n in (self.max_frames, len(found)))
            log.warning("a recording of %.1f s is cut to its middle: the model reads %.1f s", whole, read)
        return place_frames(found, self.max_frames)

    def predict(self, batch: list[Any], options: Any) -> list[Classes]:
        found: list[Classes] = []
        rows, weight = max(1, BATCH_FRAMES // self.max_frames), next(self.model.parameters())
        for begin in range(0, len(batch), rows):
            check_cancelled()
            frames = torch.stack([self.frames(each) for each in batch[begin : begin + rows]])
            with torch.no_grad():
                logits = self.model(frames[:, None].to(weight))
            found += [Classes.rank(self.labels, row) for row in logits.float().softmax(-1).tolist()]
        return found

    def attention(self, recording: Any) -> list[Trace]:
        """Return the attention maps of all layers for one recording."""
        frames = self.frames(recording)[None, None].to(next(self.model.parameters()))
        with torch.no_grad(), watch(self.model) as seen:
            self.model(frames)
        return seen.traces()
