"""HTML for notebooks: `_repr_html_` of traces and tables.

The HTML is self-contained: text is escaped, an image is a PNG data URL, and there is no script. A map of any size is
drawn with at most `MAX_CELLS` cells a side, each the maximum of the weights it covers, so that thin lines of attention
are not averaged away.
"""

from __future__ import annotations

import base64
import html
import struct
import zlib
from collections.abc import Sequence

import torch
from torch.nn.functional import adaptive_max_pool2d

from regard.core.shapes import Float, Int, Tensor

MAX_CELLS = 96  # cells a side of a small map
MAX_HEADS = 16  # maps of one layer
MAX_LABELS = 24  # rows or columns of a labelled map

# Even steps of lightness, so that levels differ without colour vision.
_STOPS = ("f4f6fa", "d3e3f0", "9fcbe1", "5fabcb", "3085b6", "275c9b", "28367a", "1d1748")


def escape(text: str) -> str:
    """Escape text for HTML, in ASCII: tags, quotes, and lone surrogates as character references."""
    return html.escape(text, quote=True).encode("ascii", "xmlcharrefreplace").decode("ascii")


def png_data_url(levels: Int[Tensor, "Y X"]) -> str:
    """Encode levels 0 to 255 as a PNG data URL, one pixel each."""
    y, x = levels.shape
    rows = torch.cat([torch.zeros(y, 1, dtype=torch.uint8), levels.to("cpu", torch.uint8)], 1)  # filter type 0
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", x, y, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(value for colour in _palette() for value in colour)),
        (b"IDAT", zlib.compress(rows.numpy().tobytes(), 9)),
        (b"IEND", b""),
    )
    chunks = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts)
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode("ascii")


def heatmap(weights: Float[Tensor, "N M"], title: str, side: int = 72) -> str:
    """Draw one map as an image of about `side` pixels; the level is sqrt(weight / largest weight)."""
    w = torch.nan_to_num(weights.detach().to("cpu", torch.float32).abs(), 0.0, 0.0, 0.0)
    n, m = w.shape
    w = adaptive_max_pool2d(w[None], (min(n, MAX_CELLS), min(m, MAX_CELLS)))[0]
    levels = (255 * (w / (float(w.max()) or 1.0)).sqrt()).round()
    longest = max(n, m)
    high, wide = (max(8, round(side * k / longest)) for k in (n, m))
    return (
        f'<img alt="{escape(title)}" title="{escape(title)}" width="{wide}" height="{high}" '
        f'src="{png_data_url(levels.int())}" style="image-rendering:pixelated;display:inline-block;margin:2px">'
    )


def labelled_heatmap(weights: Float[Tensor, "N M"], rows: Sequence[str], columns: Sequence[str]) -> str:
    """Draw a map as a table with labels; cells of at least 1 % show their weight."""
    palette, peak = _palette(), float(weights.max()) or 1.0
    heading = "".join(f"<th><bdi>{escape(word)}</bdi></th>" for word in columns)
    lines = []
    for word, row in zip(rows, weights.tolist(), strict=True):
        cells = []
        for w in row:
            level = int(255 * min(1.0, max(0.0, w / peak)) ** 0.5)
            ink = "#fff" if level > 140 else "#1c2333"
            percent = f"{100 * w:.0f}" if w >= 0.01 else ""
            cells.append(f'<td style="background:rgb{palette[level]};color:{ink};text-align:center">{percent}</td>')
        lines.append(f"<tr><th><bdi>{escape(word)}</bdi></th>{''.join(cells)}</tr>")
    return f'<table style="font-size:11px"><tr><th></th>{heading}</tr>{"".join(lines)}</table>'


def render_table(table: Sequence[dict[str, str]]) -> str:
    """Draw rows with the same columns as a table."""
    if not table:
        return "<p>(empty)</p>"
    heading = "".join(f"<th>{escape(column)}</th>" for column in table[0])
    lines = ("".join(f'<td style="text-align:left">{escape(row[c])}</td>' for c in table[0]) for row in table)
    return f"<table><tr>{heading}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _palette() -> list[tuple[int, int, int]]:
    stops = [tuple(int(stop[k : k + 2], 16) for k in (0, 2, 4)) for stop in _STOPS]
    found = []
    for level in range(256):
        at = level / 255 * (len(stops) - 1)
        k = min(int(at), len(stops) - 2)
        r, g, b = (round(a + (c - a) * (at - k)) for a, c in zip(stops[k], stops[k + 1], strict=True))
        found.append((r, g, b))
    return found
