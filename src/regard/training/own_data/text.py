"""Running text: a GPT of characters (of pieces of words where the text is long), as large as there is time for.

English of moderate length starts from the shipped model of plays where there is time for it: it can spell already.
"""

from __future__ import annotations

from pathlib import Path

from regard.core.errors import BadInput
from regard.data.text.text_file import TextFile
from regard.models.gpt import Config
from regard.tasks.text import language_modeling
from regard.training.own_data.plan import Candidate, Draft, base_train, detect_languages, run_name
from regard.training.recipe import Recipe

MOST_CHARACTERS = 400  # kinds of characters up to which they are the tokens
LONG = 5_000_000  # characters from which pieces of words are the tokens
CONTEXT = 128  # tokens of a row
ROWS = 16  # rows of an update
SIZES = ((256, 6), (192, 4), (128, 4), (96, 3))  # width and layers, largest first
SHIPPED = "shakespeare"  # knows the letters of English
ENGLISH = 0.6  # share of English lines from which it is the start


def draft(path: Path, quick: bool = False, source: str | None = None) -> Draft:
    """Return what to train on text."""
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
    lines = whole.split("\n")
    candidates = [_from_scratch(data, *sizes, dropout) for sizes in (((32, 1),) if quick else SIZES)]
    if source is None and by_letter and not quick and detect_languages(lines).get("English", 0.0) >= ENGLISH:
        candidates = [_continued(data, SHIPPED, dropout), *candidates]
    elif source not in (None, "none"):
        candidates = [_continued(data, source, dropout)]
    return Draft(
        name=run_name(path),
        data=f"{len(whole.encode()) / 1000:,.0f} kB of text in {len(lines):,} lines, {kinds} kinds of characters; "
        f"the last tenth ({len(data.read('val')):,} characters) kept for validation",
        start="from scratch",
        candidates=candidates,
        examples=max(1, tokens // CONTEXT),
        per_update=ROWS,
        regularisation=f"dropout {dropout:g}, weight decay, averaged weights",
        use='regard generate "a beginning" --model {model}',
    )


def _continued(data: TextFile, source: str, dropout: float) -> Candidate:
    """Return training that continues from a model, with its tokenizer and the characters that it lacks."""
    from regard.training.init_from import adopt_source

    train = base_train(
        init_from=source, optimizer="muon", learning_rate=1e-3, weight_decay=0.1, ema_decay=0.98, metric="loss"
    )
    model = Config(vocab=0, dropout=dropout, attention_dropout=0.0)
    recipe, _ = adopt_source(Recipe(model, language_modeling.Config(), data, train))
    return Candidate(recipe, epochs=8, least=1, start=f"{source}; characters that it lacks are new")


def _from_scratch(data: TextFile, width: int, layers: int, dropout: float) -> Candidate:
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
    return Candidate(Recipe(model, language_modeling.Config(), data, train), epochs=60, least=25)
