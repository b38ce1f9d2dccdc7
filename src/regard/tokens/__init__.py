"""Tokens: anything -> a sequence. Text becomes whole numbers, ready for a table of vectors; sounds become frames, and
images a grid of patches.

| part     | file                           | what it reads                                                            |
|----------|--------------------------------|--------------------------------------------------------------------------|
| `Text`   | `text.py`                      | lines of text; vocabularies trained here or read from a tokenizer.json   |
| `LogMelSpectrogram` | `frames.py`                    | waves; spectra on the mel scale, a hundred a second, with their slopes   |
| stems    | `patches.py`, `overlapping.py` | images; one vector a patch, in its place                                 |
|          | `merging.py`, `windows.py`     | grids of tokens: four neighbours made one; windows cut out, and put back |
"""

from __future__ import annotations

from regard.core.spec import Registry

# How images become tokens in their places, B C Y X -> B Y X C.
STEMS: Registry = {
    "patches": ("regard.tokens.patches", "PatchEmbedding"),
    "normed": ("regard.tokens.patches", "NormalizedPatchEmbedding"),
    "overlapping": ("regard.tokens.overlapping_patches", "OverlappingPatchEmbedding"),
    "hybrid": ("regard.blocks.hybrid", "HybridStem"),
}
