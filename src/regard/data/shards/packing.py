"""Pack text files and folders of images into shards, so that training reads them without decoding.

    source     a file, a folder, or .gz of text; .jsonl with a "text" in every line; SPLIT=PATH sets its split
    document   a file, a paragraph or a line; its tokens end with the end token
    split      val if the hash of a document's beginning says so, else train: the same on every run and machine, and
               equal documents are never in both
    piece      what is encoded at a time: a document, or some 100,000 characters of one, cut at a space between words
               where that does not change its tokens

Everything is read once beforehand, so that unusable files are reported at once and not hours later. The tokenizer is
trained on the training split, or on an even sample of it. Memory stays constant whatever is packed, and the same
sources give the same bytes, with any number of processes.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import threading
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

import regard
from regard.core.errors import BadInput, RegardError, UnknownName, did_you_mean
from regard.data.shards.index import DTYPES, ShardIndex, fingerprint
from regard.data.shards.shard_writer import JOURNAL_SECONDS, ShardWriter

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

DocumentUnit = Literal["file", "paragraph", "line"]
ProgressCallback = Callable[[str, int, int], None]  # phase, done, total

SHARD_BYTES = 1 << 28
SAMPLE_CHARACTERS = 50_000_000  # characters to train a tokenizer on
VAL_FRACTION = 0.01
PIECE_CHARACTERS = 100_000  # characters encoded at a time
BATCH_CHARACTERS = 10 * PIECE_CHARACTERS  # characters sent to a process at a time
MAX_IMAGE_BYTES = 1 << 29  # largest image file
MIN_PARALLEL_CHARACTERS = 20_000_000  # fewer characters are encoded in one process

_SEPARATORS: dict[str, re.Pattern[str] | None] = {
    "file": None,
    "paragraph": re.compile(r"\n[^\S\n]*\n\s*"),
    "line": re.compile(r"\n"),
}


class SourceFile(NamedTuple):
    """A file to pack: its path, its split if given, its class, and whether the user named the file itself."""

    path: Path
    part: str | None = None
    label: str | None = None
    named: bool = True


class TextPiece(NamedTuple):
    """A part of a document: whether it continues the piece before it, and whether it ends the document."""

    part: str
    text: str
    goes_on: bool
    ends: bool


@dataclass(frozen=True)
class PackResult:
    """Result of packing."""

    index: ShardIndex
    skipped: dict[str, str]  # file -> why it was skipped


# -- text --------------------------------------------------------------------------------------------------------------


def pack_text(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    tokens: str = "bytes(8000)",
    documents: DocumentUnit = "file",
    val: float | None = None,
    shard: int = SHARD_BYTES,
    sample: int = SAMPLE_CHARACTERS,
    workers: int = 1,
    progress: ProgressCallback = lambda what, done, total: None,
    every: float = JOURNAL_SECONDS,
) -> PackResult:
    """Pack text into token shards.

    `tokens` is a kind of tokenizer to train, ``"bpe(8000)"``, or the path of one to use (a tokenizer.json or its
    folder). `val` is the share of validation documents: by default one in a hundred, or none if a source is given as
    ``"val=PATH"``. With more than one worker, call this under ``if __name__ == "__main__":``.
    """
    out = Path(out)
    if documents not in get_args(DocumentUnit):
        raise UnknownName(f"unknown document unit '{documents}'; {did_you_mean(documents, get_args(DocumentUnit))}")
    files = _files(sources, out, lambda path: True)
    val = _val_fraction(val, files)
    vocabulary = _parse_tokenizer(tokens)
    settings = {"tokens": tokens, "documents": documents, "val": val, "sample": sample, "shard": shard}
    with ShardWriter(out, _settings(files, settings), shard, every) as packing:
        if "vocabulary" not in packing.notes:
            _prepare(packing, files, documents, val, vocabulary, sample, progress)
        notes = packing.notes
        if _fingerprint(out) != notes["vocabulary"]:
            raise BadInput(f"{out / 'tokenizer.json'} has changed since; delete the folder {out} and pack again")
        files = [file for file in files if str(file.path) not in notes["skipped"]]
        done, is_large = packing.pieces_done, notes["characters"] >= MIN_PARALLEL_CHARACTERS
        remaining = ((number, piece) for number, piece in enumerate(_pieces(files, documents, val), 1) if number > done)
        with closing(_encode_batches(remaining, out, workers if is_large else 1)) as encoded:
            for batch, (values, lengths) in encoded:
                start, width = 0, packing.width
                for (_, piece), length in zip(batch, lengths, strict=True):
                    packing.add(piece.part, values[start * width : (start + length) * width], piece.ends)
                    notes["bytes"][piece.part] = notes["bytes"].get(piece.part, 0) + len(piece.text.encode("utf-8"))
                    start += length
                notes["done"] += sum(len(piece.text) for _, piece in batch)
                packing.mark_done(batch[-1][0])
                progress("packing", notes["done"], notes["characters"])
        text = _load_tokenizer(out)
        tokenizer_info = {"size": text.size, "kind": text.kind, "eos": text.eos, "fingerprint": notes["vocabulary"]}
        created: dict[str, Any] = {"by": f"regard {regard.__version__}", "tokens": Path(tokens).name}
        created |= {"documents": documents, "val": val}
        created |= {"skipped": len(notes["skipped"]), "bytes": dict(sorted(notes["bytes"].items()))}
        return PackResult(
            packing.finish(ShardIndex("tokens", _dtype(text.size), {}, tokenizer_info, (), created)), notes["skipped"]
        )


def _prepare(
    packing: ShardWriter,
    files: Sequence[SourceFile],
    documents: str,
    val: float,
    vocabulary: tuple[str, int] | Tokenizer,
    sample: int,
    progress: ProgressCallback,
) -> None:
    """Read everything once, and train or load the tokenizer."""
    characters, skipped = _scan_files(files, documents, progress)
    if isinstance(vocabulary, tuple):
        usable = [file for file in files if str(file.path) not in skipped]
        learned = _sample_pieces(_pieces(usable, documents, val), sample, characters, progress)
        progress(f"learning {vocabulary[0]}({vocabulary[1]})", 0, 0)
        vocabulary = _train_tokenizer(learned, *vocabulary)
    vocabulary.save(packing.folder)
    tokenizer_hash = _fingerprint(packing.folder)
    notes = {"characters": characters, "done": 0, "bytes": {}, "skipped": skipped, "vocabulary": tokenizer_hash}
    packing.begin(_dtype(vocabulary.size), **notes)


def _dtype(size: int) -> str:
    return "uint16" if size <= 1 << 16 else "uint32"


def _parse_tokenizer(tokens: str) -> tuple[str, int] | Tokenizer:
    """Return the kind and size of a tokenizer to train, or an existing one."""
    from regard.tokens.tokenizer import KINDS, Tokenizer

    found = re.fullmatch(r"(\w+)(?:\(\s*(?:size\s*=\s*)?([\d_]+)\s*\))?", tokens.strip())
    if found and found[1] in KINDS:
        kind, size = found[1], int(found[2] or 8000)
        Tokenizer.train(["a b"], kind, size)  # raises for an impossible size now, not after everything has been read
        return kind, size
    if Path(tokens).expanduser().exists():
        return Tokenizer.load(Path(tokens).expanduser())
    name = found[1] if found else tokens
    raise UnknownName(
        f"'{tokens}' is neither a kind of tokenizer, like bpe(8000), nor a tokenizer.json or its folder, nor a "
        f"SentencePiece model; "
        f"{did_you_mean(name, KINDS)}"
    )


def _load_tokenizer(folder: Path) -> Tokenizer:
    from regard.tokens.tokenizer import Tokenizer

    return Tokenizer.load(folder)


def _fingerprint(folder: Path) -> str:
    try:
        return fingerprint((folder / "tokenizer.json").read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {folder / 'tokenizer.json'}: {(error.strerror or str(error)).lower()}") from None


def _train_tokenizer(texts: list[str], kind: str, size: int) -> Tokenizer:
    from regard.tokens.tokenizer import Tokenizer

    return Tokenizer.train(texts, kind=kind, size=size)


def _sample_pieces(pieces: Iterable[TextPiece], limit: int, characters: int, progress: ProgressCallback) -> list[str]:
    """Return an even sample of training pieces with at most `limit` characters, by a hash of their number."""
    threshold, size, done = 1.0, 0, 0
    sample: list[tuple[float, str]] = []
    for number, piece in enumerate(pieces):
        done += len(piece.text)
        if number % 256 == 0:
            progress("sampling", done, characters)
        hash_value = _hash_fraction(number.to_bytes(8, "little"))
        if piece.part != "train" or hash_value >= threshold:
            continue
        sample.append((hash_value, piece.text))
        size += len(piece.text)
        while size > limit and len(sample) > 1:
            threshold /= 2
            sample = [entry for entry in sample if entry[0] < threshold] or sample[:1]
            size = sum(len(text) for _, text in sample)
    return [text for _, text in sample]


def _pieces(files: Sequence[SourceFile], documents: str, val: float) -> Iterator[TextPiece]:
    """Yield the text of all files in order, piece by piece."""
    first = None  # hash of the first document, which is always training data
    for file in files:
        part, in_document = file.part, False
        for text, ends in _documents(file.path, documents):
            if not in_document:
                if not text.strip():
                    continue
                if file.part is None:
                    hash_value = _hash_fraction(text.encode("utf-8"))
                    first = hash_value if first is None else first
                    part = "val" if hash_value < val and hash_value != first else "train"
            yield TextPiece(part or "train", text, in_document, ends)
            in_document = not ends


def _documents(path: Path, by: str) -> Iterator[tuple[str, bool]]:
    """Yield the documents of a file as (text, whether it ends the document): long ones come in several parts."""
    with _open_text(path) as file:
        if path.name.removesuffix(".gz").endswith(".jsonl"):
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield from _split_documents(iter([_jsonl_text(line, number)]), None)
        else:
            yield from _split_documents(iter(lambda: file.read(PIECE_CHARACTERS), ""), _SEPARATORS[by])


def _split_documents(chunks: Iterator[str], separator: re.Pattern[str] | None) -> Iterator[tuple[str, bool]]:
    rest = ""
    for chunk in chunks:
        rest += chunk
        if separator is not None:
            *complete, rest = separator.split(rest)
            for text in complete:
                yield from _split_long(text)
        while len(rest) > 2 * PIECE_CHARACTERS:
            position = _split_position(rest)
            yield rest[:position], False
            rest = rest[position:]
    yield from _split_long(rest)


def _split_long(text: str) -> Iterator[tuple[str, bool]]:
    while len(text) > 2 * PIECE_CHARACTERS:
        position = _split_position(text)
        yield text[:position], False
        text = text[position:]
    yield text, True


def _split_position(text: str) -> int:
    """Return where to cut: at the last space between two letters, else after a line, else anywhere."""
    position = PIECE_CHARACTERS
    while (position := text.rfind(" ", PIECE_CHARACTERS // 2, position)) > 0:
        if text[position - 1].isalnum() and text[position + 1].isalnum():
            return position
    return text.rfind("\n", PIECE_CHARACTERS // 2, PIECE_CHARACTERS) + 1 or PIECE_CHARACTERS


def _jsonl_text(line: str, number: int) -> str:
    """Return the text of a line of JSON."""
    try:
        value = json.loads(line)
        text = value["text"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f'line {number} is not JSON with a "text"') from None
    try:
        text.encode("utf-8")  # "\\ud800" is valid JSON but not text
    except (AttributeError, UnicodeEncodeError):
        raise BadInput(f'line {number}: its "text" is not text') from None
    return str(text)


def _open_text(path: Path) -> io.TextIOWrapper:
    """Open a text file; only a line feed ends a line, and a byte order mark is dropped."""
    raw: Any = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="\n")


def _scan_files(files: Sequence[SourceFile], documents: str, progress: ProgressCallback) -> tuple[int, dict[str, str]]:
    """Read everything; return the number of characters and the unusable files (an error if the user named one)."""
    characters, skipped, done = 0, {}, 0
    total = sum(file.path.stat().st_size for file in files)
    for file in files:
        size, found, reason = file.path.stat().st_size, 0, ""
        try:
            for number, (text, _) in enumerate(_documents(file.path, documents)):
                if "\0" in text:
                    raise BadInput("it has zero bytes, so it is not text")
                found += len(text) if text.strip() else 0
                if number % 64 == 0:
                    progress("reading", done + min(found, size), total)  # approximately: characters are not bytes
            reason = "" if found else "it is empty"
        except UnicodeDecodeError as error:
            reason = f"it is not UTF-8 ({error.reason}); convert it first (iconv -t UTF-8)"
        except (OSError, EOFError, zlib.error) as error:
            reason = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
        except BadInput as error:
            reason = str(error)
        if reason and file.named and reason != "it is empty":
            raise BadInput(f"{file.path}: {reason}")
        if reason:
            skipped[str(file.path)] = reason
        else:
            characters += found
        done += size
        progress("reading", done, total)
    if not characters:
        reasons = "; ".join(f"{Path(path).name}: {reason}" for path, reason in list(skipped.items())[:3])
        raise BadInput(f"there is no text in {_format_sources([f.path for f in files])}: {reasons or 'no files found'}")
    return characters, skipped


# -- encoding, in this process or in several ---------------------------------------------------------------------------

NumberedPiece = tuple[int, TextPiece]
_TOKENIZER: Any = None


def _encode_batches(
    pieces: Iterator[NumberedPiece], folder: Path, workers: int
) -> Generator[tuple[list[NumberedPiece], tuple[bytes, list[int]]], None, None]:
    """Yield batches of pieces, in order, with their tokens as bytes and the number of tokens of each."""
    if workers <= 1:  # the tokenizer has its own threads: as fast as 2 processes on 2 cores
        text = _load_tokenizer(folder)
        for batch in _batches(pieces):
            yield batch, _encode(text, [piece for _, piece in batch])
        return
    # Spawn instead of fork: this process may have threads.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (str(folder),))
    try:
        waiting: deque[tuple[list[NumberedPiece], Future[tuple[bytes, list[int]]]]] = deque()
        for batch in _batches(pieces):
            waiting.append((batch, pool.submit(_encode_in_worker, [piece for _, piece in batch])))
            while len(waiting) > 2 * workers:
                batch, future = waiting.popleft()
                yield batch, future.result()
        for batch, future in waiting:
            yield batch, future.result()
    except BrokenProcessPool:
        raise RegardError("an encoding process was killed; run the same command again to continue") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(pieces: Iterator[NumberedPiece]) -> Iterator[list[NumberedPiece]]:
    batch: list[NumberedPiece] = []
    size = 0
    for numbered in pieces:
        batch.append(numbered)
        size += len(numbered[1].text)
        if size >= BATCH_CHARACTERS or len(batch) >= 10_000:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _start_worker(folder: str) -> None:
    """Initialise a worker: it encodes in one thread, ignores Ctrl-C, and exits with its parent."""
    global _TOKENIZER
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _TOKENIZER = _load_tokenizer(Path(folder))


def _exit_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()  # also returns when the parent is killed
        os._exit(1)


def _encode_in_worker(pieces: list[TextPiece]) -> tuple[bytes, list[int]]:
    return _encode(_TOKENIZER, pieces)


def _encode(text: Tokenizer, pieces: list[TextPiece]) -> tuple[bytes, list[int]]:
    """Return the tokens of some pieces, end to end, and their lengths."""
    drops = _drops_space(text)
    rows = text.encode([p.text[1:] if p.goes_on and drops and p.text[:1] == " " else p.text for p in pieces])
    for piece, row in zip(pieces, rows, strict=True):
        if piece.ends:
            row.append(text.eos)
    lengths = [len(row) for row in rows]
    values = np.fromiter(chain.from_iterable(rows), DTYPES[_dtype(text.size)], sum(lengths))
    return values.tobytes(), lengths


def _drops_space(text: Tokenizer) -> bool:
    """Return whether this tokenizer puts a space before every text, so that one at a cut must be dropped."""
    return text.encode_one("a b") == [*text.encode_one("a"), *text.encode_one("b")]


# -- images ------------------------------------------------------------------------------------------------------------


def pack_images(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    val: float | None = None,
    shard: int = SHARD_BYTES,
    workers: int = 1,
    progress: ProgressCallback = lambda what, done, total: None,
    every: float = JOURNAL_SECONDS,
) -> PackResult:
    """Pack image files into shards: their bytes, with a label if every class has its folder.

    Files that Pillow cannot read, or that are too large, are skipped and reported.
    """
    from regard.data.images.image_shards import ImageRecord, pack_record
    from regard.modalities.decode_image import is_image_file

    out = Path(out)
    files = _files(sources, out, is_image_file)
    val = _val_fraction(val, files)
    classes = sorted({file.label for file in files if file.label is not None})
    if classes and (unlabelled := next((file for file in files if file.label is None), None)) is not None:
        raise BadInput(f"{unlabelled.path} is next to folders of classes; put every image into the folder of its class")
    labels = {name: number for number, name in enumerate(classes)}
    with ShardWriter(out, _settings(files, {"val": val, "shard": shard}), shard, every) as packing:
        if not packing.width:
            packing.begin("uint8", skipped={}, first=None)
        notes = packing.notes
        remaining = [(number, file) for number, file in enumerate(files, 1) if number > packing.pieces_done]
        for (number, file), (content, reason) in zip(
            remaining, _verify_images([f.path for _, f in remaining], workers), strict=True
        ):
            if reason:
                notes["skipped"][str(file.path)] = reason
            else:
                part = file.part
                if part is None:
                    hash_value = _hash_fraction(content)
                    notes["first"] = hash_value if notes["first"] is None else notes["first"]
                    part = "val" if hash_value < val and hash_value != notes["first"] else "train"
                label = -1 if file.label is None else labels[file.label]
                packing.add(part, pack_record(ImageRecord(content, label, file.path.name)), True)
            packing.mark_done(number)
            progress("packing", number, len(files))
        if not packing.parts:
            reasons = "; ".join(f"{Path(path).name}: {reason}" for path, reason in list(notes["skipped"].items())[:3])
            raise BadInput(f"no image of {_format_sources(sources)} can be used: {reasons or 'no images found'}")
        created = {"by": f"regard {regard.__version__}", "val": val, "skipped": len(notes["skipped"])}
        return PackResult(
            packing.finish(ShardIndex("images", "uint8", {}, {}, tuple(classes), created)), notes["skipped"]
        )


def _verify_images(paths: Sequence[Path], workers: int) -> Iterator[tuple[bytes, str]]:
    """Yield the bytes of each image file, or why it cannot be used; some files ahead, in order."""
    with ThreadPoolExecutor(max(1, workers)) as pool:
        waiting: deque[Future[tuple[bytes, str]]] = deque()
        for path in paths:
            waiting.append(pool.submit(_verify_image, path))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _verify_image(path: Path) -> tuple[bytes, str]:
    from regard.modalities.decode_image import decode_image

    try:
        if path.stat().st_size > MAX_IMAGE_BYTES:
            return b"", f"larger than {MAX_IMAGE_BYTES >> 20} MiB"
        content = path.read_bytes()
        decode_image(content, small=True)
        return content, ""
    except OSError as error:
        return b"", (error.strerror or str(error)).lower()
    except BadInput as error:
        return b"", str(error)


# -- sources and splits ------------------------------------------------------------------------------------------------


def _files(sources: str | Path | Sequence[str | Path], out: Path, accepts: Callable[[Path], bool]) -> list[SourceFile]:
    """Return all files of the sources: sources in the given order, files sorted by path."""
    out_folder = out.resolve()
    sources = [sources] if isinstance(sources, (str, Path)) else sources
    if not sources:
        raise BadInput("there is nothing to pack; give a file or a folder")
    found: list[SourceFile] = []
    for source in sources:
        part, path = _parse_source(str(source))
        if path.is_file():
            found.append(SourceFile(path, part))
            continue
        if not path.is_dir():
            raise BadInput(f"there is no file or folder {path}")
        for file in sorted(p for p in path.rglob("*") if accepts(p) and p.is_file()):
            parts = file.relative_to(path).parts
            if any(name.startswith(".") for name in parts) or out_folder in file.resolve().parents:
                continue
            found.append(SourceFile(file, part, parts[0] if len(parts) > 1 else None, named=False))
    if not found:
        raise BadInput(f"there is nothing to pack in {_format_sources(sources)}")
    return found


def _parse_source(source: str) -> tuple[str | None, Path]:
    part, equals, rest = source.partition("=")
    if equals and re.fullmatch(r"[a-z][a-z0-9_]*", part) and not Path(source).exists():
        return part, Path(rest).expanduser()
    return None, Path(source).expanduser()


def _val_fraction(val: float | None, files: Sequence[SourceFile]) -> float:
    """Return the share of validation documents: none if a source is val already."""
    if val is None:
        return 0.0 if any(file.part == "val" for file in files) else VAL_FRACTION
    if not 0 <= val < 1:
        raise BadInput(f"the validation share must be at least 0 and below 1, got {val}")
    return val


def _hash_fraction(content: bytes) -> float:
    """Return a number from 0 to 1 that depends on the content alone."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big") / 2**64


def _settings(files: Sequence[SourceFile], settings: dict[str, Any]) -> dict[str, Any]:
    """Return everything that must be the same to continue an interrupted packing."""
    digest = blake2b(digest_size=16)
    for file in files:
        stat = file.path.stat()
        fact = str(file.path.resolve()), file.part, stat.st_size, stat.st_mtime_ns
        digest.update(repr(fact).encode("utf-8", "replace"))
    return {"sources": digest.hexdigest(), **settings}


def _format_sources(sources: str | Path | Sequence[str | Path]) -> str:
    names = [str(source) for source in ([sources] if isinstance(sources, (str, Path)) else sources)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
