"""Sample texts from a language model: continue prompts with samples, stop strings, new text as it appears, and sliding.

    sampler = TextSampler(model, tokenizer, window=1024)
    drafts = sampler.drafts(prompts, options, numbers)
    for _ in sampler.run(drafts, options):             # yields after each step, on a GPU after every few
        ...
    sampler.candidates(drafts, len(prompts))           # the texts of every prompt

Every prompt has its own random numbers and its own end, whatever else is in the batch. With `slide`, a text longer than
the window of the model is written an eighth of a window at a time, each time after the last 7/8 of a window: no row
ever runs over the positions, and every token sees at least 7/8 of a full window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch

from regard.core.decodable import Decodable
from regard.core.shapes import Tensor
from regard.data.batching import mix_seed
from regard.data.ragged import RaggedTensor
from regard.decoding.generation_config import GenerationConfig
from regard.decoding.incremental_detokenizer import IncrementalDetokenizer
from regard.decoding.sample_search import SampleSearch
from regard.decoding.search_loop import Restrictions
from regard.modalities.text import Candidate

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


@dataclass(eq=False)
class Draft:
    """One text while it is generated; with sliding, in several rounds."""

    row: int  # the prompt's, in the batch
    sample: int
    seed: int  # of the row
    prompt: list[int]
    detokenizer: IncrementalDetokenizer | None  # if new text is reported, or the text may be stopped
    tokens: list[int] = field(default_factory=list)
    log_probability: float = 0.0
    finish_reason: str = ""  # "": not finished yet

    def token_ids(self) -> list[int]:
        """Return the prompt and what was generated."""
        return [*self.prompt, *self.tokens]


TextCallback = Callable[[Draft, str], None]  # gets a draft and its new text


class TextSampler:
    """Samples continuations of token prompts; `window` is the number of positions that the model has."""

    def __init__(self, model: Any, text: Tokenizer, window: int, banned_tokens: Sequence[int] = ()) -> None:
        self.model, self.text, self.window, self.banned_tokens = model, text, window, banned_tokens

    def drafts(
        self, prompts: list[list[int]], options: GenerationConfig, numbers: Sequence[int], detokenize: bool
    ) -> list[Draft]:
        """Return empty drafts, those of a prompt adjacent; `numbers` of prompts are added to the seed."""
        return [
            Draft(
                row,
                sample,
                options.seed + number,
                prompt,
                IncrementalDetokenizer(self.text, prompt, options.stop) if detokenize else None,
            )
            for row, (prompt, number) in enumerate(zip(prompts, numbers, strict=True))
            for sample in range(options.num_candidates)
        ]

    def run(
        self, drafts: list[Draft], options: GenerationConfig, on_text: TextCallback | None = None
    ) -> Iterator[None]:
        """Generate all drafts, with a break after every few steps, before which `on_text` got the new text."""
        most: int = options.max_new_tokens  # type: ignore[assignment]
        fits = self.window + 1 - most if options.slide else max(len(draft.prompt) for draft in drafts)
        at_once = [draft for draft in drafts if len(draft.prompt) <= fits]
        if at_once:
            firsts = at_once[:: options.num_candidates]
            prompts, seeds = [draft.prompt for draft in firsts], [draft.seed for draft in firsts]
            yield from self._search(at_once, prompts, options, most, seeds, on_text)
        hop = max(1, self.window // 8)
        for done in range(0, most, hop):
            unfinished = [draft for draft in drafts if not draft.finish_reason]
            if not unfinished:
                return
            rows = [draft.token_ids()[-max(1, self.window - hop) :] for draft in unfinished]
            seeds = [mix_seed(mix_seed(draft.seed, done), draft.sample) for draft in unfinished]
            last = done + hop >= most
            yield from self._search(unfinished, rows, options, min(hop, most - done), seeds, on_text, last)

    def candidates(self, drafts: Sequence[Draft], rows: int) -> list[list[Candidate]]:
        """Return the finished texts of each prompt."""
        found: list[list[Candidate]] = [[] for _ in range(rows)]
        for draft in drafts:
            text = self.decode(draft.prompt, draft.tokens) if draft.detokenizer is None else draft.detokenizer.full_text
            steps = len(draft.tokens) + (draft.finish_reason == "end")
            score = draft.log_probability / max(1, steps)
            found[draft.row].append(Candidate(text, score, draft.finish_reason, tuple(draft.tokens)))
        return found

    def decode(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """Return the text of tokens that follow a prompt."""
        whole, before = self.text.decode([[*prompt, *tokens], list(prompt)])
        return whole[len(before) :]

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return rows padded on the right, which a causal model does not see, and their lengths."""
        device = next(self.model.parameters()).device
        padded, lengths = RaggedTensor.from_rows([list(row) for row in rows]).pad(
            torch.arange(len(rows)), self.text.pad
        )
        return padded.to(device), lengths.to(device)

    def _search(
        self,
        drafts: list[Draft],
        rows: list[list[int]],
        options: GenerationConfig,
        max_length: int,
        seeds: Sequence[int],
        on_text: TextCallback | None,
        last: bool = True,
    ) -> Iterator[None]:
        """Continue every row by at most `max_length` tokens; the drafts are its samples, row by row."""
        samples = len(drafts) // len(rows)
        penalty = options.repetition_penalty
        written = min(len(draft.tokens) for draft in drafts)
        restrictions = Restrictions(options.no_repeat_ngram_size, max(0, options.min_new_tokens - written))
        is_needed = penalty != 1 or options.no_repeat_ngram_size
        previous = [draft.token_ids() for draft in drafts[::samples]] if is_needed else None
        model, inputs, banned = cast(Decodable, self.model), self.pad(rows), self.banned_tokens
        search = SampleSearch(
            model, inputs, max_length, options.sampler(), samples, seeds, penalty, previous, None, banned, restrictions
        )
        for _ in search:
            if drafts[0].detokenizer is not None:
                _detokenize(search, drafts, samples, on_text, last)
            yield
        for row, outputs in enumerate(search.found):
            for draft, output in zip(drafts[row * samples : (row + 1) * samples], outputs, strict=True):
                draft.log_probability += output.log_probability
                if draft.detokenizer is None:
                    draft.tokens.extend(output.tokens)
                reason = "end" if output.finished else "length" if last else ""
                draft.finish_reason = draft.finish_reason or reason


def _detokenize(
    search: SampleSearch, drafts: list[Draft], samples: int, on_text: TextCallback | None, last: bool
) -> None:
    """Add new tokens to every draft, report their text, and end the drafts that reached a stop string."""
    stopped = []
    for row, sample, new, over in search.new_tokens():
        draft = drafts[row * samples + sample]
        detokenizer, text = draft.detokenizer, ""
        assert detokenizer is not None
        for token in new:  # one by one: a text is stopped at the same token however many came at once
            if not detokenizer.stopped:
                text += detokenizer.push([token])
                draft.tokens.append(token)
        if over and (last or search.steps < search.last):  # else the next round continues it
            text += detokenizer.push([], final=True)
        if detokenizer.stopped:
            draft.finish_reason = "stop"
            stopped.append((row, sample))
        if on_text is not None:
            on_text(draft, text)
    search.end_outputs(stopped)
