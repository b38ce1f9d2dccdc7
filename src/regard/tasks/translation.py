"""Translation: one sentence in, the same sentence in another language out.

    objective    label-smoothed cross-entropy, summed over the real tokens of the target:
                     -Σ_t [ (1-ε) log p(y_t) + ε/V Σ_v log p(v) ]         padding adds nothing to it
    metric       BLEU and chrF (tasks.score), with their signatures
    decoding     beam search (tasks.search)
    predict      `Translator`: lines in, lines out, whatever the lines hold

The loss is a sum and not a mean, so that batches of different size, accumulated, weigh every token alike: the training
loop divides by the number of tokens of all of them.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Float, Int, Tensor
from regard.core.steps import Steps
from regard.core.trace import Trace
from regard.data import moses
from regard.data.batching import Stream
from regard.data.flat import Flat
from regard.data.parallel import Corpus, Pairs, Parallel, target_tokens
from regard.tasks.score import Score, bleu, bleu_tokenised, chrf
from regard.tasks.search import Hypothesis, beam, greedy

if TYPE_CHECKING:
    from regard.tokens.text import Text

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Config:
    """How translation is trained and how its translations are searched for."""

    smoothing: float = 0.1
    beams: int = 5
    length_penalty: float = 1.0

    def quick(self) -> Config:
        """Smaller search."""
        return replace(self, beams=2)

    def build(self, data: Parallel, seed: int = 0, folder: Path | None = None) -> Translation:
        """The task on these data; with the vocabulary in the folder where one is given, else one trained on them."""
        from regard.tokens.text import Text

        return Translation(self, data, None if folder is None else Text.load(folder), seed)


class Translation:
    """What the training loop trains: the loss, the batches it is measured on, and how good the model is."""

    headline = "bleu"  # the number that says how good a model is; higher is better
    name = "translation"

    def __init__(self, config: Config, data: Parallel, text: Text | None = None, seed: int = 0) -> None:
        self.config, self.data, self.seed = config, data, seed
        self._parts: dict[str, Corpus] = {}
        self.text = text if text is not None else self._load("train", None).text
        self.objective: Callable[[Tensor, Tensor, float], Tensor] = smoothed

    def fit(self, config: Any) -> Any:
        """A model's Config with what only the data know: the size of the vocabulary and its special tokens."""
        text = self.text
        return replace(config, vocab=text.size, pad=text.pad, bos=text.bos, eos=text.eos)

    def batches(self) -> Stream[Pairs]:
        """The training batches."""
        return self.train.stream(self.seed)

    def count(self, batch: Pairs) -> int:
        """The number of target tokens; asked on the host, before the batch travels."""
        return target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: Pairs, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The smoothed loss summed over real target tokens, and its parts for the record."""
        logits = model(batch.source, batch.target[:, :-1], batch.source_lengths, batch.target_lengths - 1)
        total = self.objective(logits, labels(batch), self.config.smoothing)
        return total, {"loss": total.detach()}

    def after_update(self, model: nn.Module, step: int) -> None:
        """Nothing moves here but the model itself."""

    def modules(self) -> dict[str, nn.Module]:
        """No module beside the model."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """No state beside the model's."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""

    def describe(self) -> dict[str, Any]:
        """The task as plain values, to stand beside a saved model."""
        data = self.data
        return {"name": self.name, "source": data.source, "target": data.target, "style": data.style}

    def card(self) -> str:
        """One line on the data, for the run's first line."""
        rows, d = len(self.train.usable()), self.data
        left = len(self.train) - rows
        without = f" ({left:,} left out: empty or over {d.longest} tokens)" if left else ""
        return (
            f"{d.corpus} {d.source}-{d.target}, {rows:,} pairs{without}, vocabulary {self.text.size:,} {self.text.kind}"
        )

    @property
    def train(self) -> Corpus:
        """The training part."""
        return self.part("train")

    def part(self, split: str) -> Corpus:
        """One part of the data, read once."""
        split = self.data.split(split)
        return self._parts[split] if split in self._parts else self._load(split, self.text)

    def _load(self, split: str, text: Text | None) -> Corpus:
        self._parts[split] = self.data.load(split, text)
        return self._parts[split]

    def save(self, folder: Path) -> None:
        """Write the vocabulary."""
        self.text.save(folder)

    def fingerprint(self) -> str:
        """A few letters that change when the training data or the vocabulary do."""
        found = blake2b(digest_size=8)
        for side in (self.train.source, self.train.target):
            found.update(side.values.numpy().data)
            found.update(side.lengths.numpy().data)
        return found.hexdigest()

    def ready(self, score: bool) -> None:
        """Raise now if there is no validation part, or nothing to score with."""
        self.part("val")
        if score:
            bleu(["a"], ["a"])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """How good a model is on a part of the data. Keys: loss (nats a token, not smoothed), perplexity, accuracy
        (of the next token, teacher-forced), tokens; from effort 1 bleu (0 to 100) and bleu_signature of the text as the
        model sees it: greedy with effort 1, with beams as configured from 2."""
        corpus, device = self.part(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        right = torch.zeros((), dtype=torch.int64, device=device)
        tokens = 0
        for batch in corpus.in_order(max(self.data.tokens, 4096)):
            tokens += self.count(batch)
            batch = batch.to(device)
            logits = model(batch.source, batch.target[:, :-1], batch.source_lengths, batch.target_lengths - 1)
            wanted = labels(batch)
            nll += smoothed(logits, wanted, 0.0)
            right += (logits.argmax(-1) == wanted).sum()
        loss = float(nll) / max(tokens, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"accuracy": int(right) / max(tokens, 1), "tokens": tokens}
        if effort:
            found = self.score(model, corpus, 1 if effort == 1 else self.config.beams)
            result |= {"bleu": found.value, "bleu_signature": found.signature}
        return result

    def score(self, model: nn.Module, corpus: Corpus, beams: int) -> Score:
        """BLEU over the text as the model sees it: tokenised text is not tokenised again."""
        translator = Translator(model, self.text, self.data.source, self.data.target)
        written = translator(corpus.sides[0], beams=beams, length_penalty=self.config.length_penalty)
        return bleu(written, corpus.sides[1], tokenise="none" if self.data.style == "moses" else "13a")

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Everything there is to say about a model on one part: the losses, and BLEU and chrF of the running text that
        comes out, against the untouched references, in all three ways of counting (see tasks.score)."""
        corpus = self.part(split)
        search = {"beams": self.config.beams, "length_penalty": self.config.length_penalty} | search
        translator = Translator(model, self.text, self.data.source, self.data.target, self.data.style)
        written = translator(corpus.raw[0], **search)
        references, result = corpus.raw[1], self.evaluate(model, split, effort=0)
        scores = {
            "bleu": bleu(written, references),
            "bleu_lower": bleu(written, references, lower=True),
            "chrf": chrf(written, references),
        }
        if moses.there():
            scores["bleu_tokenised"] = bleu_tokenised(written, references, self.data.target)
        for name, found in scores.items():
            result |= {name: found.value, f"{name}_signature": found.signature, f"{name}_detail": found.detail}
        return result | {"split": self.data.split(split), "sentences": len(corpus), **search}


def labels(batch: Pairs) -> Int[Tensor, "B T"]:
    """The token after each decoder input; -100 where there is none (by the lengths, not by the padding's value)."""
    wanted = batch.target[:, 1:]
    index = torch.arange(wanted.shape[1], device=wanted.device)
    return wanted.masked_fill(index >= batch.target_lengths[:, None] - 1, -100)


def smoothed(logits: Float[Tensor, "B T V"], wanted: Int[Tensor, "B T"], smoothing: float) -> Float[Tensor, ""]:
    """Label-smoothed cross-entropy, summed over the tokens that are wanted; in float32 whatever the logits are."""
    return nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), wanted.flatten(), ignore_index=-100, label_smoothing=smoothing, reduction="sum"
    )


@dataclass(frozen=True)
class Candidate:
    """One translation of a line and its score (log-probability, divided by length to the power of the penalty)."""

    text: str
    score: float


class Translator:
    """Lines in, lines out, in the same order, whatever the lines hold.

    An empty or blank line gives an empty line. Control characters count as spaces, halves of broken characters are
    replaced. A line of more than `longest` tokens is cut at the ends of its sentences, else between words, else
    anywhere; its parts are translated one by one and joined with spaces, and a warning (logger "regard", to stderr by
    default) says so. Lines of similar length go through the model together; that does not change what comes out.

    `style` "moses" is for models of tokenised lower-case text: lines are brought into that form and back.
    """

    def __init__(
        self,
        model: nn.Module,
        text: Text,
        source: str = "en",
        target: str = "de",
        style: str = "raw",
        longest: int = 200,
    ) -> None:
        self.model, self.text, self.source, self.target, self.style = model, text, source, target, style
        known = getattr(getattr(model, "config", None), "length", None) or longest + 1
        self.longest = min(longest, known - 1)  # one place is the end token's
        self.most = max(known, 2)

    def __call__(
        self, lines: Iterable[str], beams: int = 4, length_penalty: float = 1.0, *, nbest: int = 1, tokens: int = 4096
    ) -> list[Any]:
        """The translation of every line; with ``nbest`` above 1 a list of them for every line, best first."""
        found = self.candidates(lines, beams, length_penalty, nbest=nbest, tokens=tokens)
        return [c[0].text for c in found] if nbest == 1 else [[c.text for c in line] for line in found]

    def stream(self, lines: Iterable[str], window: int = 2048, **search: Any) -> Iterator[str]:
        """Translations one after another, `window` lines in memory at a time: for files of any size."""
        waiting, before = iter(lines), 0
        while some := list(islice(waiting, window)):
            for candidates in self.candidates(some, first=before + 1, **search):
                yield candidates[0].text
            before += len(some)

    def candidates(
        self,
        lines: Iterable[str],
        beams: int = 4,
        length_penalty: float = 1.0,
        *,
        nbest: int = 1,
        tokens: int = 4096,
        first: int = 1,
    ) -> list[list[Candidate]]:
        """The `nbest` best translations of every line with their scores; `first` is the number of the first line."""
        lines = [lines] if isinstance(lines, str) else list(lines)
        if not 1 <= nbest <= beams:
            raise BadInput(f"{nbest} translations of each line need at least as many beams, not {beams}")
        parts = self._parts(lines, first)
        found = self._search([ids for line in parts for ids in line], beams, length_penalty, nbest, tokens)
        texts = iter(self._decode([h.tokens for hypotheses in found for h in hypotheses]))
        candidates = iter([[Candidate(next(texts), h.score) for h in hypotheses] for hypotheses in found])
        return [_joined([next(candidates) for _ in line], nbest) for line in parts]

    def attention(self, line: str, translation: str | None = None, beams: int = 4, only: str = "*") -> list[Trace]:
        """Who looked at whom while this translation (by default the best one found) was written.

        One pass over the finished translation, so that every map has all its rows. Encoder maps have the source's
        pieces on both sides. In the decoder a row is the token being written and a column what it could see: the
        source's pieces (cross) or what had been written before (self), begin token first.
        """
        from regard.attention.capture import watch

        source = self._one(line, self.source)
        if translation is None:
            written = self._search([source], beams, 1.0, 1, 4096)[0][0].tokens
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
                traces.append(trace.label(of["outputs"], of["read"]))
            elif trace.name.startswith("decoder"):
                traces.append(trace.label(of["outputs"], of["inputs"]))
            else:
                traces.append(trace.label(of["read"], of["read"]))
        return traces

    # -- lines -> numbers ----------------------------------------------------------------------------------------------

    def _parts(self, lines: Sequence[str], first: int) -> list[list[list[int]]]:
        """Every line as the parts it is translated in: none where it is blank, several where it is too long."""
        cleaned = [_clean(line, number) for number, line in enumerate(lines, first)]
        encoded = self._encode(cleaned, self.source)
        parts: list[list[list[int]]] = []
        for number, (line, ids) in enumerate(zip(cleaned, encoded, strict=True), first):
            if len(ids) <= self.longest:
                parts.append([ids] if ids else [])
                continue
            pieces = [piece for sentence in _sentences(line) for piece in self._cut(sentence)]
            log.warning("line %d: %d tokens, at most %d go at once: cut into %d", number, len(ids), self.longest, len(pieces))  # fmt: skip  # noqa: E501
            parts.append(pieces)
        return parts

    def _cut(self, sentence: str) -> Iterator[list[int]]:
        """A sentence in parts that are short enough, cut between words where there are words."""
        (whole,) = self._encode([sentence], self.source)
        if len(whole) <= self.longest:
            yield from [whole] if whole else []
            return
        words = sentence.split()
        sizes = [len(ids) for ids in self._encode(words, self.source)]
        begin, room = 0, self.longest
        groups = []
        for end, size in enumerate(sizes):
            if size > room and end > begin:
                groups.append(words[begin:end])
                begin, room = end, self.longest
            room -= size
        groups.append(words[begin:])
        for ids in self._encode([" ".join(group) for group in groups], self.source):
            for at in range(0, len(ids), self.longest):  # one word that is too long by itself
                yield ids[at : at + self.longest]

    def _one(self, line: str, language: str) -> list[int]:
        (ids,) = self._encode([_clean(line, 1)], language)
        if not ids:
            raise BadInput("an empty line has no attention to look at")
        if len(ids) > self.longest:
            raise BadInput(f"the line has {len(ids)} tokens; attention can be shown for at most {self.longest}")
        return ids

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        normal = moses.tokenise(lines, language) if self.style == "moses" else list(lines)
        return [ids if line.strip() else [] for line, ids in zip(normal, self.text.encode(normal), strict=True)]

    def _decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        lines = [_LINE_BREAKS.sub(" ", line).strip() for line in self.text.decode(rows)]
        return moses.join(lines, self.target) if self.style == "moses" else lines

    # -- numbers -> numbers --------------------------------------------------------------------------------------------

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _search(
        self, rows: Sequence[list[int]], beams: int, length_penalty: float, nbest: int, tokens: int
    ) -> list[list[Hypothesis]]:
        """The best outputs of every row. Rows go through the model sorted by length, about `tokens` at a time."""
        self.model.eval()
        device = self._device()
        flat = Flat.of([[*row, self.text.eos] for row in rows])
        order = torch.sort(flat.lengths, descending=True, stable=True).indices
        found: list[list[Hypothesis]] = [[] for _ in rows]
        at = 0
        while at < len(order):
            picked = order[at : at + max(1, tokens // int(flat.lengths[order[at]]))]
            at += len(picked)
            source, lengths = flat.padded(picked, self.text.pad)
            # A row's limit is its own affair: company must not change a translation.
            limit = (2 * lengths + 16).clamp(max=self.most).to(device)
            inputs = source.to(device), lengths.to(device)
            steps = cast(Steps, self.model)
            if beams == 1:
                best = [[one] for one in greedy(steps, *inputs, max_length=limit)]
            else:
                best = beam(steps, *inputs, max_length=limit, beams=beams, length_penalty=length_penalty, nbest=nbest)
            for row, hypotheses in zip(picked.tolist(), best, strict=True):
                found[row] = hypotheses
        return found


_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]+")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'»”’)\]]*\s+|(?<=[。！？])")


def _clean(line: str, number: int) -> str:
    """A line as text that can be encoded: no control characters, no halves of broken characters."""
    if not isinstance(line, str):
        raise BadInput(f"line {number} is a {type(line).__name__}, not text")
    return _CONTROL.sub(" ", line.encode("utf-8", "replace").decode("utf-8")).strip()


def _sentences(line: str) -> list[str]:
    cuts = [0, *(match.end() for match in _SENTENCE_END.finditer(line)), len(line)]
    pieces = [line[a:b].strip() for a, b in pairwise(cuts)]
    return [piece for piece in pieces if piece]


def _joined(parts: Sequence[Sequence[Candidate]], nbest: int) -> list[Candidate]:
    """The candidates of a line from those of its parts: best with best, second with second."""
    ranked = []
    for rank in range(max((len(part) for part in parts), default=1)):
        chosen = [part[min(rank, len(part) - 1)] for part in parts if part]
        text = " ".join(candidate.text for candidate in chosen if candidate.text)
        ranked.append(Candidate(text, sum(candidate.score for candidate in chosen) / max(len(chosen), 1)))
    return ranked[:nbest]
