"""Figure layout in inches: axes, labels and colour bars at computed positions.

Figures are made without pyplot: no display, no global state, nothing to close. Positions are computed, so the same
input gives the same picture. Characters that no installed font can draw become □, without a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.image import AxesImage
from matplotlib.textpath import TextToPath

from regard.see.token_display import truncate_middle

INK, MUTED_INK = "#1d2433", "#6b7285"
COLORMAP = "magma"  # perceptually uniform, safe for colour-blind readers
# safe for colour-blind readers
PALETTE = ("#2a6fb0", "#d8721e", "#2a8f6b", "#a33b5a", "#6a51a3", "#8a6d1d", "#3a9aa8", "#6b7285")
MARGIN = 0.15  # inches
MAX_TITLE = 12.0  # inches that a title may widen a figure to
DPI = 150

# Tried in this order where installed; DejaVu comes with matplotlib.
_FAMILIES = (
    "DejaVu Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Source Han Sans",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
    "Arial Unicode MS",
)


class Layout:
    """A figure with its size and positions in inches from the top left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Add axes with a thin frame and no ticks."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box)
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(linewidth=0.5, color=MUTED_INK)
        return axes

    def text(self, left: float, top: float, text: str, size: float = 9, colour: str = INK, align: str = "left") -> None:
        """Add a line of text whose upper edge is at `top`."""
        self.figure.text(
            left / self.width,
            1 - top / self.height,
            replace_missing_glyphs(text),
            font=font(size),
            color=colour,
            ha=align,
            va="top",
            parse_math=False,
        )

    def colorbar(
        self,
        left: float,
        top: float,
        height: float,
        norm: Normalize,
        label: str = "attention weight",
        colours: str = COLORMAP,
    ) -> None:
        """Add a colour bar with its label; beside a low map it begins above it, as far as the label needs."""
        higher = max(0.0, min(max_label_width([label], 8) + 0.1 - height, top - 2.5 * MARGIN))
        axes = self.axes(left, top - higher, 0.12, height + higher)
        bar = self.figure.colorbar(ScalarMappable(norm, colours), cax=axes)
        bar.outline.set(linewidth=0.5, edgecolor=MUTED_INK)
        bar.set_label(label, font=font(8), color=MUTED_INK)
        axes.tick_params(labelsize=7, width=0.5, color=MUTED_INK, labelcolor=INK)


def draw_map(axes: Axes, weights: np.ndarray, norm: Normalize, colours: object = COLORMAP) -> AxesImage:
    """Draw one map, row 0 at the top."""
    crowded = max(weights.shape) > 400  # several cells per pixel: average them
    return axes.imshow(
        weights,
        norm=norm,
        cmap=colours,  # type: ignore[arg-type]
        aspect="auto",
        interpolation="antialiased" if crowded else "nearest",
    )


def label_rows(axes: Axes, words: Sequence[str], cell: float, size: float = 9) -> None:
    """Label rows on the left, every k-th where rows are too close."""
    at = range(0, len(words), label_stride(cell, size))
    axes.set_yticks(list(at), [label(words[i]) for i in at], font=font(size), color=INK, parse_math=False)
    axes.tick_params(axis="y", length=2, width=0.5, color=MUTED_INK, pad=3)


def label_columns(axes: Axes, words: Sequence[str], cell: float, size: float = 9, above: bool = True) -> None:
    """Label columns above (slanted if all fit) or below, every k-th where columns are too close."""
    step = label_stride(cell, size)
    slanted = above and step == 1
    style = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"} if slanted else {"rotation": 90}
    at = range(0, len(words), step)
    labels = [label(words[i]) for i in at]
    axes.set_xticks(list(at), labels, font=font(size), color=INK, parse_math=False, **style)
    axes.tick_params(
        axis="x",
        length=2,
        width=0.5,
        color=MUTED_INK,
        pad=3,
        top=above,
        bottom=not above,
        labeltop=above,
        labelbottom=not above,
    )


def style_axes(axes: Axes, size: float = 8) -> None:
    """Style tick labels and draw a faint grid behind the data."""
    axes.tick_params(labelsize=size, width=0.5, color=MUTED_INK, labelcolor=INK)
    axes.grid(color="#e4e7ee", linewidth=0.6)
    axes.set_axisbelow(True)


def label_stride(cell: float, size: float = 9) -> int:
    """Return the label stride that avoids overlap, for a cell in inches and a font size in points."""
    return max(1, int(np.ceil(size * 1.15 / 72 / cell)))


def label(word: str) -> str:
    """Return a token as a label: truncated, without missing glyphs."""
    return replace_missing_glyphs(truncate_middle(word))


def max_label_width(words: Sequence[str], size: float = 9) -> float:
    """Return the width in inches of the widest label."""
    long = sorted({label(word) for word in words}, key=len)[-40:]  # the widest is among the longest
    return max((text_width(word, size) for word in long), default=0.0)


def text_width(text: str, size: float = 9) -> float:
    """Return the width of a line of text in inches."""
    shown = replace_missing_glyphs(text)
    return TextToPath().get_text_width_height_descent(shown, font(size), ismath=False)[0] / 72


def title_width(title: str, explanation: str = "") -> float:
    """Return the width in inches that a figure needs for its title, at 11 points, and the line below it, at 8."""
    measure, lines = TextToPath(), ((replace_missing_glyphs(title), font(11)), (explanation, font(8)))
    widest = max(measure.get_text_width_height_descent(text, style, ismath=False)[0] for text, style in lines)
    return min(widest / 72 + 2 * MARGIN, MAX_TITLE)


def truncate_to_width(text: str, width: float, size: float = 11) -> str:
    """Cut a line of text, with an ellipsis, to about `width` inches at a font size in points."""
    count = int(width / max_label_width(["n"], size))
    return text if len(text) <= count else f"{text[: count - 1].rstrip()}…"


def font(size: float) -> FontProperties:
    """Return the installed fonts, in order, at a size in points."""
    return FontProperties(family=list(_families()), size=size)


def replace_missing_glyphs(text: str) -> str:
    """Replace every character that no installed font can draw with □."""
    known = _glyphs()
    return "".join(c if ord(c) in known else "" if c in "\u200d\ufe0e\ufe0f" else "□" for c in text)


@cache
def _families() -> tuple[str, ...]:
    here = {entry.name for entry in fontManager.ttflist}
    return tuple(family for family in _FAMILIES if family in here)


@cache
def _glyphs() -> frozenset[int]:
    paths = (findfont(FontProperties(family=family)) for family in _families())
    return frozenset(code for path in paths for code in get_font(path).get_charmap())
