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
command    regard train decision_pendulum --out runs/pendulum
           regard eval runs/pendulum --split test
           regard train decision_pendulum --out runs/clone task.wanting=false        # behaviour cloning, to compare
           regard train decision_pendulum --out runs/torques data.levels=5           # five torques to choose from
"""

from regard.data.control import Control
from regard.models.decision import Config
from regard.tasks import decision
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(states=3, actions=1, width=64, heads=2, layers=3, dropout=0.0, attention_dropout=0.0, length=80),
        task=decision.Config(),
        data=Control(episodes=1000, context=20, rows=32),
        train=Train(
            steps=1500,
            device="cpu",
            optimiser="muon",
            rate=3e-3,
            schedule="cosine",
            warmup=100,
            floor=0.02,
            betas=(0.9, 0.95),
            eps=1e-8,
            decay=1e-4,
            clip=0.25,
            evaluate=500,
            save=500,
            metric="return",
        ),
    )
