"""The translator: lines in, lines out, in the same order, whatever the lines hold.

    beam         the best translations found with `beams` hypotheses at a time (decoding.beam_search); 1 is greedy
    diverse      beams in groups that avoid one another's words
    sample       drawn from the model instead, each line with random numbers of its own
    prefix       every translation begins with these words
    must         every translation holds these phrases (decoding.constrained_search)

A line's company never changes its translation: limits, random numbers and stopping are its own.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from regard.core.decodable import Decodable
from regard.core.errors import BadInput, UnknownName, did_you_mean, require_iterable
from regard.core.shapes import Int, Tensor
from regard.core.trace import Trace
from regard.data.ragged import RaggedTensor
from regard.data.text import moses
from regard.data.text.corpora import split_sentences
from regard.decoding.beam_search import Hypothesis, beam_search, greedy_search, sample
from regard.decoding.constrained_search import constrained_beam_search
from regard.decoding.sampling import MAX_SEED, MIN_SEED, validate_seed

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")


@dataclass(frozen=True)
class SearchConfig:
    """How translations are looked for."""

    beam_size: int = 4
    length_penalty: float = 1.0
    num_candidates: int = 1  # translations of each line
    groups: int = 1  # of beams, each avoiding the words of those before it
    diversity: float = 0.5  # what a word costs for each time an earlier group chose it
    prefix: str = ""  # every translation begins so
    must: Sequence[str] = ()  # every translation holds these
    sample: bool = False  # draw instead of searching
    temperature: float = 1.0
    top_k: int = 0  # draw among so many likeliest words; 0: all
    top_p: float = 1.0  # draw among the likeliest words that fill this share of the probability
    min_p: float = 0.0  # draw among those at least so likely as this share of the likeliest
    seed: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.length_penalty):
            raise BadInput(f"the length penalty is {self.length_penalty}; give a number such as 1 or 0.6")
        validate_seed(self.seed)
        if not self.sample and not 1 <= self.num_candidates <= self.beam_size:
            raise BadInput(
                f"{self.num_candidates} translations of each line need at least as many beams, not {self.beam_size}"
            )
        if self.must and (self.prefix or self.groups > 1 or self.sample):
            raise BadInput("phrases that must appear go with plain beams only: no prefix, groups or sampling")


@dataclass(frozen=True)
class Candidate:
    """One translation of a line and its score (log-probability, divided by length to the power of the penalty)."""

    text: str
    score: float


class Translator:
    """Lines in, lines out, in the same order, whatever the lines hold.

    An empty or blank line gives an empty line. Control characters count as spaces, halves of broken characters are
    replaced. A line of more than `max_length` tokens is cut at the ends of its sentences, else between words, else
    anywhere; its parts are translated one by one and joined with spaces, and a warning (logger "regard", to stderr by
    default) says so. Lines of similar length go through the model together; that does not change what comes out.

    `style` "moses" is for models of tokenised lower-case text: lines are brought into that form and back.
    """

    def __init__(
        self,
        model: nn.Module,
        text: Tokenizer,
        source: str = "en",
        target: str = "de",
        style: str = "raw",
        max_length: int = 200,
    ) -> None:
        self.model, self.text, self.source, self.target, self.style = model.eval(), text, source, target, style
        known = getattr(getattr(model, "config", None), "length", None) or max_length + 1
        self.max_length = min(max_length, known - 1)  # one place is the end token's
        self.max_new_tokens = max(known, 2)

    def __call__(
        self, lines: Iterable[str], beam_size: int = 4, *, batch_tokens: int = 4096, **search: Any
    ) -> list[Any]:
        """The translation of every line; with ``num_candidates`` above 1 a list of them for every line, best first.

        `search` holds the fields of `Search`; about `batch_tokens` numbers go through the model at a time.
        """
        found = self.candidates(lines, beam_size, batch_tokens=batch_tokens, **search)
        return (
            [c[0].text for c in found]
            if search.get("num_candidates", 1) == 1
            else [[c.text for c in line] for line in found]
        )

    def stream(self, lines: Iterable[str], window: int = 2048, **search: Any) -> Iterator[str]:
        """Translations one after another, `window` lines in memory at a time: for files of any size."""
        waiting, before = require_iterable(lines, "lines"), 0
        while some := list(islice(waiting, window)):
            for candidates in self.candidates(some, first=before + 1, **search):
                yield candidates[0].text
            before += len(some)

    def candidates(
        self, lines: Iterable[str], beam_size: int = 4, *, batch_tokens: int = 4096, first: int = 1, **search: Any
    ) -> list[list[Candidate]]:
        """The `num_candidates` best translations of every line with their scores; `first` is the number of the first line."""
        how = _make_config(beam_size, search)
        lines = [lines] if isinstance(lines, str) else list(require_iterable(lines, "lines"))
        parts = self._parts(lines, first)
        if how.prefix or how.must:
            for number, line in enumerate(parts, first):
                if len(line) > 1:
                    what = self._named(lines[number - first], number)
                    raise BadInput(f"{what} is too long to be translated at once, so nothing can be asked of it")
        rows = [(number, part, ids) for number, line in enumerate(parts, first) for part, ids in enumerate(line)]
        seeds = [_part_seed(how.seed, number, part) for number, part, _ in rows]
        found = self._search([ids for *_, ids in rows], how, batch_tokens, seeds)
        texts = iter(self._decode([h.tokens for hypotheses in found for h in hypotheses]))
        candidates = iter([[Candidate(next(texts), h.score) for h in hypotheses] for hypotheses in found])
        return [_join_parts([next(candidates) for _ in line], how.num_candidates) for line in parts]

    def attention(self, line: str, translation: str | None = None, beam_size: int = 4, only: str = "*") -> list[Trace]:
        """Who looked at whom while this translation (by default the best one found) was written.

        One pass over the finished translation, so that every map has all its rows. Encoder maps have the source's
        pieces on both sides. In the decoder a row is the token being written and a column what it could see: the
        source's pieces (cross) or what had been written before (self), begin token first.
        """
        from regard.attention.capture.watch import watch

        source = self._one(line, self.source)
        if translation is None:
            written = self._search([source], SearchConfig(beam_size), 4096, [0])[0][0].tokens
        else:
            written = self._one(translation, self.target)
        device = self._device()
        read = [*source, self.text.eos]
        outputs, inputs = [*written, self.text.eos], [self.text.bos, *written]
        self.model.eval()
        with torch.no_grad(), watch(self.model, only) as seen:
            self.model(torch.tensor([read], device=device), torch.tensor([inputs], device=device))
        of = {"read": self.text.pieces(read), "outputs": self.text.pieces(outputs), "inputs": self.text.pieces(inputs)}
        traces = []
        for trace in seen.traces():
            if trace.kind in ("cross", "align"):
                traces.append(trace.with_labels(of["outputs"], of["read"]))
            elif trace.name.startswith("decoder"):
                traces.append(trace.with_labels(of["outputs"], of["inputs"]))
            else:
                traces.append(trace.with_labels(of["read"], of["read"]))
        return traces

    # -- lines -> numbers ----------------------------------------------------------------------------------------------

    def _parts(self, lines: Sequence[str], first: int) -> list[list[list[int]]]:
        """Every line as the parts it is translated in: none where it is blank, several where it is too long."""
        cleaned = [clean_line(line, number) for number, line in enumerate(lines, first)]
        encoded = self._encode(cleaned, self.source)
        parts: list[list[list[int]]] = []
        for number, (line, ids) in enumerate(zip(cleaned, encoded, strict=True), first):
            if len(ids) <= self.max_length:
                parts.append([ids] if ids else [])
                continue
            pieces = [piece for sentence in split_sentences(line) for piece in self._cut(sentence)]
            what = self._named(line, number)
            log.warning(
                "%s: %d tokens, at most %d go at once: cut into %d", what, len(ids), self.max_length, len(pieces)
            )
            parts.append(pieces)
        return parts

    def _named(self, line: str, number: int) -> str:
        """What a line is called when something is said of it."""
        return f"line {number}"

    def _cut(self, sentence: str) -> Iterator[list[int]]:
        """A sentence in parts that are short enough, cut between words where there are words."""
        (whole,) = self._encode([sentence], self.source)
        if len(whole) <= self.max_length:
            yield from [whole] if whole else []
            return
        words = sentence.split()
        sizes = [len(ids) for ids in self._encode(words, self.source)]
        begin, room = 0, self.max_length
        groups = []
        for end, size in enumerate(sizes):
            if size > room and end > begin:
                groups.append(words[begin:end])
                begin, room = end, self.max_length
            room -= size
        groups.append(words[begin:])
        for ids in self._encode([" ".join(group) for group in groups], self.source):
            for at in range(0, len(ids), self.max_length):  # one word that is too long by itself
                yield ids[at : at + self.max_length]

    def _one(self, line: str, language: str) -> list[int]:
        (ids,) = self._encode([clean_line(line, 1)], language)
        if not ids:
            raise BadInput("an empty line has no attention to look at")
        if len(ids) > self.max_length:
            raise BadInput(f"the line has {len(ids)} tokens; attention can be shown for at most {self.max_length}")
        return ids

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        normal = moses.tokenize(lines, language) if self.style == "moses" else list(lines)
        return [ids if line.strip() else [] for line, ids in zip(normal, self.text.encode(normal), strict=True)]

    def _decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        lines = [_LINE_BREAKS.sub(" ", line).strip() for line in self.text.decode(rows)]
        return moses.detokenize(lines, self.target) if self.style == "moses" else lines

    # -- numbers -> numbers --------------------------------------------------------------------------------------------

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _search(
        self, rows: Sequence[list[int]], how: SearchConfig, batch_tokens: int, seeds: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """The best outputs of every row. Rows go through the model sorted by length, about `batch_tokens` at a time."""
        self.model.eval()
        device = self._device()
        flat = RaggedTensor.from_rows([[*row, self.text.eos] for row in rows])
        order = torch.sort(flat.lengths, descending=True, stable=True).indices
        found: list[list[Hypothesis]] = [[] for _ in rows]
        at = 0
        while at < len(order):
            picked = order[at : at + max(1, batch_tokens // int(flat.lengths[order[at]]))]
            at += len(picked)
            source, lengths = flat.pad(picked, self.text.pad)
            batch = source.to(device), lengths.to(device)
            best = self._found(batch, how, [seeds[row] for row in picked.tolist()])
            for row, hypotheses in zip(picked.tolist(), best, strict=True):
                found[row] = hypotheses
        return found

    def _found(
        self, batch: tuple[Int[Tensor, "B N"], Int[Tensor, " B"]], how: SearchConfig, seeds: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """One batch, looked for as asked."""
        model, rows = cast(Decodable, self.model), len(seeds)
        prefix, *must = self._encode([how.prefix, *how.must], self.target)
        shared: dict[str, Any] = {"max_length": self._limits(batch[1], len(prefix) + sum(map(len, must)))}
        if must:
            more: dict[str, Any] = {
                "beam_size": how.beam_size,
                "length_penalty": how.length_penalty,
                "num_candidates": how.num_candidates,
            }
            return constrained_beam_search(model, *batch, phrases=[must] * rows, **shared, **more)
        shared |= {"prefix": [prefix] * rows if prefix else None, "banned_tokens": self._banned()}
        if how.sample:
            drawn = {name: getattr(how, name) for name in ("temperature", "top_k", "top_p", "min_p")}
            return sample(model, *batch, num_samples=how.num_candidates, seed=seeds, **shared, **drawn)
        if how.beam_size == 1:
            return [[one] for one in greedy_search(model, *batch, **shared)]
        kinds: dict[str, Any] = {"groups": how.groups, "diversity": how.diversity, "length_penalty": how.length_penalty}
        return beam_search(model, *batch, beam_size=how.beam_size, num_candidates=how.num_candidates, **shared, **kinds)

    def _limits(self, lengths: Int[Tensor, " B"], more: int) -> Int[Tensor, " B"]:
        """How long each output may be. A row's limit is its own affair: company must not change a translation."""
        return (2 * lengths + 16 + more).clamp(max=self.max_new_tokens)

    def _banned(self) -> Sequence[int]:
        """Tokens that are never written."""
        return () if self.text.pad == self.text.eos else (self.text.pad,)


def _part_seed(seed: int, number: int, part: int) -> int:
    """The seed of a part of a line."""
    found = seed * 1_000_003 + number * 1009 + part
    return found if MIN_SEED <= found <= MAX_SEED else found % MAX_SEED


def _make_config(beam_size: int, search: dict[str, Any]) -> SearchConfig:
    known = {field.name for field in fields(SearchConfig)}
    for name in search:
        if name not in known:
            raise UnknownName(f"search has no setting '{name}'; {did_you_mean(name, known)}")
    return SearchConfig(beam_size, **search)


_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]+")


def clean_line(line: str, number: int) -> str:
    """A line as text that can be encoded: no control characters, no halves of broken characters."""
    if not isinstance(line, str):
        raise BadInput(f"line {number} is a {type(line).__name__}, not text")
    return _CONTROL.sub(" ", line.encode("utf-8", "replace").decode("utf-8")).strip()


def _join_parts(parts: Sequence[Sequence[Candidate]], num_candidates: int) -> list[Candidate]:
    """The candidates of a line from those of its parts: best with best, second with second."""
    ranked = []
    for rank in range(max((len(part) for part in parts), default=1)):
        chosen = [part[min(rank, len(part) - 1)] for part in parts if part]
        text = " ".join(candidate.text for candidate in chosen if candidate.text)
        ranked.append(Candidate(text, sum(candidate.score for candidate in chosen) / max(len(chosen), 1)))
    return ranked[:num_candidates]
