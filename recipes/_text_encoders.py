"""What the recipes share that train small text encoders from scratch."""

from regard.data.text.labeled_text import LabeledText
from regard.training.recipe import Train

DATA = LabeledText("trec6", max_length=64, batch_size=32, vocab_size=8000, lowercase=True)
TRAIN = Train(
    steps=1200,
    warmup_steps=120,
    schedule="linear",
    compile=False,  # shorter than the compiler takes
    weight_decay=0.01,
    clip_grad_norm=1.0,
    eval_interval=150,
    save_interval=0,
    log_interval=50,
    metric="accuracy",
)
