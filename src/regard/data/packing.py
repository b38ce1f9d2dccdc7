"""Text files and folders of images, packed into shards once, so that training reads them without looking.

    source     a file, a folder, or .gz of text; .jsonl with a "text" in every line; PART=PATH says which part it is
    document   a file, a paragraph or a line; its tokens end in the vocabulary's end token
    part       val where the hash of a document's beginning says so, else train: the same on every run and machine, and
               two equal documents are never on both sides
    piece      what is encoded at a time: a document, or some 100,000 characters of one, cut at a space between words
               where that does not change its tokens

Everything is read once beforehand, so that what cannot be used is said at once and not hours later. The vocabulary is
learned from the training part, or from an evenly drawn sample of it. Memory stays constant whatever is packed, and the
same sources give the same bytes, with any number of processes.
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
from regard.core.errors import BadInput, RegardError, UnknownName, nearest
from regard.data.index import DTYPES, Index, fingerprint
from regard.data.writing import EVERY, Packing

if TYPE_CHECKING:
    from regard.tokens.text import Text

Documents = Literal["file", "paragraph", "line"]
Told = Callable[[str, int, int], None]  # what is being done, how much of it is done, how much there is

SHARD = 1 << 28  # bytes
SAMPLE = 50_000_000  # characters to learn a vocabulary from
VAL = 0.01
PIECE = 100_000  # characters encoded at a time
BATCH = 10 * PIECE  # characters handed to a process at a time
LARGEST = 1 << 29  # bytes of an image file
PAYS = 20_000_000  # characters from which on it is worth while to start processes

_SEPARATORS: dict[str, re.Pattern[str] | None] = {
    "file": None,
    "paragraph": re.compile(r"\n[^\S\n]*\n\s*"),
    "line": re.compile(r"\n"),
}


class Source(NamedTuple):
    """A file to pack: where it is, its part where that was said, its class, and whether it was named itself."""

    path: Path
    part: str | None = None
    label: str | None = None
    named: bool = True


class Piece(NamedTuple):
    """Some text of a document: whether it goes on from the piece before it, and whether the document ends with it."""

    part: str
    text: str
    goes_on: bool
    ends: bool


@dataclass(frozen=True)
class Packed:
    """What came of a packing."""

    index: Index
    skipped: dict[str, str]  # file -> why it was left out


# -- text --------------------------------------------------------------------------------------------------------------


def pack_text(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    tokens: str = "bytes(8000)",
    documents: Documents = "file",
    val: float | None = None,
    shard: int = SHARD,
    sample: int = SAMPLE,
    workers: int = 1,
    told: Told = lambda what, done, total: None,
    every: float = EVERY,
) -> Packed:
    """Pack text into token shards.

    `tokens` is a kind of vocabulary to learn, ``"bpe(8000)"``, or the path of one to use (a tokenizer.json or its
    folder). `val` is the share of documents that are kept for validation: by default one in a hundred, or none where a
    source is given as ``"val=PATH"``. With more than one worker, call this under ``if __name__ == "__main__":``.
    """
    out = Path(out)
    if documents not in get_args(Documents):
        raise UnknownName(f"documents cannot be cut by '{documents}'; {nearest(documents, get_args(Documents))}")
    files = _files(sources, out, lambda path: True)
    val = _share(val, files)
    vocabulary = _vocabulary(tokens)
    settings = {"tokens": tokens, "documents": documents, "val": val, "sample": sample, "shard": shard}
    with Packing(out, _settings(files, settings), shard, every) as packing:
        if "vocabulary" not in packing.notes:
            _prepare(packing, files, documents, val, vocabulary, sample, told)
        notes = packing.notes
        if _fingerprint(out) != notes["vocabulary"]:
            raise BadInput(f"{out / 'tokenizer.json'} has changed since; delete the folder {out} and pack anew")
        files = [file for file in files if str(file.path) not in notes["skipped"]]
        upto, many = packing.upto, notes["characters"] >= PAYS
        left = ((number, piece) for number, piece in enumerate(_pieces(files, documents, val), 1) if number > upto)
        with closing(_encoded(left, out, workers if many else 1)) as encoded:
            for batch, (values, lengths) in encoded:
                at, width = 0, packing.width
                for (_, piece), length in zip(batch, lengths, strict=True):
                    packing.add(piece.part, values[at * width : (at + length) * width], piece.ends)
                    notes["bytes"][piece.part] = notes["bytes"].get(piece.part, 0) + len(piece.text.encode("utf-8"))
                    at += length
                notes["done"] += sum(len(piece.text) for _, piece in batch)
                packing.reached(batch[-1][0])
                told("packing", notes["done"], notes["characters"])
        text = _loaded(out)
        about = {"size": text.size, "kind": text.kind, "eos": text.eos, "fingerprint": notes["vocabulary"]}
        made: dict[str, Any] = {"by": f"regard {regard.__version__}", "tokens": Path(tokens).name}
        made |= {"documents": documents, "val": val}
        made |= {"skipped": len(notes["skipped"]), "bytes": dict(sorted(notes["bytes"].items()))}
        return Packed(packing.finish(Index("tokens", _dtype(text.size), {}, about, (), made)), notes["skipped"])


def _prepare(
    packing: Packing,
    files: Sequence[Source],
    documents: str,
    val: float,
    vocabulary: tuple[str, int] | Text,
    sample: int,
    told: Told,
) -> None:
    """Read everything once, and come by the vocabulary."""
    characters, skipped = _examined(files, documents, told)
    if isinstance(vocabulary, tuple):
        usable = [file for file in files if str(file.path) not in skipped]
        learned = _sampled(_pieces(usable, documents, val), sample, characters, told)
        told(f"learning {vocabulary[0]}({vocabulary[1]})", 0, 0)
        vocabulary = _trained(learned, *vocabulary)
    vocabulary.save(packing.folder)
    made = _fingerprint(packing.folder)
    notes = {"characters": characters, "done": 0, "bytes": {}, "skipped": skipped, "vocabulary": made}
    packing.begin(_dtype(vocabulary.size), **notes)


def _dtype(size: int) -> str:
    return "uint16" if size <= 1 << 16 else "uint32"


def _vocabulary(tokens: str) -> tuple[str, int] | Text:
    """The kind and size of a vocabulary to learn, or one that is there."""
    from regard.tokens.text import KINDS, Text

    found = re.fullmatch(r"(\w+)(?:\(\s*(?:size\s*=\s*)?([\d_]+)\s*\))?", tokens.strip())
    if found and found[1] in KINDS:
        kind, size = found[1], int(found[2] or 8000)
        Text.train(["a b"], kind, size)  # an impossible size is said now, and not after everything has been read
        return kind, size
    if Path(tokens).expanduser().exists():
        return Text.load(Path(tokens).expanduser())
    name = found[1] if found else tokens
    raise UnknownName(
        f"'{tokens}' is neither a kind of vocabulary, like bpe(8000), nor a tokenizer.json or its folder; "
        f"{nearest(name, KINDS)}"
    )


def _loaded(folder: Path) -> Text:
    from regard.tokens.text import Text

    return Text.load(folder)


def _fingerprint(folder: Path) -> str:
    try:
        return fingerprint((folder / "tokenizer.json").read_bytes())
    except OSError as error:
        raise BadInput(f"cannot read {folder / 'tokenizer.json'}: {(error.strerror or str(error)).lower()}") from None


def _trained(texts: list[str], kind: str, size: int) -> Text:
    from regard.tokens.text import Text

    return Text.train(texts, kind=kind, size=size)


def _sampled(pieces: Iterable[Piece], room: int, characters: int, told: Told) -> list[str]:
    """Training pieces with at most `room` characters, drawn evenly: all whose number hashes below a bar that sinks."""
    bar, size, done = 1.0, 0, 0
    kept: list[tuple[float, str]] = []
    for number, piece in enumerate(pieces):
        done += len(piece.text)
        if number % 256 == 0:
            told("sampling", done, characters)
        luck = _luck(number.to_bytes(8, "little"))
        if piece.part != "train" or luck >= bar:
            continue
        kept.append((luck, piece.text))
        size += len(piece.text)
        while size > room and len(kept) > 1:
            bar /= 2
            kept = [one for one in kept if one[0] < bar] or kept[:1]
            size = sum(len(text) for _, text in kept)
    return [text for _, text in kept]


def _pieces(files: Sequence[Source], documents: str, val: float) -> Iterator[Piece]:
    """The text of all files in order, piece by piece."""
    first = None  # the first document's hash: training data there always are
    for file in files:
        part, inside = file.part, False
        for text, ends in _documents(file.path, documents):
            if not inside:
                if not text.strip():
                    continue
                if file.part is None:
                    luck = _luck(text.encode("utf-8"))
                    first = luck if first is None else first
                    part = "val" if luck < val and luck != first else "train"
            yield Piece(part or "train", text, inside, ends)
            inside = not ends


def _documents(path: Path, by: str) -> Iterator[tuple[str, bool]]:
    """The documents of a file as (text, whether the document ends with it): long ones come in several."""
    with _opened(path) as file:
        if path.name.removesuffix(".gz").endswith(".jsonl"):
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield from _cut(iter([_said(line, number)]), None)
        else:
            yield from _cut(iter(lambda: file.read(PIECE), ""), _SEPARATORS[by])


def _cut(chunks: Iterator[str], separator: re.Pattern[str] | None) -> Iterator[tuple[str, bool]]:
    rest = ""
    for chunk in chunks:
        rest += chunk
        if separator is not None:
            *whole, rest = separator.split(rest)
            for text in whole:
                yield from _short(text)
        while len(rest) > 2 * PIECE:
            at = _between_words(rest)
            yield rest[:at], False
            rest = rest[at:]
    yield from _short(rest)


def _short(text: str) -> Iterator[tuple[str, bool]]:
    while len(text) > 2 * PIECE:
        at = _between_words(text)
        yield text[:at], False
        text = text[at:]
    yield text, True


def _between_words(text: str) -> int:
    """Where to cut: at the last space between two letters; where there is none, after a line; else anywhere."""
    at = PIECE
    while (at := text.rfind(" ", PIECE // 2, at)) > 0:
        if text[at - 1].isalnum() and text[at + 1].isalnum():
            return at
    return text.rfind("\n", PIECE // 2, PIECE) + 1 or PIECE


def _said(line: str, number: int) -> str:
    """The text of a line of JSON."""
    try:
        value = json.loads(line)
        text = value["text"]
    except (ValueError, KeyError, TypeError):
        raise BadInput(f'line {number} is not JSON with a "text" in it') from None
    try:
        text.encode("utf-8")  # "\\ud800" is JSON, but no text
    except (AttributeError, UnicodeEncodeError):
        raise BadInput(f'line {number}: its "text" is not text') from None
    return str(text)


def _opened(path: Path) -> io.TextIOWrapper:
    """A text file; only a line feed ends a line. A mark at its very beginning is no text."""
    raw: Any = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # noqa: SIM115
    return io.TextIOWrapper(raw, encoding="utf-8-sig", newline="\n")


def _examined(files: Sequence[Source], documents: str, told: Told) -> tuple[int, dict[str, str]]:
    """Read everything: how many characters there are, and what cannot be used (an error where it was asked for)."""
    characters, skipped, done = 0, {}, 0
    total = sum(file.path.stat().st_size for file in files)
    for file in files:
        size, found, why = file.path.stat().st_size, 0, ""
        try:
            for number, (text, _) in enumerate(_documents(file.path, documents)):
                if "\0" in text:
                    raise BadInput("it holds zero bytes, which no text does")
                found += len(text) if text.strip() else 0
                if number % 64 == 0:
                    told("reading", done + min(found, size), total)  # about: characters are not bytes
            why = "" if found else "it is empty"
        except UnicodeDecodeError as error:
            why = f"it is not UTF-8 ({error.reason}); convert it first (iconv -t UTF-8)"
        except (OSError, EOFError, zlib.error) as error:
            why = f"it cannot be read: {getattr(error, 'strerror', None) or error}"
        except BadInput as error:
            why = str(error)
        if why and file.named and why != "it is empty":
            raise BadInput(f"{file.path}: {why}")
        if why:
            skipped[str(file.path)] = why
        else:
            characters += found
        done += size
        told("reading", done, total)
    if not characters:
        reasons = "; ".join(f"{Path(path).name}: {why}" for path, why in list(skipped.items())[:3])
        raise BadInput(f"there is no text in {_listed([f.path for f in files])}: {reasons or 'nothing was found'}")
    return characters, skipped


# -- encoding, in this process or in several ---------------------------------------------------------------------------

Numbered = tuple[int, Piece]
_TEXT: Any = None


def _encoded(
    pieces: Iterator[Numbered], folder: Path, workers: int
) -> Generator[tuple[list[Numbered], tuple[bytes, list[int]]], None, None]:
    """Batches of pieces, in order, with their tokens as bytes and how many tokens each has."""
    if workers <= 1:  # the vocabulary has threads of its own: on 2 cores that was as fast as 2 processes
        text = _loaded(folder)
        for batch in _batches(pieces):
            yield batch, _encode(text, [piece for _, piece in batch])
        return
    # Processes that are started and not forked: what threads this one has is not known here.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, (str(folder),))
    try:
        waiting: deque[tuple[list[Numbered], Future[tuple[bytes, list[int]]]]] = deque()
        for batch in _batches(pieces):
            waiting.append((batch, pool.submit(_encode_there, [piece for _, piece in batch])))
            while len(waiting) > 2 * workers:
                batch, future = waiting.popleft()
                yield batch, future.result()
        for batch, future in waiting:
            yield batch, future.result()
    except BrokenProcessPool:
        raise RegardError("a process that encoded text was killed; give the same command again: it goes on") from None
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(pieces: Iterator[Numbered]) -> Iterator[list[Numbered]]:
    batch: list[Numbered] = []
    size = 0
    for numbered in pieces:
        batch.append(numbered)
        size += len(numbered[1].text)
        if size >= BATCH or len(batch) >= 10_000:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _start(folder: str) -> None:
    """A process of the pool: it encodes in one thread, leaves Ctrl-C to its parent, and ends when that does."""
    global _TEXT
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow, daemon=True).start()
    _TEXT = _loaded(Path(folder))


def _follow() -> None:
    if (parent := parent_process()) is not None:
        parent.join()  # a parent that is killed tells nobody
        os._exit(1)


def _encode_there(pieces: list[Piece]) -> tuple[bytes, list[int]]:
    return _encode(_TEXT, pieces)


def _encode(text: Text, pieces: list[Piece]) -> tuple[bytes, list[int]]:
    """The tokens of some pieces, end to end, and their numbers."""
    drops = _drops_space(text)
    rows = text.encode([p.text[1:] if p.goes_on and drops and p.text[:1] == " " else p.text for p in pieces])
    for piece, row in zip(pieces, rows, strict=True):
        if piece.ends:
            row.append(text.eos)
    lengths = [len(row) for row in rows]
    values = np.fromiter(chain.from_iterable(rows), DTYPES[_dtype(text.size)], sum(lengths))
    return values.tobytes(), lengths


def _drops_space(text: Text) -> bool:
    """Whether this vocabulary puts a space before every text, so that one at a cut must not be given to it."""
    return text.encode_one("a b") == [*text.encode_one("a"), *text.encode_one("b")]


# -- images ------------------------------------------------------------------------------------------------------------


def pack_images(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    val: float | None = None,
    shard: int = SHARD,
    workers: int = 1,
    told: Told = lambda what, done, total: None,
    every: float = EVERY,
) -> Packed:
    """Pack image files into sample shards: their own bytes, with a label where every class has its folder.

    What Pillow cannot read, or refuses for its size, is left out and named.
    """
    from regard.data.decoding import pictured
    from regard.data.pictures import Picture, record

    out = Path(out)
    files = _files(sources, out, pictured)
    val = _share(val, files)
    classes = sorted({file.label for file in files if file.label is not None})
    if classes and (bare := next((file for file in files if file.label is None), None)) is not None:
        raise BadInput(f"{bare.path} stands beside folders of classes; put every image into the folder of its class")
    labels = {name: number for number, name in enumerate(classes)}
    with Packing(out, _settings(files, {"val": val, "shard": shard}), shard, every) as packing:
        if not packing.width:
            packing.begin("uint8", skipped={}, first=None)
        notes = packing.notes
        left = [(number, file) for number, file in enumerate(files, 1) if number > packing.upto]
        for (number, file), (content, why) in zip(left, _verified([f.path for _, f in left], workers), strict=True):
            if why:
                notes["skipped"][str(file.path)] = why
            else:
                part = file.part
                if part is None:
                    luck = _luck(content)
                    notes["first"] = luck if notes["first"] is None else notes["first"]
                    part = "val" if luck < val and luck != notes["first"] else "train"
                label = -1 if file.label is None else labels[file.label]
                packing.add(part, record(Picture(content, label, file.path.name)), True)
            packing.reached(number)
            told("packing", number, len(files))
        if not packing.parts:
            reasons = "; ".join(f"{Path(path).name}: {why}" for path, why in list(notes["skipped"].items())[:3])
            raise BadInput(f"no image of {_listed(sources)} can be used: {reasons or 'there is none'}")
        made = {"by": f"regard {regard.__version__}", "val": val, "skipped": len(notes["skipped"])}
        return Packed(packing.finish(Index("images", "uint8", {}, {}, tuple(classes), made)), notes["skipped"])


def _verified(paths: Sequence[Path], workers: int) -> Iterator[tuple[bytes, str]]:
    """The bytes of each image file, or why they cannot be used; some files ahead, in order."""
    with ThreadPoolExecutor(max(1, workers)) as pool:
        waiting: deque[Future[tuple[bytes, str]]] = deque()
        for path in paths:
            waiting.append(pool.submit(_verify, path))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _verify(path: Path) -> tuple[bytes, str]:
    from regard.data.decoding import decoded

    try:
        if path.stat().st_size > LARGEST:
            return b"", f"larger than {LARGEST >> 20} MiB"
        content = path.read_bytes()
        decoded(content, small=True)
        return content, ""
    except OSError as error:
        return b"", (error.strerror or str(error)).lower()
    except BadInput as error:
        return b"", str(error)


# -- sources and parts -------------------------------------------------------------------------------------------------


def _files(sources: str | Path | Sequence[str | Path], out: Path, wanted: Callable[[Path], bool]) -> list[Source]:
    """All files the sources name, in an order of their own: sources as given, files by their paths."""
    own = out.resolve()
    sources = [sources] if isinstance(sources, (str, Path)) else sources
    if not sources:
        raise BadInput("there is nothing to pack; name a file or a folder")
    found: list[Source] = []
    for source in sources:
        part, path = _parted(str(source))
        if path.is_file():
            found.append(Source(path, part))
            continue
        if not path.is_dir():
            raise BadInput(f"there is no file or folder {path}")
        for file in sorted(p for p in path.rglob("*") if wanted(p) and p.is_file()):
            under = file.relative_to(path).parts
            if any(name.startswith(".") for name in under) or own in file.resolve().parents:
                continue
            found.append(Source(file, part, under[0] if len(under) > 1 else None, named=False))
    if not found:
        raise BadInput(f"there is nothing to pack in {_listed(sources)}")
    return found


def _parted(source: str) -> tuple[str | None, Path]:
    part, sign, rest = source.partition("=")
    if sign and re.fullmatch(r"[a-z][a-z0-9_]*", part) and not Path(source).exists():
        return part, Path(rest).expanduser()
    return None, Path(source).expanduser()


def _share(val: float | None, files: Sequence[Source]) -> float:
    """The share of documents that go to val: none where a source is val already."""
    if val is None:
        return 0.0 if any(file.part == "val" for file in files) else VAL
    if not 0 <= val < 1:
        raise BadInput(f"the share of val is {val}; give 0 or more, and less than 1")
    return val


def _luck(content: bytes) -> float:
    """A number from 0 to 1 that depends on the content alone."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big") / 2**64


def _settings(files: Sequence[Source], settings: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a packing to be taken up again."""
    facts = blake2b(digest_size=16)
    for file in files:
        stat = file.path.stat()
        fact = str(file.path.resolve()), file.part, stat.st_size, stat.st_mtime_ns
        facts.update(repr(fact).encode("utf-8", "replace"))
    return {"sources": facts.hexdigest(), **settings}


def _listed(sources: str | Path | Sequence[str | Path]) -> str:
    names = [str(source) for source in ([sources] if isinstance(sources, (str, Path)) else sources)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
