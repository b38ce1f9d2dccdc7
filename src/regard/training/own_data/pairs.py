"""Sentence pairs: one of the shipped translators, whose vocabulary of bytes writes any language, trained further.

Where both languages are the translator's own, little has to change; otherwise its encoder is a start, and more of its
decoder is learnt anew.
"""

from __future__ import annotations

from pathlib import Path

from regard.core.errors import BadInput
from regard.data.text.parallel_corpus import ParallelCorpus, read_pairs
from regard.data.text.table import is_table, read_table
from regard.models.transformer import Config
from regard.tasks.text import translation
from regard.training.own_data.plan import (
    SURE,
    VAL_FRACTION,
    Candidate,
    Draft,
    base_train,
    detect_languages,
    num_train,
    run_name,
)
from regard.training.recipe import Recipe

CODES = {"English": "en", "French": "fr", "German": "de"}


def draft(path: Path, quick: bool = False, source: str | None = None) -> Draft:
    """Return what to train on sentence pairs."""
    language, target, sides = find_languages(path)
    count = len(sides[0])
    if count < 10:
        raise BadInput(f"{path} has {count} pairs; expected at least 10, and some hundreds to learn anything")
    whole = path.is_file()
    french = "fr" in (language, target) and "de" not in (language, target)
    start = source or ("en-fr" if french else "en-de")
    train_count = num_train(count) if whole else count
    batch = 16 if count < 5000 else 32
    words = sorted(len(line.split()) for side in sides for line in side)
    data = ParallelCorpus(
        str(path),
        language,
        target,
        val_fraction=VAL_FRACTION,
        batch_tokens=_tokens(batch, words[int(0.95 * (len(words) - 1))]),
        max_length=128,
    )
    known = start == f"{language}-{target}"
    hint = "" if len(language + target) == 4 else f" (name them by the file: en-xx{path.suffix})" if whole else ""
    return Draft(
        name=run_name(path),
        data=f"{count:,} pairs from {language} to {target}{hint}, {words[len(words) // 2]} words a side (the longest "
        f"{words[-1]:,}); {len(data.read('val')[0]):,}{'' if whole else ' others'} kept for validation",
        start="from scratch" if start == "none" else start + ("" if known else ", which does not know this direction"),
        candidates=[_candidate(data, start, known, quick)],
        examples=train_count,
        per_update=batch,
        regularisation="dropout 0.25, smoothed labels" + ("" if known else ", weight decay"),
        use='regard translate "a sentence" --model {model}',
    )


def find_languages(path: Path) -> tuple[str, str, tuple[list[str], list[str]]]:
    """Return the languages of pairs, by the names of columns or files, else by what they read as, and both sides."""
    if path.is_dir():
        return _of_folder(path)
    if not is_table(path):
        raise BadInput(f"{path} is no table of pairs; expected .tsv, .csv, .jsonl or .parquet with two columns")
    head = read_table(path, [])
    named = [cell.lower() for cell in (head.text_columns() if "1" not in head.columns else head.rows[0])]
    if len(named) < 2:
        raise BadInput(f"{path} has one column; expected the source and the target")
    stem = run_name(path).replace("_", "-").split(".")[0].split("-")[:2]
    if all(len(name) == 2 and name.isalpha() for name in named[:2]):
        source, target = named[:2]
    elif len(stem) == 2 and all(len(name) == 2 and name.isalpha() for name in stem):
        source, target = stem
    else:
        sides = read_pairs(path, "?", "??")
        source, target = (_language(side, name) for side, name in zip(sides, ("source", "target"), strict=True))
    return source, target, read_pairs(path, source, target)


def _language(lines: list[str], otherwise: str) -> str:
    name, share = max(detect_languages(lines).items(), key=lambda pair: pair[1])
    return CODES.get(name, otherwise) if share >= SURE else otherwise


def _of_folder(folder: Path) -> tuple[str, str, tuple[list[str], list[str]]]:
    """Return the languages of train.XX and train.YY, or XX-YY.train.tsv, and the training pairs."""
    names = sorted(file.name.removesuffix(".gz") for file in folder.iterdir())
    pairs = [name.split(".")[0].split("-") for name in names if name.endswith(".train.tsv")]
    found = (
        pairs[0]
        if pairs
        else [name.split(".")[1] for name in names if name.startswith("train.") and name.count(".") == 1]
    )
    if len(found) != 2:
        raise BadInput(
            f"{folder} has no pairs of two languages; expected train.en and train.de (with val.en and val.de), "
            "en-de.train.tsv, or one table"
        )
    source, target = sorted(found, key=lambda name: name != "en") if not pairs else found
    data = ParallelCorpus(str(folder), source, target)
    return source, target, data.read("train")


def _tokens(rows: int, words: int) -> int:
    """Return the tokens of a batch of so many rows: about 1.7 tokens a word, rounded up to a power of two."""
    return max(512, 2 ** (int(rows * 1.7 * max(words, 4)) - 1).bit_length())


def _candidate(data: ParallelCorpus, start: str, known: bool, quick: bool) -> Candidate:
    from regard.training.init_from import adopt_source

    train = base_train(
        init_from=None if start == "none" else start,
        learning_rate=2e-4 if known else 1e-3,
        weight_decay=0.0 if known else 0.01,
        score_interval=1_000_000,  # only what is chosen is translated and scored
        metric="loss",
    )
    small = Config(vocab=0, width=128, heads=4, ffn=256, encoder_layers=2, decoder_layers=2, dropout=0.25)
    recipe = Recipe(small, translation.Config(label_smoothing=0.1), data, train)
    return Candidate(adopt_source(recipe)[0], epochs=10 if known else 60)
