"""Tokens: anything -> a sequence of vectors, or of token ids to look vectors up with.

| what is read    | file                                    | tokens                                                         |
|-----------------|-----------------------------------------|----------------------------------------------------------------|
| text            | `tokenizer.py`, `wordpiece.py`          | subwords; trained here or read from a tokenizer.json           |
|                 | `word_tokenizer.py`, `sentinels.py`     | whole words and their characters; masks of span corruption     |
| audio           | `frames.py`                             | log-mel frames, a hundred a second, with their differences     |
| images          | `patches.py`, `overlapping_patches.py`  | one vector a patch, in its place (the table is `blocks.STEMS`) |
| grids of tokens | `patch_merging.py`, `windows.py`        | four neighbours merged into one; windows cut out and put back  |
"""
