"""Span corruption: spans of running text are replaced by sentinels and are to be predicted. Made on the fly.

    text      Thank you for inviting me to your party last week
    source    Thank you <0> me to your party <1> week </s>
    target    <s> <0> for inviting <1> last </s>

Of L tokens, round(noise · L) are removed, in round(noise · L / mean) spans with random boundaries: no span is empty,
and no two touch. L is the largest length for which a source has `context_length` tokens, so that all batches have one
shape, and sources have no padding. Source and target together give the text back: `restore_spans`.

Rows are windows over the text, as in token_shards; the spans of a row depend on seed, epoch and its start: not on
processes, threads or the batch. The text comes from corpora (corpora.py), text tasks (text_tasks.py, training splits
for training), or shards.

Raffel et al. 2020 (T5, section 3.1.4: 15 %, spans of 3), arXiv:1910.10683
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.core.spec import build_part
from regard.data import TEXT_TASKS
from regard.data.base import Dataset, DatasetSplit
from regard.data.batching import OffsetBatches, mix_seed
from regard.data.ragged import round_up
from regard.data.shards.token_shards import TokenShards, TokenWindows, find_shards
from regard.data.shuffle import GOLDEN_GAMMA, splitmix64
from regard.data.text.corpora import get_corpus
from regard.data.text.parallel_corpus import PairBatch, count_target_tokens
from regard.data.text.text_tasks import TextTask, read_examples

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

PAD_TO_MULTIPLE_OF = 8  # of the decoder's input length
EPOCH_STRIDE = 2**40  # a window is identified by epoch · EPOCH_STRIDE + its first token


@dataclass(frozen=True)
class SpanCorruption(Dataset):
    """Settings of the dataset."""

    texts: tuple[str, ...] = ("bbc", "brown")  # corpora, files, text tasks; or one folder of shards
    noise_density: float = field(0.15, above=0, below=1)
    mean_span_length: float = field(3.0, above=0)  # tokens per span
    context_length: int = 512  # tokens of a source, with its end token
    batch_size: int = 64  # rows per batch over all processes
    tokenizer: str = "bytes"  # kind of tokenizer, if neither the model nor the shards have one
    vocab_size: int = 16_000
    sentinels: int = 100
    limit: int | None = None  # use only the first rows of every split, from as many documents of each text

    quick_settings = {"context_length": 40, "batch_size": 4, "limit": 24, "vocab_size": 400, "sentinels": 20}  # noqa: RUF012

    def shards(self) -> TokenShards | None:
        """Return the token shards, if the text is a folder of shards."""
        try:
            found = [name for name in self.texts if (find_shards(name) / "index.json").is_file()]
        except BadInput:
            return None
        return TokenShards(found[0]) if found and len(self.texts) == 1 else None

    def splits(self) -> list[str]:
        """Return the splits that all texts have."""
        if (shards := self.shards()) is not None:
            return shards.splits()
        if not self.texts:
            raise BadInput("data.texts is empty; name a corpus, a file, a text task or a folder of shards")
        return sorted(set.intersection(*(set(_splits(name)) for name in self.texts)))

    def title(self) -> str:
        return ", ".join(self.texts)

    def read(self, split: str) -> list[str]:
        """Return the documents of a split."""
        return [document for name in self.texts for document in islice(_documents(name, split), self.limit)]

    def build_tokenizer(self) -> Tokenizer:
        """Train a tokenizer on the training split, or load that of the shards; with sentinels."""
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
        """Return a split as token ids, documents end to end, each followed by the end token."""
        length, split = input_length(self.context_length, self.noise_density, self.mean_span_length), self.split(split)
        if (shards := self.shards()) is not None:
            sentinels = shards.build_tokenizer()
            if (sentinels.size, sentinels.kind) != (tokenizer.size, tokenizer.kind) and sentinels.size > tokenizer.size:
                raise BadInput(f"{self.texts[0]} was packed with another tokenizer than the model's")
            windows = replace(shards, context_length=length, batch_size=self.batch_size, limit=self.limit).load(split)
            return SpanCorruptionSplit(self, windows, tokenizer)
        ids = tokenizer.encode(self.read(split))
        tokens = np.array([number for row in ids for number in (*row, tokenizer.eos)], np.int32)
        return SpanCorruptionSplit(
            self, TokenWindows([tokens], length, self.batch_size, tokenizer.size, self.limit), tokenizer
        )


class SpanCorruptionSplit(DatasetSplit[PairBatch]):
    """One split, as rows of which spans are removed."""

    name, metric = "spans", ""

    def __init__(self, settings: SpanCorruption, windows: TokenWindows, tokenizer: Tokenizer) -> None:
        from regard.tokens.sentinels import sentinel_ids

        self.settings, self.windows, self.tokenizer = settings, windows, tokenizer
        self.length = windows.context_length
        self.removed, self.spans = noise_counts(self.length, settings.noise_density, settings.mean_span_length)
        self.sentinels = np.array(sentinel_ids(tokenizer)[: self.spans])
        if len(self.sentinels) < self.spans:
            raise BadInput(
                f"a row of {self.length} tokens has {self.spans} spans, but the vocabulary has only "
                f"{len(self.sentinels)} sentinels: raise data.sentinels or lower data.context_length"
            )

    def __len__(self) -> int:
        return len(self.windows)

    def order(self, seed: int, epoch: int) -> OffsetBatches:
        return OffsetBatches(self.windows.order(seed, epoch), epoch * EPOCH_STRIDE)

    def training_batch(self, rows: Int[Tensor, " B"], seed: int) -> PairBatch:
        return self.collate(rows, seed)

    def count(self, batch: PairBatch) -> int:
        return count_target_tokens(batch)

    def eval_batches(self, tokens: int) -> Iterator[PairBatch]:
        """Yield every full row once, always with the same spans, about `tokens` tokens per batch."""
        starts = torch.arange(len(self.windows)) * self.length
        for rows in starts.split(max(1, tokens // self.length)):
            yield self.collate(rows)

    def collate(self, rows: Int[Tensor, " B"], seed: int = 0) -> PairBatch:
        """Return the windows of these numbers, with spans removed."""
        text, starts = self.tokenizer, rows % EPOCH_STRIDE
        tokens = np.stack([self.windows.window(start, start + self.length) for start in starts.tolist()])
        if int(tokens.max()) >= text.size:
            self.windows._raise_bad_token(starts)
        noise = random_spans(self.length, self.removed, self.spans, [mix_seed(seed, row) for row in rows.tolist()])
        sources, targets = corrupt_spans(tokens.astype(np.int64), noise, self.sentinels)
        sources = np.pad(sources, ((0, 0), (0, 1)), constant_values=text.eos)
        targets = np.pad(targets, ((0, 0), (1, 1)), constant_values=((0, 0), (text.bos, text.eos)))
        aligned = round_up(targets.shape[1] - 1, PAD_TO_MULTIPLE_OF) + 1  # the decoder reads all but the last
        lengths = (torch.full((len(rows),), x.shape[1]) for x in (sources, targets))
        padded = np.pad(targets, ((0, 0), (0, aligned - targets.shape[1])), constant_values=text.pad)
        return PairBatch(torch.from_numpy(sources), next(lengths), torch.from_numpy(padded), next(lengths))

    def fingerprint(self) -> str:
        return self.windows.fingerprint()

    def card(self) -> str:
        """Return one line about the text and the removed spans."""
        return (
            f"{', '.join(self.settings.texts)}: {self.windows.tokens:,} tokens, {self.settings.batch_size} rows per "
            f"batch, {self.removed} of {self.length} tokens removed in {self.spans} spans"
        )


# -- corruption --------------------------------------------------------------------------------------------------------


def noise_counts(length: int, noise: float, mean: float) -> tuple[int, int]:
    """Return how many of `length` tokens are removed and in how many spans: at least one of each, and not all."""
    removed = min(max(round(length * noise), 1), length - 1)
    num_spans = min(max(round(removed / mean), 1), removed, length - removed)
    return removed, num_spans


def input_length(context_length: int, noise: float, mean: float) -> int:
    """Return the longest text whose source has at most `context_length` tokens."""
    if not (0 < noise < 1 and mean >= 1 and context_length >= 4):
        raise BadInput(
            f"data.noise_density={noise}, data.mean_span_length={mean}, data.context_length={context_length}: expected "
            "0 < noise_density < 1, mean_span_length >= 1, context_length >= 4"
        )

    def source(length: int) -> int:
        removed, num_spans = noise_counts(length, noise, mean)
        return length - removed + num_spans + 1

    length = 2
    while source(length + 1) <= context_length:
        length += 1
    return length


def random_spans(length: int, removed: int, num_spans: int, keys: Sequence[int]) -> np.ndarray:
    """Return which tokens of each row are removed, B L: `removed` tokens in `num_spans` spans, none at the start."""
    seeds = np.array(keys, np.uint64)
    noise, kept_lengths = (
        _random_partition(removed, num_spans, seeds),
        _random_partition(length - removed, num_spans, ~seeds),
    )
    sizes = np.stack([kept_lengths, noise], 2).reshape(-1)
    return np.repeat(np.tile([False, True], num_spans * len(seeds)), sizes).reshape(len(seeds), length)


def corrupt_spans(
    tokens: np.ndarray, noise: np.ndarray, sentinels: Sequence[int] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return each row with a sentinel for each removed span; and the spans, each after its sentinel.

    Rows with equally many removed tokens and spans have equal lengths.
    """
    rows = len(tokens)
    first = noise & ~np.pad(noise[:, :-1], ((0, 0), (1, 0)))
    sentinel_of = np.asarray(sentinels)[np.maximum(np.cumsum(first, 1) - 1, 0)]  # the sentinel of each token's span
    source = np.where(first, sentinel_of, tokens)[first | ~noise].reshape(rows, -1)
    target = np.stack([sentinel_of, tokens], 2)[
        np.stack([first, noise], 2)
    ]  # a sentinel at each span's start, and its tokens
    return source, target.reshape(rows, -1)


def restore_spans(source: Sequence[int], target: Sequence[int], sentinels: Sequence[int]) -> list[int]:
    """Return the text of a source and its target."""
    sentinel_set, spans, text = {int(mark) for mark in sentinels}, dict[int, list[int]](), list[int]()
    for token in map(int, target):
        if token in sentinel_set:
            spans[token], last = [], token
        else:
            spans[last].append(token)
    for token in map(int, source):
        text += spans[token] if token in sentinel_set else [token]
    return text


def _random_partition(total: int, parts: int, keys: np.ndarray) -> np.ndarray:
    """Split `total` into `parts` positive numbers for each key, B parts; all partitions are equally likely."""
    with np.errstate(over="ignore"):  # overflow is intended
        random_numbers = splitmix64(keys[:, None] + np.arange(1, total, dtype=np.uint64) * np.uint64(GOLDEN_GAMMA))
    cuts = np.sort(np.argsort(random_numbers, axis=1, kind="stable")[:, : parts - 1], axis=1) + 1
    return np.diff(np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (0, total))), axis=1)


# -- text --------------------------------------------------------------------------------------------------------------


def _text_task(name: str) -> TextTask | None:
    """Return the text task of a spec; None for the name of a corpus or a path."""
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
        if task.metric == "bleu":  # text in another language, not a label or a part of the input
            yield example.target
