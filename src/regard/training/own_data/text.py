"""Running text: a GPT of characters (of pieces of words where the text is long), as large as there is time for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from regard.core.errors import BadInput
from regard.data.text.text_file import TextFile
from regard.models.gpt import Config
from regard.tasks.text import language_modeling
from regard.training.own_data.plan import Candidate, Draft, base_train, run_name
from regard.training.recipe import Recipe

MOST_CHARACTERS = 400  # kinds of characters up to which they are the tokens
LONG = 5_000_000  # characters from which pieces of words are the tokens
CONTEXT = 128  # tokens of a row
ROWS = 16  # rows of an update
SIZES = ((256, 6), (192, 4), (128, 4), (96, 3))  # width and layers, largest first


def draft(path: Path, quick: bool = False, source: str | None = None) -> Draft:
    """Return what to train on text."""
    source = None if source == "none" else source
    data = TextFile(str(path), context_length=CONTEXT, batch_size=ROWS)
    text = data.read("train")
    whole = data.read("all") if "all" in data.splits() else text
    if len(text) < 20 * CONTEXT:
        raise BadInput(f"{path} has {len(whole):,} characters; expected at least {25 * CONTEXT:,}")
    kinds = len(set(text))
    by_letter = kinds <= MOST_CHARACTERS and len(text) < LONG
    size = 0 if by_letter else min(8000, max(1000, len(text) // 500))
    data = TextFile(
        str(path),
        context_length=CONTEXT,
        batch_size=ROWS,
        tokenizer="char" if by_letter else "bytes",
        vocab_size=kinds + 16 if by_letter else size,
    )
    tokens = len(text) if by_letter else len(text) // 3
    dropout = 0.2 if tokens < 1_000_000 else 0.1 if tokens < 10_000_000 else 0.0
    lines = whole.count("\n") + 1
    return Draft(
        name=run_name(path),
        data=f"{len(whole.encode()) / 1000:,.0f} kB of text in {lines:,} lines, {kinds} kinds of characters; the last "
        f"tenth ({len(data.read('val')):,} characters) kept for validation",
        start=source or "from scratch",
        candidates=[_candidate(data, *sizes, dropout, source) for sizes in (((32, 1),) if quick or source else SIZES)],
        examples=max(1, tokens // CONTEXT),
        per_update=ROWS,
        regularisation=f"dropout {dropout:g}, weight decay, averaged weights",
        use='regard generate "a beginning" --model {model}',
    )


def _candidate(data: TextFile, width: int, layers: int, dropout: float, source: str | None) -> Candidate:
    from regard.training.init_from import adopt_source

    model = Config(
        vocab=0,
        width=width,
        heads=max(2, width // 32),
        layers=layers,
        length=CONTEXT,
        dropout=dropout,
        attention_dropout=0.0,
        bias=False,
        norm_kind="rms",
        qk_norm="rms",
        positions="rotary",
    )
    train = base_train(optimizer="muon", learning_rate=4e-3, weight_decay=0.1, ema_decay=0.99, metric="loss")
    recipe = Recipe(model, language_modeling.Config(), data, replace(train, init_from=source))
    return Candidate(adopt_source(recipe)[0], epochs=60, least=25)
