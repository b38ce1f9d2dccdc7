"""What speech recognition tasks share: evaluation by WER, and a predictor from audio to transcripts.

    SpeechRecognitionTask    edits per word and per label, greedy or with a beam
    SpeechRecognizerBase     audio -> log-mel frames -> batches of similar length -> transcripts, in the given order

The transcript of a recording does not depend on the others in its batch. A recording without any change (digital
silence, a hundredth of a second) has an empty transcript, whatever the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict, to_dict
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.data.audio.speech_batch import SpeechBatch, count_targets, pad_frames
from regard.metrics.base import EXACT_MATCH, error_rate, loss_metric
from regard.metrics.word_error_rate import count_corpus_edits
from regard.modalities.audio import Audio, AudioPreprocess
from regard.modalities.transcript import Transcript
from regard.tasks.base import TextTask
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

BATCH_FRAMES = 60_000  # frames in one pass of a predictor
EVAL_FRAMES = 20_000  # frames in one batch of an evaluation


class SpeechRecognitionTask(TextTask[Any]):
    """A task over recordings. Subclasses define `loss`, `nll` and `transcribe`."""

    metrics = (
        error_rate("wer", "WER", scale=100),
        error_rate("ler", "LER", scale=100),
        EXACT_MATCH,
        loss_metric("nats per label"),
    )
    split_size = "recordings"
    config: Any

    def __init__(self, config: Any, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config

    def fit(self, config: Any) -> Any:
        own = {"vocab": self.text.size, "input_dim": self.data.features}
        own |= {role: getattr(self.text, role) for role in ("pad", "bos", "eos") if hasattr(config, role)}
        return replace(config, **own)

    def count(self, batch: SpeechBatch) -> int:
        return count_targets(batch)

    def nll(self, model: nn.Module, batch: SpeechBatch) -> tuple[Tensor, Tensor]:
        """Return -log p of each target, and which recordings have fewer frames than their target needs."""
        raise NotImplementedError

    def transcribe(self, model: nn.Module, batch: SpeechBatch, beam_size: int) -> list[list[int]]:
        """Return the labels that the model finds in each recording."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        preprocess = self.data.preprocess
        return {"name": self.name, "preprocess": None if preprocess is None else to_dict(preprocess)}

    def card(self) -> str:
        text = self.text
        return f"{self.data.corpus}, {len(self.dataset('train')):,} recordings, vocabulary {text.size:,} {text.kind}"

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Evaluate a model on a split: greedy with effort 1, with the beam above.

        Keys: loss (nats per label, the end counted as one), recordings, too_short (recordings with fewer frames than
        their target needs, left out of the loss); from effort 1 wer and ler (edits per word and per label; 0.05: 5 %),
        substitutions, insertions, deletions and words, and exact_match (share of recordings without an error).
        """
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        beam_size = self.config.beam_size if effort > 1 else 1
        nll, count, too_short = 0.0, 0, 0
        found, targets = list[list[int]](), list[list[int]]()
        for batch in part.eval_batches(EVAL_FRAMES):
            count += self.count(batch)
            batch = batch.to(device)
            losses, lost = self.nll(model, batch)
            nll, too_short = nll + float(losses.double().sum()), too_short + int(lost.sum())
            if effort:
                found += self.transcribe(model, batch, beam_size)
                rows = zip(batch.target.tolist(), batch.target_lengths.tolist(), strict=True)
                targets += [row[1 : n - 1] for row, n in rows]
        result: dict[str, Any] = {"loss": nll / max(count, 1), "recordings": len(part), "too_short": too_short}
        return result | (self.errors(found, targets) if effort else {})

    def errors(self, found: list[list[int]], targets: list[list[int]]) -> dict[str, Any]:
        """Return the error rates of labels and of the words that they spell."""
        texts = [self.text.decode(side) for side in (found, targets)]
        edits = count_corpus_edits(*([line.split() for line in side] for side in texts))
        return {
            "wer": edits.rate,
            "ler": count_corpus_edits(found, targets).rate,
            "substitutions": edits.substitutions,
            "insertions": edits.insertions,
            "deletions": edits.deletions,
            "words": edits.words,
            "exact_match": sum(a == b for a, b in zip(*texts, strict=True)) / max(len(targets), 1),
        }

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Evaluate a model as it is reported; `search`: beam_size."""
        own, self.config = self.config, replace(self.config, **search)
        try:
            return self.evaluate(model, split) | {"split": self.data.split(split), "beam_size": self.config.beam_size}
        finally:
            self.config = own


def evaluation_recordings(corpus: str, saved: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """Return the dataset of a name with the preprocessing of a saved model."""
    from regard.data.audio.an4 import AN4
    from regard.data.audio.audio_folder import TranscribedAudio, has_transcripts
    from regard.data.audio.fsdd import SpokenDigits

    preprocess = saved["task"]["preprocess"]
    own = Path(corpus).expanduser()
    if preprocess is not None and own.exists() and has_transcripts(own):
        return from_dict(TranscribedAudio, {"corpus": corpus, "preprocess": preprocess, **changes})
    kind = AN4 if preprocess is None else SpokenDigits  # AN4 has frames, no sound
    return from_dict(kind, {"corpus": corpus, **({} if preprocess is None else {"preprocess": preprocess}), **changes})


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpeechOptions:
    """Options of speech recognition."""

    beam_size: int = field(1, low=1, high=256, help="hypotheses kept while searching; 1 is greedy")


class SpeechRecognizerBase(Predictor):
    """A speech model with its vocabulary and its preprocessing. Subclasses define `_transcripts`.

    `preprocess` None: the model reads frames that were made elsewhere; pass them to `transcribe_frames`.
    """

    inputs = {"audio": Audio}  # noqa: RUF012
    outputs = Transcript
    options = SpeechOptions

    def __init__(
        self, model: nn.Module, text: Tokenizer, preprocess: AudioPreprocess | Mapping[str, Any] | None = None
    ) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(AudioPreprocess, preprocess)
        self.model, self.text, self.preprocess = model, text, preprocess

    def predict(self, batch: list[Any], options: Any) -> list[Transcript]:
        search = {name: value for name, value in vars(options).items() if name != "beam_size"}
        return self.transcribe_frames([self.frames(audio) for audio in batch], options.beam_size, **search)

    def frames(self, recording: Any) -> Float[Tensor, "T F"]:
        """Return a recording as the frames that the model reads; frames (T F) are returned as they are."""
        if isinstance(recording, Tensor) and recording.ndim == 2:
            return recording
        if self.preprocess is None:
            raise BadInput(
                "This model reads frames that were made elsewhere, not audio; use transcribe_frames(frames)."
            )
        return self.preprocess.frames(recording)

    @torch.inference_mode()
    def transcribe_frames(
        self, frames: Sequence[Float[Tensor, "_ F"]], beam_size: int = 1, **search: Any
    ) -> list[Transcript]:
        """Return the transcripts of recordings given as frames; `search` goes to the decoder."""
        self.model.eval()
        self._check(frames)
        found = [Transcript("", 0.0)] * len(frames)
        heard = [row for row, one in enumerate(frames) if not is_silent(one)]
        for rows, padded, lengths in self._batches([frames[row] for row in heard]):
            for row, each in zip(rows, self._transcripts(padded, lengths, beam_size, search), strict=True):
                found[heard[row]] = each
        return found

    def token_ids(self, transcript: str) -> list[int]:
        """Return the ids of a text; one with unknown words is refused."""
        found = self.text.encode_one(transcript)
        if self.text.unk in found:
            raise BadInput(f"this model cannot say all of {transcript!r:.60}: not every word is in its vocabulary")
        return found

    def single_batch(self, recording: Any) -> tuple[Float[Tensor, "T F"], Float[Tensor, "1 T F"], Int[Tensor, " 1"]]:
        """Return the frames of one recording (or given frames), the same as a batch on the model's device, and their
        number."""
        frames = self.frames(recording)
        self.model.eval()
        self._check([frames])
        ((_, padded, lengths),) = self._batches([frames])
        return frames, padded[:, : len(frames)], lengths

    def _transcripts(
        self, frames: Tensor, lengths: Tensor, beam_size: int, search: Mapping[str, Any]
    ) -> list[Transcript]:
        raise NotImplementedError

    def _check(self, frames: Sequence[Tensor]) -> None:
        """Raise `BadInput` for frames that are not finite, or more than a model with `check_length` can read."""
        check_length: Any = getattr(self.model, "check_length", None)
        for number, one in enumerate(frames, 1):
            if not one.isfinite().all():
                raise BadInput(f"audio {number}: frames must be finite numbers; found infinity or NaN")
            if check_length is None:
                continue
            try:
                check_length(len(one))
            except BadInput as error:
                raise BadInput(f"audio {number}: {error}") from None

    @property
    def _special_ids(self) -> set[int]:
        return {self.text.pad, self.text.bos, self.text.eos, self.text.unk}

    def _batches(self, frames: Sequence[Tensor]) -> Iterator[tuple[list[int], Tensor, Tensor]]:
        """Yield recordings of similar length as padded batches on the model's device, with their row numbers."""
        device = next(self.model.parameters()).device
        order = sorted(range(len(frames)), key=lambda row: -len(frames[row]))
        while order:
            check_cancelled()
            many = max(1, BATCH_FRAMES // max(1, len(frames[order[0]])))
            rows, order = order[:many], order[many:]
            padded, lengths = pad_frames([frames[row] for row in rows])
            yield rows, padded.to(device), lengths.to(device)


def is_silent(frames: Float[Tensor, "T F"]) -> bool:
    """Return whether all frames of a recording are equal."""
    return bool((frames == frames[:1]).all())
