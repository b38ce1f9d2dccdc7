"""``regard generate``: prompts in, texts out, as they are written."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Int8, Json, Verbose, make_options, with_options
from regard.core.errors import BadInput, with_article
from regard.decoding.generation_config import ContinuationConfig

if TYPE_CHECKING:
    from regard.cli.batch_runner import BatchRunner, Item, Result, Show

ESCAPES = {"\\n": "\n", "\\t": "\t"}  # hard to type in a shell
OPTIONS = ("max_new_tokens", "num_candidates", "stop", "slide", "temperature", "top_k", "top_p", "min_p",
           "repetition_penalty", "seed", "beam_size", "length_penalty")  # fmt: skip
TEMPERATURE = 0.8  # of samples, where none is given


def _unescape_stops(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with line ends and tabs in the stop strings."""
    stops = options.get("stop", ())
    for written, meant in ESCAPES.items():
        stops = [each.replace(written, meant) for each in stops]
    return {**options, "stop": stops} if stops else options


@with_options(ContinuationConfig, OPTIONS, shown_defaults={"temperature": f"{TEMPERATURE}"})
def generate(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT...", help="Texts to continue; without them, lines are read from stdin."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model by name (regard list zoo), a folder, a run, or a GPT-2 folder.")
    ] = "shakespeare",
    *,
    options: dict[str, Any],
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Print a text while it is written.", show_default="for one prompt"),
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
    int8: Int8 = False,
    verbose: Verbose = False,
) -> int:
    """Continue prompts, or answer them, with a language model.

    A language model prints the prompt and its continuation; a text-to-text model prints its answer alone. Several texts
    are separated by an empty line. A prompt that cannot be used (empty, not UTF-8, too long for the model) is named on
    stderr and makes the exit status 1. Text beyond the positions that a model has learned is refused, unless --slide
    drops the oldest tokens; a model with relative positions (shakespeare) has no such limit. In --stop, \\n is a line
    end.

    \b
      regard generate "ROMEO:" --max-new-tokens 400 --slide
      regard generate "To be, or not" --num-candidates 3 --min-p 0.05
      regard generate "JULIET:" --stop "\\n\\n" --json
    """
    is_single = options.get("num_candidates", 1) == 1 and options.get("beam_size", 1) == 1
    if stream and (as_json or not is_single):
        raise typer.BadParameter(
            "--stream prints one text while it is written; not with --num-candidates, --beam-size or --json"
        )
    from regard.cli import lines, print_status
    from regard.cli.batch_runner import BatchRunner, line_items

    prompt = None if prompt == ["-"] else prompt
    for each in prompt or ():
        lines.check_no_file(each)
    source = iter([[lines.Line(*each) for each in enumerate(prompt, 1)]]) if prompt else lines.read_lines(None, "text")
    one_prompt = len(prompt or ()) == 1
    generator = load_generator(model, device, int8, is_single and (bool(stream) or one_prompt))
    options = _complete(_unescape_stops(options), generator)
    search = make_options(generator, options)
    runner = BatchRunner.of(generator, search, "continue", "ask for fewer tokens, candidates or beams")
    items = line_items(source, lambda text: generator.read_item({"text": text}), "prompt", blank=True)
    can_stream = generator.continues and search.num_candidates == search.beam_size == 1 and not as_json
    if stream and not can_stream:
        raise BadInput("this model's answers cannot be printed while they are written; leave out --stream")
    if stream or (stream is None and one_prompt and can_stream):
        status = _stream(runner, generator, options, items)
    else:
        status = runner.run(items, _continuations() if generator.continues else _show_answers, as_json)
    if verbose and runner.done:
        print_status(runner.speed(generator))
    return status


def load_generator(model: str, device: str = "auto", int8: bool = False, alone: bool = False) -> Any:
    """Return the model of a name or a folder (a saved one, a whole run, or a GPT-2 of transformers), ready to write."""
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.tasks.text.translation import Translator

    found = load_predictor(model)
    if not hasattr(found, "continues"):
        if isinstance(found, Translator):
            raise BadInput(f"{model} is a translator; use it with regard translate")
        why = "it has no vocabulary (tokenizer.json)" if hasattr(found, "parameters") else "its output is not a text"
        raise BadInput(f"{model} is {with_article(type(found).__name__)}, which cannot continue a text: {why}")
    return prepare_predictor(found, device, int8, alone)


def _complete(options: dict[str, Any], generator: Any) -> dict[str, Any]:
    """Return the options with the defaults of this verb. A model that answers searches, unless it is told to sample."""
    defaults = generator.option_defaults
    if generator.continues:
        is_told = defaults or options.get("beam_size", 1) > 1
        return options if is_told else {"temperature": TEMPERATURE, **options}
    if options.get("temperature") == 0:
        return {"beam_size": 1} | {name: value for name, value in options.items() if name != "temperature"}
    if options.keys() & {"temperature", "top_k", "top_p", "min_p", "seed"}:
        return {**options, "sample": True}
    if "num_candidates" not in options or defaults.get("sample"):
        return options
    return {"beam_size": max(defaults.get("beam_size", 4), options["num_candidates"]), **options}


def _stream(runner: BatchRunner, generator: Any, options: dict[str, Any], batches: Iterator[list[Item]]) -> int:
    """Write one prompt after the other and print the pieces as they come."""
    for item in (item for batch in batches for item in batch):
        if item.problem:
            runner.report(item, item.problem)
        if item.read is None:
            continue
        value = item.read()
        if not runner.accepts(item, value):
            continue
        began, pieces = time.monotonic(), generator.stream(value, **options)
        _print("\n" * (runner.done > 0))
        first = next(pieces, "")  # a prompt that is refused is not printed
        _print(item.input + first)
        for piece in pieces:
            _print(piece)
        _print("\n")
        runner.seconds += time.monotonic() - began
        runner.done += 1
    return runner.finish()


def _continuations() -> Show:
    """Return what prints prompts with their continuations, an empty line between any two."""
    number = count()

    def show(result: Result) -> Iterator[str]:
        for text in [each.text for each in result.output.candidates] if result.output is not None else [""]:
            yield f"{chr(10) * (next(number) > 0)}{result.item.input}{text}"

    return show


def _show_answers(result: Result) -> list[str]:
    return [each.text for each in result.output.candidates] if result.output is not None else [""]


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
