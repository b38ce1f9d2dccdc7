"""Text generation with a language model: prompts in, what comes after them out.

    write = TextGenerator(model, text)
    write("ROMEO:", max_new_tokens=200, temperature=0.8, top_k=40)       a Text; temperature=0 takes the likeliest token
    write(["ROMEO:", "JULIET:"], num_candidates=3)                       a list; .candidates has all texts of a prompt
    for piece in write.stream("ROMEO:", stop=["\\n\\n"]): ...            as it is written

Every prompt is continued by itself: it has its own random numbers and its own end, whatever else is in the batch. A
text that outgrows the model's positions is refused; with `slide` it moves on through them: before every eighth of the
window the oldest tokens are dropped and the others read anew, so that a token sees at least 7/8 of a full window.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import nn

from regard.core.decodable import Decodable
from regard.core.errors import BadInput, require_iterable
from regard.core.shapes import Bool, Int, Tensor
from regard.core.spec import Spec
from regard.core.trace import Trace
from regard.data.batching import mix_seed
from regard.data.ragged import RaggedTensor
from regard.decoding.beam_search import beam_search
from regard.decoding.generation_config import ContinuationConfig
from regard.decoding.incremental_detokenizer import IncrementalDetokenizer
from regard.decoding.sample_search import SampleSearch
from regard.decoding.search_loop import Restrictions
from regard.modalities.text import Candidate, Text
from regard.tasks.predictor import Predictor

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

log = logging.getLogger("regard")

MAX_SPARE_ROWS = 128  # rows that a table of vectors may have beyond the vocabulary: many are rounded up


@dataclass(eq=False)
class _Draft:
    """One text while it is written; with sliding, in several rounds."""

    row: int  # of the batch
    sample: int
    seed: int  # of the row
    prompt: list[int]
    speech: IncrementalDetokenizer | None  # where somebody listens, or it may be stopped
    tokens: list[int] = field(default_factory=list)
    total: float = 0.0  # log-probability
    finish_reason: str = ""  # it ends, once it does

    def text(self) -> list[int]:
        """All there is."""
        return [*self.prompt, *self.tokens]


NewTextCallback = Callable[[_Draft, str], None]  # told of a text and its new characters


class TextGenerator(Predictor):
    """A language model with its vocabulary."""

    inputs = {"text": Text}  # noqa: RUF012
    outputs = Text
    options = ContinuationConfig
    examples = ("ROMEO:\nBut soft, what light", "To be, or not to be", "First Citizen:\nWe are")
    continues = True  # its text belongs behind the prompt
    unsupported: ClassVar[Mapping[str, str]] = {
        "prefix": "is for models that answer; append it to the prompt",
        "must": "is for models that answer",
    }

    def __init__(self, model: nn.Module, text: Tokenizer) -> None:
        self.model, self.text = model.eval(), text
        config: Any = model.config
        if not 0 <= config.vocab - text.size < max(MAX_SPARE_ROWS, text.size // 32):
            raise BadInput(
                f"the vocabulary has {text.size} tokens, the model {config.vocab}: they do not belong together"
            )
        marks = {text.pad, text.bos, text.unk} - {text.eos}
        self.banned_tokens = [
            *sorted(marks),
            *range(text.size, config.vocab),
        ]  # marks, not words; and numbers that are no token
        # past these the model has no positions; where positions have no end, past these it was not trained
        self.window, self.endless = int(config.length), Spec.parse(config.positions).name != "learned"

    @classmethod
    def make_options(cls, values: Mapping[str, Any]) -> ContinuationConfig:
        made: ContinuationConfig = super().make_options(values)
        made.refuse(cls.unsupported)
        return made

    def predict(self, batch: list[Any], options: ContinuationConfig) -> list[Text]:
        return self.predict_numbered(batch, options, range(1, len(batch) + 1))

    def predict_numbered(self, batch: list[Any], options: ContinuationConfig, numbers: Sequence[int]) -> list[Text]:
        places = [number - 1 for number in numbers]
        return [Text.from_candidates(each) for each in self._generate(self._encoded(batch), options, places)]

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """Yield what follows one prompt, piece by piece as it is written; together they are what a call returns."""
        asked = self.make_options(options)
        if asked.num_candidates > 1 or asked.beam_size > 1:
            raise BadInput("only one text can be followed while it is written; leave out num_candidates and beam_size")
        for news in self.streams(self._encoded([prompt]), **options):
            yield from (piece for *_, piece in news)

    def streams(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        numbers: Sequence[int] | None = None,
        heard: bool = True,
        **options: Any,
    ) -> Generator[list[tuple[int, int, str]], None, list[list[Candidate]]]:
        """Yield what is new after each step of several texts written together: (prompt, candidate, piece).

        Token ids in, as `write` takes them. The pieces of a text together are what `write` returns, and so is the value
        that this generator returns. Without `heard` there are steps but no pieces, for a caller that only needs a break
        after each.
        """
        asked = self.make_options(options)
        if asked.beam_size > 1:
            raise BadInput("beam search has no text before its end; set beam_size=1 to follow it")
        ids = _unpad(prompts, None)
        counted = self._numbered(ids, numbers, asked)
        drafts, news = self._drafts(ids, asked, counted, heard or bool(asked.stop)), list[tuple[int, int, str]]()

        def say(draft: _Draft, words: str) -> None:
            if words and heard:
                news.append((draft.row, draft.sample, words))

        for _ in self._rounds(drafts, asked, say) if drafts else ():
            yield list(news)
            news.clear()
        if news:
            yield news
        return self._gathered(drafts, len(ids))

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
        tokens of all prompts and texts are held at a time; that does not change what is written.
        """
        return self._generate(_unpad(prompts, real), self.make_options(options), numbers, batch_tokens)

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
        """Return who looked at whom while a text (by default that of greedy search) was written after this prompt.

        One pass over the finished text, so that every map has all its rows. A row is a token being written, a column a
        token it could see.
        """
        from regard.attention.capture.watch import watch

        (ids,) = self._encoded([prompt])
        if following is None:
            (written,) = self.write([ids], **{"max_new_tokens": 24, "temperature": 0.0} | how)[0]
            ids = [*ids, *written.tokens, *([self.text.eos] if written.finish_reason == "end" else [])]
        else:
            (ids,) = self._encoded([prompt + following])
        if len(ids) < 2:
            raise BadInput("a text of one token has no attention to look at")
        self._check(0, ids[:-1], ContinuationConfig(max_new_tokens=1))
        with torch.no_grad(), watch(self.model, only) as seen:
            self.model(torch.tensor([ids[:-1]], device=self._device()))
        pieces = self.text.pieces(ids)
        return [trace.with_labels(pieces[1:], pieces[:-1]) for trace in seen.traces()]

    # -- prompts -------------------------------------------------------------------------------------------------------

    def _encoded(self, prompts: Sequence[str]) -> list[list[int]]:
        """The numbers of every prompt; what the vocabulary has no token for is said, not passed over."""
        found = self.text.encode(list(prompts))
        for prompt, ids in zip(prompts, found, strict=True):
            if self.text.unk != self.text.eos and self.text.unk in ids:
                log.warning(
                    "the prompt %s holds what this model's vocabulary does not: read as unknown", _shorten(prompt)
                )
        return found

    def _numbered(self, ids: list[list[int]], numbers: Sequence[int] | None, options: ContinuationConfig) -> list[int]:
        """Return the numbers of the prompts; refuse prompts that this model cannot continue."""
        counted = list(range(len(ids))) if numbers is None else list(numbers)
        for number, prompt in zip(counted, ids, strict=True):
            self._check(number, prompt, options)
        return counted

    def _check(self, number: int, ids: Sequence[int], how: ContinuationConfig) -> None:
        """Refuse what cannot be written on, rather than cut it."""
        if not ids:
            raise BadInput(f"prompt {number + 1} is empty; give at least a character (a line end will do)")
        if wrong := [i for i in ids if not 0 <= i < self.text.size]:
            raise BadInput(f"token {wrong[0]} is not among the {self.text.size} of this model")
        fits = self.window + 1 - len(ids)  # the last token written is not read again
        if not self.endless and not how.slide and how.max_new_tokens > fits:
            ask = f"ask for at most {fits} tokens" if fits > 0 else f"shorten it by {1 - fits}"
            raise BadInput(
                f"a prompt of {len(ids)} tokens and {how.max_new_tokens} more do not fit the model's {self.window}: "
                f"{ask}, or let the oldest go (slide)"
            )

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    # -- numbers -> numbers --------------------------------------------------------------------------------------------

    def _batch(self, ids: list[list[int]], how: ContinuationConfig, numbers: list[int]) -> list[list[Candidate]]:
        """What follows the prompts of one batch."""
        if how.beam_size > 1:
            best = beam_search(
                cast(Decodable, self.model), *self._padded(ids), max_length=how.max_new_tokens, beam_size=how.beam_size,
                num_candidates=how.num_candidates, length_penalty=how.length_penalty,
                groups=how.groups, diversity=how.diversity, banned_tokens=self.banned_tokens,
                early_stopping=how.early_stopping, previous_tokens=ids,
                no_repeat_ngram_size=how.no_repeat_ngram_size, min_new_tokens=how.min_new_tokens,
            )  # fmt: skip
            return [
                [
                    Candidate(self._text(row, h.tokens), h.score, "end" if h.finished else "length", tuple(h.tokens))
                    for h in each
                ]
                for row, each in zip(ids, best, strict=True)
            ]
        drafts = self._drafts(ids, how, numbers, bool(how.stop))
        for _ in self._rounds(drafts, how):
            pass
        return self._gathered(drafts, len(ids))

    def _gathered(self, drafts: Sequence[_Draft], rows: int) -> list[list[Candidate]]:
        """The finished texts of each prompt."""
        found: list[list[Candidate]] = [[] for _ in range(rows)]
        for draft in drafts:
            words = self._text(draft.prompt, draft.tokens) if draft.speech is None else draft.speech.full_text
            steps = len(draft.tokens) + (draft.finish_reason == "end")
            found[draft.row].append(
                Candidate(words, draft.total / max(1, steps), draft.finish_reason, tuple(draft.tokens))
            )
        return found

    def _drafts(
        self, ids: list[list[int]], how: ContinuationConfig, numbers: Sequence[int], heard: bool
    ) -> list[_Draft]:
        """Empty texts, those of a prompt one after another."""
        return [
            _Draft(
                row,
                sample,
                how.seed + number,
                prompt,
                IncrementalDetokenizer(self.text, prompt, how.stop) if heard else None,
            )
            for row, (prompt, number) in enumerate(zip(ids, numbers, strict=True))
            for sample in range(how.num_candidates)
        ]

    def _rounds(
        self, drafts: list[_Draft], how: ContinuationConfig, say: NewTextCallback | None = None
    ) -> Iterator[None]:
        """Write all drafts, with breaks in which `print_status` has been told what is new.

        Texts that fit are written in one go. One that must slide is written an eighth of a window at a time, each time
        after the last 7/8 of what there is: so no row ever runs over the positions there are, done or not.
        """
        most = self.window + 1 - how.max_new_tokens if how.slide else max(len(d.prompt) for d in drafts)
        still = [d for d in drafts if len(d.prompt) <= most]
        if still:
            firsts = still[:: how.num_candidates]
            yield from self._walk(
                still, [d.prompt for d in firsts], how, how.max_new_tokens, [d.seed for d in firsts], say
            )
        hop = max(1, self.window // 8)
        for begun in range(0, how.max_new_tokens, hop):
            going = [d for d in drafts if not d.finish_reason]
            if not going:
                return
            rows = [d.text()[-max(1, self.window - hop) :] for d in going]
            seeds = [mix_seed(mix_seed(d.seed, begun), d.sample) for d in going]
            last = begun + hop >= how.max_new_tokens
            yield from self._walk(going, rows, how, min(hop, how.max_new_tokens - begun), seeds, say, last)

    def _walk(
        self,
        going: list[_Draft],
        rows: list[list[int]],
        how: ContinuationConfig,
        tokens: int,
        seeds: Sequence[int],
        say: NewTextCallback | None,
        last: bool = True,
    ) -> Iterator[None]:
        """One go: every row written on by at most `tokens`; the drafts are its samples, row by row."""
        samples = len(going) // len(rows)
        restrictions = Restrictions(
            how.no_repeat_ngram_size, max(0, how.min_new_tokens - min(len(d.tokens) for d in going))
        )
        remembers = how.repetition_penalty != 1 or how.no_repeat_ngram_size
        said = [d.text() for d in going[::samples]] if remembers else None
        model, inputs = cast(Decodable, self.model), self._padded(rows)
        walk = SampleSearch(
            model,
            inputs,
            tokens,
            how.sampler(),
            samples,
            seeds,
            how.repetition_penalty,
            said,
            banned_tokens=self.banned_tokens,
            restrictions=restrictions,
        )
        for _ in walk:
            if going[0].speech is not None:
                self._listen(walk, going, samples, say, last)
            yield
        for row, outputs in enumerate(walk.found):
            for draft, output in zip(going[row * samples : (row + 1) * samples], outputs, strict=True):
                draft.total += output.log_probability
                if draft.speech is None:
                    draft.tokens.extend(output.tokens)
                draft.finish_reason = draft.finish_reason or ("end" if output.finished else "length" if last else "")

    @staticmethod
    def _listen(
        walk: SampleSearch, going: list[_Draft], num_samples: int, say: NewTextCallback | None, last: bool
    ) -> None:
        """Hand what is new to the speech of every draft; end those that have come to a stop string."""
        stopped = []
        for row, sample, new, over in walk.new_tokens():
            draft = going[row * num_samples + sample]
            speech = draft.speech
            assert speech is not None
            words = ""
            for token in new:  # one by one: a text is stopped at the same token however many came at once
                if not speech.stopped:
                    words += speech.push([token])
                    draft.tokens.append(token)
            if over and (last or walk.steps < walk.last):  # else the next round goes on
                words += speech.push([], final=True)
            if speech.stopped:
                draft.finish_reason = "stop"
                stopped.append((row, sample))
            if say is not None:
                say(draft, words)
        walk.end_outputs(stopped)

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Rows padded on the right, where causality hides it, and their lengths."""
        flat = RaggedTensor.from_rows([list(row) for row in rows])
        found, lengths = flat.pad(torch.arange(len(rows)), self.text.pad)
        return found.to(self._device()), lengths.to(self._device())

    def _text(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        whole, before = self.text.decode([[*prompt, *tokens], list(prompt)])
        return whole[len(before) :]


def _unpad(prompts: Any, real: Tensor | None) -> list[list[int]]:
    """Every prompt as the list of its tokens."""
    if not isinstance(prompts, Tensor):
        return [[int(i) for i in row] for row in prompts]
    if real is None:
        return cast("list[list[int]]", prompts.tolist())
    if real.shape != prompts.shape:
        raise BadInput(
            f"prompts are {tuple(prompts.shape)}, but `real` is {tuple(real.shape)}; give a mark for each token"
        )
    return [row[keep].tolist() for row, keep in zip(prompts, real.bool(), strict=True)]


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:30]}…{text[-8:]}")
