"""Learning where to look: the gradient against every path of a small grid, averaged paths, and a run that goes on."""

from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.attention.aligners.hard import collect_choices
from regard.core.errors import RegardError
from regard.core.layer_state import PassState
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.image_shards import ImageBatch
from regard.models import ram
from regard.tasks.image import glimpse_classification
from regard.tasks.image.glimpse_classification import GlimpseClassifier, average_paths
from regard.tasks.reinforce import Reinforce
from regard.training import train
from regard.training.recipe import Recipe, Train
from tests.models.test_ram import by_hand
from tests.training.test_resume import assert_equal_runs, end, in_pieces

SMALL = ram.Config(glimpses=2, glimpse_size=3, scales=2, hidden=10, retina_width=6, location_std=0.4)


@pytest.fixture(scope="module")
def recipe(shapes):
    return Recipe(
        SMALL,
        glimpse_classification.Config(reinforce=Reinforce(weight=0.5, entropy=0.0, baseline="learned")),
        ImageDataset(str(shapes), image_size=12, batch_size=10, val_fraction=0.2),
        Train(
            steps=10, learning_rate=1e-2, warmup_steps=2, eval_interval=5, save_interval=4, log_interval=4, device="cpu"
        ),
        "shapes",
    )


def built(recipe, **settings):
    """The task with these settings of the policy gradient, and a model whose answer depends on where it looks."""
    how = replace(recipe.task, reinforce=replace(recipe.task.reinforce, **settings))
    task = how.build(recipe.data)
    torch.manual_seed(0)
    model = ram.RAM(task.fit(recipe.model))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return task, model.train()


def flat_gradients(total, model):
    found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    every = zip(found, model.parameters(), strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in every])


def test_gradient_is_that_of_expected_loss_and_reward_over_all_paths(recipe, double):
    """On a grid of places: sum_s p(s) (loss(s) - λ reward(s)), where p is differentiated with the reward alone."""
    task, model = built(recipe, baseline="none")
    batch = ImageBatch(*(x[:1] for x in recipe.data.load("train").on("cpu")))
    values = task.prepared(batch)[0].double()
    places = list(product((-1.2, 0.0, 0.8), (-0.5, 0.5)))
    paths = torch.tensor(list(product(places, repeat=2)))  # 36 2 2
    task.prepared = lambda *_: (values, F.one_hot(batch.labels, 2).double())
    found, wanted, rewards = 0.0, 0.0, []
    for path in paths:
        log_p, logits = by_hand(model, values[0], path)
        p, reward = log_p.sum().exp(), float(logits.argmax() == batch.labels[0])
        wanted = wanted + p.detach() * F.cross_entropy(logits[None], batch.labels) - 0.5 * p * reward
        with model.force_path(path[None]):
            total, parts = task.loss(model, batch)
        found = found + p.detach() * flat_gradients(total, model)
        assert float(parts["reward"]) == reward
        rewards.append(reward)
    assert 0 < sum(rewards) < len(rewards)  # it matters where is looked
    # task.loss casts logits to float32, as every classifier's does
    torch.testing.assert_close(found, flat_gradients(wanted, model), rtol=1e-4, atol=1e-6)
    assert found.abs().max() > 1e-3


def test_a_baseline_adds_nothing_where_noise_is_symmetric_and_no_gradient_reaches_the_model_from_it(recipe, double):
    task, model = built(replace(recipe, model=replace(SMALL, glimpses=1)), baseline="learned")
    task.choices.baseline.module.bias.data.fill_(0.7)
    noise = torch.randn(6, 1, 2)
    path = torch.cat([noise, -noise]) * 0.4 + model.locate.bias.tanh().detach()

    def policy_gradients(rewards):
        state = PassState()
        with model.force_path(path):
            model(torch.randn(12, 3, 12, 12), pass_state=state)
        total = task.policy_loss(collect_choices(state), rewards)
        return flat_gradients(total, model), torch.autograd.grad(total, task.choices.baseline.module.bias)[0]

    for reward in (0.0, 1.0):
        of_model, of_baseline = policy_gradients(torch.full((12, 1), reward))
        torch.testing.assert_close(of_model, torch.zeros_like(of_model), atol=1e-10, rtol=0)
        torch.testing.assert_close(of_baseline, torch.tensor([12 * (0.7 - reward)]))  # of half its squared error


def test_samples_of_an_image_are_averaged(recipe):
    task, model = built(recipe, num_samples=3, baseline="leave_one_out")
    one, _ = built(recipe, baseline="none")
    batch = ImageBatch(*(x[::20] for x in recipe.data.load("train").on("cpu")))
    torch.manual_seed(3)
    total, parts = task.loss(model, batch, rng=torch.Generator())
    torch.manual_seed(3)
    noise = torch.randn(3 * len(batch.labels), 2, 2)
    values = one.prepared(batch)[0].repeat_interleave(3, 0)
    logits = model(values, noise)
    labels = batch.labels.repeat_interleave(3)
    torch.testing.assert_close(parts["loss"], F.cross_entropy(logits, labels, reduction="sum") / 3)
    torch.testing.assert_close(parts["reward"], (logits.argmax(1) == labels).sum() / 3.0)
    assert total.isfinite()


def test_evaluation_and_prediction_average_probabilities_over_the_same_paths(recipe):
    task, model = built(recipe)
    model.eval()
    images = torch.randn(3, 3, 12, 12)
    noise = torch.randn(4, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = torch.stack([model(images, one[None]).softmax(-1) for one in noise]).mean(0)
        torch.testing.assert_close(average_paths(model, images, 4).exp(), wanted)
        torch.testing.assert_close(average_paths(model, images[1:2], 4).exp(), wanted[1:2])
        assert torch.equal(average_paths(model, images, 1), model(images))
    classify = GlimpseClassifier(model, task.labels, task.describe()["preprocess"])
    photo = torch.randint(0, 256, (20, 16, 3), dtype=torch.uint8).numpy()
    means, sampled = classify(photo), classify(photo, paths=8)
    assert means.probabilities != sampled.probabilities
    assert sampled.probabilities == pytest.approx(classify([photo, photo], paths=8)[1].probabilities)
    assert GlimpseClassifier(model, task.labels, classify.preprocess, paths=8)(photo) == sampled
    path = classify.glimpses(photo)
    assert path.shape == (2, 2)
    assert path.abs().max() <= 1


def test_a_run_learns_goes_on_to_the_bit_and_is_loaded_with_its_paths(recipe, tmp_path, monkeypatch):
    whole = replace(recipe, task=replace(recipe.task, paths=2))
    train(whole, tmp_path / "straight")
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))
    result = train(replace(whole, train=replace(whole.train, steps=150, eval_interval=150)), tmp_path / "longer")
    assert result["validation"][result["final_weights"]]["accuracy"] > 0.9
    loaded = regard.load(tmp_path / "longer" / "model")
    assert isinstance(loaded, GlimpseClassifier)
    assert loaded.paths == 2


def test_a_model_that_samples_nothing_is_refused(recipe):
    task, _ = built(recipe)
    batch = ImageBatch(*(x[:2] for x in recipe.data.load("train").on("cpu")))
    with pytest.raises(RegardError, match="samples no choices"):
        task.loss(regard.build("vit", size="tiny", num_classes=2, image_size=12), batch)
