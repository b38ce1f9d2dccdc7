"""Tokens: anything -> a sequence. Text becomes whole numbers, ready for a table of vectors; sounds become frames.

| part     | file        | what it reads                                                                       |
|----------|-------------|-------------------------------------------------------------------------------------|
| `Text`   | `text.py`   | lines of text; six kinds of vocabulary, trained here or read from a tokenizer.json  |
| `Frames` | `frames.py` | waves; spectra on the mel scale, a hundred a second, with their slopes              |
"""
