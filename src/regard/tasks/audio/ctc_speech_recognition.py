"""Speech recognition by CTC: audio in, a transcript out; no alignment is given in training.

    input        Audio
    output       Transcript (text, log-probability, times of the words)
    loss         -log p(words), summed over all alignments of the words with the frames (losses.ctc)
    metrics      WER %, LER % (labels), exact match %, nats per label
    decoding     greedy, or a beam over prefixes (decoding.ctc_search), with a language model where given
    times        start and end of each word, by the most likely alignment of its labels (losses.ctc)

A recording with fewer frames than its words need has an infinite loss. It is left out of the sum and counted as
"too_short": the gradient of the others stays the same.

Graves, Fernández, Gomez, Schmidhuber: Connectionist Temporal Classification. ICML 2006
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data.audio.speech_batch import SpeechBatch
from regard.decoding.ctc_search import CTCHypothesis, ctc_decode
from regard.losses.ctc import ctc_training_loss, forced_align, required_frames, state_posteriors
from regard.modalities.audio import AudioPreprocess
from regard.modalities.transcript import TimedWord, Transcript
from regard.tasks.audio.speech_base import (
    SpeechRecognitionTask,
    SpeechRecognizerBase,
    evaluation_recordings,
    is_silent,
)
from regard.tasks.base import call_with_state, load_tokenizer


@dataclass(frozen=True)
class Config:
    """How transcripts are searched for."""

    beam_size: int = 8  # in reports; evaluations during training are greedy

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, beam_size=2)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> CTCSpeechRecognition:
        """Return the task on these data, with the tokenizer in the folder where one is given, else that of the data."""
        return CTCSpeechRecognition(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> Any:
        """Return the dataset of a name to evaluate a saved model on, whose config.json is given."""
        return evaluation_recordings(corpus, saved, changes)


class CTCSpeechRecognition(SpeechRecognitionTask):
    """Train and evaluate a CTC model."""

    name = "ctc_speech_recognition"

    def loss(
        self, model: nn.Module, batch: SpeechBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the summed loss of all targets that fit their frames, and how many do not."""
        output, pass_state = call_with_state(model, batch.frames, batch.frame_lengths)
        losses, lost = self._nll(output, batch)
        total = losses.sum()
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach(), "too_short": lost.sum()}

    def nll(self, model: nn.Module, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """Return -log p of each target, 0 for those that do not fit their frames; and which these are."""
        return self._nll(model(batch.frames, batch.frame_lengths), batch)

    def _nll(self, output: tuple[Tensor, Tensor], batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        logits, lengths = output
        logp = logits.float().log_softmax(-1)
        targets, sizes = ctc_targets(batch)
        lost = required_frames(targets, sizes) > lengths
        return ctc_training_loss(logp, targets, lengths, sizes, blank=logits.shape[-1] - 1), lost

    def transcribe(self, model: nn.Module, batch: SpeechBatch, beam_size: int) -> list[list[int]]:
        logits, lengths = model(batch.frames, batch.frame_lengths)
        found = ctc_decode(logits.float().log_softmax(-1), lengths, logits.shape[-1] - 1, beam_size)
        return [list(one.labels) for one in found]


def ctc_targets(batch: SpeechBatch) -> tuple[Int[Tensor, "B S"], Int[Tensor, " B"]]:
    """Return targets without <s> and </s>, and their lengths; what lies beyond is padding."""
    return batch.target[:, 1:-1], batch.target_lengths - 2


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CTCAnalysis:
    """One recording as CTC sees it: for pictures (see.ctc_lattice)."""

    frames: Float[Tensor, "T F"]  # what the model read
    probabilities: Float[Tensor, "N V"]  # of every label and, last, the blank, at every frame after subsampling
    share: Float[Tensor, "N L"]  # posterior of every state at every frame, over all alignments of the text
    path: Int[Tensor, " N"]  # the most likely alignment: its state at each frame
    states: tuple[str, ...]  # names of the L states; "-" is the blank
    labels: tuple[str, ...]  # names of the V labels
    seconds: float  # length of a frame after subsampling
    transcript: Transcript


class CTCSpeechRecognizer(SpeechRecognizerBase):
    """A network that labels frames: CTC.

        transcribe = regard.load("digits")
        transcribe("call.wav", beam_size=8)         Transcript("one four", -0.12, (TimedWord("one", 0.31, 0.36), ...))
        transcribe(["a.wav", "b.flac"])             a list

    `transcribe_frames` takes the arguments of decoding.ctc_search too: scorer (a language model), lm_weight, ...
    """

    @torch.inference_mode()
    def analyze(self, recording: Any, beam_size: int = 1, transcript: str | None = None, **search: Any) -> CTCAnalysis:
        """Return what CTC computes for one recording (or its frames, T F); `transcript`: align this text instead of the
        model's own."""
        frames, padded, many = self.single_batch(recording)
        logp, lengths = self._log_probs(padded, many)
        found = ctc_decode(logp, lengths, self.text.size, beam_size, **search)[0]
        if is_silent(frames):
            found = CTCHypothesis((), 0.0)
        if transcript is not None:
            found = CTCHypothesis(tuple(self.token_ids(transcript)), found.score)
        target = torch.tensor([found.labels], dtype=torch.long, device=logp.device).reshape(1, -1)
        given = logp, target, lengths, torch.full_like(lengths, target.shape[1]), self.text.size
        share, total = state_posteriors(*given)
        if total.isinf():
            raise BadInput(f"this recording has {int(lengths)} frames after subsampling, too few to say {transcript!r}")
        result = self._with_times(logp, lengths, [found], many)[0]
        if transcript is not None:
            result = Transcript(result.text, float(total), result.words)
        states = ("-", *(name for one in self.text.pieces(found.labels) for name in (one, "-")))
        return CTCAnalysis(
            frames,
            logp[0].exp().cpu(),
            share[0].cpu(),
            forced_align(*given)[0][0].cpu(),
            states,
            (*self.text.pieces(range(self.text.size)), "-"),
            self._frame_seconds(many, lengths)[0],
            result,
        )

    def _transcripts(
        self, frames: Tensor, lengths: Tensor, beam_size: int, search: Mapping[str, Any]
    ) -> list[Transcript]:
        logp, left = self._log_probs(frames, lengths)
        return self._with_times(logp, left, ctc_decode(logp, left, self.text.size, beam_size, **search), lengths)

    def _log_probs(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        logits, left = self.model(frames, lengths)
        return logits.float().log_softmax(-1), left

    def _with_times(
        self, logp: Tensor, left: Tensor, found: Sequence[CTCHypothesis], lengths: Tensor
    ) -> list[Transcript]:
        """Return texts with the times of their words."""
        sizes = torch.tensor([len(one.labels) for one in found])
        target = torch.zeros(len(found), int(sizes.max()), dtype=torch.long)
        for row, one in zip(target, found, strict=True):
            row[: len(one.labels)] = torch.tensor(one.labels)
        paths, _ = forced_align(logp, target.to(logp.device), left, sizes.to(logp.device), self.text.size)
        results = []
        for one, path, second in zip(found, paths.cpu(), self._frame_seconds(lengths, left), strict=True):
            words = []
            for i, name in enumerate(self.text.pieces(one.labels)):
                if one.labels[i] in self._special_ids:
                    continue
                at = (path == 2 * i + 1).nonzero()[:, 0].tolist()
                words.append(TimedWord(name, round(at[0] * second, 3), round((at[-1] + 1) * second, 3)))
            results.append(Transcript(self.text.decode([one.labels])[0], one.score, tuple(words)))
        return results

    def _frame_seconds(self, frames: Tensor, left: Tensor) -> list[float]:
        """Return the length of a frame after subsampling: a power of two times the hop."""
        hop = (self.preprocess or AudioPreprocess()).hop_ms / 1000
        return [hop * 2 ** round(math.log2(n / m)) for n, m in zip(frames.tolist(), left.tolist(), strict=True)]
