"""What the recipes share that train a small GPT on Shakespeare, character by character, on a CPU."""

from regard.data.text.text_file import TextFile
from regard.models.gpt import Config
from regard.training.recipe import Train

MODEL = Config(
    vocab=69,
    width=128,
    heads=4,
    layers=4,
    ffn=512,
    length=64,
    dropout=0.0,
    attention_dropout=0.0,
    bias=False,
    norm_kind="rms",
    qk_norm="rms",
    positions="rotary",
)
DATA = TextFile("tinyshakespeare", context_length=64, batch_size=12, tokenizer="char")
TRAIN = Train(
    steps=1500,
    device="cpu",
    optimizer="muon",
    learning_rate=4e-3,
    schedule="cosine",
    warmup_steps=100,
    min_learning_rate_ratio=0.02,
    betas=(0.9, 0.99),
    eps=1e-8,
    weight_decay=0.1,
    clip_grad_norm=1.0,
    eval_interval=500,
    save_interval=500,
    metric="loss",
)
