"""Tasks: one problem per file, with its objective, its metric, its decoding and its way of predicting."""

from __future__ import annotations

from regard.core.spec import Table

# What the training loop trains.
TASKS: Table = {
    "translation": ("regard.tasks.translation", "Translation"),
    "language": ("regard.tasks.language", "Language"),
    "words": ("regard.tasks.words", "WordVectors"),
    "bilm": ("regard.tasks.bilm", "BiLM"),
}

# What a saved model of each task is used with: model and vocabulary in, something to call out.
PREDICTORS: Table = {
    "translation": ("regard.tasks.translator", "Translator"),
    "language": ("regard.tasks.writer", "Writer"),
    "words": ("regard.tasks.neighbours", "Words"),
    "bilm": ("regard.tasks.in_context", "InContext"),
}
