"""Prompts in, texts out: a text-to-text model with its vocabulary, to be called.

    answer = regard.load("runs/t5_three_tasks/model")
    answer(["translate English to German: A dog runs.", "sst2 sentence: what a film !"])

What is wanted stands in front of the input, in the words the model was trained with. A prompt is one input, however
many lines it has: one that is longer than the model was trained on is refused, or cut at its end with a warning where
``overflow="truncate"`` asks for it. Where the vocabulary has sentinels, <extra_id_0> in a prompt is read as one
(tokens.sentinels).

A prompt's company never changes its answer: limits, random numbers and stopping are its own. All the ways of searching
are the translator's (tasks.text.translator).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from regard.core.errors import BadInput
from regard.core.shapes import Int, Tensor
from regard.tasks.text.translator import Translator, clean_line, log

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer


class TextToTextGenerator(Translator):
    """Prompts in, texts out, in the same order.

    `max_length` is how many tokens a prompt may have, its end token with them, `most` how many an output.
    """

    continues = False  # what it gives stands by itself, not behind the prompt

    def __init__(
        self,
        model: nn.Module,
        text: Tokenizer,
        max_length: int = 512,
        max_new_tokens: int = 256,
        overflow: Literal["error", "truncate"] = "error",
    ) -> None:
        super().__init__(model, text, source="", target="")
        if overflow not in ("error", "truncate"):
            raise BadInput(f"overflow={overflow!r}: prompts that are too long are dealt with by 'error' or 'truncate'")
        self.max_length, self.max_new_tokens, self.overflow = max_length, max_new_tokens, overflow
        vocabulary = int(getattr(model.config, "vocab", text.size))
        if vocabulary < text.size:
            raise BadInput(
                f"the vocabulary has {text.size} tokens, the model {vocabulary}: they do not belong together"
            )
        marks = {text.pad, text.bos} - {text.eos}
        self._ban = (*sorted(marks), *range(text.size, vocabulary))  # some tables have more rows than there are tokens
        self._limit, self._quiet = max_new_tokens, False

    def __call__(  # type: ignore[override]  # here `max_new_tokens` are an answer's, as a TextGenerator's are
        self,
        prompts: Iterable[str],
        beam_size: int = 4,
        *,
        max_new_tokens: int | None = None,
        quiet: bool = False,
        **search: Any,
    ) -> list[Any]:
        """The answer to every prompt; with ``num_candidates`` above 1 a list of them, best first.

        `max_new_tokens` is how many an answer may have; `search` holds the fields of `tasks.text.translator.Search`.
        """
        self._limit, self._quiet = self.max_new_tokens if max_new_tokens is None else max_new_tokens, quiet
        if self._limit < 1:
            raise BadInput(f"an answer of {max_new_tokens} tokens is none; ask for 1 or more")
        try:
            return super().__call__(prompts, beam_size, **search)
        finally:
            self._limit, self._quiet = self.max_new_tokens, False

    def _parts(self, lines: Sequence[str], first: int) -> list[list[list[int]]]:
        """Every prompt as one part, whole or cut."""
        encoded = self._encode([clean_line(line, number) for number, line in enumerate(lines, first)], "")
        room = self.max_length - 1
        for number, ids in enumerate(encoded, first):
            if not ids:
                raise BadInput(f"prompt {number} is empty; say what is wanted, such as 'summarize: ...'")
            if len(ids) > room and self.overflow == "error":
                raise BadInput(
                    f"prompt {number} has {len(ids)} tokens, the model was trained on {room} at most: shorten it, or "
                    f"let it be cut with overflow='truncate'"
                )
            if len(ids) > room and not self._quiet:
                log.warning("prompt %d: %d tokens, the first %d are read", number, len(ids), room)
        return [[ids[:room]] for ids in encoded]

    def _encode(self, lines: Sequence[str], language: str) -> list[list[int]]:
        from regard.tokens.sentinels import encode_with_sentinels

        return [
            ids if line.strip() else []
            for line, ids in zip(lines, encode_with_sentinels(self.text, lines), strict=True)
        ]

    def _limits(self, lengths: Int[Tensor, " B"], more: int) -> Int[Tensor, " B"]:
        """The same for all: how long an answer is has little to do with how long its prompt is."""
        return lengths.new_full(lengths.shape, self._limit)

    def _banned(self) -> Sequence[int]:
        return self._ban
