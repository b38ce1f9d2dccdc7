"""Speech recognition by CTC and an attention decoder together: one encoder, two losses, one search.

    input        Audio
    output       Transcript (text, joint score, times of the words)
    loss         (1 - λ) cross-entropy of the next word, label-smoothed + λ CTC's -log p(words), both summed
    metrics      WER %, LER % (labels), exact match %, nats per label (of the decoder)
    decoding     both judge every hypothesis (decoding.joint_search), greedy with beam size 1, else beam search
    times        start and end of each word, by CTC's most likely alignment (losses.ctc)

λ is `ctc_weight` in training and `ctc_decode_weight` while searching; 0 leaves CTC out. A recording with fewer frames
than its words need is left out of CTC's loss and counted as "too_short".

Watanabe, Hori, Kim, Hershey, Hayashi: Hybrid CTC/Attention Architecture for End-to-End Speech Recognition. IEEE JSTSP
2017
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from regard.core.config import field
from regard.core.shapes import Float, Tensor
from regard.data.audio.speech_batch import SpeechBatch
from regard.decoding.joint_search import HybridModel, JointDecodable
from regard.losses.ctc import ctc_training_loss, forced_align, required_frames
from regard.modalities.transcript import TimedWord
from regard.tasks.audio import speech_recognition
from regard.tasks.audio.ctc_speech_recognition import ctc_targets
from regard.tasks.audio.speech_recognition import SpeechRecognition, SpeechRecognizer, search_recordings
from regard.tasks.base import call_with_state, load_tokenizer
from regard.tasks.text.translation import model_inputs, shift_targets

CTC_DECODE_WEIGHT = 0.3


@dataclass(frozen=True)
class Config(speech_recognition.Config):
    """Settings of speech recognition, and the weights of CTC."""

    ctc_weight: float = field(0.3, low=0, high=1)  # of its loss; the decoder's has the rest
    ctc_decode_weight: float = field(CTC_DECODE_WEIGHT, low=0, high=1)  # of its score while searching

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> JointSpeechRecognition:
        return JointSpeechRecognition(self, data, load_tokenizer(folder), seed)


class JointSpeechRecognition(SpeechRecognition):
    """Train and evaluate a hybrid model over recordings."""

    name = "joint_speech_recognition"

    def loss(
        self, model: nn.Module, batch: SpeechBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the weighted sum of both losses over all words and ends, and each of them."""
        logits, pass_state = call_with_state(model, *model_inputs(batch))
        attention = self.objective(logits, shift_targets(batch), self.config.label_smoothing)
        ((ctc_logits, lengths),) = pass_state.collect("ctc")
        targets, sizes = ctc_targets(batch)
        lost = required_frames(targets, sizes) > lengths
        logp = ctc_logits.float().log_softmax(-1)
        ctc = ctc_training_loss(logp, targets, lengths, sizes, blank=logp.shape[-1] - 1).sum()
        total = (1 - self.config.ctc_weight) * attention + self.config.ctc_weight * ctc
        parts = {"loss": total.detach(), "attention": attention.detach(), "ctc": ctc.detach(), "too_short": lost.sum()}
        return self.with_layer_losses(total, batch, pass_state), parts

    def transcribe(self, model: nn.Module, batch: SpeechBatch, beam_size: int) -> list[list[int]]:
        joint: Any = JointDecodable(cast(HybridModel, model), self.config.ctc_decode_weight)
        found = search_recordings(joint, batch.frames, batch.frame_lengths, beam_size, self.text)
        return [list(one.tokens) for one in found]


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(speech_recognition.Options):
    """Options of the search."""

    ctc_weight: float = field(CTC_DECODE_WEIGHT, low=0, high=1, help="weight of CTC; the decoder has the rest")


class JointSpeechRecognizer(SpeechRecognizer):
    """A decoder over frames, and CTC, that judge every transcript together.

    transcribe = regard.load("runs/digits-joint")
    transcribe("call.wav", beam_size=4, ctc_weight=0.5)
    """

    options = Options

    def decodable(self, ctc_weight: float = CTC_DECODE_WEIGHT, **search: Any) -> tuple[Any, dict[str, Any]]:
        return JointDecodable(cast(HybridModel, self.model), ctc_weight), search

    @torch.inference_mode()
    def _words(self, frames: Tensor, lengths: Tensor, outputs: Sequence[Sequence[int]]) -> list[tuple[TimedWord, ...]]:
        """Return the words of every output with their times on CTC's most likely alignment, if there is one."""
        model = cast(HybridModel, self.model)
        memory, left = model.encode(frames, lengths)
        logp = model.ctc_logits(memory).float().log_softmax(-1)
        sizes = torch.tensor([len(one) for one in outputs], device=logp.device)
        target = torch.zeros(len(outputs), int(sizes.max()), dtype=torch.long, device=logp.device)
        for row, one in zip(target, outputs, strict=True):
            row[: len(one)] = torch.tensor(one, dtype=torch.long)
        paths, _ = forced_align(logp, target, left, sizes, logp.shape[-1] - 1)
        every = []
        for one, path in zip(outputs, paths.cpu(), strict=True):
            words = []
            for n, (token, name) in enumerate(zip(one, self.text.pieces(one), strict=True)):
                at = (path == 2 * n + 1).nonzero()[:, 0].tolist()
                if at and token not in self._special_ids:
                    words.append(TimedWord(name, *self._times(at[0], at[-1])))
            every.append(tuple(words))
        return every
