"""Predictors that read texts and write no tokens: an encoder with a head, word vectors, stories."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from regard.core.shapes import Int, Tensor
from regard.export.plan import Graph, Plan

TOKENIZERS = ("from tokenizers import Tokenizer",)
# "</s>" in a text is four characters, not the end of it
TOKENIZER = """\
tokenizer = Tokenizer.from_file(str(here / "tokenizer.json"))
tokenizer.encode_special_tokens = True"""
READ = TOKENIZER.splitlines()[0]  # with special tokens in a text: [MASK]
TOO_LONG = """\
    if tokens.shape[1] > config["max_length"]:
        sys.exit(f"The text has {tokens.shape[1]} tokens, the model takes {config['max_length']}; shorten it.")"""


def random_lengths(rows: int, length: int) -> Int[Tensor, " B"]:
    """Return the lengths of rows, of which the first is full."""
    return torch.tensor([length, *(1 + (7 * n) % length for n in range(1, rows))])


def encoder_graph(predictor: Any, function: Any, outputs: tuple[str, ...], segments: bool = True) -> Graph:
    """Return the graph of an encoder over padded rows of tokens."""
    model = predictor.model

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(4, predictor.text.size, (rows, length))
        second = (torch.arange(length) >= length // 2).long().expand(rows, length).clone()
        return (tokens, *([second] if segments else []), random_lengths(rows, length))

    names = ("tokens", "segments", "lengths") if segments else ("tokens", "lengths")
    return Graph("model", model, function, names, outputs, example, predictor.room)


def marks(predictor: Any) -> dict[str, int]:
    """Return the special tokens and the most tokens of a row, as run.py reads them."""
    text = predictor.text
    return {"bos": text.bos, "eos": text.eos, "max_length": predictor.room}


def ranked(classes: Any) -> str:
    """Return the line of the likeliest class."""
    return f"{classes.label}\t{classes.probability:.4f}"


def plan_classification(predictor: Any, name: str) -> Plan:
    """Return the plan of a classifier of texts, or of pairs of texts."""
    model, pairs = predictor.model, len(predictor.inputs) > 1

    def run(tokens: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        return (model(tokens, segments, lengths).float().softmax(-1),)

    if pairs:
        read = (
            """\
for one, other in zip(sys.argv[1::2], sys.argv[2::2]):
    a, b = (tokenizer.encode(text, add_special_tokens=False).ids for text in (one, other))
    tokens = np.array([[config["bos"], *a, config["eos"], *b, config["eos"]]])
    segments = np.array([[0] * (len(a) + 2) + [1] * (len(b) + 1)])
"""
            + f"{TOO_LONG}\n"
        )
    else:
        read = """\
for text in sys.argv[1:]:
    ids = tokenizer.encode(text, add_special_tokens=False).ids[: config["max_length"] - 2]
    tokens = np.array([[config["bos"], *ids, config["eos"]]])
    segments = np.zeros_like(tokens)
"""
    script = f"""\
model = load("model")
{TOKENIZER}
{read}\
    (probabilities,) = model(tokens, segments, np.array([tokens.shape[1]]))
    best = probabilities[0].argmax()
    print(config["labels"][best], f"{{probabilities[0, best]:.4f}}", sep="\\t")
"""
    examples = [tuple(each.values()) if isinstance(each, dict) else (each,) for each in predictor.examples]
    return Plan(
        (encoder_graph(predictor, run, ("probabilities",)),),
        script,
        "TEXT OTHER..." if pairs else "TEXT...",
        {"labels": list(predictor.labels), **marks(predictor)},
        TOKENIZERS,
        ("tokenizers",),
        predictor.text,
        examples,
        lambda *line: ranked(predictor(*line)),
    )


def plan_tagging(predictor: Any, name: str) -> Plan:
    """Return the plan of a tagger of words."""
    model = predictor.model

    def run(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        return (model(tokens, None, lengths).float().softmax(-1),)

    script = f"""\
model = load("model")
{TOKENIZER}
for text in sys.argv[1:]:
    words = [tokenizer.encode(word, add_special_tokens=False).ids or [config["unk"]] for word in text.split()]
    tokens = np.array([[config["bos"], *sum(words, []), config["eos"]]])
{TOO_LONG}
    (probabilities,) = model(tokens, np.array([tokens.shape[1]]))
    first = np.cumsum([1, *map(len, words)])[:-1]  # the first token of every word
    tags = [config["labels"][best] for best in probabilities[0, first].argmax(-1)]
    print(*map("/".join, zip(text.split(), tags)))
"""
    return Plan(
        (encoder_graph(predictor, run, ("probabilities",), segments=False),),
        script,
        "SENTENCE...",
        {"labels": list(predictor.labels), "unk": predictor.text.unk, **marks(predictor)},
        TOKENIZERS,
        ("tokenizers",),
        predictor.text,
        [(example,) for example in predictor.examples],
        lambda line: " ".join(f"{word}/{tag}" for word, tag in zip(line.split(), *predictor.tags([line]), strict=True)),
    )


def plan_extractive_qa(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that finds answers in a text."""
    model = predictor.model

    def run(tokens: Tensor, segments: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        found = model(tokens, segments, lengths).float()
        return found[..., 0], found[..., 1]

    script = f"""\
model = load("model")
{TOKENIZER}
for text, question in zip(sys.argv[1::2], sys.argv[2::2]):
    words = [(found, tokenizer.encode(found[0], add_special_tokens=False).ids or [config["unk"]])
             for found in re.finditer(config["word"], text)]
    spans = [found.span() for found, ids in words for _ in ids]
    asked = [config["bos"], *tokenizer.encode(question, add_special_tokens=False).ids, config["eos"]]
    tokens = np.array([[*asked, *(i for _, ids in words for i in ids), config["eos"]]])
{TOO_LONG}
    segments = (np.arange(tokens.shape[1]) >= len(asked)).astype(np.int64)[None]
    start, end = (x[0, len(asked) : -1] for x in model(tokens, segments, np.array([tokens.shape[1]])))
    ahead = np.arange(len(spans))[None] - np.arange(len(spans))[:, None]  # tokens from the first to the last
    scores = np.where((ahead >= 0) & (ahead < config["max_answer_tokens"]), start[:, None] + end, -np.inf)
    first, last = np.unravel_index(scores.argmax(), scores.shape)
    print(text[spans[first][0] : spans[last][1]])
"""
    from regard.data.text.question_answering import WORD

    return Plan(
        (encoder_graph(predictor, run, ("start", "end")),),
        script,
        "TEXT QUESTION...",
        {
            "unk": predictor.text.unk,
            "word": WORD.pattern,
            "max_answer_tokens": predictor.max_answer_tokens,
            **marks(predictor),
        },
        ("import re", *TOKENIZERS),
        ("tokenizers",),
        predictor.text,
        [(each["text"], each["question"]) for each in predictor.examples],
        lambda text, question: str(predictor(text, question).text),
        note="a text longer than the model takes is refused: Regard reads it in windows",
    )


def plan_masked_lm(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that fills masks."""
    model, text, top = predictor.model, predictor.text, 5

    def run(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        found = model(tokens, None, lengths)
        logits = found[0] if isinstance(found, tuple) else found
        return (logits.float().softmax(-1),)

    script = f"""\
model = load("model")
{READ}
for text in sys.argv[1:]:
    tokens = np.array([[config["bos"], *tokenizer.encode(text, add_special_tokens=False).ids, config["eos"]]])
{TOO_LONG}
    (probabilities,) = model(tokens, np.array([tokens.shape[1]]))
    for place in np.flatnonzero(tokens[0] == config["mask"]):
        best = probabilities[0, place].argsort()[::-1][:{top}]
        print(*(f"{{tokenizer.id_to_token(int(i))}} {{probabilities[0, place, i]:.4f}}" for i in best), sep="\\t")
"""

    def answer(line: str) -> str:
        masks = predictor(line, top_k=top).masks
        return "\n".join("\t".join(f"{each.word} {each.probability:.4f}" for each in mask) for mask in masks)

    return Plan(
        (encoder_graph(predictor, run, ("probabilities",), segments=False),),
        script,
        f'"A text with {predictor.mask_token}"...',
        {"mask": text.mask, **marks(predictor)},
        TOKENIZERS,
        ("tokenizers",),
        text,
        [(example.replace("[MASK]", predictor.mask_token),) for example in predictor.examples],
        answer,
    )


def plan_embedding(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that makes a vector of a text."""
    model = predictor.model
    skipped = 1 + predictor._prompt_tokens if predictor._prompt_tokens and not predictor.include_prompt else 0

    def run(tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        x, place = model.hidden(tokens, None, lengths).float(), torch.arange(tokens.shape[1], device=tokens.device)
        real = ((place < lengths[:, None]) & (place >= skipped))[..., None]
        if predictor.pooling == "first":
            found = x[:, skipped]
        elif predictor.pooling == "max":
            found = x.masked_fill(~real, -torch.inf).amax(1)
        else:
            found = (x * real).sum(1) / real.sum(1)
        found = F.normalize(found, dim=-1) if predictor.normalize else found
        return (found[:, : predictor.truncate_dim],)

    script = f"""\
model = load("model")
{TOKENIZER}
for text in sys.argv[1:]:
    ids = tokenizer.encode(config["prompt"] + text, add_special_tokens=False).ids
    tokens = np.array([[config["bos"], *ids, config["eos"]]])
{TOO_LONG}
    (vectors,) = model(tokens, np.array([tokens.shape[1]]))
    print(*(f"{{x:.6f}}" for x in vectors[0]))
"""
    return Plan(
        (encoder_graph(predictor, run, ("vectors",), segments=False),),
        script,
        "TEXT...",
        {"prompt": predictor.prompt, **marks(predictor)},
        TOKENIZERS,
        ("tokenizers",),
        predictor.text,
        [(example,) for example in predictor.examples],
        lambda line: " ".join(f"{x:.6f}" for x in predictor(line).tolist()),
        note="a text longer than the model takes is refused",
    )


def plan_word_vectors(predictor: Any, name: str) -> Plan:
    """Return the plan of word vectors: the cosines of a word with all words."""
    units = predictor._units

    def run(words: Tensor) -> tuple[Tensor, ...]:
        return (units[words] @ units.mT,)

    script = """\
model = load("model")
numbers = config["words"]
names = {number: word for word, number in numbers.items()}
for word in sys.argv[1:]:
    if word not in numbers:
        sys.exit(f"{word!r} is not among the {len(numbers):,} words of this model.")
    (cosines,) = model(np.array([numbers[word]]))
    order = [i for i in cosines[0].argsort()[::-1] if i in names and i != numbers[word]]
    print(*(f"{names[i]} {cosines[0, i]:.3f}" for i in order[:10]), sep="\\t")
"""

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        return (torch.randint(4, predictor.text.size, (rows,)),)

    return Plan(
        (Graph("model", predictor.model, run, ("words",), ("cosines",), example),),
        script,
        "WORD...",
        {"words": predictor._numbers},
        tokenizer=predictor.text,
        examples=[(word,) for word in (*predictor.examples, *predictor.vocabulary) if word in predictor._numbers][:3],
        answer=lambda word: "\t".join(f"{each.word} {each.cosine:.3f}" for each in predictor.nearest(word)),
    )


def plan_story_answering(predictor: Any, name: str) -> Plan:
    """Return the plan of a model that answers questions about stories."""
    model, words = predictor.model, predictor.vocabulary

    def run(sentences: Tensor, lengths: Tensor, questions: Tensor) -> tuple[Tensor, ...]:
        return (model(sentences, lengths, questions).float().softmax(-1),)

    def example(rows: int, length: int) -> tuple[Tensor, ...]:
        width = length // 2 + 2  # words of a sentence
        story = torch.randint(2, words.size, (rows, length, width))
        return story, random_lengths(rows, length), torch.randint(2, words.size, (rows, width))

    from regard.tokens.story_words import SENTENCE, WORD

    script = """\
model = load("model")
numbers = {word: 2 + i for i, word in enumerate(config["answers"] + config["words"])}
for text, question in zip(sys.argv[1::2], sys.argv[2::2]):
    story = [line for line in re.findall(config["sentence"], text) if re.search(config["word"], line)]
    lines = [re.findall(config["word"], line.lower()) for line in [*story[-config["max_sentences"] :], question]]
    rows = np.zeros((len(lines), max(2, *map(len, lines))), dtype=np.int64)
    for row, line in zip(rows, lines):
        row[: len(line)] = [numbers.get(word, 1) for word in line]
    (probabilities,) = model(rows[None, :-1], np.array([len(rows) - 1]), rows[-1:])
    best = probabilities[0].argmax()
    print(config["answers"][best], f"{probabilities[0, best]:.4f}", sep="\\t")
"""
    return Plan(
        (Graph("model", model, run, ("sentences", "lengths", "questions"), ("probabilities",), example),),
        script,
        "STORY QUESTION...",
        {
            "answers": list(words.answers),
            "words": list(words.others),
            "max_sentences": predictor.max_sentences,
            "word": WORD.pattern,
            "sentence": SENTENCE.pattern,
        },
        ("import re",),
        examples=[(each["text"], each["question"]) for each in predictor.examples],
        answer=lambda text, question: ranked(predictor(text, question)),
    )
