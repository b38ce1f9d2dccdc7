"""Own data: what `regard train KIND PATH --minutes 5` makes of small sets, beside simple baselines, on held-out data.

    python benchmarks/own_data.py                          every case, seeds 1 2 3, one after another
    python benchmarks/own_data.py --cases texts audio --seeds 1 --minutes 1
    python benchmarks/own_data.py --jobs 6                 six runs at a time, each on two cores of its own (Linux)
    python benchmarks/own_data.py --no-baselines           where scikit-learn is not installed
    python benchmarks/own_data.py --baselines              the baselines alone, in minutes; kept beside the results

    case        trained on                                        baseline
    images      160 photos in 3 classes (Flickr8k, by caption)    logistic regression on pixels
    texts       240 questions in 6 classes (TREC)                 TF-IDF with logistic regression
    reviews     240 sentences in 2 classes (SST-2)                TF-IDF with logistic regression
    pairs       500 sentence pairs, English-German (Multi30k)     the target of the nearest training source (by chrF)
    pairs-cs    500 sentence pairs, English-Czech (Multi30k)      the same; no shipped model knows Czech
    text        100 kB of news articles (BBC)                     5-gram Kneser-Ney over bytes
    audio       300 recordings of ten words (FSDD)                logistic regression on mean MFCCs

A seed picks the training examples and is the seed of the run; the test examples are the same for all. The command is
run as a user runs it, in a process of its own with two threads (--threads), and timed from its start to its end, in
seconds and in seconds of a CPU (five minutes of two cores are 600 of them); then the saved model is measured. Baselines
learn from all the training examples (ours keeps a part of them for validation), and choose their features and their
strength of regularisation by cross-validation. The results are kept in results/own-data.json: a run replaces its own
rows. scikit-learn (extra `bench`) is needed by baselines alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import harness
import numpy as np

RESULTS = harness.RESULTS / "own-data.json"
STRENGTHS = np.logspace(-6, 4, 11)  # of logistic regression, chosen by cross-validation
CURVE = ("val_loss", "accuracy", "chrf", "bits_per_byte")
PLAN_LINES = ("data ", "start ", "model ", "regularisation ", "updates ", "time ")
Pairs = list[tuple[Any, str]]


@dataclass(frozen=True)
class Case:
    """A set of examples: how it is cut, written for the command, and measured."""

    kind: str  # of regard train
    data: str
    metric: str
    cut: Callable[[int], tuple[Any, Any]]  # seed -> training and test examples
    write: Callable[[Any, Path], Path]  # training examples into a folder -> what the command is given
    baseline_name: str
    baseline: Callable[[Any, Any], float]
    measure: Callable[[Any, Any], float]  # predictor, test examples
    higher_is_better: bool = True


# -- cutting -----------------------------------------------------------------------------------------------------------

WORDS_OF_CLASS = {
    "dog": {"dog", "dogs", "puppy"},
    "bicycle": {"bicycle", "bicycles", "bike", "bikes", "biker", "bikers", "cyclist", "bicyclist"},
    "water": {"surfer", "surfing", "surfboard", "surfs", "swimming", "pool", "kayak", "kayaker", "wakeboarder", "wave"},
}


def cut_images(seed: int) -> tuple[Pairs, Pairs]:
    """Return photos of Flickr8k whose captions, at least three of five, name one of three things and never another."""
    import zipfile

    from regard.data import data_dir
    from regard.data.images.flickr8k import read_captions

    folder = data_dir.find_dataset("flickr8k")
    found: dict[str, dict[str, list[str]]] = {"train": {}, "test": {}}
    for row in read_captions(folder):
        named = {
            name: sum(bool(words & set(each.lower().split())) for each in row.captions)
            for name, words in WORDS_OF_CLASS.items()
        }
        (most, name), *others = sorted(((count, name) for name, count in named.items()), reverse=True)
        if row.split in found and most >= 3 and not any(count for count, _ in others):
            found[row.split].setdefault(name, []).append(row.image)
    with zipfile.ZipFile(next(folder.glob("*.zip"))) as photos:
        rows = {}
        for split, most, own in (("train", 160, seed), ("test", 120, 0)):  # as many of every class, or nearly
            pools = {
                name: random.Random(own).sample(images, len(images)) for name, images in sorted(found[split].items())
            }
            drawn = [(pool[n], name) for n in range(most) for name, pool in pools.items() if n < len(pool)]
            rows[split] = [(photos.read(image), name) for image, name in drawn[:most]]
        return rows["train"], rows["test"]


def cut_texts(corpus: str, count: int = 240, most: int = 1000) -> Callable[[int], tuple[Pairs, Pairs]]:
    def cut(seed: int) -> tuple[Pairs, Pairs]:
        from regard.data.text.labeled_text import LabeledText

        data = LabeledText(corpus)
        train, test = ([(row[0], row[-1]) for row in data.read(split)] for split in ("train", "test"))
        random.Random(seed).shuffle(train)
        return train[:count], random.Random(0).sample(test, min(most, len(test)))

    return cut


def cut_pairs(target: str) -> Callable[[int], tuple[Pairs, Pairs]]:
    def cut(seed: int) -> tuple[Pairs, Pairs]:
        from regard.data.text.parallel_corpus import ParallelCorpus

        data = ParallelCorpus("multi30k", "en", target)
        train, test = (list(zip(*data.read(split), strict=True)) for split in ("train", "test_2016_flickr"))
        random.Random(seed).shuffle(train)
        return train[:500], test

    return cut


def cut_text(seed: int) -> tuple[str, str]:
    """Return 100 kB of news articles, and 100 kB of others, which no seed trains on."""
    from regard.data.text.labeled_text import LabeledText

    found = []
    for split, own in (("train", seed), ("test", 0)):
        articles = [f"{row[0]}\n\n" for row in LabeledText("bbc").read(split)]
        random.Random(own).shuffle(articles)
        found.append("".join(articles)[:100_000])
    return found[0], found[1]


def cut_audio(seed: int) -> tuple[Pairs, Pairs]:
    from regard.data.audio.fsdd import WORDS, read_recordings

    waves, offsets, digit, _, _, is_test = read_recordings("fsdd")
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(~is_test))[:300]
    return tuple(  # type: ignore[return-value]
        [(waves[offsets[row] : offsets[row + 1]], WORDS[digit[row]]) for row in some]
        for some in (rows.tolist(), np.flatnonzero(is_test).tolist())
    )


# -- writing, as a user has it -----------------------------------------------------------------------------------------


def write_images(rows: Pairs, folder: Path) -> Path:
    for number, (content, name) in enumerate(rows):
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        (folder / "photos" / name / f"{number:03}.jpg").write_bytes(content)
    return folder / "photos"


def write_table(name: str) -> Callable[[Pairs, Path], Path]:
    def write(rows: Pairs, folder: Path) -> Path:
        (folder / name).write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
        return folder / name

    return write


def write_text(text: str, folder: Path) -> Path:
    (folder / "news.txt").write_text(text, encoding="utf-8")
    return folder / "news.txt"


def write_audio(rows: Pairs, folder: Path) -> Path:
    import soundfile

    for number, (wave, name) in enumerate(rows):
        (folder / "words" / name).mkdir(parents=True, exist_ok=True)
        soundfile.write(folder / "words" / name / f"{number:03}.wav", wave, 8000)
    return folder / "words"


# -- baselines ---------------------------------------------------------------------------------------------------------


def classify(model: Any, grid: dict[str, Any], train: Pairs, test: Pairs) -> float:
    """Return the accuracy of a pipeline that ends in logistic regression, its settings chosen by cross-validation."""
    from sklearn.model_selection import GridSearchCV

    grid = {**grid, "logisticregression__C": STRENGTHS}
    search = GridSearchCV(model, grid, cv=5).fit([value for value, _ in train], [label for _, label in train])
    return float(np.mean(search.predict([value for value, _ in test]) == np.array([label for _, label in test])))


def pixel_baseline(train: Pairs, test: Pairs) -> float:
    """Return the accuracy of logistic regression on the pixels of images made small, how small is chosen too."""
    import io

    from PIL import Image
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    def pixels(rows: Pairs) -> Pairs:
        small = [Image.open(io.BytesIO(content)).convert("RGB").resize((32, 32)) for content, _ in rows]
        return [(np.asarray(image, np.float32) / 255, name) for image, (_, name) in zip(small, rows, strict=True)]

    model = make_pipeline(FunctionTransformer(pool_pixels), StandardScaler(), LogisticRegression(max_iter=2000))
    grid = {"functiontransformer__kw_args": [{"size": size} for size in (1, 2, 4)]}
    return classify(model, grid, pixels(train), pixels(test))


def pool_pixels(images: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the means of squares of pixels, a row per image."""
    whole = np.stack(images)
    count, side = len(whole), whole.shape[1] // size
    return whole.reshape(count, side, size, side, size, 3).mean((2, 4)).reshape(count, -1)


def tfidf_baseline(train: Pairs, test: Pairs) -> float:
    """Return the accuracy of logistic regression on words, words with bigrams, or pieces of words; chosen."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    kinds = [{"ngram_range": (1, 1)}, {"ngram_range": (1, 2)}, {"analyzer": "char_wb", "ngram_range": (2, 5)}]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=2000))
    grid = {"tfidfvectorizer": [TfidfVectorizer(sublinear_tf=True, **kind) for kind in kinds]}
    return classify(model, grid, train, test)


def nearest_pair_baseline(train: Pairs, test: Pairs) -> float:
    """Return chrF of the target of the training pair whose source is nearest by chrF."""
    from regard.metrics.bleu import chrf

    nearest = chrf_table([source for source, _ in test], [source for source, _ in train]).argmax(1)
    return chrf([train[row][1] for row in nearest], [target for _, target in test]).value


def chrf_table(texts: Sequence[str], known: Sequence[str], most: int = 6) -> np.ndarray:
    """Return chrF (β = 2, characters without spaces, 1- to 6-grams) between every text and every known one."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts, known = (["".join(text.split()) for text in side] for side in (texts, known))
    found = np.zeros((2, len(texts), len(known)))  # precision and recall, summed over n
    for n in range(1, most + 1):
        vectorizer = CountVectorizer(analyzer="char", ngram_range=(n, n), lowercase=False)
        columns = vectorizer.fit_transform(known).tocsc()
        rows = vectorizer.transform(texts).tocsr()
        sizes = [np.array([max(1, len(text) - n + 1) for text in side]) for side in (known, texts)]
        for at in range(len(texts)):
            row = rows[[at]]
            same = np.minimum(columns[:, row.indices].toarray(), row.data).sum(1)
            found[0, at] += same / sizes[0] / most
            found[1, at] += same / sizes[1][at] / most
    precision, recall = found
    return 5 * precision * recall / np.maximum(4 * precision + recall, 1e-12)


class KneserNey:
    """An interpolated n-gram model over bytes with three discounts per order (Chen and Goodman 1999).

        p(w | h) = max(c(h w) - D, 0) / c(h) + (D₁ N₁ + D₂ N₂ + D₃ N₃) / c(h) · p(w | shorter h)

    Below the highest order c counts the different bytes that stand before the n-gram instead of its occurrences.
    """

    def __init__(self, text: bytes, order: int) -> None:
        self.order = order
        counts: list[dict[bytes, int]] = [{} for _ in range(order + 1)]
        for at in range(len(text) - order + 1):
            gram = text[at : at + order]
            counts[order][gram] = counts[order].get(gram, 0) + 1
        for n in range(order - 1, 0, -1):
            for gram in counts[n + 1]:
                counts[n][gram[1:]] = counts[n].get(gram[1:], 0) + 1
        self.counts = counts
        self.totals: list[dict[bytes, list[int]]] = [{} for _ in range(order + 1)]  # count, N₁, N₂, N₃
        self.discounts = [[0.0] * 4 for _ in range(order + 1)]
        for n in range(1, order + 1):
            number = [sum(count == c for count in counts[n].values()) for c in range(1, 5)]
            y = number[0] / max(1, number[0] + 2 * number[1])
            self.discounts[n] = [0.0] + [
                max(0.0, c - (c + 1) * y * number[c] / number[c - 1]) if number[c - 1] else 0.5 for c in (1, 2, 3)
            ]
            for gram, count in counts[n].items():
                row = self.totals[n].setdefault(gram[:-1], [0, 0, 0, 0])
                row[0] += count
                row[min(count, 3)] += 1

    def probability(self, history: bytes, byte: bytes) -> float:
        p = 1 / 256
        for n in range(1, self.order + 1):
            context = history[len(history) - n + 1 :] if n > 1 else b""
            if (row := self.totals[n].get(context)) is None:
                break
            d, count = self.discounts[n], self.counts[n].get(context + byte, 0)
            p = max(count - d[min(count, 3)], 0) / row[0] + sum(d[k] * row[k] for k in (1, 2, 3)) / row[0] * p
        return p

    def bits_per_byte(self, text: bytes) -> float:
        width = self.order - 1
        bits = [-math.log2(self.probability(text[max(0, i - width) : i], text[i : i + 1])) for i in range(len(text))]
        return sum(bits) / len(bits)


def kneser_ney_baseline(train: str, test: str, order: int = 5) -> float:
    return KneserNey(train.encode(), order).bits_per_byte(test.encode())


def mfcc_baseline(train: Pairs, test: Pairs) -> float:
    """Return the accuracy of logistic regression on 13 or 20 cepstral coefficients, averaged over time."""
    import torch
    from scipy.fft import dct
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    from regard.tokens.frames import LogMelSpectrogram

    mel = LogMelSpectrogram(8000)

    def features(rows: Pairs) -> Pairs:
        frames = [mel.log_mel(torch.from_numpy(wave.astype(np.float32) / 32768)).numpy() for wave, _ in rows]
        return [(dct(x, norm="ortho").mean(0), name) for x, (_, name) in zip(frames, rows, strict=True)]

    model = make_pipeline(FunctionTransformer(first_columns), StandardScaler(), LogisticRegression(max_iter=2000))
    grid = {"functiontransformer__kw_args": [{"count": count} for count in (13, 20)]}
    return classify(model, grid, features(train), features(test))


def first_columns(rows: Sequence[np.ndarray], count: int) -> np.ndarray:
    return np.stack(rows)[:, :count]


# -- measuring a trained model -----------------------------------------------------------------------------------------


def accuracy(predictor: Any, test: Pairs) -> float:
    import torch

    given = [
        torch.from_numpy(value.astype(np.float32) / 32768) if isinstance(value, np.ndarray) else value
        for value, _ in test
    ]
    return float(np.mean([found.label == name for found, (_, name) in zip(predictor(given), test, strict=True)]))


def translation_chrf(predictor: Any, test: Pairs) -> float:
    from regard.metrics.bleu import chrf

    written = predictor([source for source, _ in test], beam_size=5)
    return chrf([str(each) for each in written], [target for _, target in test]).value


def bits_per_byte(predictor: Any, test: str) -> float:
    """Return bits per byte; rows overlap by half, and the first half of a row but the first is context alone.

    A character that training did not have costs the unknown token, and 8 bits for each of its bytes.
    """
    import torch

    ids = torch.tensor(predictor.text.encode_one(test))
    assert len(ids) == len(test), "the tokens are not characters"
    unknown = sum(len(test[at].encode()) for at in (ids == predictor.text.unk).nonzero().flatten().tolist())
    nats, step = unknown * 8 * math.log(2), predictor.window // 2
    with torch.no_grad():
        for start in range(0, len(ids) - 1, step):
            chunk = ids[max(0, start - step) : start + step + 1]
            logits = predictor.model(chunk[None, :-1]).log_softmax(-1)[0]
            last = min(step, len(ids) - 1 - start)
            nats -= float(logits[-last:].gather(1, chunk[-last:, None]).sum())
    return nats / math.log(2) / len(test.encode())


WORDS = ("TF-IDF, logistic regression", tfidf_baseline, accuracy)
PAIRS = ("nearest training pair", nearest_pair_baseline, translation_chrf)
CASES = {
    "images": Case(
        "images",
        "160 photos in 3 classes",
        "accuracy",
        cut_images,
        write_images,
        "pixels, logistic regression",
        pixel_baseline,
        accuracy,
    ),
    "texts": Case(
        "labelled-texts", "240 questions in 6 classes", "accuracy", cut_texts("trec6"), write_table("rows.tsv"), *WORDS
    ),
    "reviews": Case(
        "labelled-texts",
        "240 film reviews in 2 classes",
        "accuracy",
        cut_texts("sst2"),
        write_table("rows.tsv"),
        *WORDS,
    ),
    "pairs": Case("pairs", "500 pairs, English to German", "chrF", cut_pairs("de"), write_table("en-de.tsv"), *PAIRS),
    "pairs-cs": Case("pairs", "500 pairs, English to Czech", "chrF", cut_pairs("cs"), write_table("en-cs.tsv"), *PAIRS),
    "text": Case(
        "text",
        "100 kB of news",
        "bits per byte",
        cut_text,
        write_text,
        "5-gram Kneser-Ney",
        kneser_ney_baseline,
        bits_per_byte,
        False,
    ),
    "audio": Case(
        "audio",
        "300 recordings of ten words",
        "accuracy",
        cut_audio,
        write_audio,
        "mean MFCCs, logistic regression",
        mfcc_baseline,
        accuracy,
    ),
}

# -- running -----------------------------------------------------------------------------------------------------------


def measure(
    name: str, seed: int, minutes: float, threads: int, cores: Sequence[int], settings: Sequence[str]
) -> dict[str, Any]:
    """Train one case in a process of its own, on some cores, and measure the model."""
    case = CASES[name]
    train, test = case.cut(seed)
    with tempfile.TemporaryDirectory() as place:
        path = case.write(train, Path(place))
        out = Path(place) / "run"
        command = [sys.executable, "-m", "regard", "train", case.kind, str(path), "--minutes", f"{minutes:g}"]
        command += ["--out", str(out), f"train.seed={seed}", "train.device=cpu", *settings]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""}
        if cores and shutil.which("taskset"):
            command = ["taskset", "-c", ",".join(map(str, cores)), *command]
        began, spent = time.monotonic(), sum(os.times()[2:4])
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        seconds, cpu = time.monotonic() - began, sum(os.times()[2:4]) - spent  # with --jobs cpu counts others too
        if done.returncode:
            raise SystemExit(f"{name}, seed {seed}: {done.stderr[-2000:]}")
        import regard

        score = case.measure(regard.load(out), test)
        result = json.loads((out / "result.json").read_text())
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    plan = [line for line in done.stderr.splitlines() if line.startswith(PLAN_LINES)]
    start = next(line for line in plan if line.startswith("start ")).removeprefix("start").strip()
    ours = {
        "score": round(score, 4),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "updates": result["steps"],
        "parameters": result["parameters"],
    }
    return {
        "case": name,
        "data": case.data,
        "start": re.split(r"[,;] ", start)[0],
        "metric": case.metric,
        "seed": seed,
        "minutes": minutes,
        "threads": threads,
        "contenders": {"regard": ours},
        "run": {
            "plan": plan,
            "settings": list(settings),
            "stop_reason": result["stop_reason"],
            "curve": [{key: row[key] for key in ("step", *CURVE) if key in row} for row in rows if "val_loss" in row],
        },
    }


def add_baseline(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its baseline measured."""
    case = CASES[row["case"]]
    score = round(case.baseline(*case.cut(row["seed"])), 4)
    return row | {"contenders": {"regard": row["contenders"]["regard"], case.baseline_name: {"score": score}}}


def read_rows() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text("utf-8"))["cases"] if RESULTS.is_file() else []


def keep(record: dict[str, Any], *new: dict[str, Any]) -> None:
    """Write rows, in the place of older ones of the same case, start, seed, minutes, threads and settings."""
    rows = {
        json.dumps(
            [each[key] for key in ("case", "start", "seed", "minutes", "threads")] + each["run"]["settings"]
        ): each
        for each in (*read_rows(), *new)
    }
    ordered = sorted(rows.values(), key=lambda each: (list(CASES).index(each["case"]), each["seed"], each["minutes"]))
    merged = any(each["measured"]["command"] != record["command"] for each in ordered if "measured" in each)
    harness.write(RESULTS.name, record | {"merged": merged, "cases": ordered})


def is_better(case: Case, ours: float, baseline: float) -> bool:
    return (ours > baseline) is case.higher_is_better


def describe(row: dict[str, Any]) -> str:
    case, (ours, *baselines) = CASES[row["case"]], row["contenders"].values()
    words = [f"{row['case']:9} seed {row['seed']}  {row['metric']} {ours['score']:.4f}"]
    for each in baselines:
        verdict = "better" if is_better(case, ours["score"], each["score"]) else "WORSE"
        words.append(f"baseline {each['score']:.4f}: {verdict}")
    late = "" if ours["seconds"] <= 60 * row["minutes"] else ", TOO LATE"
    return f"{', '.join(words)}  ({ours['seconds']:.0f} s, {ours['updates']} updates{late})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=2, help="of a run; 1 where others use the cores too")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, two cores each")
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--no-baselines", action="store_true")
    parser.add_argument("--no-write", action="store_true", help="print, and keep nothing")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="settings of every run")
    given = parser.parse_intermixed_args()
    record = harness.machine()
    if given.baselines:
        for row in read_rows():
            if row["case"] in given.cases and row["seed"] in given.seeds:
                keep(record, row := add_baseline(row))
                print(describe(row), flush=True)
        return
    pairs: SimpleQueue[list[int]] = SimpleQueue()
    for job in range(given.jobs):
        pairs.put([2 * job, 2 * job + 1] if given.jobs > 1 else [])

    def one(name: str, seed: int) -> dict[str, Any]:
        cores = pairs.get()
        try:
            row = measure(name, seed, given.minutes, given.threads, cores, given.settings)
        finally:
            pairs.put(cores)
        return row if given.no_baselines else add_baseline(row)

    with ThreadPoolExecutor(given.jobs) as pool:
        for each in as_completed([pool.submit(one, name, seed) for seed in given.seeds for name in given.cases]):
            row = each.result() | harness.lap()
            print(describe(row), flush=True)
            if not given.no_write:
                keep(record, row)


if __name__ == "__main__":
    main()
