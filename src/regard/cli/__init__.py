"""The command line: one verb per file, and one place where an error becomes one line and an exit status.

    status   what happened
    0        success
    1        something failed, or some of the input could not be used; stderr says what
    2        the command was not understood
    70       a bug in Regard; REGARD_DEBUG=1 shows the traceback
    130      interrupted (Ctrl-C)
    141      the reader of the output closed the pipe

Nothing heavy is imported before a verb needs it, so that ``regard --help`` answers at once.
"""

from __future__ import annotations

import atexit
import errno
import gc
import inspect
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, Any

import typer
import typer.main

import regard
from regard.core.errors import RegardError, is_out_of_memory
from regard.core.terminal_text import printable, terminal_width, wrap

FAILED, USAGE, BUG, INTERRUPTED, BROKEN_PIPE = 1, 2, 70, 130, 141


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    if words is None:  # the process ends with it: a last collection over all of torch's objects would take a second
        atexit.register(_skip_last_collection)
    return run_with_error_handling(lambda: _run(sys.argv[1:] if words is None else words))


def _skip_last_collection() -> None:
    if "triton" not in sys.modules:  # its bindings print a page on stderr about every object that is left
        gc.freeze()


def run_with_error_handling(work: Callable[[], int]) -> int:
    """Run some work and return its exit status; an error becomes one line, with a traceback if REGARD_DEBUG is set."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # text is UTF-8 wherever it goes; what cannot be written is spelled out
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    notes, log = _LogHandler(logging.WARNING), logging.getLogger("regard")
    level = log.level
    log.addHandler(notes)
    try:
        with warnings.catch_warnings():
            if not is_debug() and not sys.warnoptions:
                warnings.simplefilter("ignore")  # they are for whoever writes code, not for whoever runs it
            status = work()
        sys.stdout.flush()
        return status
    except BaseException as error:
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        line, status = describe_error(error)
        if is_debug() and status not in (INTERRUPTED, BROKEN_PIPE, USAGE):
            traceback.print_exception(error)
        if line:
            print_status(line)
        return status
    finally:
        log.removeHandler(notes)
        log.setLevel(level)  # a service raises it; whoever calls main from Python keeps theirs
        _flush_stdout()


def is_debug() -> bool:
    """Return whether tracebacks are wanted."""
    return os.environ.get("REGARD_DEBUG", "") not in ("", "0")


def print_status(line: str) -> None:
    """Print a line on stderr; on a terminal it is broken between words."""
    with suppress(OSError, ValueError):  # where stderr is gone, nobody can be told
        text, width = f"regard: {printable(line, kept=chr(10))}", sys.stderr and terminal_width(sys.stderr)
        if width:
            fitted = (wrap(each, width, hanging=8) if len(each) > width else [each] for each in text.split("\n"))
            text = "\n".join(line for lines in fitted for line in lines)
        print(text, file=sys.stderr, flush=True)


def describe_error(error: BaseException) -> tuple[str, int]:
    """Return the one-line message of an error and its exit status."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "", BROKEN_PIPE
    if isinstance(error, RegardError):
        return text, FAILED
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fspath(error.filename)!s}: " if error.filename is not None else ""
        hint = " (make room and run it again)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return f"{where}{error.strerror.lower()}{hint}", FAILED
    if is_out_of_memory(error):
        return "out of memory; give it less at a time, or a smaller model", FAILED
    if callable(getattr(error, "format_message", None)):  # the command line's own: a wrong option, a missing argument
        words = " ".join(str(error.format_message()).split()).rstrip(".")  # type: ignore[attr-defined]
        words = re.sub(r"Value error, |, unable to parse string as \w+ \w+", "", words)  # typer's, from pydantic
        words = words.replace("Input should be", "it should be")
        return f"{words[:1].lower()}{words[1:]}{_help_hint(error)}", USAGE
    again = "run again with REGARD_DEBUG=1 for the traceback"
    return f"this should not have happened: {type(error).__name__}: {text} ({again})", BUG


class _LogHandler(logging.Handler):
    """Prints warnings and errors of the library as status lines, and the traceback of an error that is a bug."""

    def emit(self, record: logging.LogRecord) -> None:
        print_status(record.getMessage())
        if record.exc_info:
            traceback.print_exception(record.exc_info[1])


def _run(words: Sequence[str]) -> int:
    """Parse the words and run the verb; not by the parser's own `main`, which handles errors its own way."""
    command: Any = typer.main.get_command(_app())
    _simplify_help(command)
    try:
        with command.make_context("regard", [*words] or ["--help"]) as context:
            result = command.invoke(context)
    except typer.Exit as stop:  # --help, --version, or a verb that is done
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0


def _simplify_help(command: Any, above: Any = None) -> None:
    """Take from the help of a command, and of those below it, what some versions of typer add: <bool> after a flag, as
    if a value had to follow, <list[str]> after an argument, and its dots twice."""
    context = typer.Context(command, parent=above, **command.context_settings)
    for each in filter(None, (*command.params, command.get_help_option(context))):
        if getattr(each, "is_flag", False) or each.param_type_name == "argument":
            each.display_type_rich = lambda ctx: None
        if any("...}..." in piece or "...]..." in piece for piece in each.get_usage_pieces(context)):
            each.metavar = each.metavar.removesuffix("...")
    for each in getattr(command, "commands", {}).values():
        _simplify_help(each, context)


def _app() -> typer.Typer:
    # From here on `list` and `eval` in this file are the verbs: a package holds its files under their names.
    from regard.cli import (
        advise,
        answer,
        ask,
        caption,
        classify,
        compare,
        cost,
        data,
        depth,
        detect,
        doctor,
        embed,
        eval,
        explore,
        export,
        fill,
        finish,
        generate,
        handwrite,
        list,
        near,
        pronounce,
        run,
        search,
        see,
        segment,
        serve,
        show,
        tokens,
        train,
        transcribe,
        translate,
    )
    from regard.cli.options import with_strict

    app = typer.Typer(
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit status: 0 success, 1 something failed (stderr says what), 2 wrong usage, 70 a bug in Regard, "
        "130 interrupted.",
    )

    @app.callback(help=_HELP)
    def everything(
        version: Annotated[
            bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
        ] = False,
    ) -> None:
        pass

    verbs: tuple[tuple[str, str, Callable[..., int]], ...] = (
        ("Use", "translate", translate.translate),
        ("Use", "generate", generate.generate),
        ("Use", "classify", classify.classify),
        ("Use", "detect", detect.detect),
        ("Use", "segment", segment.segment),
        ("Use", "depth", depth.depth),
        ("Use", "transcribe", transcribe.transcribe),
        ("Use", "pronounce", pronounce.pronounce),
        ("Use", "handwrite", handwrite.handwrite),
        ("Use", "fill", fill.fill),
        ("Use", "answer", answer.answer),
        ("Use", "ask", ask.ask),
        ("Use", "caption", caption.caption),
        ("Use", "embed", embed.embed),
        ("Use", "search", search.search),
        ("Use", "near", near.near),
        ("Use", "see", see.see),
        ("Use", "explore", explore.explore),
        ("Use", "serve", serve.serve),
        ("Use", "export", export.export),
        ("Train", "train", train.train),
        ("Train", "finish", finish.finish),
        ("Train", "compare", compare.compare),
        ("Train", "eval", eval.evaluate),
        ("Look up", "tokens", tokens.tokens),
        ("Look up", "cost", cost.cost),
        ("Look up", "advise", advise.advise),
        ("Look up", "doctor", doctor.doctor),
        ("Look up", "list", list.list_things),
        ("Look up", "show", show.show_card),
    )
    app.command("run", help=_help_text(run.run.__doc__ or ""), rich_help_panel="Use", context_settings=run.CONTEXT)(
        with_strict(run.run)
    )
    for panel, name, verb in verbs:
        runs_model = panel == "Use" and name not in ("explore", "serve", "export")
        app.command(name, help=_help_text(verb.__doc__ or ""), rich_help_panel=panel)(
            with_strict(verb) if runs_model else verb
        )
    app.add_typer(data.group(), name="data", rich_help_panel="Train")
    return app


_HELP = """Attention and Transformers: run models, see their attention, train.

\b
  regard translate "Two dogs are playing in the snow." --to de
  regard translate --to fr < english.txt > french.txt
  regard see "Two dogs are playing in the snow." --to de
  regard list attention          regard show transformer
  regard train transformer_multi30k --quick

Help for a command: regard translate --help
"""


def _help_text(text: str) -> str:
    """Return a docstring as help: one line per paragraph, to be wrapped; examples (after a \\b) stay as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(p if p.startswith("\b") else " ".join(p.split()) for p in paragraphs)


def _version(asked: bool) -> None:
    if asked:
        print(f"regard {regard.__version__}")
        raise typer.Exit


def _help_hint(error: BaseException) -> str:
    path = getattr(getattr(error, "ctx", None), "command_path", "regard")
    return f" ({path} --help explains)"


def _flush_stdout() -> None:
    """Flush stdout; where that fails (a closed pipe, a full disk), Python must not try again at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
