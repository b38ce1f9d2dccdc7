"""Distillation: the loss as the paper writes it, what the teacher is shown, and that a run goes on to the bit."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard import cli
from regard.core.errors import BadInput, RegardError
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.image_shards import ImageBatch
from regard.modalities.image import Preprocess
from regard.models import deit, vit
from regard.tasks.image import distillation, image_classification
from regard.tasks.image.distillation import UNTRAINED, Teacher
from regard.tasks.image.image_classification import ImageClassifier
from regard.training import evaluate, train
from regard.training.recipe import Recipe, Train
from regard.weights.timm import vit as timm_vit
from tests.training.test_resume import assert_equal_runs, end, in_pieces

TEACHER = vit.Config(num_classes=2, image_size=12, patch_size=6, width=16, heads=2, layers=1, ffn=24)


@pytest.fixture(scope="module")
def data(shapes):
    return ImageDataset(str(shapes), image_size=12, batch_size=10, val_fraction=0.2)


def taught(folder, data, config=TEACHER, **how):
    """A teacher in a folder, with random weights."""
    torch.manual_seed(3)
    labels = how.pop("labels", ["left", "right"])
    shown = Preprocess(**{"size": 12, "mean": data.mean, "std": data.std} | how)
    regard.save(ImageClassifier(vit.ViT(config), labels, shown), folder)
    return str(folder)


@pytest.fixture(scope="module")
def teacher(data, tmp_path_factory):
    return taught(tmp_path_factory.mktemp("teacher") / "t", data)


def some(data):
    return ImageBatch(*(x[::6][:8] for x in data.load("train").on("cpu")))


def student(task, **settings):
    torch.manual_seed(5)
    config = deit.Config(patch_size=4, width=16, heads=2, layers=1, ffn=24, **settings)
    return deit.DeiT(task.fit(config)).eval()


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_the_loss_is_that_of_the_paper(data, teacher, kind):
    task = distillation.Config(teacher=teacher, kind=kind, alpha=0.3, temperature=2.0, label_smoothing=0.1).build(data)
    model, batch = student(task), some(data)
    total, parts = task.loss(model, batch)
    values = task.normalised(batch.pixels)
    one, other = model.logits_per_head(values)
    said = regard.load(teacher).model(values)
    labels = F.cross_entropy(one, batch.labels, reduction="sum", label_smoothing=0.1)
    if kind == "hard":
        wanted = -torch.log_softmax(other, -1)[torch.arange(8), said.argmax(-1)].sum()
    else:
        p, q = torch.softmax(said / 2, -1), torch.softmax(other / 2, -1)
        wanted = 4 * (p * (p.log() - q.log())).sum()
    torch.testing.assert_close(total, 0.7 * labels + 0.3 * wanted)
    torch.testing.assert_close(parts["teacher"], wanted.detach())
    torch.testing.assert_close(parts["labels"], labels.detach())


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_labels_teach_one_head_and_the_teacher_the_other(data, teacher, kind):
    """With the whole loss the teacher's, nothing reaches the head of the class token, and the other way about."""
    for share, idle in ((1.0, "head"), (0.0, "distilled_head")):
        task = distillation.Config(teacher=teacher, kind=kind, alpha=share).build(data)
        model = student(task)
        task.loss(model, some(data))[0].backward()
        idle_one, busy = (model.head, model.distilled_head) if idle == "head" else (model.distilled_head, model.head)
        assert not idle_one.weight.grad.any()
        assert busy.weight.grad.any()


def test_a_student_with_one_head_learns_both_from_it(data, teacher):
    task = distillation.Config(teacher=teacher).build(data)
    model, batch = vit.ViT(task.fit(replace(TEACHER, patch_size=4))).eval(), some(data)
    logits, said = model(task.normalised(batch.pixels)), regard.load(teacher).model(task.normalised(batch.pixels))
    wanted = 0.5 * F.cross_entropy(logits, batch.labels, reduction="sum")
    wanted += 0.5 * F.cross_entropy(logits, said.argmax(-1), reduction="sum")
    torch.testing.assert_close(task.loss(model, batch)[0], wanted)


def test_the_teacher_sees_the_very_pictures_in_its_own_colours(data, tmp_path):
    how = {"mean": (0.3, 0.4, 0.5), "std": (0.2, 0.3, 0.4)}
    asked = Teacher(taught(tmp_path / "t", data, **how), data, ["left", "right"])
    task = image_classification.Config(augment=("flip",), mixup=0.8).build(data)
    values, _ = task.prepared(some(data), 0, torch.Generator().manual_seed(1))
    mean, std = (torch.tensor(x)[:, None, None] for x in (data.mean, data.std))
    own = ((values * std + mean) - torch.tensor(how["mean"])[:, None, None]) / torch.tensor(how["std"])[:, None, None]
    torch.testing.assert_close(asked(values), regard.load(tmp_path / "t").model(own), rtol=1e-4, atol=1e-5)


def test_a_teacher_of_another_size_is_shown_its_own_size(data, tmp_path):
    config = replace(TEACHER, image_size=(24, 18))
    asked = Teacher(taught(tmp_path / "t", data, config, size=(24, 18)), data, ["left", "right"])
    seen = []
    asked.model.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape))
    asked(torch.randn(2, 3, 12, 12))
    assert seen == [(2, 3, 24, 18)]


def test_the_teacher_is_never_trained_nor_changed(data, teacher):
    task = distillation.Config(teacher=teacher).build(data)
    before = {name: value.clone() for name, value in task.teacher.model.state_dict().items()}
    model = student(task).train()
    task.loss(model, some(data))[0].backward()
    task.after_update(model, 1)
    assert not task.teacher.model.training
    assert all(p.grad is None for p in task.teacher.model.parameters())
    assert all(torch.equal(before[name], value) for name, value in task.teacher.model.state_dict().items())


@pytest.fixture(scope="module")
def recipe(data, teacher):
    return Recipe(
        deit.Config(image_size=12, patch_size=4, width=16, heads=2, layers=1, ffn=24, dropout=0.1, drop_path=0.1),
        distillation.Config(teacher=teacher, augment=("flip", "random_crop(padding=1)"), mixup=0.5),
        data,
        Train(
            steps=10,
            learning_rate=3e-3,
            warmup_steps=2,
            eval_interval=5,
            save_interval=4,
            log_interval=4,
            device="cpu",
            metric="accuracy",
        ),
        "distilled",
    )


def test_a_run_goes_on_to_the_bit_and_not_under_another_teacher(recipe, data, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    train(recipe, tmp_path / "straight")
    (place,) = in_pieces(recipe, tmp_path / "stopped", [5], monkeypatch)
    assert place > 0
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))
    other = Teacher(UNTRAINED, data, ["left", "right"])
    assert recipe.task.build(data).fingerprint() != replace(recipe.task, teacher=UNTRAINED).build(data).fingerprint()
    assert other.fingerprint == Teacher(UNTRAINED, data, ["left", "right"]).fingerprint
    saved = json.loads((tmp_path / "straight" / "model" / "config.json").read_text())
    assert (saved["model"], saved["task"]["name"]) == (
        "deit",
        "image_classification",
    )  # what comes out needs no teacher
    assert isinstance(regard.load(tmp_path / "straight" / "model"), ImageClassifier)


def test_a_student_is_measured_where_its_teacher_is_gone_and_not_trained_there(data, tmp_path, capsys):
    teacher, run = taught(tmp_path / "teacher", data), tmp_path / "run"
    model = deit.Config(image_size=12, patch_size=4, width=16, heads=2, layers=1, ffn=24)
    settings = Train(
        steps=2, warmup_steps=1, eval_interval=2, save_interval=1, log_interval=1, device="cpu", metric="accuracy"
    )
    recipe = Recipe(model, distillation.Config(teacher=teacher), data, settings, "distilled")
    train(recipe, run)
    before = evaluate(run, ["val"])["results"]["val"]
    shutil.rmtree(teacher)
    assert evaluate(run, ["val"])["results"]["val"] == before
    assert cli.main(["eval", str(run), "--split", "val"]) == 0
    assert "accuracy" in capsys.readouterr().out
    with pytest.raises(BadInput, match=r"task\.teacher=.*teacher"):
        train(replace(recipe, train=replace(settings, steps=3)), run, resume=True)


def test_a_run_of_its_own_kind_may_be_the_teacher(recipe, tmp_path):
    train(replace(recipe, task=image_classification.Config(), model=TEACHER), tmp_path / "first")
    made = replace(recipe.task, teacher=str(tmp_path / "first")).build(recipe.data)
    assert type(made.teacher.model) is vit.ViT
    assert "; teacher " in made.card()


def test_a_student_agrees_with_its_teacher_more_and_more(recipe, data, tmp_path):
    """Labels left out: it learns what the teacher says, right or wrong."""
    longer = replace(recipe.train, steps=80, eval_interval=80, save_interval=80, log_interval=80)
    task = distillation.Config(teacher=recipe.task.teacher, alpha=1.0)
    asked = task.build(data)
    model = deit.DeiT(asked.fit(recipe.model)).eval()
    before = float(asked.loss(model, some(data))[1]["teacher"])
    train(replace(recipe, task=task, train=longer), tmp_path / "run")
    after = float(asked.loss(regard.load(tmp_path / "run" / "model").model, some(data))[1]["teacher"])
    assert after < 0.5 * before


def test_teachers_that_cannot_teach_are_refused_in_one_line(data, tmp_path, teacher):
    with pytest.raises(BadInput, match="needs a teacher"):
        distillation.Config().build(data).fingerprint()
    with pytest.raises(BadInput, match=r"task\.teacher=.*nowhere"):
        distillation.Config(teacher=str(tmp_path / "nowhere")).build(data).fingerprint()
    regard.save(vit.ViT(TEACHER), tmp_path / "bare")
    with pytest.raises(BadInput, match="not a saved image classifier"):
        distillation.Config(teacher=str(tmp_path / "bare")).build(data).fingerprint()
    with pytest.raises(BadInput, match="has the labels cat, dog; the data have left, right"):
        distillation.Config(teacher=taught(tmp_path / "pets", data, labels=["cat", "dog"])).build(data).fingerprint()
    grey = {"channels": 1, "mean": (0.5,), "std": (0.5,)}
    with pytest.raises(BadInput, match="needs 1 channels, but the data have 3"):
        Teacher(taught(tmp_path / "g", data, replace(TEACHER, channels=1), **grey), data, ["left", "right"])
    with pytest.raises(RegardError, match="alpha must be from 0 to 1, got 2"):
        distillation.Config(teacher=teacher, alpha=2).build(data)


def test_quick_needs_no_teacher_from_elsewhere(data):
    made = distillation.Config(teacher="runs/that/nobody/has").quick().build(data)
    assert made.teacher.name == UNTRAINED
    assert np.isfinite(made.loss(student(made), some(data))[0].item())


def test_a_folder_of_transformers_may_be_the_teacher(data, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    names = {0: "left", 1: "right"}
    config = transformers.ViTConfig(**sizes, image_size=12, patch_size=6, id2label=names)
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    teacher = Teacher(str(tmp_path / "theirs"), data, ["left", "right"])
    bytes_ = some(data).pixels.float() / 255
    mean, std = (torch.tensor(x)[:, None, None] for x in (data.mean, data.std))
    with torch.no_grad():  # theirs reads -1 to 1
        expected = theirs(2 * bytes_ - 1).logits
    torch.testing.assert_close(teacher((bytes_ - mean) / std), expected, rtol=1e-4, atol=1e-5)


def test_a_teacher_that_is_not_there_or_has_no_classes_is_one_line(data, tmp_path):
    with pytest.raises(BadInput, match=r"no such folder; give that of a run or of a saved model"):
        distillation.Config(teacher=str(tmp_path / "nope")).build(data).teacher  # noqa: B018
    timm_vit.save(
        tmp_path / "t", vit.ViT(vit.Config(num_classes=0, image_size=16, patch_size=8, width=8, heads=2, layers=1))
    )
    with pytest.raises(BadInput, match="this model has no classes; give a classifier"):
        distillation.Config(teacher=str(tmp_path / "t")).build(data).teacher  # noqa: B018
