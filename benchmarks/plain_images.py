"""Images by hand: timm's augmentation in a DataLoader and a training loop as one would write them; of Regard there are
only the images and the model.

    python benchmarks/plain_images.py                  recipes/resnet_cifar10.py that way  -> results/plain-images.json
    python benchmarks/plain_images.py --epochs 30 --augment flips --model cct --keep       beside what was measured
    add --quick for seconds (a few images; nothing written)

What it is for: the same model, images, epochs, rate and mixing, once through `regard train` and once through this. If a
recipe's accuracy is low, is it the images, or is it what Regard does to them? `--augment timm` is RandAugment
m9-mstd0.5-inc1 behind a random crop and a flip, with mixup, cutmix and smoothing up to three fifths of the epochs;
`flips` is a crop with a margin of 4 and a flip, nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from typing import Any

import harness
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from regard.data.images.image_dataset import ImageDataset
from regard.training.recipe import build, load_recipe

harness.PACKAGES = (*harness.PACKAGES, "timm", "torchvision")
MODELS = {"resnet": "resnet_cifar10", "cct": "cct_cifar10", "vit": "vit_cifar10"}
RESULT = "plain-images.json"


class Decoded(torch.utils.data.Dataset[tuple[Any, int]]):
    """Images of a part as PIL images, through a transform."""

    def __init__(self, data: ImageDataset, part: str, transform: Any) -> None:
        held = data.load(part)
        self.pixels = np.ascontiguousarray(held.pixels.permute(0, 2, 3, 1).numpy())
        self.labels, self.transform = held.labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        image = Image.fromarray(self.pixels[number])
        while True:
            try:
                return self.transform(image), self.labels[number]
            except ValueError:  # timm at times asks Pillow for an image of 0 bits, which newer ones refuse: drawn again
                continue


def transforms(augment: str, data: ImageDataset) -> tuple[Any, Any]:
    """What is done to an image that is trained on, and to one that is measured."""
    from timm.data import create_transform
    from torchvision import transforms as T

    last = [T.ToTensor(), T.Normalize(data.mean, data.std)]
    if augment == "flips":
        return T.Compose([T.RandomCrop(32, 4), T.RandomHorizontalFlip(), *last]), T.Compose(last)
    strong = create_transform(
        32, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", scale=(0.8, 1.0), interpolation="bicubic",
        mean=data.mean, std=data.std,
    )  # fmt: skip
    return strong, T.Compose(last)


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train, and measure on the validation part and the test part."""
    from timm.data import Mixup

    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    recipe = load_recipe(MODELS[args.model])
    data = ImageDataset("cifar10", batch_size=256, limit=512 if args.quick else None)
    strong, plain = transforms(args.augment, data)
    parts = {name: Decoded(data, name, strong if name == "train" else plain) for name in ("train", "val", "test")}
    how: dict[str, Any] = {"num_workers": args.workers, "persistent_workers": args.workers > 0, "pin_memory": True}
    batches = torch.utils.data.DataLoader(parts["train"], 256, shuffle=True, drop_last=True, **how)
    model = build(recipe.model).to(device)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.train.learning_rate, weight_decay=recipe.train.weight_decay
    )
    steps, warm = args.epochs * len(batches), max(1, args.epochs * len(batches) // 17)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / warm, 0.51 + 0.49 * math.cos(math.pi * n / steps))
    )
    mix = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=10)
    run = model if args.quick else torch.compile(model, dynamic=False)
    began = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        mixing = args.augment == "timm" and epoch < 0.58 * args.epochs
        for images, labels in batches:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            if mixing:
                images, labels = mix(images, labels)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = run(images)
            loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.0 if mixing else 0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            rate.step()
        if epoch % 10 == 9 or epoch == args.epochs - 1:
            found = {part: measured(model, parts[part], device) for part in ("val", "test")}
            print(f"epoch {epoch + 1}: loss {float(loss):.3f}, {found}", flush=True)
    seconds = time.perf_counter() - began
    speed = args.epochs * len(batches) * 256 / seconds
    about = {"model": args.model, "augment": args.augment, "epochs": args.epochs, "seed": args.seed}
    return about | {"minutes": round(seconds / 60, 1), "images_per_second": round(speed), **found}


@torch.no_grad()
def measured(model: Any, part: Decoded, device: torch.device) -> float:
    """The share of images that are told right."""
    model.eval()
    right = 0
    for images, labels in torch.utils.data.DataLoader(part, 500):
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            right += int((model(images.to(device)).argmax(-1).cpu() == labels).sum())
    return round(right / len(part), 4)


def main() -> None:
    """Read the arguments, train, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*MODELS], default="resnet")
    parser.add_argument("--augment", choices=("timm", "flips"), default="timm")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--keep", action="store_true", help="put the run beside those measured before")
    parser.add_argument("--quick", action="store_true", help="a few images, two epochs, nothing written")
    args = parser.parse_args()
    if args.quick:
        args.epochs, args.workers = 2, 0
    run = train(args)
    print(run)
    if args.quick:
        return
    place = harness.RESULTS / RESULT
    before = json.loads(place.read_text("utf-8"))["runs"] if args.keep and place.is_file() else []
    print("written:", harness.write(RESULT, harness.machine(args.device) | {"runs": [*before, run]}))


if __name__ == "__main__":
    main()
