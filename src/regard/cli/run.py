"""``regard run``: any model on any input that it takes.

    regard run MODEL INPUT...                        one input field: every argument is an item (text, file, folder)
    regard run MODEL FIELD1 FIELD2                   several input fields: the arguments are the fields of one item
    regard run MODEL --from rows.jsonl               many items, one JSON object a line
    regard run MODEL INPUT... --option value         options of the model: regard run MODEL --help lists them

Everything comes from the predictor's declaration (tasks.predictor): types of inputs, outputs and options.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json, make_options
from regard.core.errors import BadInput, RegardError, UnknownName, did_you_mean

if TYPE_CHECKING:
    from regard.cli.batch_runner import Item, Result
    from regard.tasks.predictor import Predictor

CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def run(
    context: typer.Context,
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A model by name (regard list zoo), a folder, or a run.")
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="INPUT...", help="Texts or files, as the model takes them.")
    ] = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="Items as JSON, one object a line; - is stdin.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Draw outputs over their pictures or points: a file (.png, .svg; .gif: every step), or a folder.",
        ),
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
) -> int:
    """Run any model on any input that it takes, and print its outputs.

    Output n belongs to input n. An input that cannot be used is named on stderr and makes the exit status 1. regard run
    MODEL --help lists the options of a model.

    \b
      regard run fashion boot.png shoes/ --json
      regard run en-de "Good morning." --beam-size 8
      regard run runs/detector street.jpg --out boxes.png
      regard run runs/point_scenes scene.ply --out labels.png
    """
    words = [*(inputs or ()), *context.args]
    if model is None or model in ("-h", "--help"):
        print(context.get_help())
        return 0
    from regard.cli import print_status
    from regard.cli.batch_runner import BatchRunner, argument_items
    from regard.cli.prepare import load_predictor_as, prepare_predictor
    from regard.tasks.predictor import Predictor

    found = load_predictor_as(Predictor, model, "the bare model: it has no task and no declared inputs")
    if "--help" in words or "-h" in words:
        from regard.core.terminal_text import terminal_width

        print(describe_options(model, found, terminal_width()))
        return 0
    try:
        arguments, values = parse_options(type(found), words)
    except RegardError as error:
        raise typer.BadParameter(str(error)) from None
    if arguments and from_ is not None:
        raise typer.BadParameter("give inputs or --from, not both")
    if not arguments and from_ is None:
        raise typer.BadParameter("there is no input; give texts or files, or --from FILE")
    options = make_options(found, values)
    predictor = prepare_predictor(found, device)

    def draw(result: Result) -> None:
        if out is not None:
            print_status(draw_result(result, out))

    def show(result: Result) -> list[str]:
        if result.output is None:
            return []
        name = "" if len(arguments) == 1 else f"{result.item.name}\t"
        return [f"{name}{line}" for line in str(result.output).split("\n")]

    items = argument_items(predictor, arguments) if from_ is None else _json_items(predictor, from_)
    return BatchRunner.of(predictor, options).run(items, show, as_json, also=draw)


def parse_options(cls: type[Predictor], words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the inputs and the options (``--name value``, ``--name=value``, ``--flag``) among words of a command."""
    from regard.core.config import parse_setting

    hints = typing.get_type_hints(cls.options)
    arguments: list[str] = []
    values: dict[str, Any] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            arguments += waiting
            break
        if not word.startswith("--"):
            arguments.append(word)
            continue
        flag, equals, text = word[2:].partition("=")
        name = flag.replace("-", "_")
        if name not in hints:
            known = [f"--{each.replace('_', '-')}" for each in hints]
            hint = did_you_mean(f"--{flag}", known) if known else "it has none"
            raise UnknownName(f"{cls.__name__} has no option --{flag}; {hint}")
        if hints[name] is bool and not equals:
            values[name] = True
            continue
        if not equals:
            if not waiting:
                raise BadInput(f"--{flag} needs a value.")
            text = waiting.pop(0)
        if typing.get_args(hints[name]) == (str, ...):  # repeated, since a text may contain commas
            values[name] = (*values.get(name, ()), text)
            continue
        value = parse_setting(text, hints[name], f"--{flag}")
        values[name] = (*values.get(name, ()), *value) if isinstance(value, tuple) else value
    return arguments, values


def describe_options(name: str, predictor: Predictor, width: int | None = None) -> str:
    """Return the help of one model: its inputs, its output and its options, in lines of a width."""
    from regard.core.terminal_text import fit_table

    cls = type(predictor)
    takes = ", ".join(f"{field} ({kind.__name__})" for field, kind in cls.inputs.items())
    lines = [f"{name}: {cls.__name__}", f"  inputs   {takes}", f"  output   {cls.outputs.__name__}"]
    hints, rows = typing.get_type_hints(cls.options), []
    for option in fields(cls.options):
        value = predictor.option_defaults.get(option.name, option.default)
        default = "" if value in (MISSING, None, "", ()) or value is False else f" [default: {value}]"
        flag = f"--{option.name.replace('_', '-')} {_value_name(hints[option.name])}".rstrip()
        rows.append({"option": flag, "description": f"{option.metadata.get('help', '')}{default}".strip()})
    if rows:
        table = fit_table(rows, ("option", "description"), (width or 10_000) - 4, first=max(map(len, hints)) + 8)
        lines += ["  options", *(f"    {line}" for line in table.split("\n")[1:])]
    return "\n".join(lines)


def _value_name(hint: Any) -> str:
    """Return how the help names the value of an option; a flag has none."""
    known = [_value_name(each) for each in typing.get_args(hint) if each not in (type(None), ...)]
    if typing.get_origin(hint) is typing.Literal:
        return "|".join(map(str, typing.get_args(hint)))
    if known:
        return f"{known[0]}..." if typing.get_origin(hint) is tuple else "|".join(each or "true" for each in known)
    return {bool: "", int: "N", float: "X", str: "TEXT"}.get(hint, getattr(hint, "__name__", str(hint)))


def _json_items(predictor: Predictor, rows: Path) -> Iterator[list[Item]]:
    """Yield the rows of a file of JSON lines as items."""
    from regard.cli import lines
    from regard.cli.batch_runner import line_items

    source = lines.read_batches(lines.stdin("rows") if str(rows) == "-" else lines.open_lines(rows))
    for batch in line_items(source, lambda line: _read_row(predictor, line)):
        yield [item for item in batch if item.read is not None or item.problem]


def _read_row(predictor: Predictor, line: str) -> Any:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInput("not JSON") from None
    if not isinstance(values, dict) and len(predictor.inputs) == 1:
        values = {next(iter(predictor.inputs)): values}
    if not isinstance(values, dict):
        raise BadInput(f"expected an object with {', '.join(predictor.inputs)}")
    return predictor.read_item(values)


def draw_result(result: Result, out: Path) -> str:
    """Draw the output of a result over its picture, to a file or into a folder, and return the line that says so.

    A file is .png or .svg; that of a picture drawn in steps may be .gif.
    """
    from regard.cli.output_files import describe_write
    from regard.core.files import atomic_write
    from regard.modalities.generated_image import GeneratedImage
    from regard.see.outputs import draw_output, is_drawable

    item, output, name = result.value, result.output, result.item.name
    path = out if out.suffix.lower() in (".png", ".svg", ".gif") else out / f"{Path(name).stem}.png"
    done = describe_write(path)
    if isinstance(output, GeneratedImage) and path.suffix.lower() in (".png", ".gif"):
        content = output.to_gif() if path.suffix.lower() == ".gif" else output.to_png()
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(content, path)
        return done
    if path.suffix.lower() == ".gif":
        raise BadInput(f"{type(output).__name__} has no steps to animate; use .png or .svg.")
    photo = item if not isinstance(item, dict) else next(filter(is_drawable, item.values()), None)
    if not is_drawable(photo):
        raise BadInput("--out draws over pictures and point clouds; this model takes none.")
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_output(photo, output, Path(name).name, path)
    return done
