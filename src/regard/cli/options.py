"""Options of several verbs, each with one meaning and one line of help, and options made from a predictor's own."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import fields
from functools import wraps
from typing import Annotated, Any

import typer

from regard.core.errors import BadInput, RegardError

Device = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda, cuda:1, ...; auto is the GPU where there is one.")
]
Int8 = Annotated[
    bool, typer.Option("--int8", help="Use 8-bit weights and products: faster on a CPU, nearly the same text.")
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, max=2**32 - 1, metavar="N", help="Seed of the samples.", show_default="0", rich_help_panel="Sampling"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON for each output.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print the speed and the device on stderr.")]

Verb = Callable[..., int]

_strict: ContextVar[bool] = ContextVar("strict", default=False)


def is_strict() -> bool:
    """Return whether an input that is unlike the training data of a model is an error in this command (--strict)."""
    return _strict.get()


def print_domain_note(note: str) -> None:
    """Say on stderr what is unusual about the one input of a command ("" where nothing is); with --strict refuse it."""
    from regard.cli import print_status

    if note and is_strict():
        raise BadInput(note)
    if note:
        print_status(note)


def with_strict(verb: Verb) -> Verb:
    """Add the option --strict to a verb that runs a model."""
    option = typer.Option("--strict", help="Refuse an input that is unlike what the model was trained on.")
    parameters = inspect.signature(verb, eval_str=True).parameters
    own = inspect.Parameter("strict", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])

    @wraps(verb)
    def call(*, strict: bool = False, **given: Any) -> int:
        token = _strict.set(strict)
        try:
            return verb(**given)
        finally:
            _strict.reset(token)

    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters.values()] + [own]
    )
    call.__annotations__ = {each.name: each.annotation for each in (*parameters.values(), own)}
    return call


def with_options(
    config: type,
    names: Iterable[str],
    complete: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    shown_defaults: Mapping[str, str] | None = None,
    **short: str,
) -> Callable[[Verb], Verb]:
    """Replace the argument `options` of a verb by an option for each of these fields of a config.

    Type, range, help and group are those of the field; `short` are one-letter names (``num_candidates="-k"``). The verb
    gets the values that were given, by name, after the config has accepted them with those that `complete` adds.
    """
    hints, declared = typing.get_type_hints(config), {field.name: field for field in fields(config)}
    made = [
        _parameter(declared[name], hints[name], (shown_defaults or {}).get(name), short.get(name, "")) for name in names
    ]

    def decorate(verb: Verb) -> Verb:
        @wraps(verb)
        def call(**given: Any) -> int:
            values = {each.name: given.pop(each.name) for each in made}
            values = {name: value for name, value in values.items() if value is not None and value is not False}
            make_options(config, complete(values) if complete else values)
            return verb(**given, options=values)

        own = inspect.signature(verb, eval_str=True).parameters.values()
        parameters = [each for old in own for each in (made if old.name == "options" else [old])]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        return call

    return decorate


def make_options(config: Any, values: Mapping[str, Any]) -> Any:
    """Return the options of a config, or of a predictor; what it refuses is a wrong use of the command."""
    from regard.core.config import from_dict

    try:
        made = config.fill_options(values) if hasattr(config, "fill_options") else from_dict(config, values)
        if hasattr(made, "refuse_unused"):
            made.refuse_unused(values)
    except RegardError as error:
        raise typer.BadParameter(_with_flags(str(error), getattr(config, "options", config))) from None
    return made


def _with_flags(message: str, config: type) -> str:
    """Return a message with --flags for the names of options: those in backticks, and those with an underscore."""
    names = "|".join(["`\\w+`", *(field.name for field in fields(config) if "_" in field.name)])
    return re.sub(rf"({names})(?!\w)", lambda found: f"--{found[0].strip('`').replace('_', '-')}", message)


def _parameter(field: Any, hint: Any, default: str | None, short: str) -> inspect.Parameter:
    """Return the parameter of one field; None, or False of a flag, where it was not given."""
    if isinstance(hint, types.UnionType):
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    kind = list[str] if typing.get_args(hint) == (str, ...) else hint
    bounds = (getattr(field.metadata.get("range"), end, None) for end in ("low", "high"))
    low, high = (None if x is None or abs(x) > 2**32 else x for x in bounds)  # 64 bits of a seed would fill the help
    is_shown = field.default not in (None, "", ()) and field.default is not False
    name, text = f"--{field.name.replace('_', '-')}", field.metadata["help"]
    option = typer.Option(
        name,
        *([short] if short else []),
        min=low,
        max=high,
        metavar=None if hint is bool else {int: "N", float: "X"}.get(hint, "TEXT"),
        help=f"{text[:1].upper()}{text[1:]}{'; may be repeated' if kind is not hint else ''}.",
        show_default=default or (str(field.default) if is_shown else False),
        rich_help_panel=field.metadata.get("group") or None,
    )
    annotation = Annotated[hint if hint is bool else kind | None, option]
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=False if hint is bool else None, annotation=annotation
    )
