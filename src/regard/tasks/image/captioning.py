"""Captioning: a picture in, a sentence about it out, one word after another.

    input        Image
    output       Text with its score and the other candidates
    loss         label-smoothed cross-entropy, summed over the words and ends; plus λ times the doubly stochastic
                 penalty of models that attend (models.show_attend_and_tell)
    metrics      BLEU-1 to BLEU-4 against all references, CIDEr-D, METEOR without synonyms,
                 exact match of any reference, nats per word
    decoding     greedy, or beam search (decoding.beam_search); <unk> is never written

Words are lower-cased and without punctuation, in outputs as in references (data.images.captions). Where the data have
stored annotation vectors, a new model's encoder gets the weights of the network that computed them.

Xu et al.: Show, Attend and Tell. ICML 2015. arXiv:1502.03044
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from regard.attention.capture.watch import watch
from regard.core.cancellation import check_cancelled
from regard.core.config import field, from_dict, to_dict
from regard.core.decodable import Decodable
from regard.core.errors import BadInput
from regard.core.layer_state import PassState
from regard.core.shapes import Float, Tensor
from regard.core.trace import Trace
from regard.data.images.captions import CaptionBatch, CaptionSplit, clean_caption, count_words
from regard.decoding.beam_search import Hypothesis, beam_search, greedy_search
from regard.losses.label_smoothed_cross_entropy import label_smoothed_cross_entropy
from regard.metrics.base import EXACT_MATCH, PERPLEXITY, Metric, loss_metric, score
from regard.metrics.bleu import bleu_orders
from regard.metrics.cider import cider
from regard.metrics.meteor import meteor
from regard.modalities.image import Image, Preprocess
from regard.modalities.text import Candidate, Text
from regard.tasks.base import TextTask, call_with_state, load_tokenizer
from regard.tasks.predictor import Predictor
from regard.tasks.text.translation import shift_targets

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

EVAL_ROWS = 100  # pictures, or captions, of a batch of `evaluate`
BATCH_PIXELS = 2**22  # pixels of a batch of the captioner


@dataclass(frozen=True)
class Config:
    """Settings of training and evaluation."""

    label_smoothing: float = field(0.0, low=0, below=1)
    doubly_stochastic: float = field(1.0, low=0)  # λ of the penalty on the weights; 0: none
    beam_size: int = 5
    length_penalty: float = field(1.0, low=0)
    max_words: int = 30  # of a caption

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, beam_size=2, max_words=8)

    def build(self, data: Any, seed: int = 0, folder: Path | None = None) -> Captioning:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return Captioning(self, data, load_tokenizer(folder), seed)


class Captioning(TextTask[CaptionSplit]):
    """Train and evaluate a captioner."""

    metrics: tuple[Metric, ...] = (
        score("bleu4", "BLEU-4"),
        score("bleu1", "BLEU-1"),
        score("bleu2", "BLEU-2"),
        score("bleu3", "BLEU-3"),
        Metric("cider", "CIDEr-D", high=10.0, digits=3),
        Metric("meteor", "METEOR (exact, stem)", high=1.0, scale=100),
        EXACT_MATCH,
        loss_metric("nats per word"),
        PERPLEXITY,
    )
    name, unit, split_size = "captioning", "words", "pictures"

    def __init__(self, config: Config, data: Any, text: Tokenizer | None = None, seed: int = 0) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[[Tensor, Tensor, float], Tensor] = label_smoothed_cross_entropy

    def fit(self, config: Any) -> Any:
        text, encoder = self.text, self.data.load_encoder()
        fitted = replace(config, vocab=text.size, pad=text.pad, bos=text.bos, eos=text.eos)
        if encoder is None:
            return replace(fitted, encoder=replace(config.encoder, image_size=self.data.image_size))
        if not config.frozen:
            raise BadInput(
                "stored annotation vectors need a frozen encoder; set model.frozen=true, or data.encoder=null to train "
                "it on pixels"
            )
        return replace(fitted, encoder=replace(encoder.config, num_classes=0, image_size=self.data.image_size))

    def initialize(self, model: nn.Module) -> None:
        """Give the encoder the weights of the network that computed the stored annotation vectors."""
        encoder, own = self.data.load_encoder(), cast(Any, model).encoder.network
        if encoder is not None:
            state = {name: x for name, x in encoder.state_dict().items() if not name.startswith("head.")}
            own.load_state_dict(state)

    def count(self, batch: CaptionBatch) -> int:
        return count_words(batch)

    def pictures(self, batch: CaptionBatch) -> Tensor:
        """Return the pictures of a batch as numbers: normalised pixels, or annotation vectors."""
        return self.as_numbers(batch.pictures)

    def as_numbers(self, pictures: Tensor) -> Tensor:
        """Return normalised pixels, or stored annotation vectors in the default dtype."""
        if pictures.dtype == torch.uint8:
            return self.data.preprocess.normalize(pictures)
        return pictures.to(torch.get_default_dtype())

    def loss(
        self, model: nn.Module, batch: CaptionBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the loss summed over words and ends."""
        logits, pass_state = call_with_state(
            model, self.pictures(batch), batch.target[:, :-1], batch.target_lengths - 1
        )
        total = self.objective(logits, shift_targets(batch), self.config.label_smoothing)
        return self.with_layer_losses(total, batch, pass_state), {"loss": total.detach()}

    def with_layer_losses(
        self, total: Float[Tensor, ""], batch: Any, pass_state: PassState, weights: dict[str, float] | None = None
    ) -> Float[Tensor, ""]:
        own = {"doubly_stochastic": self.config.doubly_stochastic}
        terms = pass_state.weighted_loss(own | (weights or {}))
        words = (batch.target_lengths - 1).sum()  # `count`, without waiting for the device
        return total if terms is None else total + words * terms

    def describe(self) -> dict[str, Any]:
        shown = to_dict(self.data.preprocess)
        return {"name": "captioning", "preprocess": shown, "max_words": self.config.max_words}

    def card(self) -> str:
        train = self.dataset("train")
        encoder = getattr(self.data, "encoder", None)
        seen = "pixels" if encoder is None else f"annotation vectors of {encoder} (ImageNet)"
        return (
            f"{self.data.title()}, {len(train.captions):,} pictures with {len(train):,} captions, {seen}, "
            f"vocabulary {self.text.size:,} words"
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str = "val", effort: int = 2) -> dict[str, Any]:
        """Return loss (nats per word, not smoothed) and perplexity; from effort 1 the scores of captions, by greedy
        search with effort 1 and by beam search from 2."""
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        nll, words = 0.0, 0
        for given in part.eval_batches(EVAL_ROWS):
            words += self.count(given)
            batch = given.to(device)
            logits = model(self.pictures(batch), batch.target[:, :-1], batch.target_lengths - 1)
            nll += float(label_smoothed_cross_entropy(logits, shift_targets(batch), 0.0))
        loss = nll / max(words, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0)), "words": words}
        result["pictures"] = len(part.captions)
        return result | (self.scored(model, part, 1 if effort == 1 else self.config.beam_size) if effort else {})

    def scored(
        self, model: nn.Module, part: CaptionSplit, beam_size: int, length_penalty: float | None = None
    ) -> dict[str, Any]:
        """Return the scores of captions against all references."""
        penalty = self.config.length_penalty if length_penalty is None else length_penalty
        device, written = next(model.parameters()).device, list[str]()
        for pictures in part.picture_batches(EVAL_ROWS):
            given = self.as_numbers(pictures.to(device))
            found = search_captions(model, given, self.text, beam_size, self.config.max_words, penalty)
            written += self.text.decode([best.tokens for best, *_ in found])
        references = part.references
        scores = bleu_orders(written, references)
        each = cider(written, references)
        exact = [output in several for output, several in zip(written, references, strict=True)]
        return {name: found.value for name, found in scores.items()} | {
            "cider": sum(each) / len(each),
            "meteor": sum(meteor(written, references)) / len(written),
            "exact_match": sum(exact) / len(exact),
            "bleu4_signature": scores["bleu4"].signature,
        }

    @torch.no_grad()
    def report(self, model: nn.Module, split: str = "test", **search: Any) -> dict[str, Any]:
        """Return the losses of `evaluate` and the scores of beam search on a split."""
        chosen = {"beam_size": self.config.beam_size, "length_penalty": self.config.length_penalty} | search
        scores = self.scored(model.eval(), self.dataset(split), **chosen)
        return self.evaluate(model, split, effort=0) | scores | {"split": self.data.split(split), **chosen}


def search_captions(
    model: nn.Module,
    pictures: Tensor,
    text: Tokenizer,
    beam_size: int,
    max_words: int,
    length_penalty: float = 1.0,
    num_candidates: int = 1,
) -> list[list[Hypothesis]]:
    """Return the best captions of each picture, best first."""
    decodable, banned = cast(Decodable, model), (text.pad, text.bos, text.unk)
    if beam_size == 1:
        found = greedy_search(decodable, pictures, max_length=max_words + 1, banned_tokens=banned)
        return [[one] for one in found]
    return beam_search(
        decodable,
        pictures,
        max_length=max_words + 1,
        beam_size=beam_size,
        length_penalty=length_penalty,
        num_candidates=num_candidates,
        banned_tokens=banned,
    )


# -- the predictor -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Options of the search."""

    beam_size: int = field(5, low=1, high=256, help="hypotheses that beam search keeps; 1 is greedy search")
    num_candidates: int = field(1, low=1, high=256, help="captions to return for each picture, best first")
    length_penalty: float = field(1.0, low=0, help="beam search divides scores by length to this power; more is longer")

    def __post_init__(self) -> None:
        if self.num_candidates > self.beam_size:
            raise BadInput(f"num_candidates must be at most beam_size ({self.beam_size}), got {self.num_candidates}")


class Captioner(Predictor):
    """Pictures in, captions out.

        caption = regard.load("runs/captions")
        caption("dog.jpg")                           a Text (a str) with score and candidates
        caption("dog.jpg", beam_size=10, num_candidates=3)
        caption.attention("dog.jpg")                 where it looked at each word: one row per word and the end

    Other pictures of a batch do not change a caption.
    """

    inputs = {"image": Image}  # noqa: RUF012
    outputs = Text
    options = Options

    def __init__(
        self,
        model: nn.Module,
        text: Tokenizer,
        preprocess: Preprocess | Mapping[str, Any],
        max_words: int = 30,
    ) -> None:
        if isinstance(preprocess, Mapping):
            preprocess = from_dict(Preprocess, preprocess)
        vocab = getattr(getattr(model, "config", None), "vocab", text.size)
        if vocab != text.size:
            raise BadInput(
                f"The model has {vocab:,} words, the vocabulary {text.size:,}; give the one it learned with."
            )
        self.model, self.text, self.preprocess, self.max_words = model.eval(), text, preprocess, max_words

    @torch.no_grad()
    def predict(self, batch: list[Any], options: Options) -> list[Text]:
        found: list[Text] = []
        height, width = self.preprocess.size
        rows, like = max(1, BATCH_PIXELS // (height * width)), next(self.model.parameters())
        for begin in range(0, len(batch), rows):
            check_cancelled()
            pixels = self.preprocess.batch(batch[begin : begin + rows], like)
            searched = search_captions(
                self.model,
                pixels,
                self.text,
                options.beam_size,
                self.max_words,
                options.length_penalty,
                options.num_candidates,
            )
            found += [Text.from_candidates([self._candidate(each) for each in several]) for several in searched]
        return found

    def _candidate(self, found: Hypothesis) -> Candidate:
        return Candidate(self.text.decode([found.tokens])[0], found.score, tokens=tuple(found.tokens))

    @torch.no_grad()
    def attention(self, image: Any, caption: str | None = None, **options: Any) -> list[Trace]:
        """Return the attention while this caption (by default the best one found) is written: a row per word and the
        end, a column per part of the picture."""
        return self.analyze(image, caption, **options)[1]

    @torch.no_grad()
    def analyze(self, image: Any, caption: str | None = None, **options: Any) -> tuple[str, list[Trace]]:
        """Return the caption and its attention (see `attention`)."""
        words = self.encode(self(image, **options) if caption is None else caption)
        with watch(self.model) as seen:
            self.read_caption(image, words)
        rows = self.text.pieces([*words, self.text.eos])
        y, x = self.grid_size
        columns = [f"{row},{column}" for row in range(y) for column in range(x)]
        traces = seen.traces("align") or seen.traces("cross")  # of an aligner, or of every layer of a Transformer
        return self.text.decode([words])[0], [trace.with_labels(rows, columns) for trace in traces]

    @torch.no_grad()
    def read_caption(self, image: Any, words: list[int]) -> Float[Tensor, "1 T V"]:
        """Run the model once over a picture and a whole caption."""
        weight = next(self.model.parameters())
        target = torch.tensor([[self.text.bos, *words]], device=weight.device)
        logits: Tensor = self.model(self.preprocess(image, weight), target)
        return logits

    @property
    def grid_size(self) -> tuple[int, int]:
        """Rows and columns of the parts of the picture that the model attends to."""
        size: tuple[int, int] = cast(Any, self.model).encoder.grid_size(*self.preprocess.size)
        return size

    def encode(self, caption: str) -> list[int]:
        """Return the words of a caption; an unknown one is an error."""
        words = self.text.encode_one(clean_caption(caption))
        if not words:
            raise BadInput(f"A caption needs at least one word, got {caption!r:.60}.")
        if self.text.unk in words:
            given = clean_caption(caption).split()
            unknown = [word for word, number in zip(given, words, strict=True) if number == self.text.unk]
            raise BadInput(f"The model does not know {', '.join(unknown[:5])}; it knows {self.text.size - 4:,} words.")
        return words
