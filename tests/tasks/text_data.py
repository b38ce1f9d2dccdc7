"""Small data for the tasks in which a text goes through an encoder once, and a recipe on each."""

import json
import random

from regard.data.text.labeled_text import LabeledText
from regard.data.text.masked_sentences import MaskedSentences
from regard.data.text.next_sentence_pairs import NextSentencePairs
from regard.data.text.question_answering import QuestionAnswering
from regard.data.text.tagged_sentences import TaggedSentences
from regard.models.bert import BERT, Config
from regard.tasks.text import classification, extractive_qa, masked_lm, tagging
from regard.training.recipe import Recipe, Train

ANIMALS, PLACES, VERBS = ("dog", "cat", "bird", "horse"), ("garden", "kitchen", "house", "river"), ("sees", "likes")
TASKS = ("documents", "sentences", "labelled", "pairs", "tagged", "questions")


def sentence(dice):
    return f"the {dice.choice(ANIMALS)} {dice.choice(VERBS)} the {dice.choice(PLACES)} ."


def tag(word):
    return "B-A" if word in ANIMALS else "B-P" if word in PLACES else "B-V" if word in VERBS else "O"


def written(folder):
    """Every kind of data, in files."""
    dice = random.Random(1)
    folder.mkdir(exist_ok=True)
    texts = ["\n".join(sentence(dice) for _ in range(dice.randint(3, 7))) for _ in range(30)]
    (folder / "documents.txt").write_text("\n\n".join(texts))
    lines = [sentence(dice) for _ in range(120)]
    (folder / "labelled.tsv").write_text("".join(f"{s}\t{s.split()[1]}\n" for s in lines))
    pairs = [(s, sentence(dice)) for s in lines]
    (folder / "pairs.tsv").write_text(
        "".join(f"{a}\t{b}\t{'same' if a.split()[2] == b.split()[2] else 'other'}\n" for a, b in pairs)
    )
    (folder / "tagged.txt").write_text("\n\n".join("\n".join(f"{w} {tag(w)}" for w in s.split()) for s in lines))
    rows = []
    for a, b in pairs:
        animal, place = a.split()[1], a.split()[4]
        rows.append({"context": f"{a} {b}", "question": f"what did the {animal} see first ?", "answer": place})
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def data(folder, kind, **settings):
    made = {
        "documents": lambda: NextSentencePairs(
            (str(folder / "documents.txt"),), max_length=24, batch_size=6, vocab_size=120, **settings
        ),
        "sentences": lambda: MaskedSentences(
            (str(folder / "documents.txt"),), max_length=12, batch_size=6, vocab_size=120, **settings
        ),
        "labelled": lambda: LabeledText(
            str(folder / "labelled.tsv"), max_length=16, batch_size=6, vocab_size=120, **settings
        ),
        "pairs": lambda: LabeledText(
            str(folder / "pairs.tsv"), "text other label", max_length=24, batch_size=6, vocab_size=120, **settings
        ),
        "tagged": lambda: TaggedSentences(
            str(folder / "tagged.txt"), max_length=16, batch_size=6, vocab_size=120, **settings
        ),
        "questions": lambda: QuestionAnswering(
            str(folder / "questions.jsonl"), max_length=32, batch_size=6, vocab_size=120, **settings
        ),
    }
    return made[kind]()


CONFIGS = {
    "documents": masked_lm, "sentences": masked_lm, "labelled": classification, "pairs": classification,
    "tagged": tagging, "questions": extractive_qa,
}  # fmt: skip


def task(folder, kind, **settings):
    return CONFIGS[kind].Config().build(data(folder, kind, **settings), seed=3)


def config(**settings):
    return Config(**{"vocab": 1, "width": 16, "heads": 2, "layers": 2, "ffn": 32, "length": 32} | settings)


def model(made, **settings):
    """A model for a task, its weights large enough to tell things apart."""
    import torch

    built = BERT(made.fit(config(**settings)))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return built.eval()


def recipe(folder, kind, **settings):
    return Recipe(
        config(),
        CONFIGS[kind].Config(),
        data(folder, kind),
        Train(**{"steps": 10, "learning_rate": 3e-3, "warmup_steps": 4, "gradient_accumulation_steps": 2,
                 "eval_interval": 5, "save_interval": 5, "log_interval": 5, "device": "cpu",
                 "ema_decay": 0.9} | settings),
        kind,
    )  # fmt: skip
