"""Recordings that anyone can hear: each word is a tone, made here, and a part of data made of them."""

from dataclasses import dataclass, field

import torch

from regard.data.audio.speech_batch import SpeechSplit
from regard.modalities.audio import AudioPreprocess
from regard.tokens.tokenizer import Tokenizer

FRONT = AudioPreprocess(sample_rate=2000, window_ms=20.0, hop_ms=10.0, n_mels=8, f_min=20.0)
WORDS = ("low", "mid", "high")
PITCH = {"low": 120.0, "mid": 350.0, "high": 800.0}


def sung(said, rest=200, each=400, seed=0):
    """A wave in which every word is a tone with rests around it."""
    generator = torch.Generator().manual_seed(seed)
    n = torch.arange(each) / FRONT.sample_rate
    parts = [torch.zeros(rest)]
    for word in said.split():
        parts += [torch.sin(2 * torch.pi * PITCH[word] * n), torch.zeros(rest)]
    wave = torch.cat(parts)
    return wave + 0.01 * torch.randn(len(wave), generator=generator)


@dataclass(frozen=True)
class Songs:
    """Data of three words, in the form of data.speech.Digits."""

    corpus: str = "songs"
    many: int = 96
    preprocess: AudioPreprocess = field(default_factory=lambda: FRONT)

    features = FRONT.features

    def splits(self):
        return ["test", "train", "val"]

    def split(self, name):
        return name

    def build_tokenizer(self):
        return Tokenizer.train([" ".join(WORDS)], kind="word", size=16)

    def load(self, split, text):
        return Part(self, split, text)


class Part(SpeechSplit):
    batch_size = 8

    def __init__(self, settings, split, text):
        self.tokenizer = text
        generator = torch.Generator().manual_seed(("train", "val", "test").index(split))
        sizes = torch.randint(1, 4, (settings.many,), generator=generator).tolist()
        said = [" ".join(WORDS[i] for i in torch.randint(3, (n,), generator=generator)) for n in sizes]
        self.examples = [(FRONT(sung(one, seed=row)), one) for row, one in enumerate(said)]

    def __len__(self):
        return len(self.examples)

    def fingerprint(self):
        return "songs"

    def lengths(self, seed, epoch):
        return torch.tensor([len(frames) for frames, _ in self.examples])

    def training_example(self, row, key):
        return self.examples[row]


def taught(task, model, steps, rate=1e-2):
    """The model after so many updates."""
    from regard.data.batching import StreamPosition

    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    batches = task.batches().start(StreamPosition())
    for _ in range(steps):
        drawn = next(batches)
        loss, _ = task.loss(model.train(), drawn.batch)
        optimizer.zero_grad()
        (loss / drawn.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()
