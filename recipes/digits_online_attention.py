"""Strings of spoken digits, written down while they are being said: online hard attention.

task       audio in, spoken digits out; WER
data       fsdd: 3,000 recordings of single digits by six speakers, concatenated 1 to 7 at a time with pauses; takes
           0-4 of every digit and speaker for test, 45-49 for validation; 420 fixed strings each
licence    CC BY-SA 4.0: what is trained on it may ship under that licence
paper      Luo, Chiu, Jaitly, Sutskever: Learning Online Alignments with Continuous Rewards Policy Gradient. 2016.
           arXiv:1608.01281
machine    one CPU core, an hour and a half: a loop over some hundred places, each string read four times an update
expected   more errors than CTC over the whole audio (digits_ctc), which is bidirectional
measured   2.29 % WER on the test strings, where CTC has 2.41 (seed 1, beam 4; 90 minutes of one CPU core)
command    regard train digits_online_attention --out runs/digits-online
           regard eval runs/digits-online
"""

from regard.data.audio.fsdd import SpokenDigits
from regard.models.online_alignment import Config
from regard.tasks.audio import reinforced_speech_recognition
from regard.tasks.reinforce import Reinforce
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=14, width=192, hidden=192, layers=2, cell="lstm", dropout=0.15, input_dim=40, frame_stack=6),
        task=reinforced_speech_recognition.Config(
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
        ),
        data=SpokenDigits(),
        train=Train(
            steps=5000,
            learning_rate=1e-3,
            schedule="cosine",
            warmup_steps=300,
            weight_decay=0.01,
            clip_grad_norm=1.0,
            ema_decay=0.998,
            eval_interval=250,
            save_interval=500,
            num_workers=4,
            metric="wer",
            compile=False,  # it reads in a loop over time
        ),
    )
