"""MNIST by glimpses."""

from regard.data.images.image_dataset import ImageDataset
from regard.models.ram import Config
from regard.tasks.image import glimpse_classification
from regard.tasks.reinforce import Reinforce
from regard.training.recipe import Recipe, Train


def recipe() -> Recipe:
    return Recipe(
        model=Config(glimpses=7),
        task=glimpse_classification.Config(reinforce=Reinforce(entropy=0.0, baseline="learned")),
        data=ImageDataset("mnist", batch_size=64, val_fraction=0.05),
        train=Train(
            steps=100_000,
            learning_rate=1e-3,
            schedule="cosine",
            warmup_steps=500,
            betas=(0.9, 0.999),
            eps=1e-8,
            eval_interval=2000,
            save_interval=2000,
            metric="accuracy",
            device="cpu",
        ),
    )
