"""What the recipes of pronunciation by recurrent networks share."""

from regard.data.text.cmudict import CMUDict
from regard.tasks.reinforce import Reinforce
from regard.tasks.text import reinforced_pronunciation
from regard.training.recipe import Train

DATA = CMUDict("cmudict", batch_tokens=4096)
REINFORCED_TASK = reinforced_pronunciation.Config(
    label_smoothing=0.1,
    beam_size=4,
    reinforce=Reinforce(
        entropy=0.3,
        final_entropy=0.01,
        entropy_steps=4000,
        credit="to_go",
        baseline="leave_one_out",
        num_samples=4,
    ),
)
TRAIN = Train(
    steps=8000,
    learning_rate=1e-3,
    schedule="cosine",
    warmup_steps=400,
    min_learning_rate_ratio=0.01,
    eps=1e-8,
    clip_grad_norm=1.0,
    ema_decay=0.999,
    eval_interval=1000,
    save_interval=1000,
    score_interval=100,  # decode and score only at the end
    metric="loss",
    compile=False,  # a loop over time: compiling it gains little
)
