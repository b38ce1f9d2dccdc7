"""Augmentation: ours, a batch at a time and each image in its own way, beside torchvision.transforms.v2, taking turns.

    python benchmarks/augment.py                   CPU, one thread          -> results/augment-cpu.json
    python benchmarks/augment.py --device cuda     GPU                      -> results/augment-cuda.json
    python benchmarks/augment.py --strength        is our RandAugment as strong as timm's? printed only
    add --quick for seconds (nothing written)

    regard       every image of the batch is changed in a way of its own
    images       torchvision, image by image: what a DataLoader over single images does; the same law as ours
    batch        torchvision on the whole batch at once: all images are changed alike, which teaches less

`cifar` is what recipes/cct_cifar10.py does to a batch (crop, flip, RandAugment, normalise, mix); torchvision
is given its nearest equivalents. Batches of bytes lie on the device at the start, and stay there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import harness

harness.PACKAGES = (*harness.PACKAGES, "torchvision")

SIZES = {"32": (256, 32), "224": (32, 224)}  # images, pixels a side
CASES = (
    "random_crop",
    "flip",
    "random_resized_crop",
    "color_jitter",
    "randaugment",
    "trivial_augment",
    "random_erasing",
    "mixup",
    "cutmix",
    "cifar",
)
CONTENDERS = ("regard", "images", "batch")
SPECS = {
    "random_crop": "random_crop(padding=4)",
    "color_jitter": "color_jitter(hue=0.1)",
    "randaugment": "randaugment(p=1.0)",
}
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

Step = Callable[[Any, Any], Any]


def regard_step(case: str, device: str) -> Step:
    """What a name means here."""
    import torch

    from regard.core.spec import build_part
    from regard.data.augment import AUGMENTATIONS, MIX_METHODS
    from regard.data.augment.batch_mixing import mix_batch
    from regard.modalities.image import normalize

    generators: dict[Any, torch.Generator] = {}
    blends = ["mixup", "cutmix"] if case == "cifar" else [case] if case in MIX_METHODS else []
    specs = ["random_resized_crop(min_area=0.8)", "flip", "randaugment"] if case == "cifar" else [SPECS.get(case, case)]
    steps = [build_part(AUGMENTATIONS, spec, "augmentation") for spec in specs if spec not in MIX_METHODS]
    mixing = [build_part(MIX_METHODS, name, "blend") for name in blends]

    def step(pixels: Any, labels: Any) -> Any:
        generator = generators.setdefault(pixels.device, torch.Generator(pixels.device))
        for augment in steps:
            pixels = augment(pixels, generator)
        if not mixing:
            return pixels
        targets = (labels[:, None] == torch.arange(10, device=pixels.device)).float()
        return mix_batch(normalize(pixels, MEAN, STD), targets, mixing, generator)[0]

    return step


def torchvision_step(case: str, side: int, single: bool) -> Step:
    """torchvision's nearest equivalent."""
    import torch
    from torchvision.transforms import v2

    named: dict[str, Any] = {
        "random_crop": lambda: v2.RandomCrop(side, padding=4),
        "flip": v2.RandomHorizontalFlip,
        "random_resized_crop": lambda: v2.RandomResizedCrop(side, antialias=False),
        "color_jitter": lambda: v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
        "randaugment": lambda: v2.RandAugment(2, 9, interpolation=v2.InterpolationMode.BILINEAR),
        "trivial_augment": lambda: v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR),
        "random_erasing": lambda: v2.RandomErasing(0.25),
        "mixup": lambda: v2.MixUp(alpha=0.8, num_classes=10),
        "cutmix": lambda: v2.CutMix(alpha=1.0, num_classes=10),
    }
    mixes = case in ("mixup", "cutmix", "cifar")
    first: Any = None
    if case == "cifar":
        crop = v2.RandomResizedCrop(side, scale=(0.8, 1.0), antialias=False)
        first = v2.Compose([crop, v2.RandomHorizontalFlip(), named["randaugment"]()])
    elif not mixes:
        first = named[case]()
    values = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
    last = (
        v2.RandomChoice([named["mixup"](), named["cutmix"]()]) if case == "cifar" else named[case]() if mixes else None
    )

    def step(pixels: Any, labels: Any) -> Any:
        if first is not None:
            pixels = torch.stack([first(image) for image in pixels]) if single else first(pixels)
        return pixels if last is None else last(values(pixels), labels)[0]  # mixing is always of a batch

    return step


def child(name: str, device: str) -> None:
    """Make a batch, then change it for as long as asked."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)

    def do(case: str, size: str, seconds: float) -> dict[str, float]:
        batch_size, side = SIZES[size]
        rough = torch.rand(batch_size, 3, 8, 8)
        smooth = torch.nn.functional.interpolate(rough, (side, side), mode="bilinear")
        pixels, labels = (smooth * 255).byte().to(device), torch.randint(10, (batch_size,)).to(device)
        step = regard_step(case, device) if name == "regard" else torchvision_step(case, side, name == "images")
        step(pixels, labels)
        _wait(device)
        images, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            step(pixels, labels)
            images += batch_size
        _wait(device)
        return {"images_per_second": images / (time.perf_counter() - start)}

    harness.serve_requests(do)


def strength(images: int = 3000, times: int = 3) -> str:
    """How far RandAugment moves pixels of CIFAR-10, and how many images it leaves alone: ours beside timm's."""
    import numpy as np
    import torch
    from PIL import Image
    from timm.data.auto_augment import rand_augment_transform

    from regard.core.spec import build_part
    from regard.data.augment import AUGMENTATIONS
    from regard.data.images.image_dataset import ImageDataset

    pixels = ImageDataset("cifar10_jpeg", limit=images).load("train").pixels
    regard_augment = build_part(
        AUGMENTATIONS, "randaugment(num_ops=2, magnitude=9, magnitude_std=0.5, p=0.5)", "augmentation"
    )
    timm_augment = rand_augment_transform("rand-m9-mstd0.5-inc1", {"translate_const": 14, "img_mean": (128, 128, 128)})

    def by_timm(image: Any) -> Any:
        while True:
            try:
                return np.asarray(timm_augment(image))
            except ValueError:  # at times it asks Pillow for an image of 0 bits, which newer ones refuse: drawn again
                continue

    generator, rows = torch.Generator().manual_seed(0), [["", "pixels move by, of 255", "images left alone, %"]]
    for _ in range(times):
        single = [by_timm(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in pixels]
        both = {
            "regard": regard_augment(pixels, generator),
            "timm": torch.from_numpy(np.stack(single)).permute(0, 3, 1, 2),
        }
        for name, after in both.items():
            moved = (after.float() - pixels.float()).abs().mean((1, 2, 3))
            rows.append([name, f"{float(moved.mean()):.1f}", f"{100 * float((moved == 0).float().mean()):.1f}"])
    return harness.table(rows)


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Contender beside contender, round by round, case by case."""
    steal, record = harness.Steal(), harness.machine(arguments.device)
    children = [harness.Child(name, __file__, ["--device", arguments.device], 1) for name in CONTENDERS]
    cases = []
    for size in arguments.sizes.split(","):
        for case in arguments.cases.split(","):
            request = {"case": case, "size": size, "seconds": arguments.seconds}
            turns = harness.rounds(children, arguments.rounds, 0.05, **request)
            speed = {name: [turn[name]["images_per_second"] for turn in turns] for name in CONTENDERS}
            found: dict[str, Any] = {"case": case, "images": SIZES[size][0], "side": SIZES[size][1]}
            found["contenders"] = {
                name: {"images_per_second": harness.median_and_range(values)} for name, values in speed.items()
            }
            for peer in CONTENDERS[1:]:
                pairs = zip(speed["regard"], speed[peer], strict=True)
                found[f"regard / {peer}"] = harness.median_and_range(a / b for a, b in pairs)
            cases.append(found | harness.lap())
    for process in children:
        process.close()
    return record | {"rounds": arguments.rounds, "steal": steal.share(), "threads": 1, "cases": cases}


def show(record: dict[str, Any]) -> str:
    """The record as a table."""
    rows: list[list[Any]] = [["case", "side", *CONTENDERS, "regard / images", "range", "regard / batch", "range"]]
    for case in record["cases"]:
        row = [case["case"], case["side"]]
        row += [f"{case['contenders'][name]['images_per_second']['median']:,.0f}" for name in CONTENDERS]
        for peer in CONTENDERS[1:]:
            ratio = case[f"regard / {peer}"]
            row += [f"{ratio['median']:.2f}", f"{ratio['min']:.2f}-{ratio['max']:.2f}"]
        rows.append(row)
    return harness.table(rows)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", choices=CONTENDERS)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a contender's turn")
    parser.add_argument("--quick", action="store_true", help="two short rounds at one size; nothing is written")
    parser.add_argument("--strength", action="store_true", help="compare how strong RandAugment is, not how fast")
    arguments = parser.parse_args()
    if arguments.strength:
        print(strength())
        return
    if arguments.child:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        child(arguments.child, arguments.device)
        return
    if arguments.quick:
        arguments.sizes, arguments.rounds, arguments.seconds = "32", 2, 0.1
    record = compare(arguments)
    print(show(record))
    if not arguments.quick:
        print(os.path.relpath(harness.write(f"augment-{arguments.device}.json", record)), file=sys.stderr)


if __name__ == "__main__":
    main()
