"""What is hidden does not matter, accuracy is by kind, and questions that were not learned get no guess."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard import cli
from regard.core.errors import BadInput
from regard.data.images import composed_scenes
from regard.data.images.scene_questions import SceneQuestions
from regard.models import build
from regard.models.vqa_transformer import SIZES, VQATransformer
from regard.models.vqa_transformer import Config as ModelConfig
from regard.tasks.image.visual_question_answering import NOT_LEARNED, Config, patch_loss
from tests.contracts.test_predictors import predictor


@pytest.fixture
def parts(monkeypatch):
    square = np.pad(np.full((2, 20, 20), 200, np.uint8), ((0, 0), (4, 4), (4, 4)))
    monkeypatch.setattr(composed_scenes, "load_cutouts", lambda name, part: [square] * 10)
    data = SceneQuestions(image_size=48, batch_size=4, train_examples=4, eval_examples=4)

    def make(hide="nothing"):
        task = Config(hide=hide).build(data)
        torch.manual_seed(0)
        model = build("vqa_transformer", size="tiny", vocab=task.words.size, num_classes=15)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return task, model.eval()

    return make


def test_a_blind_model_does_not_depend_on_what_is_hidden(parts):
    for hide, depends in (("nothing", (True, True)), ("picture", (False, True)), ("question", (True, False))):
        task, model = parts(hide)
        batch = next(iter(task.dataset("val").eval_batches(4)))
        logits = task.logits(model, batch)[0]
        other_pixels = task.logits(model, type(batch)(255 - batch.pixels, *batch[1:]))[0]
        other_words = task.logits(model, type(batch)(batch.pixels, batch.questions.flip(1), *batch[2:]))[0]
        assert (not torch.equal(logits, other_pixels), not torch.equal(logits, other_words)) == depends


def test_accuracy_is_of_all_questions_and_of_each_kind(parts):
    task, model = parts()
    found = task.evaluate(model)
    batch = next(iter(task.dataset("val").eval_batches(4)))
    right = (task.logits(model, batch)[0].argmax(-1) == batch.answers).double()
    assert found["accuracy"] == pytest.approx(float(right.mean()))
    assert found["accuracy_colour"] == pytest.approx(float(right[batch.kinds == 2].mean()))
    assert found["questions"] == 16
    total, _ = task.loss(model, batch)
    assert float(total.detach()) / 16 == pytest.approx(found["loss"], rel=1e-5)


def test_patches_learn_the_names_at_the_middle_of_their_cells(parts):
    labels = torch.zeros(1, 2, 6, 9, dtype=torch.uint8)
    labels[0, 0, 1, 4], labels[0, 1, 4, 7] = 2, 1  # the middles of cells (0, 1) and (1, 2) of 3 x 3 pixels
    names, colours = torch.zeros(1, 6, 3), torch.zeros(1, 6, 2)
    names[0, 1, 2] = names[0, [0, 2, 3, 4, 5], 0] = 50
    colours[0, 5, 1] = colours[0, :5, 0] = 50
    assert float(patch_loss([names, colours], labels, (2, 3))) < 1e-6
    assert float(patch_loss([names.flip(1), colours], labels, (2, 3))) > 10

    task, _ = parts()
    config = task.fit(ModelConfig(**SIZES["tiny"]))
    assert config.patch_labels == (7, 7)
    model = VQATransformer(config)
    batch = task.dataset("train").training_batch(torch.arange(4), 0)
    total, named = task.loss(model, batch)
    total.backward()
    assert float(total.detach()) == pytest.approx(float(named["loss"] + named["patch_loss"]), rel=1e-5)
    assert model.patch_head.weight.grad.abs().sum() > 0
    assert parts("picture")[0].fit(ModelConfig(**SIZES["tiny"])).patch_labels == (), "there is nothing to see"


def test_questions_that_were_not_learned_get_no_guess(caplog):
    ask, picture = predictor("visual_question_answering"), np.zeros((24, 24, 3), np.uint8)
    assert ask(picture, "What colour is the bag?").label in ("red", "blue")
    assert ask(picture, "What colour is the cat?").label == NOT_LEARNED
    assert "never learned: cat" in caplog.text
    with pytest.raises(BadInput, match="no words"):
        ask(picture, "?")


def test_command_asks_and_draws(tmp_path, capsys):
    regard.save(predictor("visual_question_answering"), tmp_path / "model")
    Image.fromarray(np.arange(30 * 40 * 3).astype(np.uint8).reshape(30, 40, 3)).save(tmp_path / "picture.png")
    words = ["ask", str(tmp_path / "picture.png"), "What colour is the bag?", "--model", str(tmp_path / "model")]
    assert cli.main([*words, "--see", str(tmp_path / "seen.png")]) == 0
    assert capsys.readouterr().out.split("\t")[0] in ("red", "blue")
    assert (tmp_path / "seen.png").stat().st_size > 1000
    assert cli.main([*words[:2], "Who is there?", *words[3:], "--json", "--see", str(tmp_path / "unseen.png")]) == 0
    captured = capsys.readouterr()
    assert "unseen.png; the model does not look" in captured.err
    assert not (tmp_path / "unseen.png").exists()
    assert json.loads(captured.out)["label"] == NOT_LEARNED
    assert "who, there" in captured.err
    for view in ("heads", "layers"):
        drawn = tmp_path / f"{view}.png"
        assert cli.main(["see", *words[1:], "--view", view, "--output", str(drawn)]) == 0
        assert drawn.stat().st_size > 1000
    assert cli.main([*words[:-1], "languages"]) == 1
    assert "questions about pictures" in capsys.readouterr().err
