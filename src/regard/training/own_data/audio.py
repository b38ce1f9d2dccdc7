"""Recordings: with labels, a small ResNet over spectrograms, which learns from hundreds; with transcripts, CTC."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.core.errors import BadInput
from regard.data.audio.audio_folder import LabeledAudio, Recording, TranscribedAudio, has_transcripts
from regard.data.text.table import is_table
from regard.modalities.audio import AudioPreprocess, import_soundfile
from regard.models import ctc, resnet
from regard.tasks.audio import audio_classification, ctc_speech_recognition
from regard.training.own_data.plan import (
    VAL_FRACTION,
    Candidate,
    Draft,
    base_train,
    describe_counts,
    describe_kept,
    num_train,
    run_name,
)
from regard.training.recipe import Recipe

MOST_SECONDS = 10.0  # of a labelled recording; the middle of longer ones is read
SHORT_FRAMES = 100  # of recordings of which one masked piece leaves enough
STARTED_RATE = 1e-3  # learning rate from a model that knows sounds already
FEW_WORDS = 60  # kinds of words up to which they are the labels of CTC, if each is said often


def draft(path: Path, quick: bool = False, source: str | None = None) -> Draft:
    """Return what to train on a folder of recordings."""
    source = None if source == "none" else source
    if path.is_file() and not is_table(path):
        raise BadInput(f"{path} is a file; give a folder with a folder of recordings for each label, or with a .tsv")
    return (_transcripts if has_transcripts(path) else _labels)(path, quick, source)


def _survey(recordings: list[Recording]) -> tuple[AudioPreprocess, list[float], list[str]]:
    """Return how recordings are read, the seconds of some, sorted, and the texts of all."""
    soundfile, seconds, rates = import_soundfile(), list[float](), list[int]()
    for recording in recordings[:: max(1, len(recordings) // 200)]:
        try:
            with recording.file.open("rb") as file:  # by its name, a broken .mp3 is commented on by its decoder
                about = soundfile.info(file)
        except (soundfile.SoundFileError, RuntimeError, OSError):
            continue  # named when it is read
        seconds.append(about.frames / about.samplerate)
        rates.append(about.samplerate)
    if not seconds:
        raise BadInput(f"no recording can be read ({recordings[0].file})")
    wide = sorted(rates)[len(rates) // 2] >= 16_000
    how = AudioPreprocess(sample_rate=16_000, n_mels=64) if wide else AudioPreprocess(sample_rate=8000, n_mels=40)
    return how, sorted(seconds), [recording.text for recording in recordings]


def _labels(path: Path, quick: bool, source: str | None) -> Draft:
    data = LabeledAudio(str(path))
    found = data.found()
    recordings = found.get("all") or found["train"]
    how, seconds, labels = _survey(recordings)
    classes = data.labels()
    if len(classes) < 2:
        raise BadInput(f"{path} has one folder of recordings ({classes[0]}); expected one for each of 2 labels or more")
    count = len(recordings)
    train = count if "val" in found else num_train(count)
    frames = how.num_frames(int(how.sample_rate * min(MOST_SECONDS, 1.1 * seconds[int(0.98 * (len(seconds) - 1))])))
    frames = 8 * max(4, round(frames / 8))
    batch = min(16, max(2, train // 4))
    typical = how.num_frames(int(how.sample_rate * seconds[len(seconds) // 2]))
    masks = 1 if typical < SHORT_FRAMES else 2
    own = LabeledAudio(
        str(path),
        batch_size=batch,
        val_fraction=VAL_FRACTION,
        preprocess=replace(how, per_feature=False),  # the mean spectrum tells sounds apart
        max_frames=frames,
        time_masks=masks,
        time_width=min(12, max(2, typical // 8)),
        mel_masks=masks,
        mel_width=how.n_mels // 8,
    )
    task = audio_classification.Config(label_smoothing=0.1, mixup=0.2)
    settings = base_train(learning_rate=2e-3, weight_decay=0.05, metric="loss")
    widths = (8,) if quick else (64, 32, 16)
    return Draft(
        name=run_name(path),
        data=f"{count:,} recordings of {seconds[len(seconds) // 2]:.1f} s (the longest {seconds[-1]:.1f}) in "
        f"{len(classes)} classes ({describe_counts(labels)}), read at {how.sample_rate:,} Hz; "
        f"{describe_kept(count - train) if train < count else 'those of val/ for validation'}",
        start=f"{source}; the classifier is new if its labels differ" if source else "from scratch",
        candidates=[_continued(Recipe(_spectrogram_model(widths[-1]), task, own, settings), source)]
        if source
        else [
            Candidate(Recipe(_spectrogram_model(width), task, own, settings), epochs=100, least=40) for width in widths
        ],
        examples=train,
        per_update=batch,
        regularisation="other speeds and places, masked times and pitches, mixed recordings, smoothed labels",
        use="regard classify RECORDING --model {model}",
    )


def _continued(recipe: Recipe, source: str) -> Candidate:
    """Return training that starts from a model, with its architecture and its preprocessing of audio."""
    from regard.training.init_from import adopt_source

    recipe = replace(recipe, train=replace(recipe.train, init_from=source, learning_rate=STARTED_RATE))
    return Candidate(adopt_source(recipe)[0], epochs=50)


def _spectrogram_model(width: int) -> Any:
    return resnet.Config(layers=(1, 1, 1, 1), width=width, dropout=0.2)  # halved twice at once: updates are cheap


def _transcripts(path: Path, quick: bool, source: str | None) -> Draft:
    data = TranscribedAudio(str(path))
    found = data.found()
    recordings = found.get("all") or found["train"]
    how, seconds, texts = _survey(recordings)
    count, words = len(recordings), [word for text in texts for word in text.split()]
    if count < 10:
        raise BadInput(f"{path} has {count} transcribed recordings; expected at least 10, and some hundreds to learn")
    train = count if "val" in found else num_train(count)
    few = len(set(words)) <= FEW_WORDS and len(words) >= 8 * len(set(words))
    batch = min(16, max(2, train // 4))
    own = TranscribedAudio(
        str(path),
        batch_size=batch,
        val_fraction=VAL_FRACTION,
        preprocess=how,
        tokenizer="word" if few else "char",
        mel_width=how.n_mels // 6,
    )
    size = ctc.SIZES["tiny"] if count < 2000 else ctc.SIZES["small"]
    model = ctc.Config(vocab=1, **({**size, "width": 32, "hidden": 32, "layers": 1} if quick else size))
    settings = base_train(learning_rate=3e-3, weight_decay=0.01, ema_decay=0.99, metric="loss")
    task = ctc_speech_recognition.Config(beam_size=8)
    return Draft(
        name=run_name(path),
        data=f"{count:,} recordings of {seconds[len(seconds) // 2]:.1f} s (the longest {seconds[-1]:.1f}) with "
        f"transcripts, {len(set(words)):,} different words, read at {how.sample_rate:,} Hz; "
        f"{describe_kept(count - train) if train < count else 'those of the validation split for validation'}",
        start=f"{source}, with its tokenizer" if source else "from scratch",
        candidates=[
            _continued(Recipe(model, task, own, settings), source)
            if source
            else Candidate(Recipe(model, task, own, settings), epochs=100)
        ],
        examples=train,
        per_update=batch,
        regularisation=f"other speeds, masked times and pitches, dropout {model.dropout:g}, averaged weights",
        use="regard transcribe RECORDING --model {model}",
    )
