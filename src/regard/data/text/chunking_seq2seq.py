"""Chunking as sequence to sequence: a sentence with brackets around its chunks.

    words     He       reckons     the   deficit     will   narrow
    tags      B-NP     B-VP        B-NP  I-NP        B-VP   I-VP
    source    #0 He #1 reckons #2 the #3 deficit #4 will #5 narrow </s>
    target    #0 (NP He #1 ) (VP reckons #2 ) (NP the #3 deficit #4 ) (VP will #5 narrow ) </s>

#n marks the next word, in both: a decoder that has just written it finds the same token in the source right before the
word it has to decide about, and need not count.

The words of a target are those of the source, in order. So at the beginning of a word the decoder only *decides*
between "copy the next word", "open a bracket of kind k" and "close this one", among those that are valid there.
Everything else is forced: a bracket that was just opened takes a word, a word's later pieces follow its first, and at
the end brackets close and the sentence ends. `BracketParser` is that state machine; it writes targets for training and
enforces the rules when a model decodes.

    state                    decisions                         every decision is a token; words are the same tokens as
    outside a bracket        copy, open k                      in the source, so that both sides share a vocabulary
    inside, after a word     copy, close

Vinyals, Kaiser, Koo, Petrov, Sutskever, Hinton: Grammar as a Foreign Language. NeurIPS 2015. arXiv:1412.7449
Tjong Kim Sang, Buchholz: Introduction to the CoNLL-2000 Shared Task: Chunking. CoNLL 2000
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.data.base import Dataset, DatasetSplit, TensorBatch, longest_first
from regard.data.batching import BatchStream, TokenBatches
from regard.data.ragged import RaggedTensor, round_up
from regard.data.shards.token_shards import IGNORE_INDEX, count_targets
from regard.data.text.tagged_sentences import TaggedSentences

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

NUM_WORD_MARKERS = 128  # marker tokens; in longer sentences they repeat
COPY, CLOSE, OPEN = 0, 1, 2  # decisions; opening a bracket of kind k is OPEN + k


@dataclass(frozen=True, eq=False)
class ChunkingBatch(TensorBatch):
    """A batch of sentences and their parses, padded on the right."""

    source: Int[Tensor, "B N"]
    source_lengths: Int[Tensor, " B"]
    target: Int[Tensor, "B T"]  # <s> ... </s>
    target_lengths: Int[Tensor, " B"]
    outside: Int[Tensor, "B T"]  # decision after this token, outside a bracket; IGNORE_INDEX: none
    inside: Int[Tensor, "B T"]  # the same, inside one


@dataclass(frozen=True)
class ChunkingSeq2Seq(Dataset):
    """Settings of the dataset."""

    corpus: str = "conll2000"  # name of a dataset, or path of a file or folder, see tagged_sentences
    column: int = field(-1, low=-1000, high=1000)  # of the chunk tags, words being column 0
    pos_column: int | None = field(None, low=-1000, high=1000)  # of part-of-speech tags, added to the source
    tokenizer: str = "bytes"  # kind of tokenizer, see tokens.tokenizer
    vocab_size: int = 6000
    batch_tokens: int = 4096  # rows x the longest of either side, per batch
    max_length: int = 256  # longer training sentences are left out
    pad_to_multiple_of: int = 8  # of padded lengths
    limit: int | None = None  # use only the first sentences of every split

    quick_settings = {"limit": 24, "vocab_size": 400, "batch_tokens": 512}  # noqa: RUF012

    def splits(self) -> list[str]:
        return self._tagged(self.column).splits()

    def split(self, name: str) -> str:
        return self._tagged(self.column).split(name)

    def read(self, split: str) -> list[ChunkedSentence]:
        """Return the sentences of a split: words, chunk tags, and parts of speech (empty if not used)."""
        rows = self._tagged(self.column).read(split)
        if self.pos_column is None:
            return [ChunkedSentence(words, tags, ()) for words, tags in rows]
        speech = self._tagged(self.pos_column).read(split)
        return [ChunkedSentence(words, tags, kinds) for (words, tags), (_, kinds) in zip(rows, speech, strict=True)]

    def symbols(self, tokenizer: Tokenizer) -> ChunkingSymbols:
        """Return the tokens added to the vocabulary, for the tags of the training split."""
        kinds = sorted({tag[2:] for tag in self._tagged(self.column).labels() if tag[:2] in ("B-", "I-")})
        if not kinds:
            raise BadInput(f"column {self.column} of {self.corpus} has no chunk tags; expected tags like B-NP, I-NP, O")
        speech = [] if self.pos_column is None else self._tagged(self.pos_column).labels()
        return ChunkingSymbols(tokenizer.size, tuple(kinds), tuple(speech))

    def build_tokenizer(self) -> Tokenizer:
        """Train a tokenizer on the training split."""
        from regard.tokens.tokenizer import Tokenizer

        lines = (" ".join(words) for words, *_ in self.read("train"))
        return Tokenizer.train(lines, kind=self.tokenizer, size=self.vocab_size)

    def load(self, split: str, tokenizer: Tokenizer) -> ChunkingSplit:
        """Return a split as token ids."""
        return ChunkingSplit(self, tokenizer, self.symbols(tokenizer), self.read(split))

    def _tagged(self, column: int) -> TaggedSentences:
        return TaggedSentences(self.corpus, column=column, limit=self.limit)


class ChunkedSentence(NamedTuple):
    """Words, their chunk tags, their parts of speech (if used)."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    speech: tuple[str, ...]


@dataclass(frozen=True)
class ChunkingSymbols:
    """Tokens besides words, after the vocabulary: decisions, word markers, then parts of speech."""

    base: int
    kinds: tuple[str, ...]
    speech: tuple[str, ...] = ()

    @property
    def decisions(self) -> int:
        """The number of decisions."""
        return OPEN + len(self.kinds)

    @property
    def size(self) -> int:
        """The size of the embedding table."""
        return self.marker(0) + NUM_WORD_MARKERS + len(self.speech) + 1  # the last is an unseen part of speech

    def marker(self, word: int) -> int:
        """Return the marker token of a word."""
        return self.base + self.decisions + word % NUM_WORD_MARKERS

    def source(self, pieces: Sequence[Sequence[int]], speech: Sequence[str], eos: int) -> list[int]:
        """Return the source tokens: each word after its marker, before its part of speech if used."""
        number = {kind: self.marker(0) + NUM_WORD_MARKERS + n for n, kind in enumerate(self.speech)}
        tokens = []
        for n, word in enumerate(pieces):
            tokens += [self.marker(n), *word]
            tokens += [number.get(speech[n], self.size - 1)] if self.speech else []
        return [*tokens, eos]


@dataclass
class BracketParser:
    """State of a parse while it is written: valid decisions, and the tokens that follow from them."""

    symbols: ChunkingSymbols
    pieces: Sequence[Sequence[int]]  # tokens of each word
    eos: int
    word: int = 0  # index of the next word
    kind: int | None = None  # of the open bracket
    fresh: bool = False  # the bracket was just opened
    tags: list[str] = dataclasses.field(default_factory=list)
    ended: bool = False
    _forced: list[int] = dataclasses.field(default_factory=list)  # tokens that follow without a decision

    def __post_init__(self) -> None:
        self._add_marker()

    def _add_marker(self) -> None:
        """Queue the marker of the next word."""
        if self.word < len(self.pieces):
            self._forced.append(self.symbols.marker(self.word))

    def options(self) -> list[int]:
        """Return the valid decisions; with one or none, the next token is forced."""
        if self._forced or self.ended:
            return []
        has_words = self.word < len(self.pieces)
        if self.kind is not None:
            return [COPY] if self.fresh else [COPY, CLOSE] if has_words else [CLOSE]
        return [COPY, *range(OPEN, self.symbols.decisions)] if has_words else []

    def next_forced(self) -> int | None:
        """Return the next token if it is forced, and advance; None if a decision is needed."""
        if self._forced:
            return self._forced.pop(0)
        options = self.options()
        if len(options) == 1:
            return self.decide(options[0])
        if not options:
            self.ended = True
            return self.eos
        return None

    def decide(self, decision: int) -> int:
        """Apply a decision and return its token."""
        if decision == COPY:
            tag = "O" if self.kind is None else f"{'B' if self.fresh else 'I'}-{self.symbols.kinds[self.kind]}"
            self.tags.append(tag)
            first, *self._forced = self.pieces[self.word]
            self.word, self.fresh = self.word + 1, False
            self._add_marker()
            return first
        self.kind, self.fresh = (None, False) if decision == CLOSE else (decision - OPEN, True)
        return self.symbols.base + decision


def encode_parse(parser: BracketParser, tags: Sequence[str]) -> tuple[list[int], list[int], list[int]]:
    """Return the tokens of a parse, and the decision before each: outside a bracket, and inside one."""
    tokens, outside, inside = [], [], []
    while not parser.ended:
        decision, is_inside = IGNORE_INDEX, parser.kind is not None
        token = parser.next_forced()
        if token is None:
            decision = _gold_decision(parser, tags)
            token = parser.decide(decision)
        tokens.append(token)
        outside.append(IGNORE_INDEX if is_inside else decision)
        inside.append(decision if is_inside else IGNORE_INDEX)
    return tokens, outside, inside


def _gold_decision(parser: BracketParser, tags: Sequence[str]) -> int:
    """Return the decision that leads to these tags. I- after another kind or outside a chunk begins a chunk."""
    prefix, _, name = tags[parser.word].partition("-")
    if parser.kind is not None:
        return COPY if prefix == "I" and name == parser.symbols.kinds[parser.kind] else CLOSE
    if prefix == "O" or name not in parser.symbols.kinds:  # a kind not in the training split
        return COPY
    return OPEN + parser.symbols.kinds.index(name)


class ChunkingSplit(DatasetSplit[ChunkingBatch]):
    """One split as token ids."""

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
            rows[2].append(outside)  # aligned with the token before
            rows[3].append(inside)
        self.source, self.target, self.outside, self.inside = map(RaggedTensor.from_rows, rows)

    def __len__(self) -> int:
        return len(self.source)

    def usable(self) -> Int[Tensor, " rows"]:
        """Return the rows to train on: neither side longer than `max_length`."""
        longest = torch.maximum(self.source.lengths, self.target.lengths)
        return (longest <= self.settings.max_length).nonzero()[:, 0]

    def contents(self) -> Iterable[Tensor]:
        return (side.values for side in (self.source, self.target, self.outside, self.inside))

    def collate(self, rows: Int[Tensor, " B"]) -> ChunkingBatch:
        pad, multiple = self.tokenizer.pad, self.settings.pad_to_multiple_of
        target, lengths = self.target.pad(rows, pad)
        more = round_up(target.shape[1] - 1, multiple) + 1 - target.shape[1]  # the decoder reads all but the last token
        decided = [side.pad(rows, IGNORE_INDEX, multiple)[0] for side in (self.outside, self.inside)]
        target = torch.nn.functional.pad(target, (0, more), value=pad)
        return ChunkingBatch(*self.source.pad(rows, pad, multiple), target, lengths, *decided)

    def stream(self, seed: int) -> BatchStream[ChunkingBatch]:
        rows = self.usable()
        source, target = self.source.lengths[rows], self.target.lengths[rows] - 1

        def order(epoch: int) -> TokenBatches:
            s = self.settings
            return TokenBatches(
                source, target, tokens=s.batch_tokens, seed=seed, epoch=epoch, multiple=s.pad_to_multiple_of
            )

        return BatchStream(order, lambda picked: self.collate(rows[picked]), count_decisions)

    def eval_batches(self, tokens: int) -> Iterator[ChunkingBatch]:
        """Yield every row once, longest first."""
        for rows in longest_first(self.target.lengths, tokens):
            yield self.collate(rows)


def count_decisions(batch: ChunkingBatch) -> int:
    """Return the number of decisions in a batch."""
    return count_targets(batch.outside) + count_targets(batch.inside)


def encode_sentence_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[list[list[int]]]:
    """Return the tokens of every word of every sentence, at least the unknown token."""
    pieces = iter(tokenizer.encode([word for words in sentences for word in words]))
    return [[next(pieces) or [tokenizer.unk] for _ in words] for words in sentences]
