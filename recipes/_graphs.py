"""What the recipes of graphs share: settings of training."""

from typing import Any

from regard.training.recipe import Train

TRAIN = Train(
    steps=1500,
    device="cpu",
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=50,
    min_learning_rate_ratio=0.01,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.01,
    clip_grad_norm=1.0,
    eval_interval=100,
    save_interval=500,
    log_interval=100,
    metric="accuracy",
)
# As the authors of GCN and GAT have it for citation graphs.
PENALTY: dict[str, Any] = {"optimizer": "adam", "weight_decay": 5e-4}
