"""Speech recognition over time.

    ctc_lattice        the spectrogram, the probability of every label, and the CTC lattice with its best path
    audio_alignment    the spectrogram, and the attention of every output word over the frames

All panels share one axis in seconds. The lattice has a row per state, blanks and labels in turn from the top; its
colour is the posterior of the state (γ of losses.ctc), its line the most likely path.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from regard.core.errors import BadInput
from regard.see.save import save
from regard.see.token_display import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

    from regard.see.layout import Layout

_PATH_COLOUR = "#38c7b4"  # stands out on magma
MAX_WORDS = 60  # words labelled above the spectrogram
_MIN_PROBABILITY = 0.02  # labels that never reach it are not drawn
_SPECTRUM, _GAP = 1.3, 0.42  # inches


def ctc_lattice(
    spectrum: np.ndarray,
    probabilities: np.ndarray,
    share: np.ndarray,
    path: np.ndarray,
    states: Sequence[str],
    labels: Sequence[str],
    seconds: float,
    title: str = "",
    file: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw the CTC lattice of one recording; also save it to `file` if given.

    Args:
        spectrum: T F; T is a multiple of N, or a few frames less.
        probabilities: N V, of the labels.
        share: N L, posterior of the states.
        path: N, the state at each frame of the most likely path; -1 for none.
        states, labels: their names.
        seconds: duration of one of the N frames.
    """
    from matplotlib.colors import Normalize, PowerNorm

    n, many = share.shape
    if probabilities.shape != (n, len(labels)) or path.shape != (n,) or len(states) != many or not n:
        raise BadInput(
            f"Shapes do not match: share {share.shape}, probabilities {probabilities.shape}, path {path.shape}, "
            f"{len(states)} state names, {len(labels)} labels."
        )
    shown = [k for k in range(len(labels)) if probabilities[:, k].max() >= _MIN_PROBABILITY] or [len(labels) - 1]
    heights = [_SPECTRUM, max(0.5, 0.17 * len(shown)), max(0.5, min(0.17 * many, 8.0))]
    layout, panels = _panels([*(labels[k] for k in shown), *states], heights, n, title)
    end = n * seconds
    _spectrum(panels[0], spectrum, n, end)
    begins = _begins(states, path)
    for word, at in begins if len(begins) <= MAX_WORDS else ():
        panels[0].axvline(at * seconds, color=_PATH_COLOUR, linewidth=0.8)
        _annotate(panels[0], at * seconds, word)
    _map(panels[1], probabilities[:, shown].T, end, [labels[k] for k in shown], Normalize(0, 1), "label probability")
    _map(panels[2], share.T, end, list(states), PowerNorm(0.5, 0, 1), "state posterior; best path")
    inside = path >= 0
    times = (np.flatnonzero(inside) + 0.5) * seconds
    panels[2].plot(times, path[inside], color=_PATH_COLOUR, linewidth=1.2, marker=".", markersize=3)
    return _finish(layout, panels, file)


def audio_alignment(
    spectrum: np.ndarray,
    weights: np.ndarray,
    words: Sequence[str],
    seconds: float,
    title: str = "",
    file: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw attention over a recording: `weights` N M has a row per word and a column per frame of `seconds` seconds."""
    from matplotlib.colors import PowerNorm

    if weights.ndim != 2 or len(weights) != len(words) or not weights.size:
        raise BadInput(f"Expected weights with one row per word, got {len(words)} words and shape {weights.shape}.")
    n = weights.shape[1]
    layout, panels = _panels(words, [_SPECTRUM, max(0.5, min(0.24 * len(words), 8.0))], n, title)
    end = n * seconds
    _spectrum(panels[0], spectrum, n, end)
    _map(panels[1], weights, end, list(words), PowerNorm(0.5, 0, float(weights.max()) or 1.0), "attention")
    return _finish(layout, panels, file)


def _panels(names: Sequence[str], heights: Sequence[float], n: int, title: str) -> tuple[Layout, list[Axes]]:
    """Stack panels vertically, with a left margin wide enough for the labels."""
    from regard.see.layout import MARGIN, Layout, max_label_width, truncate_to_width

    left, width = MARGIN + max_label_width(names, 8) + 0.2, min(11.0, max(5.0, 0.08 * n))
    layout = Layout(left + width + MARGIN, MARGIN + 0.72 + sum(heights) + _GAP * len(heights))
    layout.text(MARGIN, MARGIN, truncate_to_width(visible(title), left + width - MARGIN), 11)
    top, panels = MARGIN + 0.72, []
    for height in heights:
        panels.append(layout.axes(left, top, width, height))
        top += height + _GAP
    return layout, panels


def _spectrum(axes: Axes, spectrum: np.ndarray, n: int, end: float) -> None:
    own = -(-len(spectrum) // n)  # spectrogram frames per output frame; the last may have fewer
    span = (0.0, end * len(spectrum) / (own * n), -0.5, spectrum.shape[1] - 0.5)
    axes.imshow(spectrum.T, cmap="Greys", aspect="auto", origin="lower", extent=span, interpolation="antialiased")


def _map(axes: Axes, weights: np.ndarray, end: float, names: list[str], norm: object, caption: str) -> None:
    from regard.see.layout import COLORMAP, MUTED_INK, font, label_rows

    span = (0.0, end, len(names) - 0.5, -0.5)
    axes.imshow(weights, norm=norm, cmap=COLORMAP, aspect="auto", extent=span, interpolation="nearest")  # type: ignore[arg-type]
    height = axes.get_position().height * axes.figure.get_size_inches()[1]  # type: ignore[union-attr]
    label_rows(axes, names, height / len(names), 8)
    axes.set_title(caption, font=font(8), color=MUTED_INK, loc="left", pad=3)


def _begins(states: Sequence[str], path: np.ndarray) -> list[tuple[str, int]]:
    """Each label with the first frame of the likeliest way that is in its state."""
    found = []
    for state in range(1, len(states), 2):
        at = np.flatnonzero(path == state)
        found += [(states[state], int(at[0]))] if len(at) else []
    return found


def _annotate(axes: Axes, x: float, word: str) -> None:
    from regard.see.layout import INK, font, label

    axes.annotate(
        label(word),
        (x, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 3),
        textcoords="offset points",
        rotation=35,
        font=font(8),
        color=INK,
    )


def _finish(layout: Layout, panels: Sequence[Axes], file: str | os.PathLike[str] | None) -> Figure:
    from regard.see.layout import INK, MUTED_INK, font

    for axes in panels:
        axes.set_xlim(panels[-1].get_xlim())
        axes.xaxis.set_major_locator(_ticks())
        axes.tick_params(
            axis="x",
            bottom=True,
            labelbottom=axes is panels[-1],
            labelsize=7,
            width=0.5,
            color=MUTED_INK,
            labelcolor=INK,
        )
    panels[-1].set_xlabel("seconds", font=font(8), color=MUTED_INK)
    if file is not None:
        save(layout.figure, file)
    return layout.figure


def _ticks() -> Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(10)
