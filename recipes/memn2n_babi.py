"""bAbI, all 20 tasks in one model, 1,000 questions each: three hops of attention over the sentences of a story.

task       choose the answer to a question about a story
data       bAbI 1k: 17,985 questions to train on, 2,015 of held-out training stories for validation, 20,000 to test
licence    CC BY 3.0 (Facebook, 2015)
paper      Sukhbaatar et al., End-To-End Memory Networks, NeurIPS 2015, arXiv:1503.08895
machine    one CPU thread
expected   mean error 12.4 %, 11 tasks failed: the paper, best of ten starts (3 hops, PE LS RN, joint)
measured   ten starts (train.seed=1 to 10; two minutes for one on a nearly idle CPU; 2026-11-19): mean error on
           test 12.0 to 14.3 %, 12.8 % on average, 9 to 11 tasks failed; the best by validation (seed 10: 10.5 %) has
           12.6 % and 10 failed, the next two (seeds 6 and 1: 11.05 and 11.1 %) 12.4 % and 11, 12.2 % and 10
command    regard train memn2n_babi --out runs/memn2n
           regard eval runs/memn2n
           regard train memn2n_babi train.seed=2 --out runs/memn2n-2
"""

from regard.data.text.stories import Stories
from regard.models.memn2n import Config
from regard.tasks.memory import stories
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(vocab=0, width=50, hops=3, position_scale=2.0),
        task=stories.Config(linear_start=11_000, time_noise=0.1),
        data=Stories("babi", size="1k", max_sentences=50, batch_size=32),
        train=Train(
            precision="float32",
            steps=34_000,
            optimizer="sgd(momentum=0)",
            learning_rate=0.32,  # 0.01 of a loss that is summed over 32 questions
            schedule="linear",
            warmup_steps=0,
            clip_grad_norm=1.25,  # 40 likewise
            eval_interval=2000,
            save_interval=20_000,
            log_interval=500,
            metric="error",
            compile=False,
        ),
    )
