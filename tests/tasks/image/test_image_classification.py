"""Image classification: what is trained on, how it is measured, and that a run goes on to the bit with all of it on."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import regard
from regard.core.errors import BadInput, RegardError
from regard.data.batching import StreamPosition
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.image_shards import ImageBatch, ImageShards
from regard.data.shards.packing import pack_images
from regard.modalities.image import Preprocess
from regard.models import vit
from regard.tasks.image import image_classification
from regard.tasks.image.image_classification import ImageClassifier
from regard.training import evaluate, train
from regard.training.recipe import Recipe, Train, override_recipe
from regard.weights.timm import vit as timm_vit
from tests.training.test_resume import assert_equal_runs, end, in_pieces, rows

EVERYTHING = (
    "random_crop(padding=2)", "random_resized_crop(min_area=0.5)", "affine", "flip", "randaugment", "trivial_augment",
    "color_jitter(hue=0.1)", "random_erasing(p=0.5)",
)  # fmt: skip


@pytest.fixture(scope="module")
def recipe(shapes):
    return Recipe(
        vit.Config(image_size=12, patch_size=4, width=16, heads=2, layers=1, ffn=24, dropout=0.1, drop_path=0.1),
        image_classification.Config(),
        ImageDataset(str(shapes), image_size=12, batch_size=10, val_fraction=0.2),
        Train(
            steps=10,
            learning_rate=3e-3,
            warmup_steps=2,
            eval_interval=3,
            save_interval=4,
            log_interval=4,
            device="cpu",
            ema_decay=0.9,
            metric="accuracy",
        ),
        "shapes",
    )


def task(recipe, **settings):
    return replace(recipe.task, **settings).build(recipe.data)


def batch(recipe, rows=10):
    return ImageBatch(*(x[::6][:rows] for x in recipe.data.load("train").on("cpu")))  # of both classes


def test_without_augmentation_the_model_reads_the_normalised_images_and_the_loss_is_cross_entropy(recipe):
    made, some = task(recipe), batch(recipe)
    values, targets = made.prepared(some)
    mean, std = (torch.tensor(x)[:, None, None] for x in (recipe.data.mean, recipe.data.std))
    assert torch.allclose(values, (some.pixels / 255 - mean) / std, atol=1e-5)
    assert torch.equal(targets.argmax(-1), some.labels)
    model = vit.ViT(made.fit(recipe.model)).eval()
    total, parts = made.loss(model, some, 1, torch.Generator())
    assert torch.allclose(total, F.cross_entropy(model(values), some.labels, reduction="sum"))
    assert torch.equal(parts["loss"], total.detach())
    assert made.count(some) == 10


def test_what_is_trained_on_comes_from_the_generator_alone(recipe):
    made, some = task(recipe, augment=EVERYTHING, mixup=0.8, cutmix=1.0), batch(recipe)
    one, again, other = (made.prepared(some, 1, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one[0], again[0])
    assert torch.equal(one[1], again[1])
    assert not torch.equal(one[0], other[0])
    assert torch.allclose(one[1].sum(-1), torch.ones(10))


def test_images_are_mixed_up_to_an_update_and_not_after_it(recipe):
    made, some = task(recipe, mixup=1.0, mix_until=5), batch(recipe)
    hard = [
        bool((made.prepared(some, step, torch.Generator().manual_seed(0))[1].amax(-1) == 1).all()) for step in (4, 5, 6)
    ]
    assert hard == [False, True, True]


def test_a_run_with_every_augmentation_on_goes_on_to_the_bit(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    whole = replace(
        recipe,
        task=image_classification.Config(label_smoothing=0.1, augment=EVERYTHING, mixup=0.8, cutmix=1.0, mix_until=8),
        data=replace(recipe.data, repeats=2),
    )
    train(whole, tmp_path / "straight")
    (place,) = in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert place > 0
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))
    train(override_recipe(whole, ["task.augment=('flip',)"]), tmp_path / "other")
    assert rows(tmp_path / "other") != rows(tmp_path / "straight")  # it was on


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "shapes"
    longer = override_recipe(
        recipe, ["train.steps=60", "train.eval_interval=60", "train.save_interval=60", "train.log_interval=60"]
    )
    return out, train(longer, out)


def test_a_small_vit_learns_left_from_right_and_is_measured(trained):
    out, result = trained
    found = result["validation"][result["final_weights"]]
    assert found["accuracy"] > 0.9
    assert found["images"] == 16
    assert "top5" not in found  # of two labels
    assert 0 < found["loss"] < 0.5
    with pytest.raises(BadInput, match="no test split"):
        evaluate(out)
    assert evaluate(out, ["val"])["results"]["val"]["accuracy"] == found["accuracy"]


def test_a_run_counts_images_by_their_name(recipe, tmp_path, capsys):
    train(replace(recipe, train=replace(recipe.train, steps=2, save_interval=0, eval_interval=2)), tmp_path / "run")
    said = capsys.readouterr()
    assert " images/s; saved" in said.out + said.err
    assert "tokens/s" not in said.out + said.err


@pytest.mark.long
@pytest.mark.parametrize(
    ("fits", "said"), [(3, r"but 2 rows do: set data\.batch_size=2"), (0, r"smaller images \(data\.image_size\)")]
)
def test_advice_on_memory_while_training_is_on_images(recipe, tmp_path, monkeypatch, fits, said):
    plain = image_classification.ImageClassification.loss

    def loss(self, model, batch, step=0, rng=None):
        if len(batch.labels) > fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return plain(self, model, batch, step, rng)

    monkeypatch.setattr(image_classification.ImageClassification, "loss", loss)
    with pytest.raises(BadInput, match=said):
        train(recipe, tmp_path / "run")


def test_advice_on_memory_while_measuring_has_no_beams(trained, monkeypatch):
    def full(self, pixels):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(image_classification.ImageClassification, "normalised", full)
    with pytest.raises(RegardError, match=r"^out of memory; evaluate it on another device \(--device cpu\)$"):
        evaluate(trained[0], ["val"])


def test_a_saved_model_is_measured_on_images_of_a_name_with_its_labels(trained, shapes, tmp_path):
    out, _ = trained
    assert evaluate(out / "model", ["val"], data=str(shapes))["results"]["val"]["accuracy"] > 0.9
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "cat" / "a.png")
    with pytest.raises(BadInput, match="has the labels cat; this model has left, right"):
        evaluate(out / "model", ["val"], data=str(tmp_path))


@pytest.mark.parametrize("order", [1, -1])
def test_so_is_one_of_timms_shown_the_images_as_it_knows_them(trained, shapes, tmp_path, order):
    ours = regard.load(trained[0] / "model")
    ours.labels, ours.mean, ours.crop, ours.resample = ours.labels[::order], [0.5, 0.4, 0.3], 0.8, "bilinear"
    timm_vit.save(tmp_path / "m", ours)
    found = evaluate(tmp_path / "m", data=str(shapes), splits=["train"])["results"]["train"]
    files = [(path, path.parent.name) for path in sorted(shapes.glob("*/*.png"))]
    files = [files[n] for n in ImageDataset(str(shapes))._rows(np.zeros(len(files)), "train", False)]
    said = ours([path for path, _ in files])
    assert found["images"] == len(files)
    assert found["accuracy"] == pytest.approx(np.mean([a.label == b for a, (_, b) in zip(said, files, strict=True)]))
    wanted = -np.mean([np.log(a.probabilities[b]) for a, (_, b) in zip(said, files, strict=True)])
    assert found["loss"] == pytest.approx(wanted, rel=1e-4)


def test_what_a_saved_model_lacks_to_be_measured_is_one_line(trained, shapes, tmp_path, capsys):
    from regard.cli import main

    def said(folder):
        assert main(["eval", str(folder), "--data", str(shapes), "--split", "val"]) == 1
        return capsys.readouterr().err

    ours = regard.load(trained[0] / "model").model
    timm_vit.save(tmp_path / "numbers", ours)
    assert "this model has 0, 1; its labels are numbers: set `labels`" in said(tmp_path / "numbers")
    regard.save(ours, tmp_path / "bare")
    assert "was saved without a task" in said(tmp_path / "bare")
    timm_vit.save(tmp_path / "none", vit.ViT(replace(ours.config, num_classes=0)))
    assert "has no classes" in said(tmp_path / "none")
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text('{"model_type": "gpt2"}')
    assert "there is no model.safetensors" in said(tmp_path / "gpt2")


def test_a_model_of_a_named_set_is_shown_the_set_in_its_own_order_and_crop(monkeypatch):
    pixels, numbers = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8), np.arange(6) % 3
    parts = {"test_images": pixels, "test_labels": numbers}
    monkeypatch.setattr("regard.data.images.image_dataset._load_array", lambda file, name: parts[name])
    monkeypatch.setattr("pathlib.Path.is_file", lambda self: True)
    plain = ImageDataset("mnist")
    shown = {"size": [24, 24], "channels": 1, "mean": [0.5], "std": [0.5], "crop": 24 / 28}
    task = {"labels": plain.labels()[::-1], "preprocess": shown}
    seen = image_classification.evaluation_images("mnist", {"task": task}, {})
    held = seen.load("test")
    assert torch.equal(held.pixels[:, 0], torch.from_numpy(pixels[:, 2:26, 2:26]))
    assert held.labels.tolist() == [9, 8, 7] * 2
    assert plain.load("test").labels.tolist() == [0, 1, 2] * 2
    assert (seen.mean, seen.std) == ((0.5,), (0.5,))


@pytest.mark.parametrize(("logits", "second"), [((9, 4, 8, 7, 6, 0), True), ((9, 0, 8, 7, 6, 5), False)])
def test_accuracy_and_top5_are_counted_as_they_are_meant(recipe, logits, second):
    class Fixed(torch.nn.Linear):
        def forward(self, images):
            return torch.tensor(logits).float().expand(len(images), 6)  # the first; the second is fifth or sixth

    first = float((recipe.data.load("val").labels == 0).double().mean())
    found = task(recipe).evaluate(Fixed(1, 1), "val")
    assert found["accuracy"] == pytest.approx(first)
    assert found["top5"] == pytest.approx(1.0 if second else first)


def test_packed_images_are_trained_on_alike(recipe, shapes, tmp_path):
    pack_images([shapes], tmp_path / "packed", val=0.2)
    packed = replace(recipe, data=ImageShards(str(tmp_path / "packed"), image_size=12, batch_size=10))
    longer = override_recipe(
        packed, ["train.steps=60", "train.eval_interval=60", "train.save_interval=60", "train.log_interval=60"]
    )
    result = train(longer, tmp_path / "run")
    assert result["validation"][result["final_weights"]]["accuracy"] > 0.9
    assert regard.load(tmp_path / "run" / "model").labels == ["left", "right"]


# -- the predictor -----------------------------------------------------------------------------------------------------


@pytest.fixture
def classify(trained):
    return regard.load(trained[0] / "model")


def test_a_saved_model_tells_files_bytes_and_pictures_apart_in_order(classify, shapes):
    assert isinstance(classify, ImageClassifier)
    files = [shapes / name / "03.png" for name in ("right", "left", "right")]
    found = classify([str(files[0]), files[1].read_bytes(), Image.open(files[2])])
    assert [each.label for each in found] == ["right", "left", "right"]
    assert found[0] == classify([files[0]])[0]
    for each in found:
        assert sum(each.probabilities.values()) == pytest.approx(1)
        assert next(iter(each.probabilities)) == each.label
    assert classify([]) == []


def test_company_does_not_change_what_is_seen(classify, shapes, monkeypatch):
    classify.model.double()
    files = sorted(shapes.rglob("*.png"))[:11]
    together = classify(files)
    monkeypatch.setattr("regard.tasks.image.image_classification.BATCH_PIXELS", 300)  # two at a time
    for each in (classify(files), [classify([file])[0] for file in files]):
        for a, b in zip(together, each, strict=True):
            assert a.label == b.label
            assert a.probability == pytest.approx(b.probability, abs=1e-12)


def test_what_is_shown_is_what_is_read(classify, shapes):
    file = shapes / "left" / "05.png"
    shown, values = classify.preprocess.view(file), classify.preprocess(file)
    assert shown.size == (12, 12)
    assert values.shape == (1, 3, 12, 12)
    mean, std = (torch.tensor(x)[:, None, None] for x in (classify.preprocess.mean, classify.preprocess.std))
    pixels = torch.from_numpy(np.array(shown)).permute(2, 0, 1) / 255
    assert torch.allclose(values[0], (pixels - mean) / std, atol=1e-5)


def test_training_and_predicting_see_the_same_numbers(classify, recipe, shapes):
    held = recipe.data.load("val")
    made = task(recipe)
    values = made.normalised(held.pixels)
    found = {tuple(x.flatten().tolist()) for x in values}
    files = sorted(shapes.rglob("*.png"))
    assert sum(tuple(classify.preprocess(file).flatten().tolist()) in found for file in files) == len(held)


@pytest.mark.parametrize("shape", [(20, 14, 3), (20, 14), (20, 14, 1), (20, 14, 4)])
def test_an_array_and_a_tensor_are_what_their_png_is(classify, tmp_path, shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels[..., 0] if shape[2:] == (1,) else pixels).save(tmp_path / "same.png")
    wanted = classify([tmp_path / "same.png"])
    tensor = torch.from_numpy(pixels)
    tensor = tensor if tensor.ndim == 2 else tensor.permute(2, 0, 1)
    for given in (pixels, pixels[::-1][::-1], tensor, tensor / 255, (tensor / 255).double().requires_grad_()):
        assert [classify(given)] == classify([given]) == wanted
    assert classify.preprocess.view(tensor).tobytes() == classify.preprocess.view(tmp_path / "same.png").tobytes()
    assert len(classify.attention(pixels)) == 1


def test_a_single_image_gives_a_single_output(classify, shapes):
    file = shapes / "left" / "05.png"
    for given in (file, str(file), file.read_bytes(), Image.open(file)):
        assert classify(given) == classify(file)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (np.zeros((3, 20, 14), np.uint8), r"Array of shape \(3, 20, 14\) is no image; expected Y X C"),
        (np.zeros((2, 20, 14, 3), np.uint8), r"Pass a batch as a list: \[\*batch\]"),
        (np.zeros((20, 0, 3), np.uint8), r"shape \(20, 0, 3\)"),
        (np.zeros((20, 14, 3)), "Array has dtype float64; expected uint8"),
        (torch.zeros(20, 14, 3), r"Tensor of shape \(20, 14, 3\) is no image; expected C Y X"),
        (torch.zeros(3, 20, 14, dtype=torch.long), "Tensor has dtype int64; expected uint8, or floating point"),
        (torch.full((3, 20, 14), 255.0), "image must have values from 0 to 1"),
        (torch.full((3, 20, 14), float("nan")), "image must have values from 0 to 1"),
        (7, "give a list of images, not a int"),
        (None, "give a list of images, not None"),
        ([None], "image 1: Expected an image .*an array or a tensor.*got NoneType"),
    ],
)
def test_what_is_no_image_is_one_line(classify, given, said):
    with pytest.raises(BadInput, match=said) as caught:
        classify(given)
    assert "\n" not in str(caught.value)


def test_grey_models_are_shown_grey_and_oblong_ones_oblong(shapes):
    model = vit.ViT(
        vit.Config(num_classes=2, image_size=(8, 16), channels=1, patch_size=4, width=16, heads=2, layers=1)
    )
    classify = ImageClassifier(
        model, ["a", "b"], Preprocess((8, 16), 1, (0.5,), (0.25,), crop=0.9, resample="bilinear")
    )
    file = shapes / "left" / "05.png"
    assert classify.preprocess.view(file).mode == "L"
    assert classify.preprocess(file).shape == (1, 1, 8, 16)
    assert len(classify([file])) == 1


def test_a_model_survives_saving_with_its_way_of_seeing(classify, shapes, tmp_path):
    regard.save(classify, tmp_path / "again")
    again = regard.load(tmp_path / "again")
    file = shapes / "left" / "05.png"
    assert again([file]) == classify([file])
    assert again.labels == ["left", "right"]


def test_maps_of_an_image_come_from_the_predictor(classify, shapes):
    (trace,) = classify.attention(shapes / "left" / "05.png")
    assert trace.weights.shape[-1] == 10  # a class token and 3 x 3 patches


def test_bad_images_are_named(classify, shapes, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"nothing")
    good = shapes / "left" / "05.png"
    with pytest.raises(BadInput, match=r"broken\.jpg: cannot be read as an image"):
        classify([good, tmp_path / "broken.jpg"])
    with pytest.raises(BadInput, match="image 2: cannot be read"):
        classify([good, b"nothing"])
    with pytest.raises(BadInput, match=r"cannot read .*none\.png"):
        classify([tmp_path / "none.png"])


def test_settings_that_make_no_sense_are_one_line(recipe):
    with pytest.raises(RegardError, match="did you mean 'flip'"):
        task(recipe, augment=("flipp",))
    with pytest.raises(RegardError, match="takes no argument 'size'"):
        task(recipe, augment=("random_crop(size=3)",))
    with pytest.raises(BadInput, match=r"crop\(padding=500\): images of 12 x 12 could be shifted out of sight"):
        task(recipe, augment=("random_crop(padding=500)",))
    with pytest.raises(BadInput, match="channels must be 1 or 3"):
        Preprocess(8, channels=5)
    with pytest.raises(BadInput, match="mean and std must have 1 values, got 3 and 3"):
        Preprocess(8, channels=1)


# -- on a GPU ----------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_the_host_never_waits_for_the_gpu_while_a_batch_is_made(recipe):
    """Pixels are picked, augmented, normalised and mixed there; the host sends row numbers and one seed."""
    made = task(recipe, augment=EVERYTHING, mixup=0.8, cutmix=1.0, label_smoothing=0.1)
    picked = next(iter(made.batches().start(StreamPosition()))).batch.pin()
    device, rng = torch.device("cuda", 0), torch.Generator("cuda")
    made.prepared(picked.to(device), 1, rng)  # copies the set and what is constant
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        values, targets = made.prepared(picked.to(device), 1, rng)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert values.device == targets.device == device


@pytest.mark.gpu
def test_what_is_drawn_on_a_gpu_comes_from_the_runs_generator_too(recipe):
    made = task(recipe, augment=EVERYTHING, mixup=0.8, cutmix=1.0)
    some = batch(recipe).to("cuda")
    one, again, other = (made.prepared(some, 1, torch.Generator("cuda").manual_seed(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.gpu
def test_a_run_on_a_gpu_with_every_augmentation_goes_on_to_the_bit(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    whole = replace(recipe, task=image_classification.Config(augment=EVERYTHING, mixup=0.8, cutmix=1.0))
    whole = override_recipe(whole, ["train.device=cuda", "train.deterministic=true", "train.compile=false"])
    train(whole, tmp_path / "straight")
    in_pieces(whole, tmp_path / "stopped", [5], monkeypatch)
    assert_equal_runs(tmp_path / "straight", tmp_path / "stopped", end(tmp_path / "straight"))


def test_a_run_counts_images_and_other_sets_must_have_its_labels(trained, recipe, tmp_path, capsys):
    from regard.cli import main

    out, _ = trained
    train(replace(recipe, train=replace(recipe.train, steps=2, eval_interval=2, save_interval=2)), tmp_path / "run")
    said = capsys.readouterr().err
    assert " images/s; saved" in said
    assert "tokens/s" not in said
    (tmp_path / "other" / "up").mkdir(parents=True)
    assert main(["eval", str(out), "--data", str(tmp_path / "other")]) == 1
    assert "has the labels up; this model has left, right" in capsys.readouterr().err


def test_a_smoothing_that_is_no_share_is_one_line(shapes):
    with pytest.raises(BadInput, match=r"label_smoothing must be at least 0 and less than 1, got 2\.0"):
        image_classification.Config(label_smoothing=2.0).build(ImageDataset(str(shapes), image_size=12))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"labels": ["a"]}, "The model has 2 classes, got 1 labels"),
        ({"labels": ["a", "b", "c"]}, "The model has 2 classes, got 3 labels"),
        ({"crop": 0.0}, "crop=0.0"),
        ({"std": [0.0] * 3}, "std and size positive"),
        ({"size": 0}, r"size=\[0, 0\]"),
    ],
)
def test_a_classifier_that_cannot_be_is_one_line(how, said):
    model = vit.ViT(vit.Config(image_size=12, patch_size=4, width=16, heads=2, layers=1, ffn=24, num_classes=2))
    labels = how.pop("labels", ["a", "b"])
    with pytest.raises(BadInput, match=said):
        ImageClassifier(model, labels, Preprocess(**{"size": 12} | how))


def test_a_run_that_is_refused_leaves_no_folder_behind(recipe, shapes, tmp_path):
    (tmp_path / "data" / "val" / "more").mkdir(parents=True)
    for part in ("train", "val"):
        shutil.copytree(shapes, tmp_path / "data" / part, dirs_exist_ok=True)
    strange = replace(recipe, data=replace(recipe.data, path=str(tmp_path / "data")))
    nowhere = replace(recipe, data=replace(recipe.data, path=str(tmp_path / "nowhere")))
    for refused in (strange, nowhere):
        with pytest.raises(RegardError):
            train(refused, tmp_path / "run")
        assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    for folder in ("mine", "notes"):  # what was there before stays
        with pytest.raises(RegardError):
            train(strange, tmp_path / folder)
        assert (tmp_path / folder).is_dir()
    assert (tmp_path / "notes" / "a.txt").read_text() == "mine"
