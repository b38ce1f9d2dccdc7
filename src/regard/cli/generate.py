"""``regard generate``: prompts in, texts out, as they are written.

A prompt that cannot be used (empty, no UTF-8, too long for the model) is named on stderr and leaves an empty text, so
that text 7 always belongs to prompt 7, of JSON with "error"; the status at the end is 1. All others are written on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.line_processor import LineProcessor
from regard.cli.options import SAMPLING, SEARCH, Device, Int8, Json, MinP, Seed, TopK, Verbose

if TYPE_CHECKING:
    from regard.cli.lines import Line

ESCAPES = {"\\n": "\n", "\\t": "\t"}  # what a shell makes hard to write


def generate(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT...", help="What to write on from; without it, lines are read from stdin."),
    ] = None,
    model: Annotated[
        str, typer.Option(metavar="NAME", help="A model by name (regard list zoo), a folder, a run, or a GPT-2 folder.")
    ] = "shakespeare",
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many tokens.", show_default="200")
    ] = None,
    num_candidates: Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="Texts for each prompt.")] = 1,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End before this; \\n is a line end. May be given several times."),
    ] = None,
    slide: Annotated[
        bool, typer.Option("--slide", help="Let the oldest tokens go where a text outgrows the model.")
    ] = False,
    temperature: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="X",
            help="Below 1 safer, above 1 wilder; 0 takes the likeliest.",
            show_default="0.8",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    top_k: TopK = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="X",
            help="Draw from the likeliest tokens that make up this much probability.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    min_p: MinP = None,
    repetition_penalty: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            metavar="X",
            help="Above 1, what the text holds already is less likely.",
            rich_help_panel=SAMPLING,
        ),
    ] = None,
    seed: Seed = None,
    beam_size: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, metavar="N", help="Look for the likeliest text, so many at a time.", rich_help_panel=SEARCH
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(metavar="X", help="Of beams: scores are divided by length to this power.", rich_help_panel=SEARCH),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Show a text while it is written.", show_default="where it is one"),
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
    int8: Int8 = False,
    verbose: Verbose = False,
) -> int:
    """Write on from prompts, or answer them, with a language model.

    A language model's text follows its prompt; the answer of a text-to-text model stands by itself. Several texts are
    parted by an empty line. A prompt and text that outgrow the positions a model has learned are refused, or slide
    through it with --slide; a model whose positions have no end (shakespeare) writes on.

    \b
      regard generate "ROMEO:" --max-new-tokens 400 --slide
      regard generate "To be, or not" --num-candidates 3 --temperature 1 --min-p 0.05
      regard generate "JULIET:" --stop "\\n\\n" --json
    """
    if stream and (as_json or num_candidates > 1 or (beam_size or 1) > 1):
        raise typer.BadParameter(
            "--stream shows one text while it is written; not with --num-candidates, --beam-size or --json"
        )
    from regard.cli import FAILED, lines, print_status
    from regard.cli.prepare import describe_device

    given = {"max_new_tokens": max_new_tokens, "num_candidates": num_candidates,
             "stop": [_unescaped(s) for s in stop or ()], "slide": slide, "temperature": temperature, "top_k": top_k,
             "top_p": top_p, "min_p": min_p, "seed": seed,
             "repetition_penalty": repetition_penalty, "beam_size": beam_size,
             "length_penalty": length_penalty}  # fmt: skip
    asked = {name: value for name, value in given.items() if value is not None and value is not False and value != []}
    windows = _prompt_lines(prompt) if prompt else lines.read_lines(None, "prompts")
    alone = num_candidates == 1 and (beam_size or 1) == 1 and (bool(stream) or len(prompt or ()) == 1)
    work = _Processor(load_generator(model, device, int8, alone), asked, as_json)
    follow = stream or (stream is None and bool(prompt) and len(prompt or ()) == 1 and work.can_stream(asked))
    for window in windows:
        work.check(window)
        if follow:
            work.follow(window)
        else:
            work.write(window)
    if verbose:
        print_status(work.speed(describe_device(work.predictor)))
    if not work.done and not work.bad:
        print_status("there is nothing to write on from: the input is empty")
        return FAILED
    return FAILED if work.bad else 0


def load_generator(model: str, device: str = "auto", int8: bool = False, alone: bool = False) -> Any:
    """The model of a name or a folder (a saved one, a whole run, or a GPT-2 of transformers), ready to write."""
    from regard.cli.prepare import load_predictor, prepare_predictor
    from regard.core.errors import BadInput
    from regard.tasks.text.translation import Translator

    found = load_predictor(model)
    if not hasattr(found, "continues"):
        kind = type(found).__name__
        if isinstance(found, Translator):
            raise BadInput(f"{model} is a translator; use it with regard translate")
        why = "it has no vocabulary (tokenizer.json)" if hasattr(found, "parameters") else "it answers otherwise"
        raise BadInput(f"{model} is a {kind}, which cannot be asked to write: {why}")
    return prepare_predictor(found, device, int8, alone)


class _Processor(LineProcessor[list[dict[str, Any]]]):
    """Windows of prompts in, texts out; keeps count."""

    noun = "prompt"
    failure_message = "could not be written on: {}"
    memory_advice = "ask for fewer tokens, samples or beams"

    def __init__(self, predictor: Any, asked: dict[str, Any], as_json: bool) -> None:
        super().__init__()
        self.predictor, self.as_json = predictor, as_json
        self.how = _generation_options(asked) if predictor.continues else _answer_options(asked)
        self.tokens = 0

    def can_stream(self, asked: dict[str, Any]) -> bool:
        """Whether a text can be shown while it is written."""
        one = asked["num_candidates"] == 1 and asked.get("beam_size", 1) == 1
        return hasattr(self.predictor, "stream") and self.predictor.continues and one and not self.as_json

    def follow(self, window: list[Line]) -> None:
        """One prompt after the other, shown while it is written."""
        from regard.core.errors import BadInput

        if not (self.predictor.continues and hasattr(self.predictor, "stream")):
            raise BadInput("this model's answers cannot be shown while they are written; leave out --stream")
        for line in window:
            began, first = time.monotonic(), True
            _out("\n" * (self.done > 0))
            for piece in self.predictor.stream(line.text, **self.how):
                _out(line.text + piece if first else piece)
                first = False
            _out("\n" if not first else f"{line.text}\n")
            self.seconds += time.monotonic() - began
            self.done += 1

    def write(self, window: list[Line]) -> None:
        """All prompts of a window at once."""
        usable = [line for line in window if line.text or not line.problem]
        found = dict(zip([line.number for line in usable], self.predict_with_fallback(usable, lost=[]), strict=True))
        for line in window:
            for output in found.get(line.number) or [{"text": "", **self.error(line)}]:
                self._show(line, output)

    def _show(self, line: Line, output: dict[str, Any]) -> None:
        if self.as_json:
            _out(json.dumps({"number": line.number, "prompt": line.text, **output}, ensure_ascii=False) + "\n")
        elif self.predictor.continues:
            _out("\n" * (self.done > 0) + f"{line.text}{output['text']}\n")
        else:
            _out(f"{output['text']}\n")
        self.done += 1

    def predict(self, some: list[Line]) -> list[list[dict[str, Any]]]:
        """Of each prompt its texts, with what is known of them."""
        prompts = [line.text for line in some]
        if self.predictor.continues:
            found = self.predictor.candidates(prompts, numbers=[line.number - 1 for line in some], **self.how)
            self.tokens += sum(len(one.tokens) for each in found for one in each)
            return [
                [
                    {
                        "text": one.text,
                        "tokens": len(one.tokens),
                        "score": one.score,
                        "finish_reason": one.finish_reason,
                    }
                    for one in each
                ]
                for each in found
            ]
        answers = self.predictor.candidates(prompts, **self.how)
        listed = [[candidate.text for candidate in each] for each in answers]
        self.tokens += sum(map(len, self.predictor.text.encode([text for each in listed for text in each])))
        return [[{"text": text} for text in each] for each in listed]

    def speed(self, where: str) -> str:
        """One honest line."""
        seconds = max(self.seconds, 1e-9)
        texts = f"{self.done:,} text{'s' if self.done != 1 else ''}"
        rate = f", {self.tokens:,} tokens: {self.tokens / seconds:,.0f} tokens/s" if self.tokens else ""
        return f"{texts} in {self.seconds:.1f} s{rate} ({where})"


def _generation_options(asked: dict[str, Any]) -> dict[str, Any]:
    """The options as a TextGenerator's settings."""
    from regard.tasks.text.language_modeling import ContinuationConfig

    how = {"temperature": 0.8} | asked if asked.get("beam_size", 1) == 1 else asked
    ContinuationConfig(**how)
    return how


def _answer_options(asked: dict[str, Any]) -> dict[str, Any]:
    """The options as the settings of a model that answers, whose search is a translator's."""
    for name in ("stop", "slide", "repetition_penalty"):
        if name in asked:
            raise typer.BadParameter(f"--{name.replace('_', '-')} is for models that write on; this one answers")
    drawing = ("temperature", "top_k", "top_p", "min_p", "seed")
    drawn: dict[str, Any] = {name: asked[name] for name in drawing if name in asked}
    how: dict[str, Any] = {
        name: asked[name] for name in ("max_new_tokens", "beam_size", "length_penalty") if name in asked
    }
    if drawn.get("temperature") == 0:
        return how | {"beam_size": 1}
    if drawn:
        how |= drawn | {"sample": True}
    return how | {
        "num_candidates": asked["num_candidates"],
        "beam_size": max(asked.get("beam_size", 4), asked["num_candidates"]),
    }


def _prompt_lines(prompts: list[str]) -> Iterator[list[Line]]:
    """Prompts from the command line, each as it stands, line ends and all."""
    from regard.cli.lines import Line

    yield [Line(number, text) for number, text in enumerate(prompts, 1)]


def _unescaped(text: str) -> str:
    for written, meant in ESCAPES.items():
        text = text.replace(written, meant)
    return text


def _out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
