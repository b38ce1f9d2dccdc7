"""Tokens: anything -> a sequence of vectors, or of token ids to look vectors up with.

| what is read    | file                                   | tokens                                                   |
|-----------------|----------------------------------------|----------------------------------------------------------|
| text            | `tokenizer.py`, `wordpiece.py`         | subwords; trained here or loaded from a tokenizer.json   |
|                 | `word_tokenizer.py`, `sentinels.py`    | whole words; markers of span corruption                  |
| audio           | `frames.py`                            | log-mel frames, a hundred a second                       |
| images          | `patches.py`, `overlapping_patches.py` | one vector a patch, on a grid (registry: `blocks.STEMS`) |
| grids of tokens | `patch_merging.py`                     | 2 x 2 tokens merged into one                             |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.core.lazy_exports import lazy_exports

_MODULES = {
    "frames": ("LogMelSpectrogram",),
    "overlapping_patches": ("OverlappingPatchEmbedding",),
    "patch_merging": ("PatchMerging", "PatchMergingV2"),
    "patches": ("NormalizedPatchEmbedding", "PatchEmbedding", "patchify"),
    "sentinels": ("add_sentinels", "encode_with_sentinels"),
    "tokenizer": ("Tokenizer",),
    "word_tokenizer": ("build_vocabulary", "split_words"),
    "wordpiece": ("bert_tokenizer",),
}
if TYPE_CHECKING:
    from regard.tokens._exports import *
else:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
