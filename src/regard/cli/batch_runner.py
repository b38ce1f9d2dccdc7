"""The inputs of a command through a model, in batches: what ``regard run`` and every named verb print comes from here.

Output n belongs to input n. An input that cannot be read, or on which the model fails, is named on stderr and counted;
with --json it also has a line, with "error" in place of an output. All other inputs get their output. An input that is
unlike the training data of the model (modalities.domain) is named on stderr too, and with --json its line has a
"warning"; with --strict it is an error.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from regard.cli.lines import Line, OutputFile, check_no_file
from regard.cli.options import is_strict
from regard.core.errors import BadInput, RegardError, oom_advice, shorten
from regard.core.terminal_text import printable
from regard.modalities.text import Text

if TYPE_CHECKING:
    from regard.tasks.predictor import Predictor

BATCH_SIZE = 32  # files in the largest batch; the first has one, so that the first output is early
ALONE = re.compile(r"(text|sentence|word) 1(?=[ :])")  # what a predictor calls the only input that it was given
MAX_MESSAGES = 100  # inputs whose problem is printed; the others are counted


@dataclass(frozen=True)
class Item:
    """One input of a command, before it is read."""

    number: int  # from 1
    name: str  # in messages: "line 3", "boot.png"
    input: str  # in JSON: a text, or the name of a file
    read: Callable[[], Any] | None  # returns what the model takes, or raises; None: there is nothing to predict
    problem: str = ""  # what is wrong with it; it may have an output all the same
    is_file: bool = False


@dataclass(frozen=True)
class Result:
    """Result of an item: an output, an error, or neither (a blank line)."""

    item: Item
    value: Any = None  # what the model was given
    output: Any = None
    error: str = ""
    warning: str = ""  # what is unusual about the input

    def to_json(self) -> str:
        """Return the line of JSON."""
        answer = self.output.to_json() if self.output is not None else {"error": self.error} if self.error else {}
        answer |= {"warning": self.warning} if self.warning else {}
        return json.dumps({"number": self.item.number, "input": self.item.input, **answer}, ensure_ascii=False)


class _Failure(str):
    """Why an item has no output."""


Show = Callable[[Result], Iterable[str]]  # the output lines of a result


class BatchRunner:
    """Predicts batches of items, prints their outputs and counts.

    `predict` takes the values of some items and their numbers; `verb` says what is done to an item, and `advice` how
    less memory is needed.
    """

    def __init__(
        self, predict: Callable[[list[Any], list[int]], Sequence[Any]], verb: str = "run", advice: str = ""
    ) -> None:
        self.predict, self.verb = predict, verb
        self.advice = advice or "give fewer or smaller inputs, or a smaller model"
        self.tokenizer: Any = None  # counts the tokens of texts
        self.domain_notes: Callable[[list[Any]], list[str]] = lambda values: [""] * len(values)
        self.noted = 0  # inputs that are unlike the training data
        self.done, self.failed, self.tokens, self.seconds = 0, 0, 0, 0.0
        self.first: Result | None = None  # with an output

    @classmethod
    def of(cls, predictor: Predictor, options: Any, verb: str = "run", advice: str = "") -> BatchRunner:
        """Return the runner of a predictor."""
        made = cls(lambda values, numbers: predictor.predict_numbered(values, options, numbers), verb, advice)
        made.tokenizer, made.domain_notes = getattr(predictor, "text", None), predictor.domain_notes
        return made

    def run(
        self,
        batches: Iterable[list[Item]],
        show: Show,
        as_json: bool = False,
        out: OutputFile | None = None,
        also: Callable[[Result], None] = lambda result: None,
    ) -> int:
        """Print the outputs of all batches, each batch when it is done, and return the exit status.

        `also` is called with every result that has an output, whatever is printed.
        """
        out = out or OutputFile(None)
        for batch in batches:
            results = self.results(batch)
            out.write(line for each in results for line in ([each.to_json()] if as_json else show(each)))
            for each in results:
                if each.output is not None:
                    also(each)
        return self.finish()

    def finish(self) -> int:
        """Print what there is to say at the end, and return the exit status."""
        from regard.cli import FAILED, print_status

        if not self.done and not self.failed:
            print_status(f"there is nothing to {self.verb}: the input is empty")
        if self.failed > MAX_MESSAGES:
            print_status(f"{self.failed - MAX_MESSAGES:,} more inputs could not be used as they stand")
        if self.noted > MAX_MESSAGES:
            print_status(f"{self.noted - MAX_MESSAGES:,} more inputs are unlike the training data")
        return FAILED if self.failed or not self.done else 0

    def results(self, batch: Sequence[Item]) -> list[Result]:
        """Return the result of every item of a batch."""
        values, errors = dict[int, Any](), dict[int, str]()
        for place, item in enumerate(batch):
            if item.problem:
                errors[place] = self.report(item, item.problem)
            if item.read is not None:
                try:
                    values[place] = item.read()
                except RegardError as error:
                    errors[place] = self.report(item, error)
        warnings = self._check_domain(batch, values)
        if is_strict():
            for place, why in warnings.items():
                errors[place] = self.report(batch[place], why)
                del values[place]
            warnings = {}
        began = time.monotonic()
        outputs = dict(zip(values, self._predict([batch[place] for place in values], [*values.values()]), strict=True))
        self.seconds += time.monotonic() - began
        results = []
        for place, item in enumerate(batch):
            output = outputs.get(place)
            if isinstance(output, _Failure):
                errors[place], output = self.report(item, output), None
            warning = warnings.get(place, "")
            results.append(Result(item, values.get(place), output, errors.get(place, ""), warning))
            if warning:
                self.warn(item, warning)
            if output is not None:
                self.done += 1
                self.first = self.first or results[-1]
                self.tokens += self._count_tokens(output)
        return results

    def _predict(self, items: Sequence[Item], values: list[Any]) -> list[Any]:
        """Return the outputs of some items; where that fails, of each alone, and why it failed where it still does."""
        from regard.cli import is_debug

        if not items:
            return []
        try:
            with oom_advice(self.advice):
                return list(self.predict(values, [item.number for item in items]))
        except (RegardError, RuntimeError) as error:  # torch calls most of what can go wrong a RuntimeError
            if is_debug():
                raise
            why = _Failure(error)
        if len(items) == 1:  # out here, where nothing refers any more to the tensors of the failed batch
            return [why]
        return [self._predict([item], [value])[0] for item, value in zip(items, values, strict=True)]

    def _check_domain(self, batch: Sequence[Item], values: dict[int, Any]) -> dict[int, str]:
        """Return what is unusual about the values that are, by their place in the batch."""
        notes = self.domain_notes([*values.values()])
        return {place: note for place, note in zip(values, notes, strict=True) if note}

    def accepts(self, item: Item, value: Any) -> bool:
        """Say what is unusual about one item, for a verb that predicts items itself; return whether to predict it."""
        (note,) = self.domain_notes([value])
        if note and is_strict():
            self.report(item, note)
            return False
        if note:
            self.warn(item, note)
        return True

    def warn(self, item: Item, note: str) -> None:
        """Say on stderr what is unusual about an item."""
        from regard.cli import print_status

        self.noted += 1
        if self.noted <= MAX_MESSAGES:
            print_status(f"{shorten(item.name, 300)}: {note}")

    def report(self, item: Item, why: object) -> str:
        """Count an item that could not be used, name it on stderr, and return the message."""
        from regard.cli import print_status

        self.failed += 1
        message, given = " ".join(str(why).split()), " ".join(item.input.split())
        name = shorten(item.name, 300)
        if item.is_file and given in message:
            message = message.replace(given, item.name)
        elif alone := ALONE.match(message):
            message = name + message[alone.end() :]
        elif name not in message:
            message = f"{name}: {message}"
        if self.failed <= MAX_MESSAGES:
            print_status(message)
        return message

    def _count_tokens(self, output: Any) -> int:
        if not isinstance(output, Text) or self.tokenizer is None:
            return 0
        return sum(len(each.tokens) for each in output.candidates) or len(self.tokenizer.encode([str(output)])[0])

    def speed(self, predictor: object) -> str:
        """Return the line about speed and device."""
        from regard.cli.prepare import describe_device

        seconds, texts = max(self.seconds, 1e-9), f"{self.done:,} text{'s' if self.done != 1 else ''}"
        rates = f"{self.tokens / seconds:,.0f} tokens/s, {self.done / seconds:,.1f} texts/s"
        made = f"{texts}, {self.tokens:,} tokens in {seconds:.1f} s: {rates}"
        return f"{made if self.tokens else f'{texts} in {seconds:.1f} s'} ({describe_device(predictor)})"


# -- items -------------------------------------------------------------------------------------------------------------


def line_items(
    batches: Iterable[list[Line]], read: Callable[[str], Any], noun: str = "line", blank: bool = False
) -> Iterator[list[Item]]:
    """Yield lines as items; `read` returns what the model takes. Without `blank`, blank lines are not predicted."""
    for batch in batches:
        yield [
            Item(
                line.number,
                f"{noun} {line.number}",
                line.text,
                partial(read, line.text) if line.text.strip() or (blank and not line.problem) else None,
                line.problem and f"{noun} {line.number} {line.problem}",
            )
            for line in batch
        ]


def argument_items(predictor: Predictor, arguments: Sequence[str]) -> Iterator[list[Item]]:
    """Yield the items that the arguments of a command mean: of one input field all of them, of several one item."""
    kinds = predictor.inputs
    for word, kind in zip(arguments, [*kinds.values()] * (len(arguments) if len(kinds) == 1 else 1), strict=False):
        if kind.kind == "text":
            check_no_file(word, how="")
    if len(kinds) == 1:
        ((field, kind),) = kinds.items()
        yield from in_batches(
            Item(
                number,
                printable(source.name),
                source.name if kind.media_types else str(source.value),
                partial(_read_source, predictor, field, source),
                is_file=bool(kind.media_types),
            )
            for number, source in enumerate(kind.sources(arguments), 1)
        )
    elif arguments:
        if len(arguments) != len(kinds):
            raise BadInput(f"This model takes {len(kinds)} inputs ({', '.join(kinds)}), got {len(arguments)}.")
        values, name = dict(zip(kinds, arguments, strict=True)), " | ".join(arguments)
        yield [Item(1, name, name, lambda: predictor.read_item(values))]


def _read_source(predictor: Predictor, field: str, source: Any) -> Any:
    if source.problem:
        raise BadInput(source.problem)
    return predictor.read_item({field: source.value})


def in_batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield items in batches that grow from one item."""
    batch, size = list[Item](), 1
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch, size = [], min(2 * size, BATCH_SIZE)
    if batch:
        yield batch
