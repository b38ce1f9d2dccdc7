"""Tokens: anything -> a sequence. Text becomes whole numbers, ready for a table of vectors.

| part   | file      | what it reads                                                                       |
|--------|-----------|-------------------------------------------------------------------------------------|
| `Text` | `text.py` | lines of text; six kinds of vocabulary, trained here or read from a tokenizer.json  |
"""
