"""The arithmetic of the lectures: the cost of attention between all pairs of tokens.

    tokens       pixels, or patches of P x P pixels          (Y / P)(X / P)
    a map        a weight for each pair of tokens            N²  =  R⁴ on an R x R grid
    all maps     one a head and layer                        layers · heads · N²
    windows      attention within M x M tokens               M⁴ (Y / M)(X / M)  =  M² Y X

Numbers are counted as the lectures count them: float32, binary units (150 KB is 150 · 1024 bytes), no class token in a
map, and rounded down. `on_slide` is what the slide says; a test compares every value with it. Fused kernels no longer
store most of these maps, but recompute them block by block. `regard cost MODEL` says what storing them would take.

The second table is after Vaswani et al. 2017 (arXiv:1706.03762), table 1: in a layer that reads N vectors of width C,
how many steps must wait for one another, and how many a signal needs from the first token to the last. How many layers
of kernel k that takes depends on where a kernel stands:

    one-sided    its last tap is on the token, as a decoder's must be       ⌈(N - 1) / (k - 1)⌉
    centred      its middle tap is on the token, as an encoder's mostly is  ⌈(N - 1) / ((k - 1) / 2)⌉
    the paper's  an order of growth, for kernels side by side               N / k;  dilated  log_k N

So N = 512 and k = 3 give 256, 511 or 171, and none of them is wrong. All three are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

FLOAT = 4  # bytes
KIB, MIB, GIB = 2**10, 2**20, 2**30


# -- tokens and maps ---------------------------------------------------------------------------------------------------


def tokens(height: int, width: int, patch: int = 1) -> int:
    """Return the number of tokens of an image; a patch of 1 is a pixel."""
    return (height // patch) * (width // patch)


def patch_matrix(height: int, width: int, patch: int, channels: int = 3, extra: int = 0) -> tuple[int, int]:
    """Return the shape of an image as a matrix of patches; `extra` counts class tokens."""
    return tokens(height, width, patch) + extra, channels * patch * patch


def map_entries(queries: int, keys: int | None = None) -> int:
    """Return the number of weights in one attention map."""
    return queries * (queries if keys is None else keys)


def map_bytes(queries: int, keys: int | None = None, layers: int = 1, heads: int = 1, item_size: int = FLOAT) -> int:
    """Return the bytes of the maps of all heads and layers, for one input."""
    return layers * heads * map_entries(queries, keys) * item_size


def window_entries(height: int, width: int, window: int) -> int:
    """Return the number of weights in the maps of all windows: linear in the size of the image."""
    return window**4 * (height // window) * (width // window)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """The cost of one layer over N vectors of width C, and the path length between two tokens."""

    kind: str
    multiply_adds: int
    serial: int  # steps of the layer that must wait for one another
    path: int  # path length from the first token to the last over layers with one-sided kernels
    centred: int  # the same with centred kernels (dilated: as in an unbounded sequence)
    order: int  # what the paper's O(...) gives, rounded up
    formula: str  # that O(...)


def layer_kinds(length: int, width: int, kernel: int = 3, window: int = 128) -> list[Layer]:
    """Return the kinds of layers to compare.

    Dilated convolutions reach `kernel` times as far in each layer as in the one below. `kernel` is odd and at least 3.
    `window`, at least 2, counts tokens back, or half of them back and half ahead, without the token itself.
    """
    n, c, k, distance = length, width, kernel, max(length - 1, 1)
    back, half_kernel = k - 1, k // 2  # how far one kernel reaches
    r, half = window, window // 2
    plain, dilated, local = f"convolution of {k}", f"convolution of {k}, dilated", f"attention within {r}"
    return [
        Layer("recurrent", n * c * c, n, distance, distance, n, "n"),
        Layer(plain, k * n * c * c, 1, ceil(distance / back), ceil(distance / half_kernel), ceil(n / k), "n / k"),
        Layer(dilated, k * n * c * c, 1, _power(k, distance + 1), _power(k, 2 * distance + 1), _power(k, n), "log_k n"),
        Layer("attention", n * n * c, 1, 1, 1, 1, "1"),
        Layer(local, min(n, r) * n * c, 1, ceil(distance / r), ceil(distance / half), ceil(n / r), "n / r"),
    ]


def _power(base: int, reach: int) -> int:
    """Return the smallest exponent, at least 1, with base**exponent >= reach."""
    found = 1
    while base**found < reach:
        found += 1
    return found


# -- numbers of the lectures -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One number of the lectures: what it counts, its formula and exact value, and how the slide writes it."""

    what: str
    formula: str
    value: int | tuple[int, int]
    on_slide: str
    unit: int = 1  # of `on_slide`: 2**10 for KB


def lines() -> list[Line]:
    """Return every number, in the order of the lectures."""
    pixels, patches, small = tokens(224, 224), tokens(224, 224, 16), tokens(224, 224, 14)
    fine, screen = tokens(224, 224, 4), tokens(128, 128)
    deep = {"layers": 48, "heads": 16}
    return [
        Line("pairs of the values of an image", "(3·224·224)²", map_entries(3 * pixels), "22 billion", 10**9),
        Line("tokens, one a pixel", "224²", pixels, "50k", 10**3),
        Line("patches of 16 x 16", "(224 / 16)²", patches, "196"),
        Line("values in a patch", "3·16·16", patch_matrix(224, 224, 16)[1], "768"),
        Line("the image as patches", "(N, 3 P²)", patch_matrix(224, 224, 16), "(196, 768)"),
        Line("with a class token", "(N + 1, 3 P²)", patch_matrix(224, 224, 16, extra=1), "(197, 768)"),
        Line("entries of a map, 14 x 14 patches", "14⁴", map_entries(patches), "38,416"),
        Line("bytes of that map", "14⁴ · 4", map_bytes(patches), "150 KB", KIB),
        Line("entries of a map, 16 x 16 patches", "16⁴", map_entries(small), "65,536"),
        Line("bytes of that map", "16⁴ · 4", map_bytes(small), "256 KB", KIB),
        Line("all maps, 14 x 14, 48 layers, 16 heads", "48·16·14⁴·4", map_bytes(patches, **deep), "112 MB", MIB),
        Line("all maps, 16 x 16, 48 layers, 16 heads", "48·16·16⁴·4", map_bytes(small, **deep), "192 MB", MIB),
        Line("entries of a map, patches of 4 x 4", "56⁴", map_entries(fine), "9.8M", 10**6),
        Line("the same in windows of M = 7", "M² Y X", window_entries(56, 56, 7), "M²HW"),
        Line("a map of the pixels at R = 128", "R⁴", map_entries(screen), "R⁴"),
        Line("all maps of them, 48 layers, 16 heads", "48·16·R⁴·4", map_bytes(screen, **deep), "768 GB", GIB),
    ]
