"""Chunking as sequence to sequence: a sentence in, the same sentence with brackets out.

    input        Text whose words have spaces between them
    output       TokenLabels: the chunk tag of every word (B-NP, I-NP, O)
    loss         cross-entropy of each decision among those allowed there (data.text.chunking_seq2seq), summed; words
                 are copied and have no loss
    metrics      precision, recall and F1 of whole chunks, as conlleval counts them (metrics.classification); accuracy
    decoding     the most likely decision, one after another; always well formed

This is parsing as translation with brackets of depth one. Any encoder-decoder can be trained on it. The model decides
only where brackets open and close: words are copied in order, and brackets always match.

Vinyals et al.: Grammar as a Foreign Language. NeurIPS 2015. arXiv:1412.7449
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.cancellation import check_cancelled
from regard.core.config import field
from regard.core.errors import BadInput
from regard.core.shapes import Float, Tensor
from regard.data.ragged import RaggedTensor
from regard.data.text.chunking_seq2seq import (
    CLOSE,
    OPEN,
    BracketParser,
    ChunkingBatch,
    ChunkingSeq2Seq,
    ChunkingSymbols,
    count_decisions,
    encode_sentence_words,
)
from regard.metrics.base import F1, PRECISION, RECALL, fraction, loss_metric
from regard.metrics.classification import accuracy, chunk_f1, extract_chunks
from regard.modalities.text import Text
from regard.modalities.token_labels import TokenLabels
from regard.tasks.base import call_with_state, load_tokenizer
from regard.tasks.predictor import Predictor
from regard.tasks.text.encoder_base import BATCH_TOKENS, EncoderTask
from regard.tasks.text.translation import model_inputs

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

BATCH_SIZE = 256  # sentences of a batch of the predictor
Sentence = str | Sequence[str]


@dataclass(frozen=True)
class Config:
    """Settings of training."""

    label_smoothing: float = field(0.0, low=0, below=1)

    def build(self, data: ChunkingSeq2Seq, seed: int = 0, folder: Path | None = None) -> Chunking:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return Chunking(self, data, load_tokenizer(folder), seed)


class Chunking(EncoderTask):
    """Train and evaluate a model that chunks by brackets."""

    name = "chunking"
    metrics = (
        F1,
        PRECISION,
        RECALL,
        fraction("accuracy", "word accuracy"),
        fraction("token_accuracy", "decision accuracy"),
        loss_metric("nats per bracket decision"),
    )
    split_size = "sentences"
    unit = "decisions"

    def __init__(self, config: Config, data: ChunkingSeq2Seq, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config, self.symbols = config, data.symbols(self.text)
        self.objective: Callable[..., tuple[Tensor, Tensor]] = _decision_loss

    def fit(self, config: Any) -> Any:
        text = self.text
        return replace(config, vocab=self.symbols.size, pad=text.pad, bos=text.bos, eos=text.eos)

    def count(self, batch: ChunkingBatch) -> int:
        return count_decisions(batch)

    def loss(
        self, model: nn.Module, batch: ChunkingBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        logits, pass_state = call_with_state(model, *model_inputs(batch))
        total, _ = self.objective(*self._decisions(logits, batch), self.config.label_smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def _decisions(self, logits: Tensor, batch: ChunkingBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits of the decisions only, and the targets outside and inside of chunks."""
        symbols = self.symbols
        return logits[..., symbols.base : symbols.base + symbols.decisions], batch.outside, batch.inside

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "kinds": list(self.symbols.kinds), "speech": list(self.symbols.speech)}

    def card(self) -> str:
        train, s = self.dataset("train"), self.symbols
        words = sum(len(sentence.words) for sentence in train.sentences)
        left = len(train) - len(train.usable())
        without = f" ({left:,} left out: over {self.data.max_length} tokens)" if left else ""
        speech = f", {len(s.speech)} parts of speech" if s.speech else ""
        return (
            f"{self.data.corpus}, {len(train):,} sentences{without}, {words:,} words, {len(s.kinds)} kinds of chunks"
            f"{speech}, vocabulary {self.text.size:,} {self.text.kind}"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per decision), token_accuracy (of decisions,
        teacher-forced), sentences; from effort 1 accuracy (of tags), precision, recall and f1 of chunks.
        """
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        found = torch.zeros(2, dtype=torch.float64, device=device)
        many = 0
        for batch in part.eval_batches(BATCH_TOKENS):
            many += self.count(batch)
            batch = batch.to(device)
            losses = _decision_loss(*self._decisions(model(*model_inputs(batch)), batch), 0.0)
            found += torch.stack([x.double() for x in losses])
        loss, right = (found / max(many, 1)).tolist()
        result: dict[str, Any] = {"loss": loss, "token_accuracy": right}
        if effort:
            chunker = Chunker(model, self.text, self.symbols.kinds, self.symbols.speech)
            said = chunker.tags([s.words for s in part.sentences], [s.speech for s in part.sentences])
            true = [list(s.tags) for s in part.sentences]
            result["accuracy"] = accuracy([t for tags in said for t in tags], [t for tags in true for t in tags])
            result |= chunk_f1(said, true)
        return result | {"sentences": len(part)}

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        if search:
            raise BadInput(f"chunking decodes greedily and takes no search options; leave out {', '.join(search)}")
        return super().report(model, split)


class Chunker(Predictor):
    """Sentences in, the chunk tag of each word out.

        chunk = Chunker(model, text, kinds=["NP", "VP", ...])
        chunk("He reckons the deficit will narrow .")             TokenLabels: He/B-NP reckons/B-VP the/B-NP ...
        chunk.brackets(["He reckons the deficit"])                ["(NP He ) (VP reckons ) (NP the deficit )"]
        chunk.tags([["He", "reckons"]], speech=[["PRP", "VBZ"]])  for a model that also reads parts of speech

    The most likely decision is taken each time. Other sentences of a batch do not change an output.
    """

    inputs = {"text": Text}  # noqa: RUF012
    outputs = TokenLabels
    examples = ("He reckons the current account deficit will narrow .", "Two dogs are playing in the snow .")

    def __init__(self, model: nn.Module, text: Tokenizer, kinds: Sequence[str], speech: Sequence[str] = ()) -> None:
        self.model, self.text, self.kinds, self.speech = model.eval(), text, list(kinds), list(speech)
        self.symbols = ChunkingSymbols(text.size, tuple(kinds), tuple(speech))

    def predict(self, batch: list[Any], options: Any) -> list[TokenLabels]:
        rows = self._split(batch)
        tagged = self.tags(rows) if rows else []
        return [TokenLabels(tuple(words), tuple(tags)) for words, tags in zip(rows, tagged, strict=True)]

    def brackets(self, sentences: Sequence[Sentence], speech: Sequence[Sentence] | None = None) -> list[str]:
        """Return each sentence with brackets around its chunks."""
        rows = self._split(sentences)
        return [bracket_chunks(words, tags) for words, tags in zip(rows, self.tags(rows, speech), strict=True)]

    def tags(self, sentences: Sequence[Sentence], speech: Sequence[Sentence] | None = None) -> list[list[str]]:
        """Return a tag for each word of each sentence; `speech`: parts of speech, if the model reads them."""
        rows = self._split(sentences)
        kinds = self._speech(rows, speech)
        parsers = [
            BracketParser(self.symbols, pieces, self.text.eos) for pieces in encode_sentence_words(self.text, rows)
        ]
        order = sorted(range(len(rows)), key=lambda n: -sum(map(len, parsers[n].pieces)))  # alike in length together
        with torch.inference_mode():
            for at in range(0, len(order), BATCH_SIZE):
                check_cancelled()
                some = order[at : at + BATCH_SIZE]
                self._write([parsers[n] for n in some], [kinds[n] for n in some])
        return [parser.tags for parser in parsers]

    def _write(self, parsers: list[BracketParser], speech: list[Sequence[str]]) -> None:
        """Decode these sentences, one token of each at a time."""
        model: Any = self.model
        device = next(model.parameters()).device
        source = RaggedTensor.from_rows(
            [self.symbols.source(w.pieces, s, self.text.eos) for w, s in zip(parsers, speech, strict=True)]
        )
        rows, lengths = source.pad(torch.arange(len(parsers)), self.text.pad, 8)
        capacity = max(sum(map(len, parser.pieces)) + 3 * len(parser.pieces) for parser in parsers) + 1
        tokens, state = model.start(rows.to(device), lengths.to(device), capacity=capacity)
        base, many = self.symbols.base, self.symbols.decisions
        while live := [n for n, parser in enumerate(parsers) if not parser.ended]:
            check_cancelled()
            logits, state = model.step(tokens, state)
            scores: Any = None  # copied to the host only if there is a decision
            written = [self.text.eos] * len(parsers)
            for n in live:
                token = parsers[n].next_forced()
                if token is None:
                    scores = logits[:, 0, base : base + many].tolist() if scores is None else scores
                    token = parsers[n].decide(max(parsers[n].options(), key=scores[n].__getitem__))
                written[n] = token
            tokens = torch.tensor(written, device=device)[:, None]
            if 4 * len([n for n in live if not parsers[n].ended]) <= 3 * len(parsers):
                keep = [n for n, parser in enumerate(parsers) if not parser.ended]
                if not keep:
                    return
                picked = torch.tensor(keep, device=device)
                state = model.select(state, picked, torch.zeros(len(keep), 1, dtype=torch.long, device=device))
                tokens, parsers = tokens[picked], [parsers[n] for n in keep]

    def _split(self, sentences: Sequence[Sentence]) -> list[list[str]]:
        if isinstance(sentences, str):
            raise BadInput("give a list of sentences, not a single one")
        rows = [each.split() if isinstance(each, str) else list(each) for each in sentences]
        for number, words in enumerate(rows, 1):
            if not words or not all(isinstance(word, str) and word.strip() for word in words):
                raise BadInput(f"sentence {number} has no words; give at least one")
        return rows

    def _speech(self, rows: list[list[str]], speech: Sequence[Sentence] | None) -> list[Sequence[str]]:
        if not self.speech:
            return [()] * len(rows)
        if speech is None:
            raise BadInput(
                "this model also needs parts of speech: call tags(sentences, speech), with one for each word"
            )
        kinds = [each.split() if isinstance(each, str) else list(each) for each in speech]
        if [len(each) for each in kinds] != [len(words) for words in rows]:
            raise BadInput("every word needs one part of speech; the numbers of words and parts of speech differ")
        return list(kinds)


def bracket_chunks(words: Sequence[str], tags: Sequence[str]) -> str:
    """Return a sentence with brackets around its chunks: ``(NP He ) (VP reckons ) .``"""
    opens = {begin: kind for kind, begin, _ in extract_chunks(tags)}
    ends = {end - 1 for *_, end in extract_chunks(tags)}
    parts = []
    for n, word in enumerate(words):
        parts += [f"({opens[n]}"] if n in opens else []
        parts += [word, ")"] if n in ends else [word]
    return " ".join(parts)


def _decision_loss(logits: Tensor, outside: Tensor, inside: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy over the allowed decisions, and the number of right ones."""
    index = torch.arange(logits.shape[-1], device=logits.device)
    parts = []
    for wanted, banned in ((outside, index == CLOSE), (inside, index >= OPEN)):
        scores = logits.float().masked_fill(banned, float("-inf"))
        logp = scores.log_softmax(-1)
        loss = F.nll_loss(logp.flatten(0, 1), wanted.flatten(), ignore_index=-100, reduction="sum")
        if label_smoothing:
            even = -logp.masked_fill(banned, 0.0).sum(-1) / (~banned).sum()
            loss = (1 - label_smoothing) * loss + label_smoothing * torch.where(wanted >= 0, even, 0.0).sum()
        parts.append(torch.stack([loss, (scores.argmax(-1) == wanted).sum()]))
    total = torch.stack(parts).sum(0)
    return total[0], total[1].detach()
