"""Draw the pictures of docs/gallery.md and the README into docs/assets/.

    python docs/make_gallery.py            all of them
    python docs/make_gallery.py --masks    those that need no trained model

The others are drawn by `regard see` with models of the zoo (regard list zoo). Pictures hold no date: the same model
draws the same file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from regard import see
from regard.attention.mask import CausalMask, GlobalMask, PaddingMask, WindowMask

ASSETS = Path(__file__).resolve().parent / "assets"
SENTENCE = "Two dogs are playing in the snow."
IT = {
    "it-tired": "The animal didn't cross the street because it was too tired.",
    "it-wide": "The animal didn't cross the street because it was too wide.",
}


def masks(folder: Path) -> list[Path]:
    """Draw masks."""
    all_masks = {
        "mask-causal": (CausalMask(), "CausalMask()"),
        "mask-padding": (PaddingMask(torch.tensor([5])), "PaddingMask([5])"),
        "mask-window": (
            CausalMask() & (WindowMask(3) | GlobalMask([0])),
            "CausalMask() & (WindowMask(3) | GlobalMask([0]))",
        ),
    }
    return [
        see.save(see.mask(mask.dense(1, 8, 8), title=title), folder / f"{name}.png")
        for name, (mask, title) in all_masks.items()
    ]


def formulas(folder: Path) -> list[Path]:
    """Draw position vectors, and how far a gradient reaches in untrained models."""
    from regard.positions.added.sinusoidal import SinusoidalPositions

    vectors = SinusoidalPositions(width=64).vectors(torch.arange(60)[None])[0]
    see.positional_encoding(vectors, folder / "sinusoidal.png", "sinusoidal positions: 60 positions, 64 features")
    see.gradient_by_distance(
        gradient_reaches(),
        folder / "gradient-reach.png",
        "How far a gradient reaches, before any training (width 32)",
    )
    return [folder / "sinusoidal.png", folder / "gradient-reach.png"]


def gradient_reaches(length: int = 100, width: int = 32) -> dict[str, torch.Tensor]:
    """Return the gradient by distance of an RNN of each kind, and of causal attention with a residual connection."""
    from regard.attention.multihead import MultiHeadAttention
    from regard.blocks import RNN_ENCODERS
    from regard.core.spec import build_part
    from regard.interpret.gradient_reach import gradient_by_distance

    torch.manual_seed(0)
    found = {}
    for name in ("rnn", "lstm", "gru"):
        encoder = build_part(RNN_ENCODERS, name, "encoder", width=width, hidden=width, directions=1)
        found[name] = gradient_by_distance(encoder, length, width)
    mix = MultiHeadAttention(width, heads=4)
    found["attention"] = gradient_by_distance(lambda x: x + mix(x, mask=CausalMask()), length, width)
    return found


def attention(folder: Path) -> list[Path]:
    """Draw attention maps of shipped models with the command line."""
    from regard.cli import main as regard

    sound = str(ASSETS / "digits.wav")
    commands = {
        "attention": [SENTENCE, "--to", "de"],
        "heads": [SENTENCE, "--to", "de", "--view", "heads"],
        "layers": [SENTENCE, "--to", "de", "--view", "layers"],
        "rollout": [SENTENCE, "--to", "de", "--view", "rollout"],
        **{name: [sentence, "--to", "de", "--view", "encoder"] for name, sentence in IT.items()},
        "lattice": [sound],
        "digits-attention": [sound, "--model", "digits-listen"],
    }
    files = []
    for name, arguments in commands.items():
        files.append(folder / f"{name}.png")
        if code := regard(["see", *arguments, "--output", str(files[-1])]):
            raise SystemExit(code)
    return files


def main(arguments: Sequence[str]) -> int:
    """Draw and print the names of the files."""
    ASSETS.mkdir(exist_ok=True)
    files = masks(ASSETS) + formulas(ASSETS)
    if "--masks" not in arguments:
        files += attention(ASSETS)
    print(*(path.relative_to(ASSETS.parents[1]) for path in files), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
