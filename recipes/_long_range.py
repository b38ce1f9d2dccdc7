"""What the recipes of long-range tasks share: models of about a million parameters, one learning rate for all.

Every mechanism is tried with `model.attention=NAME(...)` and nothing else changed (benchmarks/variant_scores.py).
Positions are learned and added to the tokens, since not every mechanism can add a bias to its scores or transform its
queries and keys. Weights start with a standard deviation of 1/√width: with BERT's and GPT-2's 0.02, meant for larger
widths, all scores are nearly 0 at the start, and recall was not learned in thousands of updates.
"""

from regard.models import bert, gpt, vit
from regard.training.recipe import Train

START = {"initializer_range": 0.09}
SIZES = {"width": 128, "heads": 4, "layers": 4, "ffn": 512}
ENCODER = bert.Config(vocab=0, length=2048, segments=1, dropout=0.0, attention_dropout=0.0, **SIZES, **START)
PIXELS = vit.Config(num_classes=10, image_size=32, channels=1, patch_size=1, num_prefix_tokens=0, pool="mean", **SIZES)
DECODER = gpt.Config(vocab=0, length=1024, dropout=0.0, attention_dropout=0.0, **SIZES, **START)
TRAIN = Train(
    steps=3000,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=200,
    min_learning_rate_ratio=0.02,
    betas=(0.9, 0.98),
    eps=1e-8,
    weight_decay=0.01,
    clip_grad_norm=1.0,
    eval_interval=500,
    save_interval=0,
    log_interval=100,
    metric="accuracy",
)
