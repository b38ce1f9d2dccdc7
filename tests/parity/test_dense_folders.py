"""Folders of DETR and DPT of transformers: a photo in, what its own processor and post-processing make of it out."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.cli import main
from regard.core.errors import BadInput, RegardError
from regard.modalities.image import Preprocess
from regard.tasks.image.depth_estimation import DepthEstimator
from regard.tasks.image.object_detection import ObjectDetector
from regard.weights.hf import dpt as hf_dpt

from .test_detr import CLASSES, peer
from .test_hf_dpt import pair

transformers = pytest.importorskip("transformers")
pytest.importorskip("timm")

SIZES = [(60, 41), (41, 60), (48, 48), (30, 97), (90, 10), (640, 427)]  # columns and rows


def photo(wide, high):
    noise = np.random.default_rng(wide).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(noise).resize((wide, high), Image.Resampling.BICUBIC)


def processor(kind, folder, **settings):
    made = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    made.save_pretrained(folder)
    return made


@pytest.fixture(scope="module")
def detr(tmp_path_factory):
    """The folders of a detector and of a panoptic model, whose scores differ, and the models."""
    torch.manual_seed(2)
    found = {}
    for kind in ("DetrForObjectDetection", "DetrForSegmentation"):
        folder, theirs = tmp_path_factory.mktemp(kind), peer(kind).float()
        theirs.save_pretrained(folder)
        found[kind] = folder, theirs
    return found


def close(found, expected, far=1e-3):
    torch.testing.assert_close(torch.as_tensor(found), torch.as_tensor(expected), rtol=far, atol=far)


@pytest.mark.parametrize("given", [
    ("Detr", {"size": {"shortest_edge": 40, "longest_edge": 64}}), ("Detr", {"size": {"height": 36, "width": 50}}),
    ("DPT", {"size": {"height": 32, "width": 64}}), ("DPT", {"size": {"height": 64, "width": 32}, "resample": 2,
        "keep_aspect_ratio": True, "ensure_multiple_of": 16, "image_mean": [0.1, 0.2, 0.3]}),
])  # fmt: skip
def test_photos_are_shown_as_by_the_processors(given, tmp_path, detr):
    (kind, settings), raw = given, {"num_labels": 3}
    theirs = processor(kind, tmp_path, **settings)
    if kind == "Detr":
        from regard.weights.hf.detr import import_config, read_preprocessing

        raw = detr["DetrForObjectDetection"][1].config.to_dict()
        how = read_preprocessing(tmp_path, raw, import_config(raw))["preprocess"]
    else:
        config = hf_dpt.import_config({"model_type": "dpt", "architectures": [hf_dpt.DEPTH]})
        how = hf_dpt._preprocessing(tmp_path, raw, config)["preprocess"]
    ours = Preprocess(**how)
    for size in SIZES:
        if kind == "DPT" and size == (90, 10):
            continue  # theirs would round the rows to 0
        picture = photo(*size)
        close(ours(picture), theirs(picture, return_tensors="pt")["pixel_values"], 1e-5)


def test_boxes_equal_those_of_the_post_processing(detr):
    folder, theirs = detr["DetrForObjectDetection"]
    shown = processor("Detr", folder, size={"shortest_edge": 40, "longest_edge": 64})
    detect = regard.load(folder)
    assert isinstance(detect, ObjectDetector)
    photos = [photo(*size) for size in SIZES[:4]]
    for picture, found in zip(photos, detect(photos, min_score=0.2), strict=True):
        size = picture.height, picture.width
        with torch.no_grad():
            outputs = theirs(**shown(picture, return_tensors="pt"))
        (wanted,) = shown.post_process_object_detection(outputs, 0.2, [size])
        order = wanted["scores"].argsort(descending=True)
        wanted = {name: values[order] for name, values in wanted.items()}
        assert len(found.boxes) == len(wanted["scores"]) > 0
        limit = torch.tensor([*size[::-1], *size[::-1]])
        rows = [[box.left, box.top, box.right, box.bottom] for box in found.boxes]
        close(rows, wanted["boxes"].clamp(min=0).minimum(limit), 0.02)  # ours end at the photo's edge
        close([box.score for box in found.boxes], wanted["scores"])
        assert [box.label for box in found.boxes] == [f"LABEL_{n}" for n in wanted["labels"].tolist()]
        assert detect(picture, min_score=0.2).difference(found) < 1e-3  # alone and among others


def test_segments_equal_the_best_masks_of_the_peer(detr):
    """transformers weighs masks by score; the paper's rule, which is ours, takes the highest mask logit."""
    folder, theirs = detr["DetrForSegmentation"]
    shown = processor("Detr", folder, size={"shortest_edge": 40, "longest_edge": 64})
    segment, picture = regard.load(folder), photo(60, 41)
    assert segment.things == segment.labels == [f"LABEL_{n}" for n in range(CLASSES)]
    found = segment(picture, min_score=0.2)
    with torch.no_grad():
        outputs = theirs(**shown(picture, return_tensors="pt"))
    scores, classes = outputs.logits[0].softmax(-1).max(-1)
    kept = (scores >= 0.2) & (classes < CLASSES)
    masks = torch.nn.functional.interpolate(outputs.pred_masks, (41, 60), mode="bilinear")[0, kept]
    best = masks.argmax(0)
    wanted = [n for n in scores[kept].argsort(descending=True).tolist() if (best == n).sum() >= 5]
    assert len(found.masks) == len(wanted) > 1
    for mask, n in zip(found.masks, wanted, strict=True):
        assert mask.label == f"LABEL_{classes[kept][n]}"
        close(mask.score, scores[kept][n])
        assert (torch.as_tensor(mask.pixels) != (best == n)).float().mean() < 0.01


def test_things_of_coco_have_ids_up_to_90(detr, tmp_path):
    from regard.weights.hf.detr import import_config, read_preprocessing

    raw = detr["DetrForSegmentation"][1].config.to_dict() | {"architectures": ["DetrForSegmentation"]}
    raw["id2label"] = {n: f"c{n}" for n in range(250)}
    about = read_preprocessing(tmp_path, raw, import_config(raw))
    assert (about["name"], about["things"]) == ("panoptic_segmentation", [f"c{n}" for n in range(91)])


def test_depth_and_classes_equal_those_of_the_post_processing(tmp_path):
    for case, size in (("depth", 64), ("depth", 96), ("segmentation-norm", 64)):
        theirs, folder = pair(case)[0].float(), tmp_path / f"{case}-{size}"
        if case != "depth":  # logits as of a trained model: none of its probabilities is 0
            theirs.head.head[4].weight.data.mul_(1e-3)
        theirs.save_pretrained(folder)
        shown = processor("DPT", folder, size={"height": size, "width": size})
        predict = regard.load(folder)
        for each in SIZES[:4]:
            picture = photo(*each)
            with torch.no_grad():
                outputs = theirs(**shown(picture, return_tensors="pt"))
            if case == "depth":
                assert isinstance(predict, DepthEstimator)
                (wanted,) = shown.post_process_depth_estimation(outputs, [(picture.height, picture.width)])
                inverse = wanted["predicted_depth"]
                close(predict(picture).values, (inverse.max() - inverse) / (inverse.max() - inverse.min()), 1e-2)
            else:
                (wanted,) = shown.post_process_semantic_segmentation(outputs, [(picture.height, picture.width)])
                found = np.zeros(wanted.shape, int)
                for mask in predict(picture).masks:
                    found[mask.pixels] = predict.labels.index(mask.label)
                assert (found == wanted.numpy()).mean() > 0.999
                assert len(np.unique(found)) > 1


def test_preprocessing_that_cannot_be_done_is_refused(detr, tmp_path):
    folder, _ = detr["DetrForObjectDetection"]
    dpt = tmp_path / "dpt"
    pair("depth")[0].float().save_pretrained(dpt)
    for place, given, why in (
        (folder, {"size": {"shortest_edge": 40}}, "shortest_edge"),
        (folder, {"size": {"max_height": 40, "max_width": 40}}, "max_height"),
        (folder, {"do_resize": False}, "do_resize"),
        (folder, {"pad_size": {"height": 900, "width": 900}}, "pad_size"),
        (folder, {"image_processor_type": "YolosImageProcessor"}, "Yolos"),
        (dpt, {"size": {"shortest_edge": 64}}, "height and width"),
        (dpt, {"size": 64, "ensure_multiple_of": 40}, "multiple"),
        (dpt, {"size": 64, "do_pad": True}, "do_pad"),
    ):
        (place / "preprocessor_config.json").write_text(json.dumps(given))
        with pytest.raises(RegardError, match=why):
            regard.load(place)
    with pytest.raises(BadInput, match="whole photo"):
        DepthEstimator(pair("depth")[1], Preprocess(64))


def test_the_command_line_takes_folders(detr, tmp_path):
    photo(60, 41).save(tmp_path / "photo.png")
    dpt = tmp_path / "dpt"
    pair("depth")[0].float().save_pretrained(dpt)
    folders = {"detect": detr["DetrForObjectDetection"][0], "segment": detr["DetrForSegmentation"][0], "depth": dpt}
    for verb, folder in folders.items():
        if verb != "depth":
            processor("Detr", folder, size={"shortest_edge": 40, "longest_edge": 64})
        words = [verb, tmp_path / "photo.png", "--model", folder, "--draw", tmp_path / f"{verb}.png"]
        assert main([*map(str, words)]) == 0
        assert (tmp_path / f"{verb}.png").is_file()


@pytest.fixture
def coco(tmp_path, monkeypatch):
    """A folder of one photo with a cat, in COCO's format."""
    monkeypatch.setattr("regard.training.loop.TrainingRun._draw", lambda self, force=False: None)
    (tmp_path / "images").mkdir()
    photo(60, 41).save(tmp_path / "images/a.png")
    cat = {"id": 1, "image_id": 1, "category_id": 3, "bbox": [5, 5, 20, 20]}
    stored = {
        "images": [{"id": 1, "file_name": "a.png", "width": 60, "height": 41}],
        "categories": [{"id": 3, "name": "cat"}],
        "annotations": [{**cat, "segmentation": [[5, 5, 25, 5, 25, 25, 5, 25]]}],
    }
    for split in ("train", "val"):
        (tmp_path / f"instances_{split}.json").write_text(json.dumps(stored))
    return tmp_path


def test_one_command_fine_tunes_a_dpt_on_photos_in_cocos_format(coco):
    theirs, expected = pair("segmentation-norm")
    theirs.float().save_pretrained(coco / "dpt")
    names = "patch_size width heads layers ffn out_layers reassemble_widths fusion_width"
    model = [f"model.{name}={getattr(expected.config, name)}" for name in names.split()]
    few = ["train.steps=1", "train.learning_rate=0", "train.device=cpu", "train.final_weights=last"]
    data = [f"data.path={coco}", f"data.image_size={theirs.config.image_size}", "data.batch_size=1"]
    run = ["train", "dpt_coco", *data, *model, *few, f"train.init_from={coco / 'dpt'}", "--out", str(coco / "run")]
    assert main(run) == 0
    segment = regard.load(coco / "run")
    assert segment.labels == ["cat", "background"]
    ours, tensors = segment.model.state_dict(), theirs.state_dict()
    assert torch.equal(ours["head.conv.weight"], tensors["head.head.0.weight"])
    assert ours["head.classify.weight"].shape[0] == 2
    assert segment(coco / "images/a.png").masks


def test_one_command_fine_tunes_a_folder_on_photos_in_cocos_format(detr, coco):
    folder, theirs = detr["DetrForObjectDetection"]
    tmp_path = coco
    shape = "num_queries=6 width=32 ffn=24 encoder_layers=2 decoder_layers=2 backbone.block=basic"
    model = [f"model.{each}" for each in [*shape.split(), "backbone.layers=2,2,2,2"]]
    few = ["train.steps=1", "train.learning_rate=0", "train.device=cpu", "train.final_weights=last"]
    data = [f"data.path={tmp_path}", "data.image_size=64", "data.batch_size=1"]
    run = ["train", "detr_coco", *data, *model, *few, f"train.init_from={folder}", "--out", str(tmp_path / "run")]
    assert main(run) == 0
    detect = regard.load(tmp_path / "run")
    assert detect.labels == ["cat"]
    ours, tensors = detect.model, theirs.state_dict()
    assert torch.equal(ours.queries, tensors["model.query_position_embeddings.weight"])
    assert torch.equal(ours.box_head.layers[0].weight, tensors["bbox_predictor.layers.0.weight"])
    assert ours.class_head.weight.shape == (2, 32)
