"""Span corruption: pieces of a running text are taken out, and are to be written down. Made on the fly.

    text      Thank you for inviting me to your party last week
    source    Thank you <0> me to your party <1> week </s>
    target    <s> <0> for inviting <1> last </s>

Of L tokens, round(noise · L) are taken out, in round(noise · L / mean) spans, cut at places drawn from all that there
are: no span is empty, and no two touch. L is as large as lets a source have `context` tokens, so that all batches have
one shape, and nothing of a source is padding. Source and target together give the text back: `restored`.

Rows are windows over the text, as everywhere (data.shards); what is taken out of one depends on seed, epoch and the
place where it begins: not on processes, threads or the batch. The text is plain (data.corpora), that of text tasks
(data.text_tasks, training parts for training), or shards.

Raffel et al. 2020 (T5, section 3.1.4: 15 %, spans of 3), arXiv:1910.10683
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.core.spec import build_part
from regard.data import TEXT_TASKS
from regard.data.batching import BatchOrder, BatchStream, mix_seed
from regard.data.ragged import round_up
from regard.data.shards.token_shards import TokenShards, TokenWindows, find_shards, resolve_split
from regard.data.shuffle import GOLDEN_GAMMA, splitmix64
from regard.data.text.corpora import get_corpus
from regard.data.text.parallel_corpus import PairBatch, count_target_tokens
from regard.data.text.text_tasks import TextTask, read_examples

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

PAD_TO_MULTIPLE_OF = 8  # aligned rows
EPOCH_STRIDE = 2**40  # tokens; a window is known by epoch · EPOCH + the token it begins at


@dataclass(frozen=True)
class SpanCorruption:
    """Which text, how much of it is taken out, how long a row is, and how many rows go into a batch."""

    texts: tuple[str, ...] = ("bbc", "brown")  # corpora, files, text tasks; or one folder of shards
    noise_density: float = 0.15
    mean_span_length: float = 3.0  # tokens of a span
    context_length: int = 512  # tokens of a source, its end token with them
    batch_size: int = 64  # in a batch, all processes together
    tokenizer: str = "bytes"  # of vocabulary, see tokens.tokenizer; where neither the model nor the shards bring one
    vocab_size: int = 16_000
    sentinels: int = 100
    limit: int | None = None  # only the first so many rows of every part, out of as many documents of each text

    def quick(self) -> SpanCorruption:
        """A few short rows and a small vocabulary: enough to see that everything runs."""
        small: dict[str, Any] = {"vocab_size": min(self.vocab_size, 400), "sentinels": min(self.sentinels, 20)}
        return replace(
            self, context_length=min(self.context_length, 40), batch_size=min(self.batch_size, 4), limit=24, **small
        )

    def shards(self) -> TokenShards | None:
        """The shards, where the text is in shards."""
        try:
            found = [name for name in self.texts if (find_shards(name) / "index.json").is_file()]
        except BadInput:
            return None
        return TokenShards(found[0]) if found and len(self.texts) == 1 else None

    def splits(self) -> list[str]:
        """The parts that all the texts have."""
        if (shards := self.shards()) is not None:
            return shards.splits()
        if not self.texts:
            raise BadInput("data.texts is empty; name a corpus, a file, a text task or a folder of shards")
        return sorted(set.intersection(*(set(_splits(name)) for name in self.texts)))

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return resolve_split(name, self.splits(), ", ".join(self.texts))

    def read(self, split: str) -> list[str]:
        """The documents of a part."""
        return [document for name in self.texts for document in islice(_documents(name, split), self.limit)]

    def build_tokenizer(self) -> Tokenizer:
        """A vocabulary of the training part, or the one of the shards; with sentinels."""
        from regard.tokens.sentinels import add_sentinels, sentinel_ids
        from regard.tokens.tokenizer import Tokenizer

        shards = self.shards()
        text = (
            Tokenizer.train(self.read("train"), self.tokenizer, self.vocab_size)
            if shards is None
            else shards.build_tokenizer()
        )
        return text if sentinel_ids(text) else add_sentinels(text, self.sentinels)

    def load(self, split: str, tokenizer: Tokenizer) -> SpanCorruptionSplit:
        """A part as numbers, documents end to end, each closed by the end token."""
        length, split = input_length(self.context_length, self.noise_density, self.mean_span_length), self.split(split)
        if (shards := self.shards()) is not None:
            known = shards.build_tokenizer()
            if (known.size, known.kind) != (tokenizer.size, tokenizer.kind) and known.size > tokenizer.size:
                raise BadInput(f"{self.texts[0]} was packed with another vocabulary than the model's")
            windows = replace(shards, context_length=length, batch_size=self.batch_size, limit=self.limit).load(split)
            return SpanCorruptionSplit(self, windows, tokenizer)
        ids = tokenizer.encode(self.read(split))
        tokens = np.array([number for row in ids for number in (*row, tokenizer.eos)], np.int32)
        return SpanCorruptionSplit(
            self, TokenWindows([tokens], length, self.batch_size, tokenizer.size, self.limit), tokenizer
        )


class SpanCorruptionSplit:
    """One part of a text, as rows out of which spans are taken."""

    name, metric = "spans", ""

    def __init__(self, settings: SpanCorruption, windows: TokenWindows, tokenizer: Tokenizer) -> None:
        from regard.tokens.sentinels import sentinel_ids

        self.settings, self.windows, self.tokenizer = settings, windows, tokenizer
        self.length = windows.context_length
        self.taken, self.spans = noise_counts(self.length, settings.noise_density, settings.mean_span_length)
        self.marks = np.array(sentinel_ids(tokenizer)[: self.spans])
        if len(self.marks) < self.spans:
            raise BadInput(
                f"a row of {self.length} tokens has {self.spans} spans taken out, but the vocabulary has "
                f"{len(self.marks)} sentinels to stand for them: raise data.sentinels or lower data.context_length"
            )

    def __len__(self) -> int:
        return len(self.windows)

    def stream(self, seed: int) -> BatchStream[PairBatch]:
        """Training batches without end."""
        plain = self.windows.stream(seed)
        return BatchStream(
            lambda epoch: _EpochOrder(plain.order(epoch), epoch),
            lambda rows: self.collate(rows, seed),
            count_target_tokens,
        )

    def eval_batches(self, tokens: int) -> Iterator[PairBatch]:
        """Every whole row once, always with the same spans taken out: for measuring."""
        starts = torch.arange(len(self.windows)) * self.length
        some = max(1, tokens // self.length)
        for at in range(0, len(starts), some):
            yield self.collate(starts[at : at + some], 0)

    def collate(self, rows: Int[Tensor, " B"], seed: int) -> PairBatch:
        """The windows of these numbers, spans taken out."""
        text, starts = self.tokenizer, rows % EPOCH_STRIDE
        whole = np.stack([self.windows.window(start, start + self.length) for start in starts.tolist()]).astype(
            np.int64
        )
        if int(whole.max()) >= text.size:
            self.windows._complain(starts)
        out = random_spans(self.length, self.taken, self.spans, [mix_seed(seed, row) for row in rows.tolist()])
        sources, targets = corrupt_spans(whole, out, self.marks)
        sources = np.pad(sources, ((0, 0), (0, 1)), constant_values=text.eos)
        targets = np.pad(targets, ((0, 0), (1, 1)), constant_values=((0, 0), (text.bos, text.eos)))
        aligned = round_up(targets.shape[1] - 1, PAD_TO_MULTIPLE_OF) + 1  # the decoder reads all but the last
        lengths = (torch.full((len(rows),), x.shape[1]) for x in (sources, targets))
        padded = np.pad(targets, ((0, 0), (0, aligned - targets.shape[1])), constant_values=text.pad)
        return PairBatch(torch.from_numpy(sources), next(lengths), torch.from_numpy(padded), next(lengths))

    def fingerprint(self) -> str:
        """A few letters that change when the tokens do."""
        return self.windows.fingerprint()

    def card(self) -> str:
        """One line on the text and on what is taken out."""
        return (
            f"{', '.join(self.settings.texts)}: {self.windows.tokens:,} tokens, {self.settings.batch_size} rows a batch, "
            f"{self.taken} of {self.length} tokens taken out in {self.spans} spans"
        )


class _EpochOrder:
    """The batches of an epoch, each window's number telling its epoch too."""

    def __init__(self, order: BatchOrder, epoch: int) -> None:
        self.order, self.epoch = order, epoch

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, i: int) -> Int[Tensor, " B"]:
        return self.order[i] + self.epoch * EPOCH_STRIDE


# -- the corruption itself ---------------------------------------------------------------------------------------------


def noise_counts(length: int, noise: float, mean: float) -> tuple[int, int]:
    """Of so many tokens, how many are taken out and in how many spans: at least one of each, and something stays."""
    taken = min(max(round(length * noise), 1), length - 1)
    many = min(max(round(taken / mean), 1), taken, length - taken)
    return taken, many


def input_length(context_length: int, noise: float, mean: float) -> int:
    """The longest text whose source has at most `context` tokens."""
    if not (0 < noise < 1 and mean >= 1 and context_length >= 4):
        raise BadInput(
            f"noise {noise}, spans of {mean} and a context of {context_length}: wanted 0 < noise < 1, mean >= 1, 4 tokens"
        )

    def source(length: int) -> int:
        taken, many = noise_counts(length, noise, mean)
        return length - taken + many + 1

    length = 2
    while source(length + 1) <= context_length:
        length += 1
    return length


def random_spans(length: int, taken: int, many: int, keys: Sequence[int]) -> np.ndarray:
    """Which tokens are taken out of each row, B L: `many` spans of `taken` tokens in all, none at the beginning.

    A key for each row decides.
    """
    seeds = np.array(keys, np.uint64)
    out, kept = _random_partition(taken, many, seeds), _random_partition(length - taken, many, ~seeds)
    sizes = np.stack([kept, out], 2).reshape(-1)
    return np.repeat(np.tile([False, True], many * len(seeds)), sizes).reshape(len(seeds), length)


def corrupt_spans(
    tokens: np.ndarray, out: np.ndarray, marks: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of each row, with a sentinel for each span taken out; and the spans, each after its sentinel.

    Rows that lose as many tokens in as many spans come out equally long.
    """
    rows = len(tokens)
    first = out & ~np.pad(out[:, :-1], ((0, 0), (1, 0)))
    own = np.asarray(marks)[np.maximum(np.cumsum(first, 1) - 1, 0)]  # the sentinel of each token's span
    source = np.where(first, own, tokens)[first | ~out].reshape(rows, -1)
    both = np.stack([own, tokens], 2)[
        np.stack([first, out], 2)
    ]  # a sentinel where a span begins, and every token of it
    return source, both.reshape(rows, -1)


def restore_spans(source: Sequence[int], target: Sequence[int], marks: Sequence[int]) -> list[int]:
    """The text that a source and a target were made of."""
    known, given, whole = {int(mark) for mark in marks}, dict[int, list[int]](), list[int]()
    for token in map(int, target):
        if token in known:
            given[token], last = [], token
        else:
            given[last].append(token)
    for token in map(int, source):
        whole += given[token] if token in known else [token]
    return whole


def _random_partition(total: int, many: int, keys: np.ndarray) -> np.ndarray:
    """A total as so many numbers above 0, for each key, B many; all ways are equally likely."""
    with np.errstate(over="ignore"):  # the mixing is meant to
        drawn = splitmix64(keys[:, None] + np.arange(1, total, dtype=np.uint64) * np.uint64(GOLDEN_GAMMA))
    cuts = np.sort(np.argsort(drawn, axis=1, kind="stable")[:, : many - 1], axis=1) + 1
    return np.diff(np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (0, total))), axis=1)


# -- the text ----------------------------------------------------------------------------------------------------------


def _text_task(name: str) -> TextTask | None:
    """The text task of a spec; None where it is the name of a corpus or a path."""
    if name.partition("(")[0] not in TEXT_TASKS:
        return None
    found: TextTask = build_part(TEXT_TASKS, name, "text task")
    return found


def _splits(name: str) -> Sequence[str]:
    task = _text_task(name)
    return get_corpus(name).parts if task is None else task.splits()


def _documents(name: str, split: str) -> Iterator[str]:
    task = _text_task(name)
    if task is None:
        yield from (" ".join(sentences) for sentences in get_corpus(name).read(split))
        return
    for example in read_examples(task, split):
        yield example.source
        if task.metric == "bleu":  # text in another language, not a label and not a piece of the input
            yield example.target
