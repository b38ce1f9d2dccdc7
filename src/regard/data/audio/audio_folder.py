"""Recordings of one's own: with a label each, or with a transcript each.

    yes/*.wav  no/*.wav                       labels: a folder for each, or such folders in train/, val/ and test/
    recordings.tsv (.csv, .jsonl)             transcripts: a column of file names and one of texts (`TABLE_COLUMNS`), or
                                              two columns; files are searched beside it and in clips/, audio/ and wavs/
    train.tsv dev.tsv test.tsv                the same with a table for each split (Common Voice)
    metadata.csv                              lines "LJ001-0001|text|text in words", as in LJ Speech, beside wavs/
    84/121123/84-121123.trans.txt             transcripts as in LibriSpeech: lines "84-121123-0001 GO DO YOU HEAR"

Recordings become log-mel frames (`preprocess`, saved with the model). Training examples are at one of three speeds and
have SpecAugment masks; labelled ones begin at a random place in rows of `max_frames` frames, into whose middle others
are put. Without a validation split a part of the recordings is used, chosen once; "all" is all of them.

Panayotov et al.: LibriSpeech. ICASSP 2015; Ardila et al.: Common Voice. LREC 2020. arXiv:1912.06670
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.validation import validate
from regard.data import data_dir
from regard.data.audio.speech_batch import Example, SpeechSplit, spec_augment
from regard.data.base import Dataset, DatasetSplit, TensorBatch
from regard.data.batching import OffsetBatches, RowBatches, mix_seed
from regard.data.class_folders import class_folders, split_folders, split_rows
from regard.data.text.table import is_table, read_lines, read_table, suffix
from regard.data.text.text_file import SPLIT_ALIASES, files_by_split, log_unread
from regard.modalities.audio import SUFFIXES, AudioPreprocess, read_audio
from regard.tokens.frames import resample

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")

SPEEDS = (9, 10, 11)  # tenths of the original speed
TABLE_COLUMNS = (
    ("file", "path", "audio", "filename", "file_name"),
    ("text", "transcript", "sentence", "transcription"),
)
PLACES = ("", "clips", "audio", "wavs", "wav")  # where the files of a table are


class Recording(NamedTuple):
    """A file and its label or transcript."""

    file: Path
    text: str


@dataclass(frozen=True)
class AudioFolder(Dataset):
    """Settings of both datasets."""

    corpus: str = ""  # path of a folder, or of a table of transcripts
    batch_size: int = 16  # rows per batch over all processes
    val_fraction: float = field(0.1, above=0, below=1)  # of the recordings, if there is no validation split
    preprocess: AudioPreprocess = dataclasses.field(default_factory=AudioPreprocess)
    speed_perturbation: bool = True  # a third 10 % slower, a third 10 % faster
    time_masks: int = field(2, low=0)  # masks per recording
    time_width: int = field(12, low=0)  # largest width in frames
    mel_masks: int = field(2, low=0)
    mel_width: int = field(6, low=0)  # largest width in features
    limit: int | None = None  # use only the first recordings of every split

    quick_settings = {"limit": 16, "batch_size": 4}  # noqa: RUF012

    def __post_init__(self) -> None:
        validate(self, "data.")

    @property
    def features(self) -> int:
        return self.preprocess.features

    def found(self) -> dict[str, list[Recording]]:
        """Return the recordings of every split that the data have, of data without splits as "all"."""
        raise NotImplementedError

    def splits(self) -> list[str]:
        found = self.found()
        return ["all", "train", "val"] if "all" in found else sorted(found.keys() | {"val"})

    def recordings(self, split: str) -> list[Recording]:
        """Return the recordings of a split."""
        found, part = self.found(), self.split(split)
        if part not in found or (part == "train" and "val" not in found):
            rows = found.get("all") or found["train"]
            chosen = split_rows(len(rows), part, self.val_fraction)
            if not len(chosen):
                raise BadInput(f"{self.corpus} has {len(rows)} recordings, too few to keep some for validation")
            return [rows[row] for row in chosen.tolist()][: self.limit]
        return found[part][: self.limit]

    def frames(self, wave: Tensor, speed: int = 10) -> Float[Tensor, "T F"]:
        """Return the frames of a recording at a speed in tenths: 11 is 10 % faster, and higher."""
        return self.preprocess(wave if speed == 10 else resample(wave, speed, 10))


class Waves:
    """The recordings of a split, decoded, and their frames at each speed, computed once."""

    def __init__(self, settings: AudioFolder, recordings: Sequence[Recording]) -> None:
        self.settings = settings
        self.recordings, self.waves, self.skipped = list[Recording](), list[Tensor](), dict[Path, str]()
        for recording in recordings:
            try:
                wave = read_audio(recording.file, settings.preprocess.sample_rate)
            except BadInput as error:
                self.skipped[recording.file] = str(error)
                continue
            self.recordings.append(recording)
            self.waves.append(wave)
        for reason in list(self.skipped.values())[:3]:
            log.warning(f"left out: {reason}")
        if len(self.skipped) > 3:
            log.warning(f"{len(self.skipped):,} recordings were left out")
        if not self.waves:
            raise BadInput(
                f"no recording of {settings.corpus} can be read: {next(iter(self.skipped.values()), 'none')}"
            )
        self._frames: dict[tuple[int, int], Tensor] = {}

    def __len__(self) -> int:
        return len(self.waves)

    def frames(self, row: int, speed: int = 10) -> Float[Tensor, "T F"]:
        if (row, speed) not in self._frames:
            self._frames[row, speed] = self.settings.frames(self.waves[row], speed)
        return self._frames[row, speed]

    def training_frames(self, row: int, rng: np.random.Generator) -> Float[Tensor, "T F"]:
        """Return the frames of a recording at a random speed, with masks."""
        s = self.settings
        speed = int(rng.choice(SPEEDS)) if s.speed_perturbation else 10
        return spec_augment(self.frames(row, speed), s.time_masks, s.time_width, s.mel_masks, s.mel_width, rng)

    def contents(self) -> Iterable[np.ndarray]:
        for wave, recording in zip(self.waves, self.recordings, strict=True):
            yield wave.numpy()
            yield np.frombuffer(recording.text.encode() + b"\0", np.uint8)


# -- labels ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabeledAudioBatch(TensorBatch):
    """Recordings as frames, all of one length, and their labels."""

    frames: Float[Tensor, "B T F"]
    labels: Int[Tensor, " B"]


@dataclass(frozen=True)
class LabeledAudio(AudioFolder):
    """Recordings with a label each."""

    max_frames: int = 100  # frames of a row: the middle of longer recordings

    def labels(self) -> list[str]:
        return class_folders(split_folders(data_dir.find_dataset(self.corpus))["train"], "recordings")

    def found(self) -> dict[str, list[Recording]]:
        parts, classes = split_folders(data_dir.find_dataset(self.corpus)), self.labels()
        found = {}
        for part, folder in parts.items():
            if unknown := set(class_folders(folder, "recordings")) - set(classes):
                raise BadInput(f"{folder} has a class '{min(unknown)}' that {parts['train']} does not have")
            found[part] = [
                Recording(file, name)
                for name in class_folders(folder, "recordings")
                for file in list_audio_files(folder / name)
            ]
            if not found[part]:
                raise BadInput(f"{folder} has no recordings ({', '.join(SUFFIXES[:4])} in a folder for each label)")
        return {"all": found["train"]} if set(found) == {"train"} else found

    def load(self, split: str) -> LabeledAudioSplit:
        return LabeledAudioSplit(self, self.recordings(split))


class LabeledAudioSplit(DatasetSplit[LabeledAudioBatch]):
    """One split: recordings as frames with the number of their label."""

    def __init__(self, settings: LabeledAudio, recordings: Sequence[Recording]) -> None:
        self.settings, self.waves = settings, Waves(settings, recordings)
        labels = settings.labels()
        self.labels = torch.tensor([labels.index(recording.text) for recording in self.waves.recordings])

    def __len__(self) -> int:
        return len(self.waves)

    def order(self, seed: int, epoch: int) -> OffsetBatches:
        batches = RowBatches(len(self), min(self.settings.batch_size, len(self)), mix_seed(seed, epoch))
        return OffsetBatches(batches, epoch * len(self))

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> LabeledAudioBatch:
        found = []
        for row in rows.tolist():
            rng = np.random.default_rng(mix_seed(seed, row))
            found.append(place_frames(self.waves.training_frames(row % len(self), rng), self.settings.max_frames, rng))
        return LabeledAudioBatch(torch.stack(found), self.labels[rows % len(self)])

    def collate(self, rows: Int[Tensor, " B"]) -> LabeledAudioBatch:
        frames = [place_frames(self.waves.frames(row), self.settings.max_frames) for row in rows.tolist()]
        return LabeledAudioBatch(torch.stack(frames), self.labels[rows])

    def contents(self) -> Iterable[np.ndarray]:
        return self.waves.contents()


def place_frames(
    frames: Float[Tensor, "T F"], length: int, rng: np.random.Generator | None = None
) -> Float[Tensor, "N F"]:
    """Return a row of `length` frames: the middle of a longer recording; a shorter one in the middle of zeros, which
    are the mean of every feature. With `rng`, at a random place."""
    spare = length - len(frames)
    at = abs(spare) // 2 if rng is None else int(rng.integers(0, abs(spare) + 1))
    if spare <= 0:
        return frames[at : at + length]
    row = frames.new_zeros(length, frames.shape[1])
    row[at : at + len(frames)] = frames
    return row


# -- transcripts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TranscribedAudio(AudioFolder):
    """Recordings with a transcript each."""

    tokenizer: str = "char"  # char or word
    vocab_size: int = 1000

    def found(self) -> dict[str, list[Recording]]:
        return read_transcripts(self.corpus)

    def build_tokenizer(self) -> Tokenizer:
        """Train a tokenizer of the letters (or words) of the training transcripts."""
        from regard.tokens.tokenizer import Tokenizer

        texts = [recording.text for recording in self.recordings("train")]
        return Tokenizer.train(texts, kind=self.tokenizer, size=self.vocab_size)

    def load(self, split: str, tokenizer: Tokenizer) -> TranscribedAudioSplit:
        return TranscribedAudioSplit(self, self.recordings(split), tokenizer)


class TranscribedAudioSplit(SpeechSplit):
    """One split: recordings as frames, and their transcripts."""

    def __init__(self, settings: TranscribedAudio, recordings: Sequence[Recording], tokenizer: Tokenizer) -> None:
        self.tokenizer, self.batch_size = tokenizer, settings.batch_size
        self.waves = Waves(settings, recordings)
        self.waves.recordings = _as_written(self.waves.recordings, tokenizer)

    def __len__(self) -> int:
        return len(self.waves)

    @cached_property
    def examples(self) -> list[Example]:  # type: ignore[override]
        return [(self.waves.frames(row), each.text) for row, each in enumerate(self.waves.recordings)]

    def lengths(self, seed: int, epoch: int) -> Int[Tensor, " rows"]:
        return torch.tensor([len(wave) for wave in self.waves.waves])

    def training_example(self, row: int, key: int) -> Example:
        rng = np.random.default_rng(key)
        return self.waves.training_frames(row, rng), self.waves.recordings[row].text

    def contents(self) -> Iterable[np.ndarray]:
        yield from self.waves.contents()
        pieces = self.tokenizer.pieces(range(self.tokenizer.size))
        yield np.frombuffer(repr(pieces).encode(), np.uint8)


def _as_written(recordings: list[Recording], tokenizer: Tokenizer) -> list[Recording]:
    """Return transcripts in the case that a tokenizer knows; a line is logged about those that it still lacks."""

    def lacking(rows: list[Recording]) -> list[Recording]:
        known = tokenizer.encode([row.text for row in rows])
        return [row for row, ids in zip(rows, known, strict=True) if tokenizer.unk in ids]

    others = ([row._replace(text=change(row.text)) for row in recordings] for change in (str.lower, str.upper))
    found = recordings if not lacking(recordings) else min((recordings, *others), key=lambda rows: len(lacking(rows)))
    if lost := lacking(found):
        log.warning(
            f"{len(lost):,} of {len(found):,} transcripts have what the model cannot write ({lost[0].text!r}); it is "
            "left out of them, so error rates are not of the whole texts"
        )
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


def list_audio_files(folder: Path) -> list[Path]:
    """Return the audio files of a folder and its subfolders, sorted."""
    files = (file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    return sorted(file for file in files if not file.name.startswith("."))


def has_transcripts(path: Path) -> bool:
    """Whether a folder (or file) holds recordings with transcripts rather than labels."""
    if path.is_file():
        return is_table(path)
    return any(is_table(file) for file in path.iterdir()) or next(path.rglob("*.trans.txt"), None) is not None


@data_dir.cached_by_data_dir(4)
def read_transcripts(corpus: str) -> dict[str, list[Recording]]:
    """Return the recordings of every split; of data without splits as "all"."""
    path = Path(corpus).expanduser()
    folder = path.parent if path.is_file() else data_dir.find_dataset(corpus)
    tables = [path] if path.is_file() else [file for file in sorted(folder.iterdir()) if is_table(file)]
    by_split = files_by_split(tables)
    if "train" in by_split:
        log_unread(tables, by_split)
        return {part: [row for file in files for row in _from_table(file, folder)] for part, files in by_split.items()}
    if len(tables) == 1:
        return {"all": _from_table(tables[0], folder)}
    if tables:
        names = ", ".join(file.name for file in tables[:4])
        raise BadInput(f"{folder} has {len(tables)} tables ({names}); name one of them, or have train.tsv and dev.tsv")
    if found := _from_librispeech(folder):
        return found
    raise BadInput(
        f"{folder} has no transcripts: expected a .tsv with a file name and its text on every line, or *.trans.txt "
        "files as in LibriSpeech"
    )


def _from_table(file: Path, folder: Path) -> list[Recording]:
    """Return the recordings that a table names."""
    first = read_lines(file)[:1] if file.suffix == ".csv" else []
    if first and first[0].count("|") in (1, 2) and "," not in first[0].partition("|")[0]:
        rows = [line.split("|") for line in read_lines(file) if line.strip()]
        return _find_recordings(file, folder, [(row[0], row[-1]) for row in rows])
    table = read_table(file, [name for names in TABLE_COLUMNS for name in names])
    if suffix(file) == ".tsv" and table.columns[0] == "1" and len(table.columns) > 2:  # Common Voice: many columns
        table = read_table(file, [cell.lower() for cell in table.rows[0]])
    chosen = [next((name for name in names if name in table.columns), None) for names in TABLE_COLUMNS]
    if None in chosen:
        if len(table.columns) != 2:
            names = " or ".join(f"'{names[0]}'" for names in TABLE_COLUMNS)
            raise BadInput(f"{file}: no columns {names}; its columns are {', '.join(table.columns)}")
        chosen = [*table.columns]
    return _find_recordings(file, folder, zip(*(table.column(str(name)) for name in chosen), strict=True))


def _find_recordings(file: Path, folder: Path, rows: Iterable[tuple[str, str]]) -> list[Recording]:
    """Return the recordings of names and texts, which are from a table."""
    found, missing = list[Recording](), list[str]()
    for name, text in rows:
        wanted = [folder / at / f"{name}{end}" for at in PLACES for end in ("", *SUFFIXES)]
        place = next((each for each in wanted if each.is_file()), None)
        if place is None or not place.resolve().is_relative_to(folder.resolve()):
            missing.append(name)
        elif text:
            found.append(Recording(place, " ".join(text.split())))
    if missing:
        searched = ", ".join(str(folder / at) for at in PLACES[:4])
        raise BadInput(f"{file} names {len(missing):,} files that are not there ({missing[0]}); searched in {searched}")
    return found


def _from_librispeech(folder: Path) -> dict[str, list[Recording]]:
    """Return the recordings of LibriSpeech's folders; subfolders such as train-clean-100 and dev-clean are splits."""
    found: dict[str, list[Recording]] = {}
    for file in sorted(folder.rglob("*.trans.txt")):
        top = file.relative_to(folder).parts[0].split("-")[0]
        part = SPLIT_ALIASES.get(top, "all")
        for number, line in enumerate(read_lines(file), 1):
            if not line.strip():
                continue
            name, _, text = line.partition(" ")
            sound = next((file.with_name(name + end) for end in SUFFIXES if file.with_name(name + end).is_file()), None)
            if sound is None or not text.strip():
                raise BadInput(f"{file}, line {number}: no recording called '{name}', or it has no transcript")
            found.setdefault(part, []).append(Recording(sound, " ".join(text.split())))
    return found if "train" in found or "all" in found else {"all": [row for rows in found.values() for row in rows]}
