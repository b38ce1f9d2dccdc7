"""Translation: one sentence in, the same sentence in another language out.

    input        Text
    output       Text with its score (log-probability / length^penalty) and the other candidates
    loss         label-smoothed cross-entropy, summed over the real tokens of the target:
                     -Σ_t [ (1-ε) log p(y_t) + ε/V Σ_v log p(v) ]         padding adds nothing to it
    metrics      BLEU and chrF (metrics.bleu), with their signatures
    decoding     beam, diverse and constrained beam search, sampling (decoding.generation_config)

The loss is a sum, so that every token has the same weight in accumulated batches of different sizes: the training loop
divides by the number of tokens of all of them. A translation does not depend on the other lines of its batch: each has
its own length limit, random numbers and end.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import nn

from regard.core.config import field
from regard.core.decodable import Decodable
from regard.core.errors import BadInput, require_iterable
from regard.core.shapes import Float, Int, Tensor
from regard.core.trace import Trace
from regard.data.ragged import RaggedTensor
from regard.data.text import moses
from regard.data.text.corpora import split_sentences
from regard.data.text.parallel_corpus import PairBatch, ParallelCorpus, ParallelSplit, count_target_tokens
from regard.decoding.beam_search import Hypothesis, beam_search, greedy_search, sample
from regard.decoding.constrained_search import constrained_beam_search
from regard.decoding.generation_config import GenerationConfig
from regard.decoding.seed import MAX_SEED, MIN_SEED
from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy
from regard.metrics.base import BLEU, CHRF, PERPLEXITY, Metric, fraction, loss_metric, score
from regard.metrics.bleu import bleu, bleu_tokenized, chrf
from regard.metrics.by_length import SENTENCE_BUCKETS, score_by_length
from regard.modalities.base import NO_LIMITS, Limits
from regard.modalities.text import Candidate, Text
from regard.tasks.base import TextTask, call_with_state, load_tokenizer
from regard.tasks.predictor import Predictor
from regard.tasks.scheduled_sampling import ScheduledSampling

if TYPE_CHECKING:
    from regard.data.audio.speech_batch import SpeechBatch
    from regard.data.images.captions import CaptionBatch
    from regard.data.text.chunking_seq2seq import ChunkingBatch
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")


@dataclass(frozen=True)
class Config:
    """Settings of training and evaluation."""

    label_smoothing: float = field(0.1, low=0, below=1)
    beam_size: int = 5
    length_penalty: float = 1.0
    teacher_forcing: str = "always"  # schedule of how often the decoder reads the target (tasks.scheduled_sampling)

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, beam_size=2)

    def build(self, data: ParallelCorpus, seed: int = 0, folder: Path | None = None) -> Translation:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return Translation(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> ParallelCorpus:
        """Return the data of a name to evaluate a saved model on, given its config.json."""
        task = saved["task"]
        known = {key: task[key] for key in ("source", "target", "style") if key in task}
        return ParallelCorpus(**known | {"corpus": corpus} | changes)


class Translation(TextTask[ParallelSplit]):
    """Train and evaluate a translation model."""

    metrics: tuple[Metric, ...] = (
        BLEU,
        score("bleu_tokenized", "BLEU, lower-case Moses tokens"),
        score("bleu_lower", "BLEU, lower-case"),
        CHRF,
        loss_metric("nats per token"),
        PERPLEXITY,
        fraction("accuracy", "token accuracy"),
    )
    split_size = "sentences"
    name = "translation"
    data: ParallelCorpus

    def __init__(self, config: Config, data: ParallelCorpus, text: Tokenizer | None = None, seed: int = 0) -> None:
        train = data.load("train", None) if text is None else None  # trains a tokenizer while it reads
        super().__init__(data, text if train is None else train.tokenizer, seed)
        self.config, self.teacher_forcing = config, ScheduledSampling(config.teacher_forcing)
        if train is not None:
            self._parts["train"] = train
        self.objective: Callable[[Tensor, Tensor, float], Tensor] = label_smoothed_cross_entropy

    def fit(self, config: Any) -> Any:
        text = self.text
        return replace(config, vocab=text.size, pad=text.pad, bos=text.bos, eos=text.eos)

    def count(self, batch: PairBatch) -> int:
        return count_target_tokens(batch)

    def loss(
        self, model: nn.Module, batch: PairBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the label-smoothed loss summed over the target tokens, and its parts for the log."""
        own = self.teacher_forcing(model, batch.target[:, :-1], step, rng)
        logits, pass_state = call_with_state(model, *model_inputs(batch), **own)
        total = self.objective(logits, shift_targets(batch), self.config.label_smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def describe(self) -> dict[str, Any]:
        data = self.data
        return {"name": self.name, "source": data.source, "target": data.target, "style": data.style}

    def card(self) -> str:
        rows, d = len(self.train.usable()), self.data
        left = len(self.train) - rows
        without = f" ({left:,} left out: empty or over {d.max_length} tokens)" if left else ""
        return (
            f"{d.corpus} {d.source}-{d.target}, {rows:,} pairs{without}, vocabulary {self.text.size:,} {self.text.kind}"
        )

    @property
    def train(self) -> ParallelSplit:
        """The training split."""
        return self.dataset("train")

    def fingerprint(self) -> str:
        found = blake2b(digest_size=8)
        for side in (self.train.source, self.train.target):
            found.update(side.values.numpy().data)
            found.update(side.lengths.numpy().data)
        return found.hexdigest()

    def ready(self, score: bool) -> None:
        super().ready(score)
        if score:
            bleu(["a"], ["a"])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per token, not smoothed), perplexity, accuracy (of the
        next token, teacher-forced), tokens; from effort 1 bleu (0 to 100) and bleu_signature of the text as the model
        sees it, by greedy search with effort 1 and by beam search from 2.
        """
        corpus, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll = torch.zeros((), dtype=torch.float64, device=device)
        right = torch.zeros((), dtype=torch.int64, device=device)
        tokens = 0
        for batch in corpus.eval_batches(max(self.data.batch_tokens, 4096)):
            tokens += self.count(batch)
            batch = batch.to(device)
            logits = model(*model_inputs(batch))
            wanted = shift_targets(batch)
            nll += label_smoothed_cross_entropy(logits, wanted, 0.0)
            right += (logits.argmax(-1) == wanted).sum()
        loss = float(nll) / max(tokens, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"accuracy": int(right) / max(tokens, 1), "tokens": tokens}
        return result | (self.scored(model, corpus, 1 if effort == 1 else self.config.beam_size) if effort else {})

    def scored(self, model: nn.Module, corpus: Any, beam_size: int) -> dict[str, Any]:
        """Return BLEU of the text as the model sees it: tokenised text is not tokenised again."""
        translator = Translator(model, self.text, self.data.source, self.data.target)
        written = translator(corpus.sides[0], beam_size=beam_size, length_penalty=self.config.length_penalty)
        found = bleu(written, corpus.sides[1], tokenise="none" if self.data.style == "moses" else "13a")
        return {"bleu": found.value, "bleu_signature": found.signature}

    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Return the losses of `evaluate`, and BLEU (in all tokenisations of metrics.bleu) and chrF of the detokenised
        translations against the original references; by_length: BLEU by the number of words of the source.
        """
        corpus = self.dataset(split)
        search = {"beam_size": self.config.beam_size, "length_penalty": self.config.length_penalty} | search
        translator = Translator(model, self.text, self.data.source, self.data.target, self.data.style)
        written = translator(corpus.raw[0], **search)
        references, result = corpus.raw[1], self.evaluate(model, split, effort=0)
        scores = {
            "bleu": bleu(written, references),
            "bleu_lower": bleu(written, references, lower=True),
            "chrf": chrf(written, references),
        }
        if moses.is_available():
            scores["bleu_tokenized"] = bleu_tokenized(written, references, self.data.target)
        for name, found in scores.items():
            result |= {name: found.value, f"{name}_signature": found.signature, f"{name}_detail": found.detail}
        result["by_length"] = self._by_length(corpus.raw[0], written, references)
        is_lower = all(line == line.lower() for line in written)
        result["lower_case"] = is_lower and any(line != line.lower() for line in references)
        return result | {"split": self.data.split(split), "sentences": len(corpus), **search}

    def _by_length(self, sources: list[str], written: list[str], references: list[str]) -> list[dict[str, Any]]:
        """Return BLEU by the number of space-separated words of the source."""
        kinds = {"bleu": (written, references, "13a")}
        if moses.is_available():
            target = self.data.target
            kinds["bleu_tokenized"] = moses.tokenize(written, target), moses.tokenize(references, target), "none"

        def measure(rows: list[int]) -> dict[str, float]:
            return {
                name: bleu([a[i] for i in rows], [b[i] for i in rows], tokenise=how).value
                for name, (a, b, how) in kinds.items()
            }

        return score_by_length([len(source.split()) for source in sources], SENTENCE_BUCKETS, measure)


class Translator(Predictor):
    """Lines in, translations out, in the same order.

        translate = regard.load("en-de")
        translate("Two dogs are playing.")                         a Text (a str) with score and candidates
        translate(["Good morning.", "Good night."], beam_size=8)   a list of them

    A blank line gives an empty line. Control characters count as spaces, unpaired surrogates are replaced. A line of
    more than `max_length` tokens is split at the ends of its sentences, else between words, else anywhere; its parts
    are translated separately and joined with spaces, and a warning (logger "regard", by default on stderr) says so.
    Lines of similar length are translated together, which does not change any translation.

    The translation of a part has at most `max_new_tokens` tokens, by default what the model's positions allow, and at
    most 2 N + 16 for N tokens of the source. `option_defaults` are values of options that a call does not give, such as
    the settings of an imported model. `style` "moses" is for models of tokenised lower-case text: lines are converted
    to that form and back.
    """

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Text
    options = GenerationConfig
    examples: ClassVar[tuple[Any, ...]] = (
        "Two dogs are playing in the snow.",
        "A man in a blue shirt is standing on a ladder cleaning a window.",
        "The little girl who climbs into the wooden house is laughing.",
        "The animal did not cross the street because it was too tired.",
    )
    unsupported: ClassVar[Mapping[str, str]] = {
        "repetition_penalty": "is for models that continue a text",
        "stop": "is for models that continue a text",
        "slide": "is for models that continue a text",
    }

    def __init__(
        self,
        model: nn.Module,
        text: Tokenizer,
        source: str = "en",
        target: str = "de",
        style: str = "raw",
        max_length: int = 200,
        max_new_tokens: int | None = None,
        option_defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.text, self.source, self.target, self.style = model.eval(), text, source, target, style
        known = getattr(getattr(model, "config", None), "length", None) or max_length + 1
        self.max_length = min(max_length, known - 1)  # one position is for the end token
        self.max_new_tokens = min(max_new_tokens or known, max(known, 2))
        self.option_defaults = dict(option_defaults or {})
        self.fill_options({})  # refused here rather than at the first call

    @classmethod
    def read_item(cls, values: Mapping[str, Any], number: int = 1, limits: Limits = NO_LIMITS) -> Any:
        """Read one item; halves of surrogate pairs are replaced, where other predictors refuse them."""
        fixed = {name: replace_surrogates(each) if isinstance(each, str) else each for name, each in values.items()}
        return super().read_item(fixed, number, limits)

    @classmethod
    def make_options(cls, values: Mapping[str, Any]) -> GenerationConfig:
        made: GenerationConfig = super().make_options(values)
        made.refuse(cls.unsupported)
        return made

    @property
    def bos(self) -> int:
        """The token that outputs start with: that of the model, which need not be the tokenizer's."""
        return int(getattr(getattr(self.model, "config", None), "bos", self.text.bos))

    def count_tokens(self, texts: Sequence[str]) -> int:
        return sum(map(len, self._encode([clean_line(text, n) for n, text in enumerate(texts, 1)], self.source)))

    def predict(self, batch: list[Any], options: GenerationConfig) -> list[Text]:
        return self.predict_numbered(batch, options, range(1, len(batch) + 1))

    def predict_numbered(self, batch: list[Any], options: GenerationConfig, numbers: Sequence[int]) -> list[Text]:
        return [Text.from_candidates(each) for each in self._translate(batch, options, numbers)]

    def stream(self, lines: Iterable[str], window: int = 2048, **options: Any) -> Iterator[str]:
        """Yield one translation after another, with `window` lines in memory at a time: for files of any size."""
        waiting, before = require_iterable(lines, "lines"), 0
        while some := list(islice(waiting, window)):
            for candidates in self.candidates(some, first=before + 1, **options):
                yield candidates[0].text
            before += len(some)

    def candidates(
        self, lines: str | Iterable[str], *, batch_tokens: int = 4096, first: int = 1, **options: Any
    ) -> list[list[Candidate]]:
        """Return the `num_candidates` best translations of every line, best first.

        About `batch_tokens` tokens go through the model at a time; `first` is the number of the first line, in messages
        and for seeds; `options` are the fields of `GenerationConfig`.
        """
        lines = [lines] if isinstance(lines, str) else list(require_iterable(lines, "lines"))
        return self._translate(lines, self.fill_options(options), range(first, first + len(lines)), batch_tokens)

    def _translate(
        self, lines: Sequence[str], options: GenerationConfig, numbers: Sequence[int], batch_tokens: int = 4096
    ) -> list[list[Candidate]]:
        parts = self._parts(lines, numbers)
        if options.prefix or options.must:
            for number, line, pieces in zip(numbers, lines, parts, strict=True):
                if len(pieces) > 1:
                    what = self._named(line, number)
                    raise BadInput(f"{what} is too long to translate in one piece; prefix and must are unavailable")
        numbered = zip(numbers, parts, strict=True)
        rows = [(number, part, ids) for number, line in numbered for part, ids in enumerate(line)]
        seeds = [_part_seed(options.seed, number, part) for number, part, _ in rows]
        found = self._search([ids for *_, ids in rows], options, batch_tokens, seeds)
        texts = iter(self._decode([h.tokens for hypotheses in found for h in hypotheses]))
        candidates = iter([[Candidate(next(texts), h.score) for h in hypotheses] for hypotheses in found])
        return [_join_parts([next(candidates) for _ in line], options.num_candidates) for line in parts]

    def attention(
        self, line: str, translation: str | None = None, beam_size: int | None = None, only: str = "*"
    ) -> list[Trace]:
        """Return the attention maps of a translation (by default the best one found).

        They come from one pass over the finished translation. Encoder maps have the tokens of the source on both axes.
        In decoder maps a row is a predicted token, and a column a token of the source (cross-attention) or a target
        token before it, starting with the begin token (self-attention).
        """
        from regard.attention.capture.watch import watch

        source = self._one(line, self.source)
        written = self.best(source, beam_size).tokens if translation is None else self._one(translation, self.target)
        device = self._device()
        read = [*source, self.text.eos]
        outputs, inputs = [*written, self.text.eos], [self.bos, *written]
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

    # -- lines -> token ids --------------------------------------------------------------------------------------------

    def _parts(self, lines: Sequence[str], numbers: Sequence[int]) -> list[list[list[int]]]:
        """Return the token ids of the parts of every line: none if it is blank, several if it is too long."""
        cleaned = [clean_line(line, number) for number, line in zip(numbers, lines, strict=True)]
        encoded = self._encode(cleaned, self.source)
        parts: list[list[list[int]]] = []
        for number, line, ids in zip(numbers, cleaned, encoded, strict=True):
            if len(ids) <= self.max_length:
                parts.append([ids] if ids else [])
                continue
            pieces = [piece for sentence in split_sentences(line) for piece in self._cut(sentence)]
            what = self._named(line, number)
            log.warning(
                "%s has %d tokens, more than %d: split into %d parts", what, len(ids), self.max_length, len(pieces)
            )
            parts.append(pieces)
        return parts

    def _named(self, line: str, number: int) -> str:
        """Return the name of a line in messages."""
        return f"line {number}"

    def _cut(self, sentence: str) -> Iterator[list[int]]:
        """Yield the parts of a sentence, each short enough, split between words where possible."""
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
            for at in range(0, len(ids), self.max_length):  # a single word that is too long
                yield ids[at : at + self.max_length]

    def _one(self, line: str, language: str) -> list[int]:
        (ids,) = self._encode([clean_line(line, 1)], language)
        if not ids:
            raise BadInput("an empty line has no attention maps; give some text")
        if len(ids) > self.max_length:
            raise BadInput(f"the line has {len(ids)} tokens; attention can be shown for at most {self.max_length}")
        return ids

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        normal = moses.tokenize(lines, language) if self.style == "moses" else list(lines)
        return [ids if line.strip() else [] for line, ids in zip(normal, self.text.encode(normal), strict=True)]

    def _decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        lines = [_LINE_BREAKS.sub(" ", line).strip() for line in self.text.decode(rows)]
        return moses.detokenize(lines, self.target) if self.style == "moses" else lines

    # -- search -------------------------------------------------------------------------------------------------------

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _search(
        self, rows: Sequence[list[int]], options: GenerationConfig, batch_tokens: int, seeds: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of every row; rows are batched by length, about `batch_tokens` at a time."""
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
            best = self._found(batch, options, [seeds[row] for row in picked.tolist()])
            for row, hypotheses in zip(picked.tolist(), best, strict=True):
                found[row] = hypotheses
        return found

    def best(self, source: list[int], beam_size: int | None = None) -> Hypothesis:
        """Return the best output for a row of tokens; with other beams than the default ones."""
        options = self.fill_options({} if beam_size is None else {"beam_size": beam_size})
        return self._search([source], options, 4096, [options.seed])[0][0]

    def _found(
        self, batch: tuple[Int[Tensor, "B N"], Int[Tensor, " B"]], options: GenerationConfig, seeds: Sequence[int]
    ) -> list[list[Hypothesis]]:
        model, rows = cast(Decodable, self.model), len(seeds)
        prefix, *must = self._encode([options.prefix, *options.must], self.target)
        shared: dict[str, Any] = {"max_length": self._limits(batch[1], len(prefix) + sum(map(len, must)), options)}
        beams: dict[str, Any] = {
            "beam_size": options.beam_size,
            "length_penalty": options.length_penalty,
            "num_candidates": options.num_candidates,
        }
        if must:
            return constrained_beam_search(model, *batch, phrases=[must] * rows, **shared, **beams)
        shared |= {"prefix": [prefix] * rows if prefix else None, "banned_tokens": self._banned()}
        shared |= options.restrictions()
        if options.is_random:
            filters = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "min_p")}
            return sample(model, *batch, num_samples=options.num_candidates, seed=seeds, **shared, **filters)
        if options.beam_size == 1 or options.sample:
            return [[one] for one in greedy_search(model, *batch, **shared)]
        beams |= {name: getattr(options, name) for name in ("groups", "diversity", "early_stopping")}
        return beam_search(model, *batch, **shared, **beams)

    def _limits(self, lengths: Int[Tensor, " B"], more: int, options: GenerationConfig) -> Int[Tensor, " B"]:
        """Return how long each output may be: a function of its own row, so that the batch does not change it."""
        most = min(self.max_new_tokens, options.max_new_tokens or self.max_new_tokens)
        return (2 * lengths + 16 + more).clamp(max=most)

    def _banned(self) -> Sequence[int]:
        """Return the tokens that are never generated."""
        return () if self.text.pad == self.text.eos else (self.text.pad,)


def model_inputs(batch: PairBatch | ChunkingBatch | SpeechBatch) -> tuple[Tensor, ...]:
    """Return the arguments of an encoder-decoder: source, target without its last token, and the lengths of both."""
    source, source_lengths, target, target_lengths = batch[:4]
    return source, target[:, :-1], source_lengths, target_lengths - 1


def shift_targets(batch: PairBatch | SpeechBatch | CaptionBatch) -> Int[Tensor, "B T"]:
    """Return the target of each decoder input; -100 in the padding, by the lengths and not by the token."""
    wanted = batch.target[:, 1:]
    index = torch.arange(wanted.shape[1], device=wanted.device)
    return wanted.masked_fill(index >= batch.target_lengths[:, None] - 1, -100)


def _part_seed(seed: int, number: int, part: int) -> int:
    """Return the seed of a part of a line."""
    found = seed * 1_000_003 + number * 1009 + part
    return found if MIN_SEED <= found <= MAX_SEED else found % MAX_SEED


_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]+")


def clean_line(line: str, number: int) -> str:
    """Return a line without control characters and unpaired surrogates, which cannot be encoded."""
    if not isinstance(line, str):
        raise BadInput(f"line {number} is a {type(line).__name__}, not text")
    return _CONTROL.sub(" ", replace_surrogates(line)).strip()


def replace_surrogates(text: str) -> str:
    """Return a text whose halves of surrogate pairs, which cannot be encoded, are question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _join_parts(parts: Sequence[Sequence[Candidate]], num_candidates: int) -> list[Candidate]:
    """Return the candidates of a line, joined from those of its parts rank by rank."""
    ranked = []
    for rank in range(max((len(part) for part in parts), default=1)):
        chosen = [part[min(rank, len(part) - 1)] for part in parts if part]
        text = " ".join(candidate.text for candidate in chosen if candidate.text)
        ranked.append(Candidate(text, sum(candidate.score for candidate in chosen) / max(len(chosen), 1)))
    return ranked[:num_candidates]
