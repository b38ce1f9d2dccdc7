"""What the T5 recipes share: five layers a side of 384, Adafactor."""

from regard.models.t5 import Config
from regard.training.recipe import Train

MODEL = Config(
    vocab=16_100,
    width=384,
    heads=6,
    head_dim=64,
    ffn=1024,
    encoder_layers=5,
    decoder_layers=5,
    dropout=0.1,
    attention_dropout=0.0,
    activation_dropout=0.0,
    feedforward="geglu_tanh",
)
TRAIN = Train(
    steps=8000,
    optimizer="adafactor",
    learning_rate=2e-2,
    schedule="cosine",
    warmup_steps=800,
    min_learning_rate_ratio=0.01,
    clip_grad_norm=1.0,
    save_interval=2000,
    metric="loss",
)
