"""Chunks as brackets around copied words: the parse of a sentence, written down from left to right.

    words     He       reckons     the   deficit     will   narrow
    tags      B-NP     B-VP        B-NP  I-NP        B-VP   I-VP
    source    #0 He #1 reckons #2 the #3 deficit #4 will #5 narrow </s>
    target    #0 (NP He #1 ) (VP reckons #2 ) (NP the #3 deficit #4 ) (VP will #5 narrow ) </s>

#n is the place of the word that is next, in both: a decoder that has just written it looks for the same token in the
source and finds the word it has to decide about, where it would have to count otherwise.

The words of a target are those of the source, in order, so they are not to be said again: a decoder that is at the
beginning of a word *decides* between "copy the next word", "open a bracket of kind k" and "close this one", among those
that make sense there. Everything else follows: a bracket that was just opened takes a word, a word's later pieces come
after its first, at the end brackets close and the sentence ends. `Walk` is that little machine; it writes targets for
training and keeps to the rules when a model writes.

    at                       may be decided                    a token of its own for each decision; words as in the
    outside a bracket        copy, open k                      source, so that one vocabulary serves both sides
    inside, after a word     copy, close

Vinyals, Kaiser, Koo, Petrov, Sutskever, Hinton: Grammar as a Foreign Language. NeurIPS 2015. arXiv:1412.7449
Tjong Kim Sang, Buchholz: Introduction to the CoNLL-2000 Shared Task: Chunking. CoNLL 2000
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.batching import BatchStream, TokenBatches
from regard.data.ragged import RaggedTensor, round_up
from regard.data.shards.token_shards import IGNORE_INDEX, count_targets
from regard.data.text.tagged_sentences import TaggedSentences

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

NUM_WORD_MARKERS = 128  # tokens for the places of words; in a longer sentence they come round again
COPY, CLOSE, OPEN = 0, 1, 2  # decisions; open the kind k is OPEN + k


class ChunkingBatch(NamedTuple):
    """A batch of sentences and their parses, padded on the right."""

    source: Int[Tensor, "B N"]
    source_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B T"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]
    outside: Int[Tensor, "B T"]  # what is decided after this token, outside a bracket; IGNORE_INDEX: nothing
    inside: Int[Tensor, "B T"]  # the same, inside one

    def to(self, device: torch.device | str) -> ChunkingBatch:
        """The same batch on a device; from pinned memory without waiting for it."""
        return ChunkingBatch(*(x.to(device, non_blocking=True) for x in self))

    def pin(self) -> ChunkingBatch:
        """The same batch in page-locked memory, from which a GPU copies while it computes."""
        return ChunkingBatch(*(x.pin_memory() for x in self))

    def rows(self, n: int) -> ChunkingBatch:
        """Only the first n sentences (the padding stays)."""
        return ChunkingBatch(*(x[:n] for x in self))


@dataclass(frozen=True)
class ChunkingSeq2Seq:
    """Which sentences, whether their parts of speech are read too, and how many go into a batch."""

    corpus: str = "conll2000"  # a name, or the path of a file or a folder, see data.tagged
    column: int = -1  # of the chunk tags, words being column 0
    pos_column: int | None = None  # the column of parts of speech, read after each word; None: words alone
    tokenizer: str = "bytes"  # of vocabulary, see tokens.tokenizer
    vocab_size: int = 6000
    batch_tokens: int = 4096  # in a batch: rows x the longest of either side
    max_length: int = 256  # longer training sentences are left out
    pad_to_multiple_of: int = 8  # padded lengths are multiples of this
    limit: int | None = None  # only the first so many sentences of every part

    def quick(self) -> ChunkingSeq2Seq:
        """A few sentences and a small vocabulary: enough to see that everything runs."""
        return replace(self, limit=24, vocab_size=min(self.vocab_size, 400), batch_tokens=min(self.batch_tokens, 512))

    def splits(self) -> list[str]:
        """The parts there are."""
        return self._tagged(self.column).splits()

    def split(self, name: str) -> str:
        """The full name of a part; the beginning of it will do where it is the only one."""
        return self._tagged(self.column).split(name)

    def read(self, split: str) -> list[ChunkedSentence]:
        """The sentences of a part: words, chunk tags, and parts of speech (none where they are not read)."""
        rows = self._tagged(self.column).read(split)
        if self.pos_column is None:
            return [ChunkedSentence(words, tags, ()) for words, tags in rows]
        speech = self._tagged(self.pos_column).read(split)
        return [ChunkedSentence(words, tags, kinds) for (words, tags), (_, kinds) in zip(rows, speech, strict=True)]

    def symbols(self, tokenizer: Tokenizer) -> ChunkingSymbols:
        """The tokens beside the vocabulary: what the training part's tags need."""
        kinds = sorted({tag[2:] for tag in self._tagged(self.column).labels() if tag[:2] in ("B-", "I-")})
        if not kinds:
            raise BadInput(f"column {self.column} of {self.corpus} marks no chunks; wanted tags like B-NP, I-NP, O")
        speech = [] if self.pos_column is None else self._tagged(self.pos_column).labels()
        return ChunkingSymbols(tokenizer.size, tuple(kinds), tuple(speech))

    def build_tokenizer(self) -> Tokenizer:
        """A vocabulary of the words of the training part."""
        from regard.tokens.tokenizer import Tokenizer

        lines = (" ".join(words) for words, *_ in self.read("train"))
        return Tokenizer.train(lines, kind=self.tokenizer, size=self.vocab_size)

    def load(self, split: str, tokenizer: Tokenizer) -> ChunkingSplit:
        """A part as numbers."""
        return ChunkingSplit(self, tokenizer, self.symbols(tokenizer), self.read(split))

    def _tagged(self, column: int) -> TaggedSentences:
        return TaggedSentences(self.corpus, column=column, limit=self.limit)


class ChunkedSentence(NamedTuple):
    """Words, their chunk tags, their parts of speech (where these are read)."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    speech: tuple[str, ...]


@dataclass(frozen=True)
class ChunkingSymbols:
    """Tokens that are no words, numbered from the vocabulary's end on: decisions, places, then parts of speech."""

    base: int
    kinds: tuple[str, ...]
    speech: tuple[str, ...] = ()

    @property
    def decisions(self) -> int:
        """How many things may be decided."""
        return OPEN + len(self.kinds)

    @property
    def size(self) -> int:
        """Rows that a table of vectors needs."""
        return (
            self.place(0) + NUM_WORD_MARKERS + len(self.speech) + 1
        )  # the last stands for a part of speech never seen

    def place(self, word: int) -> int:
        """The token that says which word is next."""
        return self.base + self.decisions + word % NUM_WORD_MARKERS

    def source(self, pieces: Sequence[Sequence[int]], speech: Sequence[str], eos: int) -> list[int]:
        """A sentence as it is read: each word after its place, before its part of speech where there is one."""
        number = {kind: self.place(0) + NUM_WORD_MARKERS + n for n, kind in enumerate(self.speech)}
        tokens = []
        for n, word in enumerate(pieces):
            tokens += [self.place(n), *word]
            tokens += [number.get(speech[n], self.size - 1)] if self.speech else []
        return [*tokens, eos]


@dataclass
class BracketParser:
    """A parse while it is written: what may be decided now, and what follows from a decision."""

    symbols: ChunkingSymbols
    pieces: Sequence[Sequence[int]]  # of each word
    eos: int
    word: int = 0  # the next one
    kind: int | None = None  # of the bracket one is in
    fresh: bool = False  # it was just opened
    tags: list[str] = field(default_factory=list)
    ended: bool = False
    _waiting: list[int] = field(default_factory=list)  # tokens that follow without a decision

    def __post_init__(self) -> None:
        self._point()

    def _point(self) -> None:
        """The place of the next word is written before anything is decided about it."""
        if self.word < len(self.pieces):
            self._waiting.append(self.symbols.place(self.word))

    def options(self) -> list[int]:
        """What may be decided here; a single thing, or nothing, is no decision."""
        if self._waiting or self.ended:
            return []
        left = self.word < len(self.pieces)
        if self.kind is not None:
            return [COPY] if self.fresh else [COPY, CLOSE] if left else [CLOSE]
        return [COPY, *range(OPEN, self.symbols.decisions)] if left else []

    def next_forced(self) -> int | None:
        """The token that follows without a decision, which is thereby written; None where one has to be made."""
        if self._waiting:
            return self._waiting.pop(0)
        options = self.options()
        if len(options) == 1:
            return self.decide(options[0])
        if not options:
            self.ended = True
            return self.eos
        return None

    def decide(self, decision: int) -> int:
        """Write what was decided; the token of it."""
        if decision == COPY:
            mark = "O" if self.kind is None else f"{'B' if self.fresh else 'I'}-{self.symbols.kinds[self.kind]}"
            self.tags.append(mark)
            first, *self._waiting = self.pieces[self.word]
            self.word, self.fresh = self.word + 1, False
            self._point()
            return first
        self.kind, self.fresh = (None, False) if decision == CLOSE else (decision - OPEN, True)
        return self.symbols.base + decision


def encode_parse(walk: BracketParser, tags: Sequence[str]) -> tuple[list[int], list[int], list[int]]:
    """The tokens of a sentence's parse, and what is decided before each: outside a bracket, and inside one."""
    tokens, outside, inside = [], [], []
    while not walk.ended:
        decided, within = IGNORE_INDEX, walk.kind is not None
        token = walk.next_forced()
        if token is None:
            decided = _gold_decision(walk, tags)
            token = walk.decide(decided)
        tokens.append(token)
        outside.append(IGNORE_INDEX if within else decided)
        inside.append(decided if within else IGNORE_INDEX)
    return tokens, outside, inside


def _gold_decision(walk: BracketParser, tags: Sequence[str]) -> int:
    """What has to be decided for these tags to come out. I- after another kind, or after nothing, begins a chunk."""
    mark, _, name = tags[walk.word].partition("-")
    if walk.kind is not None:
        return COPY if mark == "I" and name == walk.symbols.kinds[walk.kind] else CLOSE
    if mark == "O" or name not in walk.symbols.kinds:  # a kind that was never seen in training
        return COPY
    return OPEN + walk.symbols.kinds.index(name)


class ChunkingSplit:
    """One part as numbers."""

    def __init__(
        self,
        settings: ChunkingSeq2Seq,
        tokenizer: Tokenizer,
        symbols: ChunkingSymbols,
        sentences: Sequence[ChunkedSentence],
    ) -> None:
        if not sentences:
            raise BadInput("there is no sentence to parse")
        self.settings, self.tokenizer, self.symbols, self.sentences = settings, tokenizer, symbols, sentences
        rows: list[list[list[int]]] = [[], [], [], []]
        for sentence, pieces in zip(
            sentences, encode_sentence_words(tokenizer, [s.words for s in sentences]), strict=True
        ):
            tokens, outside, inside = encode_parse(BracketParser(symbols, pieces, tokenizer.eos), sentence.tags)
            rows[0].append(symbols.source(pieces, sentence.speech, tokenizer.eos))
            rows[1].append([tokenizer.bos, *tokens])
            rows[2].append(outside)  # at the token before
            rows[3].append(inside)
        self.source, self.target, self.outside, self.inside = map(RaggedTensor.from_rows, rows)

    def __len__(self) -> int:
        return len(self.source)

    def usable(self) -> Int[Tensor, " rows"]:
        """The rows to train on: neither side longer than `longest`."""
        longest = torch.maximum(self.source.lengths, self.target.lengths)
        return (longest <= self.settings.max_length).nonzero()[:, 0]

    def fingerprint(self) -> str:
        """A few letters that change when the sentences, their parses or the vocabulary do."""
        found = blake2b(digest_size=8)
        for side in (self.source, self.target, self.outside, self.inside):
            found.update(side.values.numpy().data)
        return found.hexdigest()

    def collate(self, rows: Int[Tensor, " B"]) -> ChunkingBatch:
        """These rows as one padded batch."""
        pad, multiple = self.tokenizer.pad, self.settings.pad_to_multiple_of
        target, lengths = self.target.pad(rows, pad)
        more = round_up(target.shape[1] - 1, multiple) + 1 - target.shape[1]  # the decoder reads all but the last token
        decided = [side.pad(rows, IGNORE_INDEX, multiple)[0] for side in (self.outside, self.inside)]
        target = torch.nn.functional.pad(target, (0, more), value=pad)
        return ChunkingBatch(*self.source.pad(rows, pad, multiple), target, lengths, *decided)

    def stream(self, seed: int) -> BatchStream[ChunkingBatch]:
        """Training batches without end."""
        rows = self.usable()
        source, target = self.source.lengths[rows], self.target.lengths[rows] - 1

        def order(epoch: int) -> TokenBatches:
            s = self.settings
            return TokenBatches(
                source, target, tokens=s.batch_tokens, seed=seed, epoch=epoch, multiple=s.pad_to_multiple_of
            )

        return BatchStream(order, lambda picked: self.collate(rows[picked]), count_decisions)

    def eval_batches(self, tokens: int) -> Iterator[ChunkingBatch]:
        """Every row once, sorted by length: for measuring."""
        order = torch.sort(self.target.lengths, descending=True, stable=True).indices
        at = 0
        while at < len(order):
            rows = max(1, tokens // int(self.target.lengths[order[at]]))
            yield self.collate(order[at : at + rows])
            at += rows


def count_decisions(batch: ChunkingBatch) -> int:
    """How many decisions a batch holds."""
    return count_targets(batch.outside) + count_targets(batch.inside)


def encode_sentence_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """The pieces of every word of every sentence; a word of none is the unknown one."""
    pieces = iter(tokenizer.encode([word for words in sentences for word in words]))
    return [[next(pieces) or [tokenizer.unk] for _ in words] for words in sentences]
