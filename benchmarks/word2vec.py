"""Training speed of word2vec on a CPU: Regard against gensim, same sentences and settings, taking turns.

    python benchmarks/word2vec.py                                 both, one thread each -> results/word2vec-cpu.json
    python benchmarks/word2vec.py --gensim .../site-packages      where gensim lives in an environment of its own
    python benchmarks/word2vec.py --near words-en                 only ask a trained model for neighbours

A turn is one epoch over Tatoeba's English: words read a second, those that subsampling drops included, as gensim counts
them. Ours makes its batches in the same thread. Both have 128 numbers a word, windows of 5, 5 drawn words, words from 3
occurrences on, sample 1e-3. Gensim draws for every pair and moves after each; ours draws for a window and moves after
4,096 words: the quality of both is in the record too, by what is near 128 words of 14 groups (days, colours, animals).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import harness

WIDTH, WINDOW, NEGATIVES, SAMPLE, MIN_COUNT, BATCH = 128, 5, 5, 1e-3, 3, 4096
GROUPS = {
    "numbers": "two three four five six seven eight nine ten twenty",
    "days": "monday tuesday wednesday thursday friday saturday sunday",
    "months": "january february march april june july august september october november december",
    "colours": "red blue green yellow black white brown pink",
    "family": "mother father brother sister son daughter uncle aunt wife husband",
    "animals": "dog cat horse bird fish cow pig sheep mouse lion rabbit monkey",
    "countries": "france germany england china japan italy spain russia canada australia",
    "cities": "paris london tokyo boston berlin osaka kyoto",
    "food": "bread cheese rice meat apple cake soup chicken egg fruit",
    "drinks": "water milk tea coffee beer wine juice",
    "body": "head hand arm leg foot eye nose mouth ear finger",
    "languages": "english french german spanish chinese japanese russian italian",
    "work": "doctor teacher lawyer nurse engineer farmer actor dentist writer",
    "vehicles": "car bus train bicycle plane ship boat truck taxi",
}


def regard_epochs(sentences: Any, epochs: int) -> tuple[Any, Any]:
    """Return a function that trains one epoch, and one that returns the neighbours of a word."""
    import torch

    from regard.data.batching import StreamPosition
    from regard.data.text.word_sentences import WordSentences
    from regard.models.word2vec import Config, Word2Vec
    from regard.tasks.text import word2vec
    from regard.tasks.text.word2vec import NearestWords
    from regard.training.optimizers.optimizer import Optimizer

    data = WordSentences(("tatoeba",), vocab_size=50_000, min_count=MIN_COUNT, batch_tokens=BATCH)
    task = word2vec.Config(window=WINDOW, negatives=NEGATIVES, subsample=SAMPLE).build(data)
    torch.manual_seed(0)
    model = Word2Vec(task.fit(Config(1, WIDTH)))
    optimizer = Optimizer(dict(model.named_parameters()), betas=(0.9, 0.999))
    total = epochs * len(task.batches().order(0))
    state = {"position": StreamPosition(), "step": 0}

    def epoch() -> None:
        began = state["position"].epoch
        for item in task.batches().start(state["position"]):
            loss, _ = task.loss(model, item.batch)
            (loss / item.count).backward()
            state["step"] += 1
            optimizer.step(5e-3 * max(0.05, 1 - state["step"] / total))
            state["position"] = item.next_position
            if item.next_position.epoch > began:
                return

    def near(word: str, k: int) -> list[str]:
        return [neighbor.word for neighbor in NearestWords(model, task.text).nearest(word, k)]

    return epoch, near


def gensim_epochs(sentences: Any, epochs: int) -> tuple[Any, Any]:
    """Return the same for gensim."""
    from gensim.models import Word2Vec

    lower = [[word.lower() for word in words] for words in sentences]
    model = Word2Vec(
        vector_size=WIDTH,
        window=WINDOW,
        negative=NEGATIVES,
        sample=SAMPLE,
        min_count=MIN_COUNT,
        sg=1,
        workers=1,
        seed=1,
    )
    model.build_vocab(lower)
    done = 0

    def epoch() -> None:
        nonlocal done
        rates = [0.025 * (1 - n / epochs) + 1e-4 for n in (done, done + 1)]
        model.train(lower, total_examples=len(lower), epochs=1, start_alpha=rates[0], end_alpha=rates[1])
        done += 1

    def near(word: str, k: int) -> list[str]:
        return [neighbor for neighbor, _ in model.wv.most_similar(word, topn=k)]

    return epoch, near


def child(name: str, epochs: int) -> None:
    from regard.data.text.word_sentences import WordSentences

    sentences = WordSentences(("tatoeba",)).read("train")
    count = sum(map(len, sentences))
    epoch, near = {"regard": regard_epochs, "gensim": gensim_epochs}[name](sentences, epochs)

    def turn(what: str) -> Any:
        if what == "neighbours":
            return _groups(near)
        began = time.perf_counter()
        epoch()
        return {"words_per_second": count / (time.perf_counter() - began)}

    harness.serve_requests(turn)


def _groups(near: Any) -> dict[str, float]:
    """Return how often the nearest word, and what share of the five nearest, are in the word's group."""
    first, five, count = 0, 0.0, 0
    for line in GROUPS.values():
        group = line.split()
        for word in group:
            found = near(word, 5)
            first, five, count = first + (found[0] in group), five + sum(x in group for x in found) / 5, count + 1
    return {"words": count, "nearest_in_group": round(first / count, 3), "top5_in_group": round(five / count, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--gensim", help="the site-packages folder that holds gensim")
    parser.add_argument("--near", metavar="MODEL", help="only the groups of a trained model's neighbours")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.gensim:
        sys.path.append(arguments.gensim)  # last, so that its numpy is not used
    if arguments.child:
        child(arguments.child, arguments.epochs)
        return
    if arguments.near:
        import regard

        vectors = regard.load(arguments.near)
        print(_groups(lambda word, k: [process.word for process in vectors.nearest(word, k)]))
        return
    options = ["--epochs", str(arguments.epochs), *(["--gensim", arguments.gensim] if arguments.gensim else [])]
    children = [harness.Child(name, str(Path(__file__)), options, threads=1) for name in ("regard", "gensim")]
    record, steal = harness.machine(), harness.Steal()
    record["command"] = "python benchmarks/word2vec.py"
    turns = harness.rounds(children, arguments.epochs, what="epoch")
    speeds = {c.name: harness.median_and_range(t[c.name]["words_per_second"] for t in turns) for c in children}
    ratio = harness.median_and_range(t["regard"]["words_per_second"] / t["gensim"]["words_per_second"] for t in turns)
    quality = {c.name: c.ask(what="neighbours") for c in children}
    record |= {
        "words_per_second": speeds,
        "ratio": ratio,
        "epochs": arguments.epochs,
        "neighbours": quality,
        "steal": steal.share(),
    }
    for process in children:
        process.close()
    rows = [["", "words/s", "nearest in group", "five in group"]]
    rows += [[n, f"{speeds[n]['median']:,.0f}", q["nearest_in_group"], q["top5_in_group"]] for n, q in quality.items()]
    print(harness.table(rows), f"\nratio {ratio['median']} ({ratio['min']} to {ratio['max']})")
    print(harness.write("word2vec-cpu.json", record))


if __name__ == "__main__":
    main()
