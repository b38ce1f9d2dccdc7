"""What the Flickr8k recipes share."""

from regard.data.images.flickr8k import Flickr8k
from regard.training.recipe import Train

DATA = Flickr8k()
TRAIN = Train(
    steps=2600,  # five and a half epochs of 30,000 captions
    learning_rate=1.5e-3,
    schedule="cosine",
    warmup_steps=200,
    betas=(0.9, 0.98),
    weight_decay=0.01,
    clip_grad_norm=5.0,
    ema_decay=0.998,
    eval_interval=650,
    save_interval=650,
    metric="bleu4",
    compile=False,  # the decoder is a loop over the words
)
