"""Tasks: one problem per file, with its objective, its metric, its decoding and its way of predicting."""

from __future__ import annotations

from regard.core.spec import Table

TASKS: Table = {
    "translation": ("regard.tasks.translation", "Translation"),
}
