"""What the recipes share that pre-train a small BERT and fine-tune it."""

from regard.models.bert import Config
from regard.training.recipe import Train

MODEL = Config(vocab=8000, width=384, heads=6, layers=8, length=128, dropout=0.1, attention_dropout=0.1)
FINE_TUNING = Train(
    learning_rate=1e-4,
    schedule="linear",
    compile=False,  # shorter than the compiler takes
    betas=(0.9, 0.98),
    eps=1e-6,
    weight_decay=0.01,
    layer_decay=0.9,
    clip_grad_norm=1.0,
    save_interval=0,
    log_interval=50,
    metric="accuracy",
)
