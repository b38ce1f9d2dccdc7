"""The arithmetic of the lectures: what it costs that every token looks at every token.

    tokens       pixels, or patches of P x P pixels          (Y / P)(X / P)
    a map        a weight for each pair of tokens            N²  =  R⁴ on an R x R grid
    all maps     one a head and layer                        layers · heads · N²
    windows      M x M tokens each see one another           M⁴ (Y / M)(X / M)  =  M² Y X

Numbers are counted as the lectures count them: float32, binary units (150 KB is 150 · 1024 bytes), no class token in a
map, and rounded down. `said` is what the slide has; a test holds every value against it. Most of these maps are never
stored any more: fused kernels recompute them block by block. `regard cost MODEL` says what storing them would take.

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
    """How many tokens an image becomes; a patch of 1 is a pixel."""
    return (height // patch) * (width // patch)


def patch_matrix(height: int, width: int, patch: int, channels: int = 3, extra: int = 0) -> tuple[int, int]:
    """Rows and columns of an image cut into patches, each a vector of its values; `extra` counts class tokens."""
    return tokens(height, width, patch) + extra, channels * patch * patch


def map_entries(queries: int, keys: int | None = None) -> int:
    """Weights in one attention map: one for every pair."""
    return queries * (queries if keys is None else keys)


def map_bytes(queries: int, keys: int | None = None, layers: int = 1, heads: int = 1, each: int = FLOAT) -> int:
    """What storing the maps of every head and layer takes, for one input."""
    return layers * heads * map_entries(queries, keys) * each


def window_entries(height: int, width: int, window: int) -> int:
    """Weights in the maps of all windows of a grid of tokens: linear in the size of the image."""
    return window**4 * (height // window) * (width // window)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """What one layer over N vectors of width C costs, and how far apart it leaves two tokens."""

    kind: str
    multiply_adds: int
    serial: int  # steps of the layer that must wait for one another
    path: int  # steps from the first token to the last, through as many layers as that takes; what is near is one-sided
    centred: int  # the same where what is near lies half on either side (dilated: if the line went on beyond its ends)
    order: int  # what the paper's O(...) gives, rounded up
    formula: str  # that O(...)


def layer_kinds(length: int, width: int, kernel: int = 3, window: int = 128) -> list[Layer]:
    """The kinds of layers side by side. Convolutions are stacked plainly or, in the second row, dilated: each layer
    reaches `kernel` times as far as the one below. A kernel is odd and has 3 taps or more; a window, of 2 or more, is
    that many tokens back, or half of them back and half ahead, and the token itself, whose product is not counted."""
    n, c, k, far = length, width, kernel, max(length - 1, 1)
    back, around = k - 1, k // 2  # how far one kernel reaches
    r, half = window, window // 2
    plain, dilated, local = f"convolution of {k}", f"convolution of {k}, dilated", f"attention within {r}"
    return [
        Layer("recurrent", n * c * c, n, far, far, n, "n"),
        Layer(plain, k * n * c * c, 1, ceil(far / back), ceil(far / around), ceil(n / k), "n / k"),
        Layer(dilated, k * n * c * c, 1, _power(k, far + 1), _power(k, 2 * far + 1), _power(k, n), "log_k n"),
        Layer("attention", n * n * c, 1, 1, 1, 1, "1"),
        Layer(local, min(n, r) * n * c, 1, ceil(far / r), ceil(far / half), ceil(n / r), "n / r"),
    ]


def _power(base: int, reach: int) -> int:
    """The least exponent, of at least 1, at which `base` comes to `reach`."""
    found = 1
    while base**found < reach:
        found += 1
    return found


# -- the slides, line by line ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One number of the lectures: what it counts, how, its exact value, and how the slide writes it."""

    what: str
    formula: str
    value: int | tuple[int, int]
    said: str
    unit: int = 1  # of what is said: 2**10 for KB


def lines() -> list[Line]:
    """Every number, in the order of the lectures."""
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
