"""Language modelling: at every position of a text, predict the next token; and continue prompts.

    objective    cross-entropy, summed over all tokens (losses.fused_linear_cross_entropy); no logits are materialised;
                 with mixtures of experts plus `balance` times their load-balancing loss
    metric       loss (nats per token), perplexity, accuracy of the next token; bits per byte, if the size is known
    decoding     sampling or greedy search (decoding.text_sampling), beam search (decoding.beam_search)
    predict      `TextGenerator`: prompts in, continuations out

A validation text is read from its beginning in rows of the context length, and every token is predicted once, from the
tokens before it in its row; the first tokens of a row have little context. With a stride, a report reads overlapping
rows, so that every token is predicted from at least context - stride tokens: slower, and closer to the model's true
perplexity.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import nn

from regard.core.config import field
from regard.core.decodable import Decodable
from regard.core.errors import BadInput, require_iterable
from regard.core.layer_state import PassState
from regard.core.shapes import Bool, Float, Int, Tensor
from regard.core.spec import Spec
from regard.core.trace import Trace
from regard.data.shards.index import INDEX_FILE
from regard.data.shards.token_shards import TokenBatch, TokenShards, TokenWindows, count_predicted_tokens, find_shards
from regard.data.text.text_file import TextFile
from regard.decoding.beam_search import beam_search
from regard.decoding.generation_config import ContinuationConfig
from regard.decoding.search_loop import Hypothesis
from regard.decoding.text_sampling import Draft, TextSampler
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy, fused_linear_loss_and_correct
from regard.metrics.base import BITS_PER_BYTE, PERPLEXITY, fraction, loss_metric
from regard.modalities.text import Candidate, Text
from regard.tasks.base import TextTask, load_tokenizer
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")

MAX_SPARE_ROWS = 128  # rows of the embedding beyond the vocabulary: sizes are often rounded up


@dataclass(frozen=True)
class Config:
    """Settings of training and evaluation."""

    label_smoothing: float = field(0.0, low=0, below=1)
    chunk_size: int | None = None  # rows of logits computed at a time; None: chosen by device
    eval_examples: int | None = None  # rows of each evaluation in training, spread evenly; None: the whole split
    stride: int | None = None  # of a report: tokens from one row to the next; None: a whole row
    balance: float = field(0.0, low=0)  # weight of the load-balancing loss of mixtures of experts, summed over layers

    def quick(self) -> Config:
        """Return the settings of a quick run."""
        return replace(self, eval_examples=8)

    def build(self, data: TextFile | TokenShards, seed: int = 0, folder: Path | None = None) -> LanguageModeling:
        """Return the task on these data, with the tokenizer in the folder if one is given, else that of the data."""
        return LanguageModeling(self, data, load_tokenizer(folder), seed)

    @staticmethod
    def eval_data(corpus: str, saved: Mapping[str, Any], **changes: Any) -> TextFile | TokenShards:
        """Return the data of a name (shards or plain text) to evaluate a saved model on, given its config.json."""
        if other := changes.keys() - {"limit"}:
            raise BadInput(f"language models are evaluated on one text and take no {min(other)}; leave it out")
        context = int(saved["config"]["length"])
        with suppress(BadInput):
            if (find_shards(corpus) / INDEX_FILE).is_file():
                return TokenShards(corpus, context_length=context, **changes)
        return TextFile(corpus, context_length=context, **changes)


class LanguageModeling(TextTask[TokenWindows]):
    """Train and evaluate a language model."""

    metrics = (loss_metric("nats per token"), PERPLEXITY, BITS_PER_BYTE, fraction("accuracy", "token accuracy"))
    name = "language_modeling"
    ragged = False  # all batches have one shape
    data: TextFile | TokenShards

    def __init__(
        self, config: Config, data: TextFile | TokenShards, text: Tokenizer | None = None, seed: int = 0
    ) -> None:
        super().__init__(data, text, seed)
        self.config = config
        self.objective: Callable[[Tensor, Tensor, Tensor], Tensor] = fused_linear_cross_entropy
        if config.chunk_size is not None or config.label_smoothing:
            self.objective = partial(
                fused_linear_cross_entropy, chunk_size=config.chunk_size, label_smoothing=config.label_smoothing
            )

    def extend_vocabulary(self) -> int:
        known = self.text.size
        if self.text.kind == "char" and isinstance(self.data, TextFile):
            self.text = self.text.with_characters(self.data.read("train"))
        return self.text.size - known

    def fit(self, config: Any) -> Any:
        if Spec.parse(config.positions).name == "learned" and self.data.context_length > config.length:
            raise BadInput(
                f"rows have {self.data.context_length} tokens, but the model learns {config.length} positions: lower "
                f"data.context_length, raise model.length, or use positions without a limit (model.positions=rotary)"
            )
        return replace(config, vocab=self.text.size, eos=self.text.eos)

    def count(self, batch: TokenBatch) -> int:
        return count_predicted_tokens(batch)

    def loss(
        self, model: nn.Module, batch: TokenBatch, step: int = 0, rng: torch.Generator | None = None
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """Return the cross-entropy summed over the batch, computed in the model's forward pass, in one graph."""
        pass_state, tokens = PassState(), batch.inputs.numel()
        total = model(batch.inputs, targets=batch.targets, loss=self.objective, pass_state=pass_state)
        parts = {"loss": total.detach()}
        layer_losses = pass_state.weighted_loss({"balance": self.config.balance})  # means over tokens
        if layer_losses is not None:
            total = total + tokens * layer_losses
        if balance := pass_state.losses("balance"):
            busiest = torch.stack(pass_state.collect("expert_load")).max()
            parts |= {"balance": tokens * torch.stack(balance).mean().detach(), "busiest": tokens * busiest}
        return total, parts

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def card(self) -> str:
        train, text = self.dataset("train"), self.text
        where = self.data.corpus if isinstance(self.data, TextFile) else self.data.path
        return (
            f"{where}, {train.tokens:,} tokens, {self.data.batch_size} rows of {self.data.context_length} a batch, "
            f"vocabulary {text.size:,} {text.kind}"
        )

    def _load(self, split: str) -> TokenWindows:
        data = self.data
        return data.load(split, self.text) if isinstance(data, TextFile) else data.load(split)

    @torch.no_grad()
    def evaluate(
        self, model: nn.Module, split: str = "val", effort: int = 2, stride: int | None = None
    ) -> dict[str, Any]:
        """Return the metrics of a model on a split: loss (nats per token), perplexity, accuracy (of the next token),
        tokens, bits_per_byte if the size of the text is known, and experts (of each mixture of experts, the share of
        the tokens that each expert got). Below effort 2 only `eval_examples` rows are read, always the same ones.
        """
        part, device = self.dataset(split), next(model.parameters()).device
        model.eval()
        total = torch.zeros(2, dtype=torch.float64, device=device)
        tokens, expert_loads = 0, []
        rows = None if effort > 1 else self.config.eval_examples
        for batch in part.eval_batches(max(self.data.context_length, 16_384), rows, stride):
            tokens += self.count(batch)
            batch = batch.to(device)
            pass_state = PassState()
            total += model(
                batch.inputs, targets=batch.targets, loss=fused_linear_loss_and_correct, pass_state=pass_state
            )
            if load := pass_state.collect("expert_load"):
                expert_loads.append(batch.inputs.numel() * torch.stack(load))
        nll, right = total.tolist()
        loss = nll / max(tokens, 1)
        result: dict[str, Any] = {"loss": loss, "perplexity": math.exp(min(loss, 50.0))}
        result |= {"accuracy": right / max(tokens, 1), "tokens": tokens}
        if size := self.data.bytes(split):  # older shards do not have it
            result["bits_per_byte"] = loss / math.log(2) * sum(map(len, part.parts)) / size
        if expert_loads:
            shares = torch.stack(expert_loads).sum(0)
            result["experts"] = [[round(x, 4) for x in row] for row in (shares / shares.sum(1, keepdim=True)).tolist()]
        return result

    def report(self, model: nn.Module, split: str = "test", stride: int | None = None, **search: Any) -> dict[str, Any]:
        stride = self.config.stride if stride is None else stride
        about = {"split": self.data.split(split), "context": self.data.context_length}
        return self.evaluate(model, split, stride=stride) | about | ({} if stride is None else {"stride": stride})


# -- the predictor -----------------------------------------------------------------------------------------------------


class TextGenerator(Predictor):
    """Prompts in, continuations out, in the same order.

        generate = TextGenerator(model, tokenizer)
        generate("ROMEO:", max_new_tokens=200, temperature=0.8, top_k=40)    a Text; temperature=0: greedy search
        generate(["ROMEO:", "JULIET:"], num_candidates=3)                    a list; .candidates has all its texts
        for piece in generate.stream("ROMEO:", stop=["\\n\\n"]): ...           new text as it is generated

    Every prompt has its own random numbers and its own end, whatever else is in the batch. A text that is longer than
    the model's positions is refused, unless `slide` drops the oldest tokens (decoding.text_sampling).
    """

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Text
    options = ContinuationConfig
    examples = ("ROMEO:\nBut soft, what light", "To be, or not to be", "First Citizen:\nWe are")
    continues = True  # its text continues the prompt
    unsupported: ClassVar[Mapping[str, str]] = {
        "prefix": "is for models that answer; append it to the prompt",
        "must": "is for models that answer",
    }

    def __init__(self, model: nn.Module, text: Tokenizer, option_defaults: Mapping[str, Any] | None = None) -> None:
        self.model, self.text, self.option_defaults = model.eval(), text, dict(option_defaults or {})
        config: Any = model.config
        # learned positions end here; others have no limit, but the model was not trained beyond it
        self.window, self.has_position_limit = int(config.length), Spec.parse(config.positions).name == "learned"
        self.fill_options({})  # refused here rather than at the first call
        if not 0 <= config.vocab - text.size < max(MAX_SPARE_ROWS, text.size // 32):
            raise BadInput(
                f"the tokenizer has {text.size} tokens and the model {config.vocab}; use the tokenizer that the model "
                "was trained with"
            )
        special = {text.pad, text.bos, text.unk} - {text.eos}
        self.banned_tokens = [*sorted(special), *range(text.size, config.vocab)]  # not part of any text
        self.sampler = TextSampler(self.model, text, self.window, self.banned_tokens)

    @classmethod
    def make_options(cls, values: Mapping[str, Any]) -> ContinuationConfig:
        made: ContinuationConfig = super().make_options(values)
        made.refuse(cls.unsupported)
        return made

    def fill_options(self, given: Mapping[str, Any]) -> ContinuationConfig:
        made: ContinuationConfig = super().fill_options(given)
        if not self.has_position_limit or made.slide or "max_new_tokens" in {**self.option_defaults, **given}:
            return made
        return replace(made, max_new_tokens=min(made.max_new_tokens, max(1, self.window // 2)))  # room for a prompt

    def predict(self, batch: list[Any], options: ContinuationConfig) -> list[Text]:
        return self.predict_numbered(batch, options, range(1, len(batch) + 1))

    def predict_numbered(self, batch: list[Any], options: ContinuationConfig, numbers: Sequence[int]) -> list[Text]:
        places = [number - 1 for number in numbers]
        return [Text.from_candidates(each) for each in self._generate(self._encoded(batch), options, places)]

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """Yield the continuation of one prompt piece by piece; together the pieces are what a call returns."""
        asked = self.fill_options(options)
        if asked.num_candidates > 1 or asked.beam_size > 1:
            raise BadInput("stream generates one text by sampling; leave out num_candidates and beam_size")
        for news in self.streams(self._encoded([prompt]), **options):
            yield from (piece for *_, piece in news)

    def streams(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        numbers: Sequence[int] | None = None,
        with_text: bool = True,
        **options: Any,
    ) -> Generator[list[tuple[int, int, str]], None, list[list[Candidate]]]:
        """Yield the new text after each step of several texts generated together: (prompt, candidate, piece).

        Prompts are token ids, as in `write`. The pieces of a text together are what `write` returns, and so is the
        value that this generator returns. Without `with_text` it yields no pieces, only a break after each step.
        """
        asked = self.fill_options(options)
        if asked.beam_size > 1:
            raise BadInput("beam search has no text before its end; set beam_size=1 to stream")
        ids = _unpad(prompts, None)
        counted = self._numbered(ids, numbers, asked)
        drafts, new = (
            self.sampler.drafts(ids, asked, counted, with_text or bool(asked.stop)),
            list[tuple[int, int, str]](),
        )

        def on_text(draft: Draft, text: str) -> None:
            if text and with_text:
                new.append((draft.row, draft.sample, text))

        for _ in self.sampler.run(drafts, asked, on_text) if drafts else ():
            yield list(new)
            new.clear()
        if new:
            yield new
        return self.sampler.candidates(drafts, len(ids))

    def candidates(
        self, prompts: Iterable[str], *, numbers: Sequence[int] | None = None, **options: Any
    ) -> list[list[Candidate]]:
        """Return the `num_candidates` texts of every prompt; `numbers` as in `write`."""
        if isinstance(prompts, str):
            raise BadInput("give a list of prompts, not a single one")
        return self.write(self._encoded(list(require_iterable(prompts, "prompts"))), numbers=numbers, **options)

    def write(
        self,
        prompts: Sequence[Sequence[int]] | Int[Tensor, "B N"],
        real: Bool[Tensor, "B N"] | None = None,
        *,
        numbers: Sequence[int] | None = None,
        batch_tokens: int = 16_384,
        **options: Any,
    ) -> list[list[Candidate]]:
        """Return the texts of every prompt of token ids, or of a padded tensor whose tokens are where `real` is True.

        `numbers` are those of the prompts, added to the seed; by default they are counted from 0. About `batch_tokens`
        tokens of prompts and texts are in memory at a time; that does not change any text.
        """
        return self._generate(_unpad(prompts, real), self.fill_options(options), numbers, batch_tokens)

    def _generate(
        self,
        ids: list[list[int]],
        options: ContinuationConfig,
        numbers: Sequence[int] | None = None,
        batch_tokens: int = 16_384,
    ) -> list[list[Candidate]]:
        counted = self._numbered(ids, numbers, options)
        longest = max((min(len(row), self.window) if options.slide else len(row) for row in ids), default=0)
        per_prompt = longest + options.max_new_tokens * max(options.num_candidates, options.beam_size)
        some = max(1, batch_tokens // per_prompt)
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))  # similar lengths together
        found: list[list[Candidate]] = [[] for _ in ids]
        for at in range(0, len(order), some):
            rows = order[at : at + some]
            some_ids, some_numbers = [ids[row] for row in rows], [counted[row] for row in rows]
            for row, outputs in zip(rows, self._batch(some_ids, options, some_numbers), strict=True):
                found[row] = outputs
        return found

    def attention(self, prompt: str, following: str | None = None, only: str = "*", **how: Any) -> list[Trace]:
        """Return the attention maps of a continuation of this prompt (by default that of greedy search).

        They come from one pass over the whole text. A row is a predicted token, a column a token before it.
        """
        from regard.attention.capture.watch import watch

        (ids,) = self._encoded([prompt])
        if following is None:
            (written,) = self.write([ids], **{"max_new_tokens": 24, "temperature": 0.0} | how)[0]
            ids = [*ids, *written.tokens, *([self.text.eos] if written.finish_reason == "end" else [])]
        else:
            (ids,) = self._encoded([prompt + following])
        if len(ids) < 2:
            raise BadInput("a text of one token has no attention maps; give a longer one")
        self._check(0, ids[:-1], ContinuationConfig(max_new_tokens=1))
        with torch.no_grad(), watch(self.model, only) as seen:
            self.model(torch.tensor([ids[:-1]], device=next(self.model.parameters()).device))
        pieces = self.text.pieces(ids)
        return [trace.with_labels(pieces[1:], pieces[:-1]) for trace in seen.traces()]

    # -- prompts -------------------------------------------------------------------------------------------------------

    def _encoded(self, prompts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of every prompt; log a warning about characters without a token."""
        found = self.text.encode(list(prompts))
        for prompt, ids in zip(prompts, found, strict=True):
            if self.text.unk != self.text.eos and self.text.unk in ids:
                log.warning(
                    "the prompt %s has characters that this model's vocabulary lacks: read as unknown",
                    _shorten(prompt),
                )
        return found

    def _numbered(self, ids: list[list[int]], numbers: Sequence[int] | None, options: ContinuationConfig) -> list[int]:
        """Return the numbers of the prompts; refuse prompts that this model cannot continue."""
        counted = list(range(len(ids))) if numbers is None else list(numbers)
        for number, prompt in zip(counted, ids, strict=True):
            self._check(number, prompt, options)
        return counted

    def _check(self, number: int, ids: Sequence[int], how: ContinuationConfig) -> None:
        """Raise `BadInput` for a prompt that cannot be continued."""
        if not ids:
            raise BadInput(f"prompt {number + 1} is empty; give at least one character, such as a line end")
        if wrong := [i for i in ids if not 0 <= i < self.text.size]:
            raise BadInput(f"token ids must be from 0 to {self.text.size - 1}, got {wrong[0]}")
        fits = self.window + 1 - len(ids)  # the last token is not read again
        if self.has_position_limit and not how.slide and how.max_new_tokens > fits:
            ask = f"ask for at most {fits} tokens" if fits > 0 else f"shorten it by {1 - fits}"
            raise BadInput(
                f"a prompt of {len(ids)} tokens and {how.max_new_tokens} more do not fit the model's {self.window}: "
                f"{ask}, or drop the oldest tokens (slide)"
            )

    def _batch(self, ids: list[list[int]], how: ContinuationConfig, numbers: list[int]) -> list[list[Candidate]]:
        """Return the continuations of the prompts of one batch."""
        if how.beam_size > 1:
            best = beam_search(
                cast(Decodable, self.model), *self.sampler.pad(ids), max_length=how.max_new_tokens,
                beam_size=how.beam_size, num_candidates=how.num_candidates, length_penalty=how.length_penalty,
                groups=how.groups, diversity=how.diversity, banned_tokens=self.banned_tokens,
                early_stopping=how.early_stopping, previous_tokens=ids,
                no_repeat_ngram_size=how.no_repeat_ngram_size, min_new_tokens=how.min_new_tokens,
            )  # fmt: skip
            return [[self._candidate(row, h) for h in each] for row, each in zip(ids, best, strict=True)]
        drafts = self.sampler.drafts(ids, how, numbers, bool(how.stop))
        for _ in self.sampler.run(drafts, how):
            pass
        return self.sampler.candidates(drafts, len(ids))

    def _candidate(self, prompt: list[int], h: Hypothesis) -> Candidate:
        text, reason = self.sampler.decode(prompt, h.tokens), "end" if h.finished else "length"
        return Candidate(text, h.score, reason, tuple(h.tokens))


def _unpad(prompts: Any, real: Tensor | None) -> list[list[int]]:
    """Return every prompt as a list of token ids."""
    if not isinstance(prompts, Tensor):
        return [[int(i) for i in row] for row in prompts]
    if real is None:
        return cast("list[list[int]]", prompts.tolist())
    if real.shape != prompts.shape:
        raise BadInput(
            f"prompts have shape {tuple(prompts.shape)} and `real` {tuple(real.shape)}; they must be the same"
        )
    return [row[keep].tolist() for row, keep in zip(prompts, real.bool(), strict=True)]


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:30]}…{text[-8:]}")
