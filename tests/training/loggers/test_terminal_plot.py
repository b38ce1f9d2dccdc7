"""The curve in the terminal: as text, and in a pseudo-terminal."""

import math
import os
import re
import sys
import threading
from itertools import product

import pytest

from regard.metrics.base import BLEU
from regard.training.loggers.terminal_plot import TerminalPlot, render_curve

CURVE = [
    {"step": s, "loss": 2 + 4 * math.exp(-s / 200), "lr": s * 1e-6, "tokens_per_second": 900.0} for s in range(1, 1001)
]
INSPECTIONS = [
    {"step": s, "epoch": 1, "val_loss": 2.5 + abs(s - 600) / 500, "bleu": s / 50} for s in range(200, 1001, 200)
]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"step": 1}],
        [{"loss": 1.0}],
        [{"step": 7, "loss": 1.0}],
        [{"step": 7, "loss": 0.0}, {"step": 8, "loss": -3.0}],
        [{"step": 7, "loss": math.nan}, {"step": 8, "loss": math.inf}, {"step": 9, "loss": None}],
        [{"step": 7, "loss": math.nan}, {"step": 8, "loss": 2.0}, {"step": 9, "val_loss": 1e30}],
        [{"step": 7, "val_loss": 3.0}],
        [{"step": 7, "bleu": 3.0, "note": "words", "done": True}],
        CURVE + INSPECTIONS,
    ],
    ids=[
        "nothing",
        "no numbers",
        "no step",
        "one point",
        "negative",
        "not finite",
        "some",
        "validation",
        "score",
        "all",
    ],
)
def test_the_drawing_has_the_size_it_was_given_whatever_the_rows(rows):
    for width, height in product((1, 12, 40, 79, 200), (1, 4, 8, 20, 60)):
        lines = render_curve(rows, width, height)
        assert len(lines) == height
        assert max(map(len, lines)) <= width


def test_axes_say_where_the_curve_begins_and_ends():
    text = "\n".join(render_curve(CURVE + INSPECTIONS, 79, 20))
    assert re.search(r"5\.98\d? ┤⢹?⡇?", text)  # 2 + 4 exp(-1/200)
    assert re.search(r"2\.027 ┤", text)
    axis = next(line for line in text.splitlines() if line.split() == ["1", "500", "1,000"])
    assert axis.rstrip().endswith("1,000")
    assert "loss 2.027   ○ val loss 3.3   ● best 2.5 at 600" in text


def test_the_line_falls_and_the_best_evaluation_is_marked():
    lines = render_curve(CURVE + INSPECTIONS, 79, 20)
    panel = [line for line in lines if "│" in line or "┤" in line]
    first = [next(i for i, c in enumerate(line) if c in "│┤") for line in panel]
    assert len(set(first)) == 1  # one axis
    tops = [row for column in (12, 40, 70) for row, line in enumerate(panel) if "⠁" <= line.ljust(80)[column] <= "⣿"]
    assert tops == sorted(tops)
    assert "".join(panel).count("●") == 1
    assert "".join(panel).count("○") == len(INSPECTIONS) - 1


def test_every_other_curve_is_a_line_of_blocks_with_its_newest_value():
    lines = render_curve(CURVE + INSPECTIONS, 79, 20, [BLEU])
    named = {line.split("▁")[0].strip(): line for line in lines if "▁" in line}
    assert named.keys() == {"BLEU", "lr", "tokens per second"}
    assert named["BLEU"].endswith("▁▃▅▆█ 20.00   best 20.00 at 1,000")
    assert named["lr"].endswith("█ 0.001")


def test_a_large_range_of_losses_gets_a_logarithmic_axis():
    rows = [{"step": s, "loss": 10.0 ** (2 - s)} for s in range(5)]
    labels = [float(line.split("┤")[0]) for line in render_curve(rows, 60, 12) if "┤" in line]
    assert labels == pytest.approx([100, 1, 0.01], rel=0.01)


def test_what_is_not_finite_is_counted():
    assert "1 not finite" in render_curve([{"step": 1, "loss": 2.0}, {"step": 2, "loss": math.nan}], 79, 10)[0]


# -- in a terminal -----------------------------------------------------------------------------------------------------


def in_terminal(monkeypatch, width, height, encoding="utf-8"):
    """A terminal of that size as stderr; returns a function that returns what was written to it."""
    actual, theirs = os.openpty()
    terminal = os.fdopen(theirs, "w", encoding=encoding)
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in (("COLUMNS", str(width)), ("LINES", str(height)), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    heard = []

    def listen():
        try:
            while some := os.read(actual, 65536):
                heard.append(some)
        except OSError:  # the other side is closed
            pass

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()

    def written():
        terminal.close()
        listener.join(20)
        assert not listener.is_alive()
        os.close(actual)
        return b"".join(heard).decode()

    return written


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (30, 6)])
def test_watching_shows_curve_status_and_lines(monkeypatch, width, height):
    written = in_terminal(monkeypatch, width, height)
    rows = []
    with TerminalPlot(2000, 0, rows, "tiny") as live:
        live.print_line("begin [bold]as written[/bold]")
        live.advance(1)
        rows += CURVE
        live.update(1000, {"loss": 2.027, "tokens/s": 900.0})
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written())
    assert "begin [bold]as written[/bold]" in text
    assert "⠉" in text or height < 24
    assert "1,000/2,000" in text
    assert max(len(line) for line in text.replace("\r", "\n").splitlines()) <= width


def test_the_picture_is_not_drawn_for_every_update(monkeypatch):
    written = in_terminal(monkeypatch, 80, 24)
    with TerminalPlot(10_000, 0, CURVE, "tiny") as live:
        for step in range(10_000):
            live.update(step, {"loss": 2.0})
    assert written().count("└") < 50


@pytest.mark.parametrize("watching", ["file", "latin terminal"])
def test_without_a_terminal_that_can_show_it_there_are_plain_lines(monkeypatch, capfd, watching):
    written = in_terminal(monkeypatch, 80, 24, "latin-1") if watching == "latin terminal" else None
    with TerminalPlot(100, 0, CURVE, "tiny", every=1000) as live:
        for step in range(1, 50):
            live.update(step, {"loss": 1.5})
            live.advance(step)
        live.print_line("something")
    lines = (written() if written else capfd.readouterr().err).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("step 1/100  loss 1.5  left ")
    assert lines[1] == "something"


def test_status_fits_its_width_and_says_what_is_left():
    live = TerminalPlot(8000, 0, [], "transformer_multi30k")
    live.numbers, live.done = {"loss": 2.5, "lr": 0.003, "tokens/s": 48210.0}, 2000
    for width in (10, 40, 80, 120):
        assert len(live.status(width)) <= width
    line = live.status(120)
    assert line.startswith("transformer_multi30k  ━")
    assert "2,000/8,000  loss 2.5  lr 0.003  tokens/s 48,210  left " in line
    assert live.status(60).startswith("2,000/8,000")
