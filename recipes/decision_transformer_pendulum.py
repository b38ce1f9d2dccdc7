"""A Decision Transformer that learns to swing up a pendulum from the record of mostly poor controllers.

task       act so that the wanted return is reached; the return is the sum of heights over 80 actions (0 to 80)
data       made here (data.control): 1,000 episodes, 3 in 10 random, 5 of controllers that swing
           part of the way, 2 of experts; a quarter of what the latter two do is random too
licence    none needed: nothing is read
paper      Chen et al., Decision Transformer, 2021, arXiv:2106.01345
machine    one CPU core
expected   asked for the best of the data it does about as well as the experts in it; cloning the record does not
measured   asked for 67.5, the best of the data: 58.7, 57.0, 57.9 (seeds 1, 2, 3; 50 episodes each, new beginnings);
           the experts of the data reach 53.4 on average, all of the data 22.9, the clone 1.8, 2.5, 1.9. Asked for 3.1,
           7.9, 16.8, 31.7, 53.9 it reaches 1.9, 6.1, 15.2, 32.0, 53.3 (means of the seeds). Some 90 seconds of one core
           (2026-11-15)
command    regard train decision_transformer_pendulum --out runs/pendulum
           regard eval runs/pendulum --split test
           regard train decision_transformer_pendulum --out runs/clone task.condition_on_return=false
           regard train decision_transformer_pendulum --out runs/torques data.torque_levels=5
"""

from regard.data.episodes.pendulum_episodes import PendulumEpisodes
from regard.models.decision_transformer import Config
from regard.tasks.episodes import decision
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(
            state_dim=3, action_dim=1, width=64, heads=2, layers=3, dropout=0.0, attention_dropout=0.0, length=80
        ),
        task=decision.Config(),
        data=PendulumEpisodes(episodes=1000, context_length=20, batch_size=32),
        train=Train(
            steps=1500,
            device="cpu",
            optimizer="muon",
            learning_rate=3e-3,
            schedule="cosine",
            warmup_steps=100,
            min_learning_rate_ratio=0.02,
            betas=(0.9, 0.95),
            eps=1e-8,
            weight_decay=1e-4,
            clip_grad_norm=0.25,
            eval_interval=500,
            save_interval=500,
            metric="return",
        ),
    )
