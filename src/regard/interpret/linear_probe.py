"""Linear probe: predict from a word's vector whether the word is a noun or a verb in its sentence.

    words        that occur as both in the Brown corpus ("play", "show", "work"), each occurrence with its tag
    vectors      any function from sentences and a position in each to vectors (or one per layer, to be mixed)
    probe        logistic regression on standardised vectors; weight decay chosen on validation, test evaluated once

A vector that is the same in every sentence can at best predict the more frequent tag of each word. What a probe gains
beyond that comes from the sentence. Sentences are split by file of the corpus, so that no training text is in the test.

Alain, Bengio: Understanding Intermediate Layers Using Linear Classifier Probes. 2016. arXiv:1610.01644
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn

from regard.core.errors import BadInput, Unsupported
from regard.core.shapes import Float, Int, Tensor
from regard.data import data_dir
from regard.models.elmo import ScalarMix

if TYPE_CHECKING:
    from regard.tokens.tokenizer import Tokenizer

Sentence = list[str]
Vectors = Callable[[Sequence[Sentence], Sequence[int]], Tensor]  # sentences, positions -> P C, or J P C to be mixed

CLASSES = ("noun", "verb")
WEIGHT_DECAYS = (1e-4, 1e-3, 1e-2)
LBFGS_STEPS = 40


@dataclass(frozen=True, eq=False)
class ProbeExamples:
    """Words in their sentences, each labelled noun or verb."""

    sentences: list[Sentence]
    positions: list[int]
    labels: Int[Tensor, " P"]

    @property
    def words(self) -> list[str]:
        """Return the word at each position, in lower case."""
        return [s[i].lower() for s, i in zip(self.sentences, self.positions, strict=True)]

    def __len__(self) -> int:
        return len(self.positions)


def noun_verb_examples(least: int = 10, share: float = 0.2) -> dict[str, ProbeExamples]:
    """Return the words of the Brown corpus that are nouns in some sentences and verbs in others.

    Each has at least `least` training examples, and at least a `share` of them for either. Keys: train, val, test (the
    split of the corpus, by file).
    """
    parts = {split: _read_brown(split) for split in ("train", "val", "test")}
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for words, tags in parts["train"]:
        for word, tag in zip(words, tags, strict=True):
            if (label := _noun_or_verb_label(tag)) is not None:
                counts[word.lower()][label] += 1
    chosen = {w for w, n in counts.items() if min(n[0], n[1]) >= max(least, share * (n[0] + n[1]))}
    return {split: _make_examples(rows, chosen) for split, rows in parts.items()}


def majority_accuracy(train: ProbeExamples, test: ProbeExamples) -> float:
    """Return the accuracy of the most frequent training label of each word: the best that static vectors can do."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for word, label in zip(train.words, train.labels.tolist(), strict=True):
        counts[word][label] += 1
    right = [counts[w].most_common(1)[0][0] == y for w, y in zip(test.words, test.labels.tolist(), strict=True)]
    return sum(right) / max(len(right), 1)


def train_probe(vectors: Vectors, data: dict[str, ProbeExamples], seed: int = 0) -> dict[str, Any]:
    """Train a probe and evaluate it. Keys: accuracy, val_accuracy, train_accuracy, decay; weights of mixed layers."""
    seen = {split: vectors(part.sentences, part.positions).float() for split, part in data.items()}
    x = seen["train"]
    if x.ndim not in (2, 3) or x.shape[-2] != len(data["train"]):
        raise BadInput(f"{len(data['train'])} positions gave vectors of shape {tuple(x.shape)}; P C or J P C is wanted")
    mean, spread = x.mean(-2, keepdim=True), x.std(-2, keepdim=True).clamp(min=1e-6)
    asked = {split: ((each - mean) / spread, data[split].labels) for split, each in seen.items()}
    found = [_fit_probe(asked, decay, seed) for decay in WEIGHT_DECAYS]
    return max(found, key=lambda each: each["val_accuracy"])


class _Probe(nn.Module):
    """A linear map, after a scalar mix if there are several layers."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.mix = ScalarMix(len(x)) if x.ndim == 3 else None
        self.map = nn.Linear(x.shape[-1], len(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.map(x if self.mix is None else self.mix(x))
        return out


def _fit_probe(asked: dict[str, tuple[Tensor, Tensor]], decay: float, seed: int) -> dict[str, Any]:
    """Minimise the loss over the whole training set; only the initial weights are random."""
    x, y = asked["train"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _Probe(x)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=LBFGS_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) + decay * model.map.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        right = {split: float((model(a).argmax(-1) == b).float().mean()) for split, (a, b) in asked.items()}
    result: dict[str, Any] = {"accuracy": right["test"], "val_accuracy": right["val"], "train_accuracy": right["train"]}
    result["decay"] = decay
    if model.mix is not None:
        result["weights"] = model.mix.scores.detach().softmax(0).tolist()
    return result


# -- vectors -----------------------------------------------------------------------------------------------------------


def static_vectors(words: Any) -> Vectors:
    """Return a function to static word vectors (tasks.text.word2vec.Words); zeros for unknown words."""

    def vectors(sentences: Sequence[Sentence], positions: Sequence[int]) -> Float[Tensor, "P C"]:
        table = {word: i for i, word in enumerate(words.vocabulary)}
        every = torch.cat([words.vectors(words.vocabulary).cpu(), torch.zeros(1, words.model.config.width)])
        return every[[table.get(s[i].lower(), -1) for s, i in zip(sentences, positions, strict=True)]]

    return vectors


def contextual_vectors(reader: Any, layer: int | None = None) -> Vectors:
    """Return a function to contextual vectors, of one layer or of all (for a scalar mix).

    `reader` is a tasks.text.bidirectional_lm.ContextualEmbedder or a `SubwordReader`.
    """

    def vectors(sentences: Sequence[Sentence], positions: Sequence[int]) -> Tensor:
        layers = _cached_layers(reader, sentences, positions)
        return layers if layer is None else layers[layer]

    return vectors


def _cached_layers(reader: Any, sentences: Sequence[Sentence], positions: Sequence[int]) -> Float[Tensor, "J P C"]:
    """Return the layers at these positions, computed once for all probes of a reader."""
    kept = _LAYER_CACHE.setdefault(reader, [])
    for part, at, layers in kept:
        if part is sentences and at is positions:
            return layers
    different = list({id(s): s for s in sentences}.values())  # a sentence with several positions is read once
    read = dict(zip(map(id, different), reader.layers(different), strict=True))
    found = torch.stack([read[id(s)][:, i] for s, i in zip(sentences, positions, strict=True)], 1).cpu()
    kept.append((sentences, positions, found))
    return found


_LAYER_CACHE: WeakKeyDictionary[Any, list[tuple[Any, Any, Tensor]]] = WeakKeyDictionary()


class SubwordReader:
    """Vectors of words from a Transformer over subwords (BERT, GPT): the mean of each word's subwords, for the input
    of the first block and the output of every block."""

    def __init__(self, model: nn.Module, text: Tokenizer) -> None:
        self.model, self.text = model.eval(), text
        lists = [m for name, m in model.named_modules() if name.split(".")[-1] == "blocks"]
        if len(lists) != 1 or not isinstance(lists[0], nn.ModuleList):
            raise Unsupported(f"{type(model).__name__} has {len(lists)} stacks of blocks; one is wanted")
        self.blocks = lists[0]

    @torch.no_grad()
    def layers(self, sentences: Sequence[Sentence], rows: int = 32) -> list[Float[Tensor, "J N C"]]:
        """Return all layers of the words of every sentence."""
        found: list[Tensor] = [torch.empty(0)] * len(sentences)
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        for at in range(0, len(order), rows):
            some = order[at : at + rows]
            for i, layers in zip(some, self._read([sentences[i] for i in some]), strict=True):
                found[i] = layers
        return found

    def _read(self, sentences: Sequence[Sentence]) -> list[Tensor]:
        pieces = [[ids or [self.text.unk] for ids in self.text.encode(list(words))] for words in sentences]
        rows = [[self.text.bos, *(i for ids in words for i in ids), self.text.eos] for words in pieces]
        lengths = torch.tensor([len(row) for row in rows])
        device = next(self.model.parameters()).device
        tokens = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
        for each, row in zip(tokens, rows, strict=True):
            each[: len(row)] = torch.tensor(row)
        seen: list[Tensor] = []
        hooks = [self.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))]
        hooks += [block.register_forward_hook(lambda _, inputs, out: seen.append(out)) for block in self.blocks]
        try:
            self.model.hidden(tokens.to(device), lengths=lengths.to(device))  # type: ignore[operator]
        finally:
            for hook in hooks:
                hook.remove()
        stacked = torch.stack(seen)  # J B N C
        return [_mean_pieces(stacked[:, b, 1:], [len(ids) for ids in words]) for b, words in enumerate(pieces)]


def _mean_pieces(x: Float[Tensor, "J N C"], sizes: list[int]) -> Float[Tensor, "J K C"]:
    """Return the mean of consecutive groups of columns of these sizes."""
    return torch.stack([part.mean(1) for part in x[:, : sum(sizes)].split(sizes, 1)], 1)


# -- the corpus --------------------------------------------------------------------------------------------------------


def _read_brown(split: str) -> list[tuple[Sentence, list[str]]]:
    path = data_dir.find_dataset("brown") / f"brown.{split}.tsv.gz"
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            rows = [line.rstrip("\n").split("\t") for line in lines]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {error}") from None
    return [(words.split(" "), tags.split(" ")) for _, words, tags in rows]


def _noun_or_verb_label(tag: str) -> int | None:
    """Return the label of a tag, None for neither; suffixes for headlines and titles are ignored."""
    bare = tag.split("-")[0]
    return 0 if bare in ("NN", "NNS") else 1 if bare in ("VB", "VBD", "VBG", "VBN", "VBZ") else None


def _make_examples(rows: Sequence[tuple[Sentence, list[str]]], chosen: set[str]) -> ProbeExamples:
    sentences, positions, labels = [], [], []
    for words, tags in rows:
        for i, (word, tag) in enumerate(zip(words, tags, strict=True)):
            if word.lower() in chosen and (label := _noun_or_verb_label(tag)) is not None:
                sentences.append(words)
                positions.append(i)
                labels.append(label)
    return ProbeExamples(sentences, positions, torch.tensor(labels))
