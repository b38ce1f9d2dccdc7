"""Toy detection: one bright shape on a noisy ground. Where is it, and what is it?

input      Image
output     Boxes (one box)
loss       cross-entropy of the class + L1 distance of the corners + (1 - IoU)
metrics    iou (mean intersection over union, 0 to 1), accuracy (share of right classes), loss
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from regard.attention.mixers import build_mixer
from regard.blocks.encoder import Encoder, EncoderBlock
from regard.blocks.feedforward import GeluFeedForward
from regard.core.config import field, to_dict
from regard.data import DATA
from regard.data.base import Dataset, TensorBatch, TensorSplit
from regard.metrics.base import ACCURACY, Metric, loss_metric
from regard.modalities import Box, Boxes, Image, Preprocess
from regard.models import MODELS
from regard.positions.added.grid import GridPositions
from regard.positions.none import NoPositions
from regard.tasks import PREDICTORS, TASKS
from regard.tasks.base import SplitTask
from regard.tasks.predictor import Predictor
from regard.tokens.patches import PatchEmbedding
from regard.training.recipe import Recipe, Train

LABELS = ["rectangle", "disc", "cross"]
SEEN = Preprocess(32, mean=(0.3, 0.3, 0.3), std=(0.25, 0.25, 0.25))  # saved with the model


@dataclass(frozen=True, eq=False)
class Batch(TensorBatch):
    pixels: torch.Tensor  # uint8, B C Y X
    labels: torch.Tensor  # B
    boxes: torch.Tensor  # B 4: left, top, right, bottom, from 0 to 1


@dataclass(frozen=True)
class Shapes(Dataset):
    """Images made from a seed."""

    batch_size: int = 64
    examples: int = 8000  # to train on; an eighth as many to validate and to test
    seed: int = field(0, low=0)

    def load(self, split):
        n, size, rng = self.examples // (1 if split == "train" else 8), SEEN.size[0], torch.Generator()
        rng.manual_seed(3 * self.seed + ("train", "val", "test").index(split))
        labels = torch.randint(len(LABELS), (n,), generator=rng)
        sides = torch.randint(size // 4, size // 2 + 1, (n, 2), generator=rng)
        corner = (torch.rand(n, 2, generator=rng) * (size + 1 - sides)).long()
        away = (torch.arange(size) + 0.5 - (corner + sides / 2)[..., None]).abs() * 2 / sides[..., None]
        x, y = away[:, 0, None, :], away[:, 1, :, None]  # distance from the middle; 1 at the edge
        drawn = torch.stack([(x < 1) & (y < 1), x**2 + y**2 < 1, (x.minimum(y) < 0.35) & (x.maximum(y) < 1)], 1)
        bright = torch.randint(160, 256, (n, 3, 1, 1), generator=rng)
        noise = torch.randint(0, 128, (n, 3, size, size), generator=rng)
        pixels = torch.where(drawn[torch.arange(n), labels][:, None], bright, noise).byte()
        return TensorSplit(Batch(pixels, labels, torch.cat([corner, corner + sides], 1) / size), self.batch_size)


@dataclass(frozen=True)
class ModelConfig:
    patch_size: int = 8
    width: int = 64
    heads: int = 4
    layers: int = 2


class ToyDetector(nn.Module):
    """Patches, an encoder, and a head that reads the class and the box off all patches side by side."""

    Config = ModelConfig

    def __init__(self, config):
        super().__init__()
        self.config, c = config, config
        self.patches = PatchEmbedding(3, c.width, c.patch_size)
        rows, columns = (side // c.patch_size for side in SEEN.size)
        self.positions = GridPositions(c.width, (rows, columns))
        self.encoder = Encoder([self.block(c) for _ in range(c.layers)], NoPositions(), nn.LayerNorm(c.width), 0.0)
        every = rows * columns * c.width
        self.head = nn.Sequential(nn.Linear(every, c.width), nn.GELU(), nn.Linear(c.width, len(LABELS) + 4))

    def block(self, c):
        mix, feed = build_mixer("softmax", width=c.width, heads=c.heads), GeluFeedForward(c.width, 4 * c.width)
        return EncoderBlock(mix, feed, [nn.LayerNorm(c.width), nn.LayerNorm(c.width)], pre_norm=True, dropout=0.0)

    def forward(self, images):
        patches = self.patches(images)
        tokens = self.encoder(self.positions(patches.flatten(1, 2), patches.shape[1:3]))
        logits, middle, side = self.head(tokens.flatten(1)).split([len(LABELS), 2, 2], 1)
        middle, half = middle.sigmoid(), side.sigmoid() / 2
        return logits, torch.cat([middle - half, middle + half], 1)


@dataclass(frozen=True)
class TaskConfig:
    box_weight: float = field(5.0, low=0, help="weight of the L1 distance of the corners")

    def build(self, data, seed=0, folder=None):
        return ToyDetection(self, data, seed)


class ToyDetection(SplitTask):
    """What is trained: the loss, the metrics, and what is saved with the model."""

    Config = TaskConfig
    name, unit, split_size = "toy_detection", "images", "images"
    metrics = (Metric("iou", "IoU", high=1.0), ACCURACY, loss_metric("per image"))

    def __init__(self, config, data, seed):
        super().__init__(data, seed)
        self.config = config

    def measure(self, model, batch):
        logits, boxes = model(SEEN.normalize(batch.pixels))
        both = torch.stack([boxes, batch.boxes])
        shared = (both[..., 2:].amin(0) - both[..., :2].amax(0)).clamp(min=0).prod(1)
        iou = shared / ((both[..., 2:] - both[..., :2]).prod(2).sum(0) - shared)
        loss = F.cross_entropy(logits, batch.labels, reduction="none") + 1 - iou
        loss = loss + self.config.box_weight * (boxes - batch.boxes).abs().mean(1)
        return {"loss": loss.sum(), "iou": iou.sum(), "accuracy": (logits.argmax(1) == batch.labels).sum()}

    def loss(self, model, batch, step=0, rng=None):
        found = self.measure(model, batch)
        return found["loss"], {name: value.detach() for name, value in found.items()}

    def describe(self):
        return {"name": self.name, "labels": LABELS, "preprocess": to_dict(SEEN)}


@dataclass(frozen=True)
class Options:
    min_score: float = field(0.0, low=0, high=1, help="leave out boxes with a lower score")


class Detector(Predictor):
    """Find the shape: one box per image."""

    inputs, outputs, options = {"image": Image}, Boxes, Options

    def __init__(self, model, labels: list, preprocess: Preprocess):
        self.model, self.labels, self.preprocess = model.eval(), labels, preprocess

    @torch.no_grad()
    def predict(self, batch, options):
        logits, boxes = self.model(self.preprocess.batch(batch, next(self.model.parameters())))
        found = []
        for image, row, box in zip(batch, logits.softmax(-1), boxes.clamp(0, 1).tolist(), strict=True):
            one = Box(*self.preprocess.to_image(image, box), self.labels[int(row.argmax())], float(row.max()))
            found.append(Boxes((one,), image.width, image.height).above(options.min_score))
        return found


MODELS["toy_detector"] = (__name__, "ToyDetector")
TASKS["toy_detection"] = (__name__, "ToyDetection")
PREDICTORS["toy_detection"] = (__name__, "Detector")
DATA["toy_shapes"] = (__name__, "Shapes")


def recipe():
    train = Train(steps=400, learning_rate=3e-3, schedule="cosine", warmup_steps=50, eval_interval=200, device="cpu")
    return Recipe(ModelConfig(), TaskConfig(), Shapes(), train)
