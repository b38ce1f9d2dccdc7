"""Legibility of synthesised handwriting: accuracy of a small classifier trained on real digits.

    python benchmarks/handwriting_legibility.py          pen-digits, by bias -> results/handwriting-legibility.json
    python benchmarks/handwriting_legibility.py --model runs/pen-digits  another model
    python benchmarks/handwriting_legibility.py --picture lines.png      draw the first lines of each bias too

The reader is a convolutional network over 24 x 24 pictures of single digits, ink alone: it knows neither the order of
the strokes nor where the window was. It learns from the digits of the 40 training writers (slanted, stretched and
turned at random) and is tried on those of the 10 test writers, whom neither it nor the scribe has seen: that is the
highest number one can hope for. A written line is cut into digits by the window: a stroke belongs to the character its
points looked at most. A digit counts where the reader names the one that was asked for, a line where all its digits do
and the window came to its end.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness
import torch
from torch import nn

SIDE, INK = 24, 0.045  # pixels of an image; thickness of a stroke as a share of it
BIASES = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0)
LINES_PER_TEXT = 10  # lines of a text, each by chance of its own


def rasterize(strokes: Sequence[torch.Tensor]) -> torch.Tensor:
    """Draw strokes as an image with values from 0 to 1, scaled to the frame with their aspect ratio."""
    if not strokes:
        return torch.zeros(SIDE, SIDE)
    dense = torch.cat([_dense(stroke) for stroke in strokes])
    low, high = dense.amin(0), dense.amax(0)
    middle, size = (low + high) / 2, float((high - low).max().clamp(min=0.3))
    points = (dense - middle) / size * 0.84 + 0.5  # a margin of 8 % on the longer side
    centre = (torch.arange(SIDE) + 0.5) / SIDE
    x = (centre[None] - points[:, :1]).square()  # P X
    y = (centre[None] - points[:, 1:]).square()  # P Y
    return torch.exp(-(y[:, :, None] + x[:, None]) / (2 * INK**2)).amax(0)


def _dense(stroke: torch.Tensor) -> torch.Tensor:
    """Points close enough that ink has no gaps."""
    if len(stroke) == 1:
        return stroke
    share = torch.linspace(0, 1, 9)[:-1, None, None]
    between = stroke[:-1] * (1 - share) + stroke[1:] * share
    return torch.cat([between.transpose(0, 1).reshape(-1, 2), stroke[-1:]])


class DigitClassifier(nn.Module):
    """Pictures of digits in, logits of the ten out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * (SIDE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layers(pictures[:, None])


def trained(characters: Sequence[Any], epochs: int, seed: int = 0) -> DigitClassifier:
    """A reader that has seen these digits, drawn differently in every epoch."""
    torch.manual_seed(seed)
    reader = DigitClassifier()
    optimizer = torch.optim.AdamW(reader.parameters(), lr=2e-3, weight_decay=0.05)
    steps = epochs * -(-len(characters) // 50)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    labels = torch.tensor([c.label for c in characters])
    for _ in range(epochs):
        images = torch.stack([rasterize(_rotated(_strokes(c))) for c in characters])
        for rows in torch.randperm(len(characters)).split(50):
            loss = nn.functional.cross_entropy(reader(images[rows]), labels[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return reader.eval()


def _strokes(character: Any) -> list[torch.Tensor]:
    points = torch.from_numpy(character.points).float()
    ends = torch.from_numpy(character.pen_up).nonzero()[:, 0] + 1
    return list(points.tensor_split(ends.tolist()[:-1]))


def _rotated(strokes: list[torch.Tensor]) -> list[torch.Tensor]:
    """Slanted, stretched, turned a little, as hands differ."""
    slant, wide, turn = torch.randn(3) * torch.tensor([0.2, 0.2, 0.08])
    matrix = torch.tensor([[float(wide.exp()), -float(slant)], [float(turn), 1.0]])
    return [stroke @ matrix.T for stroke in strokes]


@torch.no_grad()
def read(reader: DigitClassifier, digits: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
    """Which digit each is taken for."""
    return reader(torch.stack([rasterize(strokes) for strokes in digits])).argmax(-1)


def by_bias(
    predictor: Any, reader: DigitClassifier, texts: Sequence[str], bias: float, seed: int
) -> tuple[dict[str, Any], Any]:
    """How much of what was written at a bias is read as asked; and the lines."""
    lines = [
        x
        for i, text in enumerate(texts)
        for x in predictor.samples([text], LINES_PER_TEXT, bias=bias, seed=1000 * seed + i)
    ]
    expected = torch.tensor([int(c) for line in lines for c in line.text])
    found = read(reader, [strokes for line in lines for strokes in line.characters()])
    right = found == expected
    by_line = right.split([len(line.text) for line in lines])
    correct_lines = [bool(w.all()) and line.finished for w, line in zip(by_line, lines, strict=True)]
    digits = {str(d): round(float(right[expected == d].float().mean()), 3) for d in range(10)}
    return {
        "bias": bias,
        "digit_accuracy": round(float(right.float().mean()), 4),
        "line_accuracy": round(sum(correct_lines) / len(correct_lines), 4),
        "finished_fraction": round(sum(line.finished for line in lines) / len(lines), 4),
        "by_digit": digits,
    }, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="pen-digits")
    parser.add_argument(
        "--texts", type=int, default=40, help=f"of five digits, for each bias; {LINES_PER_TEXT} lines of each"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="draw the first lines of each bias")
    parser.add_argument("--name", default="handwriting-legibility", help="of the result file")
    parser.add_argument("--quick", action="store_true", help="a few lines and a poor reader; nothing is written")
    asked = parser.parse_args()
    from regard.cli.prepare import load_predictor
    from regard.data.strokes.handwriting import HandwritingLines

    torch.set_num_threads(1)
    scribe, data = load_predictor(asked.model), HandwritingLines("uji", spacing=0.14)
    reader = trained(data.characters("train"), 1 if asked.quick else 40, asked.seed)
    real = data.characters("test")
    right = read(reader, [_strokes(c) for c in real]) == torch.tensor([c.label for c in real])
    record = harness.machine() | {
        "model": asked.model if "/" not in asked.model else Path(asked.model).name,
        "lines": asked.texts * LINES_PER_TEXT,
        "seed": asked.seed,
        "real_digits": {"digit_accuracy": round(float(right.float().mean()), 4), "digits": len(real)},
        "generated": [],
    }
    print(
        f"real digits of {len({c.writer for c in real})} unseen writers: "
        f"accuracy {record['real_digits']['digit_accuracy']:.1%}"
    )
    generator = torch.Generator().manual_seed(asked.seed)
    many = 2 if asked.quick else asked.texts
    texts = ["".join(map(str, row)) for row in torch.randint(10, (many, 5), generator=generator).tolist()]
    shown = []
    for bias in BIASES[:2] if asked.quick else BIASES:
        row, lines = by_bias(scribe, reader, texts, bias, asked.seed)
        record["generated"].append(row)
        shown += lines[: 3 * LINES_PER_TEXT : LINES_PER_TEXT]
        print(
            f"bias {bias:<4} digits {row['digit_accuracy']:6.1%}   lines {row['line_accuracy']:6.1%}   "
            f"finished {row['finished_fraction']:6.1%}"
        )
    if asked.picture is not None:
        from regard import see

        see.strokes([line.points.numpy() for line in shown], path=asked.picture)
    if not asked.quick:
        print(harness.write(f"{asked.name}.json", record))


if __name__ == "__main__":
    main()
