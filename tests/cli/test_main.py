"""One place where anything that goes wrong becomes one line and an exit status."""

import ast
import errno
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import regard
from regard import cli
from regard.core.errors import BadInput


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (BadInput("the file\nis damaged"), 1, "regard: the file is damaged"),
        (OSError(errno.ENOSPC, "No space left on device", "a.png"), 1, "regard: a.png: no space left on device (make"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), 1, "regard: a: permission denied"),
        (MemoryError(), 1, "regard: out of memory"),
        (typer.BadParameter("no"), 2, "regard: invalid value: no"),
        (ZeroDivisionError("division by zero"), 70, "regard: this should not have happened: ZeroDivisionError"),
        (KeyboardInterrupt(), 130, "regard: interrupted"),
        (BrokenPipeError(), 141, ""),
    ],
)  # fmt: skip
def test_errors_become_one_line_and_a_status(error, status, said, capsys, monkeypatch):
    monkeypatch.delenv("REGARD_DEBUG", raising=False)

    def work():
        raise error

    assert cli.run_with_error_handling(work) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(said)
    assert captured.err.count("\n") == bool(said)


def test_debugging_shows_where(capsys, monkeypatch):
    monkeypatch.setenv("REGARD_DEBUG", "1")

    def work():
        raise BadInput("no")

    assert cli.run_with_error_handling(work) == 1
    assert "Traceback" in capsys.readouterr().err


def test_warnings_are_kept_from_users_and_from_nobody_else(recwarn):
    import warnings

    def work():
        warnings.warn("for developers", stacklevel=1)
        return 0

    assert cli.run_with_error_handling(work) == 0
    assert not recwarn.list
    warnings.warn("still heard", UserWarning, stacklevel=1)
    assert [str(w.message) for w in recwarn.list] == ["still heard"]


def test_every_verb_explains_itself_with_an_example(capsys):
    for verb in ("translate", "see", "train", "eval", "data", "cost", "doctor", "list", "show", "tokens"):
        assert cli.main([verb, "--help"]) == 0
        out = capsys.readouterr().out
        assert f"Usage: regard {verb}" in out
        assert f" regard {verb} " in out.split("Usage", 1)[1].split("\n", 1)[1]


def test_examples_of_help_fit_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in cli._app().registered_commands:
        examples = [line.strip() for line in command.callback.__doc__.split("\n") if line.startswith("      regard ")]
        assert cli.main([command.name, "--help"]) == 0
        printed = [line.strip() for line in capsys.readouterr().out.split("\n")]
        assert set(examples) <= set(printed), command.name


def test_an_unknown_name_offers_the_nearest(capsys):
    for words, said in (
        (["list", "atention"], "did you mean 'attention'?"),
        (["show", "transfomer"], "did you mean 'transformer'?"),
        (["train", "translate_multi30k_tyni", "--out", "/nowhere"], "did you mean 'transformer_multi30k'?"),
        (["train", "transformer_multi30k", "steps=3", "--out", "/nowhere"], "settings begin with one of"),
    ):
        assert cli.main(words) == 1
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_what_runs_out_of_memory_says_how_less_is_needed(capsys):
    import torch

    from regard.core.errors import oom_advice

    def full():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of")

    def advised():
        with oom_advice("give fewer beams"), oom_advice("give smaller images"):
            full()
        return 0

    assert cli.run_with_error_handling(full) == 1
    assert capsys.readouterr().err == "regard: out of memory; give it less at a time, or a smaller model\n"
    assert cli.run_with_error_handling(advised) == 1
    assert capsys.readouterr().err == "regard: out of memory; give smaller images\n"  # the innermost knows best


def test_other_errors_pass_through_advice_on_memory_unchanged():
    from regard.core.errors import oom_advice

    with pytest.raises(ZeroDivisionError), oom_advice("no"):
        raise ZeroDivisionError


def test_a_program_ends_without_a_last_collection_and_a_caller_of_main_goes_on(monkeypatch):
    registered = []
    monkeypatch.setattr(cli.atexit, "register", registered.append)
    monkeypatch.setattr(sys, "argv", ["regard", "--version"])
    assert cli.main(["--version"]) == 0
    assert not registered
    assert cli.main() == 0
    (at_exit,) = registered
    frozen = []
    monkeypatch.setattr(cli.gc, "freeze", lambda: frozen.append(True))
    monkeypatch.setitem(sys.modules, "triton", None)  # training brings it: what it leaves, it reports on stderr
    at_exit()
    assert not frozen
    monkeypatch.delitem(sys.modules, "triton")
    at_exit()
    assert frozen == [True]


def test_python_m_regard_is_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "regard", "--version"], capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"regard {regard.__version__}")
    done = subprocess.run(
        [sys.executable, "-m", "regard", "nothing"], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 2


def test_an_option_whose_metavar_repeats_its_name_is_declared():
    """typer 0.27 calls `split: Option(metavar="SPLIT")` --SPLIT, unless the option's name is given."""
    for file in (Path(regard.__file__).parent / "cli").glob("*.py"):
        for each in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name, annotation = None, None
            if isinstance(each, ast.arg):
                name, annotation = each.arg, each.annotation
            elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):  # a shared annotation
                name, annotation = each.targets[0].id, each.value
            for call in ast.walk(annotation) if annotation else ():
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "typer.Option":
                    metavar = next((ast.unparse(k.value) for k in call.keywords if k.arg == "metavar"), "")
                    declared = any(ast.unparse(argument).startswith("'-") for argument in call.args)
                    assert declared or metavar != repr(str(name).upper()), f"{file.name}:{each.lineno}: {name}"


def test_names_in_a_message_do_not_drive_the_terminal(capsys):
    from regard.cli import run_with_error_handling
    from regard.core.errors import BadInput

    def work():
        raise BadInput("there is no \x1b[2J\x9b")

    assert run_with_error_handling(work) == 1
    assert capsys.readouterr().err == "regard: there is no \\x1b[2J\\x9b\n"


def test_a_message_on_a_terminal_is_broken_between_words(capsys, monkeypatch):
    line = (
        "the picture's colours, contrasts or layout are unlike those of the training pictures; the answer may be wrong"
    )
    cli.print_status(line)
    assert capsys.readouterr().err == f"regard: {line}\n"  # one line where another program reads it
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli.print_status(line)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0].startswith("regard: the picture's")
    assert all(each.startswith("        ") for each in lines[1:])
    assert " ".join(" ".join(lines).split()) == f"regard: {line}"


def test_help_shows_flags_without_a_value_and_arguments_once(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for verb in ("see", "classify", "train", "run"):
        assert cli.main([verb, "--help"]) == 0
        out = capsys.readouterr().out
        assert not any(each in out for each in ("bool", "list[", "...}...", "...]..."))
        assert verb == "run" or " -h " in out


def test_a_wrong_value_is_told_without_the_parser_s_own_words(capsys):
    for words, said in (
        (["translate", "Hello", "--to", "de", "--beam-size", "many"], "--beam-size"),
        (["translate", "Hello", "--to", "de", "--beam-size", "0"], "--beam-size"),
        (["see", "Hello", "--view", "nosuch"], "'nosuch' is not one of"),
    ):
        assert cli.main(words) == 2
        err = capsys.readouterr().err
        assert said in err
        assert not any(each in err for each in ("Value error", "Input should", "unable to parse"))
