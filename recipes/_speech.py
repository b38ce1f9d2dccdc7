"""What the speech recipes share."""

from dataclasses import replace

from regard.data.audio.an4 import AN4
from regard.tasks.audio import reinforced_speech_recognition
from regard.tasks.reinforce import Reinforce
from regard.training.recipe import Train

REINFORCED_TASK = reinforced_speech_recognition.Config(
    label_smoothing=0.1,
    beam_size=4,
    reinforce=Reinforce(
        entropy=0.3,
        final_entropy=0.01,
        entropy_steps=2500,
        credit="to_go",
        baseline="leave_one_out",
        num_samples=4,
    ),
)
TRAIN = Train(
    learning_rate=2e-3,
    schedule="cosine",
    warmup_steps=300,
    betas=(0.9, 0.98),
    weight_decay=0.02,
    clip_grad_norm=1.0,
    ema_decay=0.998,
    eval_interval=250,
    save_interval=500,
    num_workers=4,
    metric="wer",
    compile=False,  # recurrent layers are one fused call already, and decoders a loop over time
)
CONFORMER_TRAIN = replace(
    TRAIN,
    learning_rate=1e-3,
    warmup_steps=800,
    betas=(0.9, 0.98),
    clip_grad_norm=5.0,
    weight_decay=0.01,
)
# 48 minutes of speech: every recording 10 % slower, 10 % faster or as it is, and wider masks.
AN4_AUGMENTED = AN4(speed_perturbation=True, time_masks=2, time_width=40, mel_masks=2, mel_width=6)
