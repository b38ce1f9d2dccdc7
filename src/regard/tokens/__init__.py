"""Tokens: anything -> a sequence. Text becomes whole numbers, ready for a table of vectors; sounds become frames, and
images a grid of patches.

| part     | file                           | what it reads                                                            |
|----------|--------------------------------|--------------------------------------------------------------------------|
| `Text`   | `text.py`                      | lines of text; vocabularies trained here or read from a tokenizer.json   |
| `Frames` | `frames.py`                    | waves; spectra on the mel scale, a hundred a second, with their slopes   |
| stems    | `patches.py`, `overlapping.py` | images; one vector a patch, in its place                                 |
|          | `merging.py`, `windows.py`     | grids of tokens: four neighbours made one; windows cut out, and put back |
"""

from __future__ import annotations

from regard.core.spec import Table

# How images become tokens in their places, B C Y X -> B Y X C.
STEMS: Table = {
    "patches": ("regard.tokens.patches", "Patches"),
    "normed": ("regard.tokens.patches", "NormedPatches"),
    "overlapping": ("regard.tokens.overlapping", "OverlappingPatches"),
    "hybrid": ("regard.blocks.hybrid", "HybridStem"),
}
