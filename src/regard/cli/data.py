"""``regard data``: pack text and images into shards, check and show shards."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer


def group() -> typer.Typer:
    """The verbs under ``regard data``."""
    from regard.cli import _help_text

    app = typer.Typer(help=_HELP, rich_markup_mode="rich")
    for name, verb in (("pack", pack), ("check", check), ("show", show)):
        app.command(name, help=_help_text(verb.__doc__ or ""))(verb)
    return app


_HELP = """Pack text and images into shards, check them, show them.

\b
  regard data pack books/ --out shards/books --tokens "bytes(16000)"
  regard data check shards/books
  regard data show shards/books
"""


def pack(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...", help="Text files, .gz, .jsonl or folders; val=PATH puts all of it into that split."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to create; it must not exist yet.")],
    tokens: Annotated[
        str,
        typer.Option(
            metavar="KIND(SIZE)", help="Tokenizer to train (regard list tokens), or a tokenizer.json or its folder."
        ),
    ] = "bytes(8000)",
    documents: Annotated[
        str, typer.Option(metavar="UNIT", help="What counts as a document: file, paragraph or line.")
    ] = "file",
    val: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Fraction of documents for validation.", show_default="0.01; 0 with val=PATH"
        ),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images", help="Pack images: a folder per class, or one folder of all.")
    ] = False,
    shard: Annotated[int, typer.Option(metavar="MIB", min=1, help="Size of a shard in MiB.")] = 256,
    sample: Annotated[int, typer.Option(metavar="MB", min=1, help="Megabytes of text to train the tokenizer on.")] = 50,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Worker processes.", show_default="one per core, from 8 cores on"),
    ] = None,
) -> int:
    """Pack text or images into shards, for training on data that do not fit into memory.

    After Ctrl-C or a full disk the same command continues where it stopped.

    \b
      regard data pack book.txt --out shards/book --documents paragraph
      regard data pack train=a.txt.gz val=b.txt.gz --out shards/ab
      regard data pack photos/ --images --out shards/photos
    """
    from regard.cli import print_status
    from regard.data.shards.packing import pack_images, pack_text

    cores = _cores()
    with _Bar() as bar:
        if images:
            packed = pack_images(sources, out, val, shard << 20, workers or cores, bar.at)
        else:
            packed = pack_text(
                sources,
                out,
                tokens,
                documents,  # type: ignore[arg-type]  # it is checked there
                val,
                shard << 20,
                sample * 1_000_000,
                workers or (cores if cores >= 8 else 1),  # the threads of one process keep a few cores busy
                bar.at,
            )
    for path, why in list(packed.skipped.items())[:10]:
        print_status(f"left out {path}: {why}")
    if len(packed.skipped) > 10:
        print_status(f"left out {len(packed.skipped):,} files in all")
    if "val" not in packed.index.splits and packed.index.created["val"]:
        cut = "" if images else ", cut documents finer (--documents paragraph)"
        print_status(f"no {'image' if images else 'document'} fell into val: raise --val{cut}, or name one: val=PATH")
    print("\n".join(_summary(packed.index)))
    print(out)
    return 0


def check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of shards.")],
) -> int:
    """Compare all shards of a folder with their checksums, and print a line for every damaged file."""
    from regard.cli import FAILED, print_status
    from regard.data.shards.index import ShardIndex

    index = ShardIndex.read(folder, sizes=False)
    with _Bar() as bar:
        wrong = index.check(folder, lambda done, total: bar.at("checking", done, total))
    for line in wrong:
        print_status(line)
    if wrong:
        return FAILED
    print(f"{folder}: {_shards(sum(map(len, index.splits.values())))}, all as they were packed")
    return 0


def show(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of shards.")],
    split: Annotated[str, typer.Option(metavar="PART", help="The split to show.")] = "train",
    first: Annotated[int, typer.Option("--first", metavar="N", min=0, help="Number of the first item to show.")] = 0,
    number: Annotated[int, typer.Option("-n", metavar="N", min=0, help="How many documents or images to show.")] = 3,
) -> int:
    """Show what a folder of shards contains, and the beginnings of a few documents.

    \b
      regard data show shards/books
      regard data show shards/books --split val --first 100 -n 1
    """
    from regard.data.base import resolve_split
    from regard.data.shards.index import ShardIndex

    index = ShardIndex.read(folder)
    split = resolve_split(split, sorted(index.splits), str(folder))
    print("\n".join(_summary(index)))
    some = range(first, min(first + number, index.count(split)[1]))
    for line in (_images if index.kind == "images" else _documents)(folder, split, some):
        print(line)
    return 0


def _summary(index: Any) -> list[str]:
    """A line a part, and what the values are."""
    lines = []
    for name in index.splits:
        values, items = index.count(name)
        what = f"{values:,} tokens, {items:,} documents" if index.kind == "tokens" else f"{items:,} images"
        lines.append(f"{name:8} {what}, {_shards(len(index.part(name)))}")
    v = index.vocabulary
    said = f"{index.dtype}, vocabulary {v['size']:,} {v['kind']} ({v['fingerprint']})" if v else ""
    return [*lines, f"{index.kind:8} {said or f'{len(index.classes)} classes'}"]


def _shards(number: int) -> str:
    return f"{number:,} shard{'s' if number != 1 else ''}"


def _documents(folder: Path, split: str, some: range) -> Iterator[str]:
    """The beginnings of documents, a line each."""
    from regard.data.shards.token_shards import TokenShards

    shards = TokenShards(str(folder))
    text = shards.build_tokenizer()
    for i in some:
        ids = shards.document(split, i)
        words = text.decode([ids[:60].tolist()])[0]
        yield f"{i:8} {len(ids):,} tokens: {' '.join(words.split())}{' ...' if len(ids) > 60 else ''}"


def _images(folder: Path, split: str, some: range) -> Iterator[str]:
    """The names and sizes of images, a line each."""
    from regard.data.images.image_shards import ImageShards

    album = ImageShards(str(folder)).load(split)
    for i in some:
        picture, (width, height) = album[i], album.image(i).size
        label = f", {album.index.classes[picture.label]}" if picture.label >= 0 else ""
        yield f"{i:8} {picture.name}{label}: {width} x {height}, {len(picture.content):,} bytes"


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Bar:
    """Show progress: a bar if stderr is a terminal, else a line every ten seconds."""

    def __init__(self, every: float = 10.0) -> None:
        self.every, self.what = every, ""
        self.bar: Any = None
        self.task: Any = None
        self.spoke = self.drawn = time.monotonic()

    def __enter__(self) -> _Bar:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def at(self, what: str, done: int, total: int) -> None:
        """So much of so much; a total of 0 where nobody knows."""
        now, new = time.monotonic(), what != self.what
        self.what = what
        if self.bar is not None and (new or now - self.drawn > 0.1):
            self.drawn = now
            if new and self.task is not None:
                self.bar.remove_task(self.task)
            if new:
                self.task = self.bar.add_task(what, total=total or None)
            self.bar.update(self.task, completed=done, total=total or None)
        elif self.bar is None and now - self.spoke >= self.every:
            self.spoke = now
            print(f"{what} {100 * done // total} %" if total else what, file=sys.stderr, flush=True)
