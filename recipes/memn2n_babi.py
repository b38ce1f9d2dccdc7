"""bAbI, all 20 tasks in one model, 1,000 questions each: three hops of attention over the sentences of a story.

task       choose the answer to a question about a story
data       bAbI 1k: 17,985 questions to train on, 2,015 of held-out training stories for validation, 20,000 to test
licence    CC BY 3.0 (Facebook, 2015)
paper      Sukhbaatar et al., End-To-End Memory Networks, NeurIPS 2015, arXiv:1503.08895
machine    one CPU thread
expected   mean error 12.4 %, 11 tasks failed: the paper, best of ten starts (3 hops, PE LS RN, joint)
measured   mean error 12.2 %, 10 tasks failed on the test stories (seed 1, one start; on validation 11.1 %; 8 minutes on
           one thread of a busy CPU, 2026-11-19); seed 2: 12.5 % and 10 (11.3 %); by tasks in docs/notes/2026-11-19.md
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
