"""Writing on: prompts in, what comes after them out.

    write = TextGenerator(model, text)
    write(["ROMEO:"], max_new_tokens=200, temperature=0.8, top_k=40)          # drawn; temperature=0 takes the likeliest
    for piece in write.stream("ROMEO:", stop=["\\n\\n"]): ...           # as it is written

Every prompt is written on by itself: its own random numbers, its own end, whoever else is in the batch, whatever pads
it. A text that outgrows the model's positions is refused; with `slide` it moves on through them: before every eighth of
the window the oldest tokens are let go, the others read anew, so that a token sees at least 7/8 of a full window.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

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
from regard.decoding.generation_config import GeneratedText, GenerationConfig, make_generation_config
from regard.decoding.incremental_detokenizer import IncrementalDetokenizer
from regard.decoding.sample_search import SampleSearch

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


class TextGenerator:
    """A language model with its vocabulary, to be called."""

    continues = True  # what it gives belongs behind the prompt

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

    def __call__(self, prompts: Sequence[str], max_new_tokens: int = 200, **how: Any) -> list[Any]:
        """What follows each prompt, up to `max_new_tokens` tokens or the end token; with several `samples`, a list for each.

        `how` holds the fields of `Writing`.
        """
        found = self.written(prompts, max_new_tokens, **how)
        return (
            [each[0].text for each in found] if how.get("num_samples", 1) == 1 else [[w.text for w in e] for e in found]
        )

    def stream(self, prompt: str, max_new_tokens: int = 200, **how: Any) -> Iterator[str]:
        """What follows one prompt, piece by piece as it is written; together the pieces are what a call gives."""
        asked = make_generation_config(max_new_tokens, how)
        if asked.num_samples > 1 or asked.beam_size > 1:
            raise BadInput("only one text can be followed while it is written; leave out samples and beams")
        for news in self.streams(self._encoded([prompt]), max_new_tokens=max_new_tokens, **how):
            yield from (piece for *_, piece in news)

    def streams(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int = 200,
        numbers: Sequence[int] | None = None,
        heard: bool = True,
        **how: Any,
    ) -> Generator[list[tuple[int, int, str]], None, list[list[GeneratedText]]]:
        """Several texts while they are written, all at once: after each step what is new, (prompt, sample, piece).

        Token numbers in, as `write` takes them. The pieces of a text together are what `write` gives; so is what this
        generator returns. Not `heard`: there are steps but no pieces, for whoever only wants a break after each.
        """
        asked = make_generation_config(max_new_tokens, how)
        if asked.beam_size > 1:
            raise BadInput("with beams no text stands before the end; leave them out to follow it")
        ids = _unpad(prompts, None)
        counted = list(range(len(ids))) if numbers is None else list(numbers)
        for number, prompt in zip(counted, ids, strict=True):
            self._check(number, prompt, asked)
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

    def written(self, prompts: Sequence[str], max_new_tokens: int = 200, **how: Any) -> list[list[GeneratedText]]:
        """The texts for each prompt with all that is known of them; `how` as in `write`."""
        if isinstance(prompts, str):
            raise BadInput("give a list of prompts, not a single one")
        return self.write(
            self._encoded(list(require_iterable(prompts, "prompts"))), max_new_tokens=max_new_tokens, **how
        )

    def write(
        self,
        prompts: Sequence[Sequence[int]] | Int[Tensor, "B N"],
        real: Bool[Tensor, "B N"] | None = None,
        *,
        max_new_tokens: int = 200,
        numbers: Sequence[int] | None = None,
        together: int = 16_384,
        **how: Any,
    ) -> list[list[GeneratedText]]:
        """Token numbers in. Of a padded tensor, `real` says which are tokens, be the padding left or right or both.

        `numbers` are those of the prompts, by which their random numbers go; by default they are counted from 0. About
        `together` tokens of all prompts and texts are held at a time; that does not change what is written.
        """
        asked = make_generation_config(max_new_tokens, how)
        ids = _unpad(prompts, real)
        counted = list(range(len(ids))) if numbers is None else list(numbers)
        for number, prompt in zip(counted, ids, strict=True):
            self._check(number, prompt, asked)
        longest = max((min(len(row), self.window) if asked.slide else len(row) for row in ids), default=0)
        some = max(1, together // (longest + asked.max_new_tokens * max(asked.num_samples, asked.beam_size)))
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))  # alike with alike
        found: list[list[GeneratedText]] = [[] for _ in ids]
        for at in range(0, len(order), some):
            rows = order[at : at + some]
            some_ids, some_numbers = [ids[row] for row in rows], [counted[row] for row in rows]
            for row, outputs in zip(rows, self._batch(some_ids, asked, some_numbers), strict=True):
                found[row] = outputs
        return found

    def attention(self, prompt: str, following: str | None = None, only: str = "*", **how: Any) -> list[Trace]:
        """Who looked at whom while a text (by default what greedy search writes) was written after this prompt.

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
        self._check(0, ids[:-1], GenerationConfig(max_new_tokens=1))
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

    def _check(self, number: int, ids: Sequence[int], how: GenerationConfig) -> None:
        """Refuse what cannot be written on, rather than cut it."""
        if not ids:
            raise BadInput(f"prompt {number + 1} is empty; give at least a character (a line end will do)")
        if wrong := [i for i in ids if not 0 <= i < self.text.size]:
            raise BadInput(f"token {wrong[0]} is not among the {self.text.size} of this model")
        fits = self.window + 1 - len(ids)  # the last token written is not read again
        if not self.endless and not how.slide and how.max_new_tokens > fits:
            ask = f"ask for at most {fits} tokens" if fits > 0 else f"shorten it by {1 - fits}"
            raise BadInput(
                f"a prompt of {len(ids)} tokens and {how.max_new_tokens} more do not fit the model's {self.window}: {ask}, or "
                f"let the oldest go (slide)"
            )

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    # -- numbers -> numbers --------------------------------------------------------------------------------------------

    def _batch(self, ids: list[list[int]], how: GenerationConfig, numbers: list[int]) -> list[list[GeneratedText]]:
        """What follows the prompts of one batch."""
        if how.beam_size > 1:
            best = beam_search(
                cast(Decodable, self.model), *self._padded(ids), max_length=how.max_new_tokens, beam_size=how.beam_size,
                num_candidates=how.num_samples, length_penalty=how.length_penalty, banned_tokens=self.banned_tokens,
            )  # fmt: skip
            return [
                [
                    GeneratedText(self._text(row, h.tokens), h.tokens, h.score, "end" if h.finished else "length")
                    for h in each
                ]
                for row, each in zip(ids, best, strict=True)
            ]
        drafts = self._drafts(ids, how, numbers, bool(how.stop))
        for _ in self._rounds(drafts, how):
            pass
        return self._gathered(drafts, len(ids))

    def _gathered(self, drafts: Sequence[_Draft], rows: int) -> list[list[GeneratedText]]:
        """The finished texts of each prompt."""
        found: list[list[GeneratedText]] = [[] for _ in range(rows)]
        for draft in drafts:
            words = self._text(draft.prompt, draft.tokens) if draft.speech is None else draft.speech.words
            steps = len(draft.tokens) + (draft.finish_reason == "end")
            found[draft.row].append(
                GeneratedText(words, draft.tokens, draft.total / max(1, steps), draft.finish_reason)
            )
        return found

    def _drafts(self, ids: list[list[int]], how: GenerationConfig, numbers: Sequence[int], heard: bool) -> list[_Draft]:
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
            for sample in range(how.num_samples)
        ]

    def _rounds(
        self, drafts: list[_Draft], how: GenerationConfig, say: NewTextCallback | None = None
    ) -> Iterator[None]:
        """Write all drafts, with breaks in which `print_status` has been told what is new.

        Texts that fit are written in one go. One that must slide is written an eighth of a window at a time, each time
        after the last 7/8 of what there is: so no row ever runs over the positions there are, done or not.
        """
        most = self.window + 1 - how.max_new_tokens if how.slide else max(len(d.prompt) for d in drafts)
        still = [d for d in drafts if len(d.prompt) <= most]
        if still:
            firsts = still[:: how.num_samples]
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
        how: GenerationConfig,
        tokens: int,
        seeds: Sequence[int],
        say: NewTextCallback | None,
        last: bool = True,
    ) -> Iterator[None]:
        """One go: every row written on by at most `tokens`; the drafts are its samples, row by row."""
        samples = len(going) // len(rows)
        said = None if how.repetition_penalty == 1 else [d.text() for d in going[::samples]]
        model, inputs = cast(Decodable, self.model), self._padded(rows)
        walk = SampleSearch(
            model,
            inputs,
            tokens,
            how.sampling(),
            samples,
            seeds,
            how.repetition_penalty,
            said,
            banned_tokens=self.banned_tokens,
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
