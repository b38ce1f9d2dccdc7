"""Datasets and the batches made of them: in memory where they fit, in shards on the disk where they do not.

home         where the datasets are                                     home.py
Parallel     sentence pairs: Multi30k, Tatoeba, or a folder of yours    parallel.py
PlainText    rows of running text out of a file that fits               plain.py
Shards       rows of running text out of token shards                   shards.py
Pictures     images out of sample shards                                pictures.py
pack_text, pack_images   files and folders into shards                  packing.py, writing.py
Index        what a folder of shards holds, checksums                   index.py
WordSentences   sentences of words, out of several corpora              words.py
Nearby       windows of words, and words drawn against them             nearby.py
SpelledSentences   sentences with the letters of their words            spelled.py
Flat         many sequences end to end in one tensor                    flat.py
TokenBatches, Stream, prefetch                                          batching.py
Shuffle      an order of any number of rows, computed and not held      shuffle.py
moses        the "tokenised, lower-case" form of a text                 moses.py
"""

from __future__ import annotations

from regard.core.spec import Table

DATA: Table = {
    "parallel": ("regard.data.parallel", "Parallel"),
    "shards": ("regard.data.shards", "Shards"),
    "pictures": ("regard.data.pictures", "Pictures"),
    "plain": ("regard.data.plain", "PlainText"),
    "words": ("regard.data.words", "WordSentences"),
}
