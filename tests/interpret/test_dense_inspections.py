"""Inspections and figures of detectors, segmenters and depth estimators: tokens are placed, maps are on pixels."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.interpret.figures import FigureOptions, make_figure
from regard.interpret.inspection import inspect
from regard.modalities import Preprocess
from regard.models import build
from regard.tasks.image.depth_estimation import DepthEstimator
from regard.tasks.image.object_detection import ObjectDetector
from regard.tasks.image.panoptic_segmentation import PanopticSegmenter
from regard.tasks.image.semantic_segmentation import SemanticSegmenter

LABELS = ["cat", "dog"]


@pytest.fixture(scope="module")
def photo():
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module", params=["detr", "deformable_detr", "panoptic"])
def detector(request, photo):
    torch.manual_seed(0)
    shown = Preprocess(96, crop_mode="corner")
    if request.param == "panoptic":
        model = build("detr", size="tiny", num_classes=2, masks=True)
        return inspect(PanopticSegmenter(model, LABELS, shown, things=["dog"]), {"image": photo, "min_score": 0.0})
    return inspect(
        ObjectDetector(build(request.param, size="tiny", num_classes=2), LABELS, shown),
        {"image": photo, "min_score": 0.0},
    )


def test_queries_are_named_and_cells_of_all_levels_placed(detector):
    about = detector.about()
    cells, queries = about["axes"]["patches"], about["axes"]["queries"]
    assert len(queries["tokens"]) == 7
    assert queries["tokens"][0].split(": ")[1].split()[0] in LABELS
    strides = detector.predictor.model.stem.strides
    grids = [grid.shape[-2:] for grid in detector.predictor.model.stem(torch.zeros(1, 3, 96, 96))[-len(strides) :]]
    assert [tuple(grid) for grid in grids] == detector.grids
    area = sum(w * h for _, _, w, h in (each["box"] for each in cells["positions"]))
    assert area == len(strides) * 96 * 96
    sides = {each["name"]: (each["rows"], each["columns"]) for each in about["maps"]}
    for name, found in sides.items():
        kind = detector.store[name].kind
        part = ("queries", "queries") if name.startswith("decoder") else ("patches", "patches")
        assert found == (("queries", "patches") if kind == "cross" else part)
    assert ("mask_head" in sides) is (detector.task == "panoptic_segmentation")


def test_maps_of_objects_are_the_weights_of_their_cells(detector):
    """A pixel has the weight of its cell, spread over the cell's pixels, summed over the levels."""
    (_, name), (one, *_) = detector.layer_names("cross"), detector.objects()
    (found,) = detector.on_pixels(name, [one.query])[0]
    assert found.shape == detector.content == (64, 96)
    row, begin, expected = detector.row(name, 0, one.query), 0, 0.0
    for stride, (down, right) in zip(detector.strides, detector.grids, strict=True):
        expected += row[begin + (50 // stride) * right + 71 // stride] / stride**2
        begin += down * right
    np.testing.assert_allclose(found[50, 71], expected * 64 * 96, rtol=1e-5)
    assert detector.cell_at((50 / 96, 71 / 96)) == (50 // detector.strides[0]) * detector.grids[0][1] + (
        71 // detector.strides[0]
    )


def test_objects_are_ranked_and_the_likeliest_stands_for_none(detector):
    scores = [one.score for one in detector.objects()]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 7
    other = inspect(detector.predictor, {"image": detector.inputs["image"], "min_score": 1.0})
    assert [one.score for one in other.objects()] == scores[:1]
    with pytest.raises(UnknownName, match="did you mean 'cat'"):
        detector.objects("cta")


def test_every_view_of_a_detector_is_drawn(detector, tmp_path):
    has_levels, sure = len(detector.strides) > 1, detector.objects()[0].label
    if detector.task == "panoptic_segmentation":
        make_figure(detector, FigureOptions(), "cats.jpg").save(tmp_path / "cross.svg")
        return
    for n, options in enumerate(
        (
            FigureOptions(layer=0, head=1, label=sure),
            FigureOptions(view="heads"),
            FigureOptions(view="encoder", query="63,95"),
            FigureOptions(view="rollout", label=sure),
        )
    ):
        file = tmp_path / f"{n}.svg"
        if options.view == "rollout" and has_levels:
            with pytest.raises(Unsupported, match="several levels"):
                make_figure(detector, options).save(file)
            continue
        make_figure(detector, options, "cats.jpg").save(file)
        assert file.stat().st_size > 10_000
    for options, message in (
        (FigureOptions(layer=2), "no layer 2"),
        (FigureOptions(head=9), "no head 9"),
        (FigureOptions(view="encoder", query="64,0"), "outside the image"),
    ):
        with pytest.raises(BadInput, match=message):
            make_figure(detector, options).save(tmp_path / "no.png")


def test_rollout_of_an_object_goes_through_the_encoder(photo):
    """Without attention between cells it is the cross-attention itself."""
    torch.manual_seed(0)
    model = build("detr", size="tiny", num_classes=2)
    seen = inspect(ObjectDetector(model, LABELS, Preprocess(96, crop_mode="corner")), {"image": photo})
    (one,) = seen.objects()
    (rolled,) = seen.rollout_of([one])
    last = seen.layer_names("cross")[-1]
    direct = seen.on_pixels(last, [one.query]).mean(0)[0]
    assert abs(rolled - direct).max() > 1e-4
    encoder = torch.eye(9)
    for name in seen.layer_names("self"):
        w = seen.store[name].weights()[0].mean(0)
        encoder = (0.5 * torch.eye(9) + 0.5 * w) @ encoder
    row = torch.from_numpy(seen.row(last, -1, one.query)) @ encoder
    np.testing.assert_allclose(rolled, seen.spread(row.numpy()), rtol=1e-4)


def test_class_maps_are_rows_of_the_mask_decoder(photo, tmp_path):
    torch.manual_seed(0)
    model = build("segmenter", size="tiny", num_outputs=2)
    seen = inspect(SemanticSegmenter(model, LABELS, Preprocess(32, crop_mode="corner")), {"image": photo})
    assert seen.axes["classes and patches"].tokens[:3] == ["cat", "dog", "1,1"]
    last = seen.decoder_layers[-1]
    found = seen.class_maps(last)
    assert found.shape == (2, 2, 21, 32)  # heads, classes, the image without its border
    row = seen.row(last, 1, 1)
    np.testing.assert_allclose(found[1, 1, 17, 30], row[2 + (17 // 4) * 8 + 30 // 4] * 64, rtol=1e-5)
    for n, options in enumerate(
        (
            FigureOptions(),
            FigureOptions(view="heads", label="dog", layer=0),
            FigureOptions(query="3,4"),
            FigureOptions(view="layers"),
        )
    ):
        make_figure(seen, options, "cats.jpg").save(tmp_path / f"{n}.svg")
        assert (tmp_path / f"{n}.svg").stat().st_size > 10_000
    with pytest.raises(BadInput, match="not together with --query"):
        make_figure(seen, FigureOptions(label="dog", query="3,4")).save(tmp_path / "no.png")


def test_a_depth_estimator_shows_its_heads_at_a_point(photo, tmp_path):
    torch.manual_seed(0)
    measure = DepthEstimator(build("dpt", size="tiny", num_outputs=1), Preprocess(32, crop_mode="corner"))
    seen = inspect(measure, {"image": photo})
    make_figure(seen, FigureOptions(), "room.jpg").save(tmp_path / "middle.svg")
    make_figure(seen, FigureOptions(view="rollout", query="20,31"), "room.jpg").save(tmp_path / "rollout.svg")
    heads = seen.cut(seen.attribution.heads(3, (20.5 / 32, 31.5 / 32)), seen.attribution.uniform_weight(3))
    row = seen.row("backbone.encoder.blocks.3.mix", 1, 1 + 2 * 4 + 3)  # patches of 8 pixels behind the class token
    np.testing.assert_allclose(heads[1, 20, 31], row[1 + 2 * 4 + 3] * 16, rtol=1e-5)
    with pytest.raises(BadInput, match="class tokens"):
        make_figure(seen, FigureOptions(label="dog")).save(tmp_path / "no.png")


def test_a_model_without_attention_has_its_output_drawn(photo, tmp_path):
    torch.manual_seed(0)
    measure = DepthEstimator(build("unet", size="tiny", num_outputs=1), Preprocess(32, crop_mode="corner"))
    seen = inspect(measure, {"image": photo})
    make_figure(seen, FigureOptions(), "room.jpg").save(tmp_path / "depth.svg")
    assert (tmp_path / "depth.svg").stat().st_size > 10_000
