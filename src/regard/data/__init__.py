"""Datasets and the batches made of them. Text is turned into numbers once, up front, and kept as flat tensors.

home        where the datasets are                                     home.py
Parallel    sentence pairs: Multi30k, Tatoeba, or a folder of yours    parallel.py
Flat        many sequences end to end in one tensor                    flat.py
TokenBatches, Stream, prefetch                                         batching.py
moses       the "tokenised, lower-case" form of a text                 moses.py
"""

from __future__ import annotations

from regard.core.spec import Table

DATA: Table = {
    "parallel": ("regard.data.parallel", "Parallel"),
}
