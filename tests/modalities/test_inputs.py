"""Inputs read themselves from files, bytes, JSON and Python objects, within limits; a refusal is one sentence."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as PIL

from regard.core.errors import BadInput
from regard.modalities import Audio, Image, Number, Text
from regard.modalities.base import Limits
from tests.contracts.test_predictors import check_schema, fits


def png(size=(6, 4), color=(200, 40, 90)):
    file = io.BytesIO()
    PIL.new("RGB", size, color).save(file, "PNG")
    return file.getvalue()


def wav(seconds=0.5, rate=8000, channels=1):
    soundfile = pytest.importorskip("soundfile")
    wave = np.sin(np.arange(int(seconds * rate)) / 7)[:, None].repeat(channels, 1)
    file = io.BytesIO()
    soundfile.write(file, wave, rate, format="WAV")
    return file.getvalue()


# -- text --------------------------------------------------------------------------------------------------------------


def test_text_is_a_string():
    read = Text.read("Zwei Hunde")
    assert isinstance(read, str)
    assert (read, read.score, read.candidates) == ("Zwei Hunde", None, ())
    assert Text.read(read) is read
    assert Text.is_single("a")
    assert not Text.is_single(["a"])


@pytest.mark.parametrize("source", [b"bytes", 5, None, ["a"], Path("a")])
def test_text_refuses_what_is_no_string(source):
    with pytest.raises(BadInput, match=r"Expected a text \(str\), got "):
        Text.read(source)


def test_text_has_a_limit_and_needs_whole_characters():
    assert Text.read("x" * 5, Limits(characters=5)) == "xxxxx"
    with pytest.raises(BadInput, match=r"6 characters; the limit is 5\."):
        Text.read("x" * 6, Limits(characters=5))
    with pytest.raises(BadInput, match="surrogate"):
        Text.read("\ud83d")


def test_every_argument_is_a_text():
    assert [tuple(each) for each in Text.sources(["a", "b"])] == [("text 1", "a", ""), ("text 2", "b", "")]


# -- image -------------------------------------------------------------------------------------------------------------


def test_image_is_read_from_all_that_holds_one(tmp_path):
    content = png()
    (tmp_path / "a.png").write_bytes(content)
    pixels = np.full((4, 6, 3), (200, 40, 90), np.uint8)
    sources = [
        *(tmp_path / "a.png", str(tmp_path / "a.png"), content, PIL.open(io.BytesIO(content)), pixels),
        *(torch.from_numpy(pixels).permute(2, 0, 1), torch.from_numpy(pixels).permute(2, 0, 1) / 255.0),
    ]
    for source in sources:
        assert Image.is_single(source)
        read = Image.read(source)
        assert (read.size, read.mode) == ((6, 4), "RGB")
        assert np.array_equal(np.asarray(read), pixels)


def test_grey_and_transparent_images_become_rgb():
    for source in (np.full((4, 6), 9, np.uint8), np.full((4, 6, 1), 9, np.uint8), np.full((4, 6, 4), 255, np.uint8)):
        assert Image.read(source).mode == "RGB"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (5, "Expected an image"),
        (["a.png"], "Expected an image"),
        (Path("/nowhere/a.png"), "no such file"),
        (b"no picture", "image"),
        (png()[:40], "image"),
        (np.zeros((4, 6, 13), np.uint8), "1, 3 or 4 channels"),
        (np.zeros((2, 4, 6, 3), np.uint8), "Pass a batch as a list"),
        (np.zeros((4, 6, 3), np.float32), "expected uint8"),
        (torch.full((3, 4, 6), 2.0), "values from 0 to 1"),
        (torch.zeros(3, 4, 6, dtype=torch.int32), "expected uint8"),
    ],
    ids=str,
)
def test_image_refuses_what_is_none(source, said):
    with pytest.raises(BadInput, match=said):
        Image.read(source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "'' is no file name"),
        ("\n", "is no file name"),
        ("word " * 5000, "cannot read word word"),
        ("a\nb.png", "cannot read a b.png"),
        (PIL.new("RGB", (0, 4)), "0 x 4 pixels"),
        (torch.zeros(3, 8, 8).to_sparse(), "pass image.to_dense()"),
    ],
    ids=["empty", "newline", "long", "two lines", "no columns", "sparse"],
)
def test_what_is_said_of_a_bad_image_is_one_line_of_some_words(source, said):
    with pytest.raises(BadInput) as refused:
        Image.read(source)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_image_has_a_limit_of_pixels():
    assert Image.read(png(), Limits(pixels=24)).size == (6, 4)
    with pytest.raises(BadInput, match="the 23 that are allowed"):
        Image.read(png(), Limits(pixels=23))


def test_image_of_a_request_is_base64_or_an_upload():
    content = png()
    for value in (base64.b64encode(content).decode(), content):
        assert Image.from_json(value).size == (6, 4)
    assert fits(base64.b64encode(content).decode(), Image.json_schema())
    for value in ("no base64!", "/etc/passwd", 5, None, ["a"], ""):
        with pytest.raises(BadInput):
            Image.from_json(value)


def test_folder_means_the_images_in_it(tmp_path):
    (tmp_path / "shapes").mkdir()
    assert [each.problem for each in Image.sources([str(tmp_path)])] == [f"there are no image files in {tmp_path}"]
    for name in ("b.png", "shapes/a.png"):
        (tmp_path / name).write_bytes(png())
    (tmp_path / "notes.txt").write_text("no picture")
    found = list(Image.sources([str(tmp_path), "other.png"]))
    assert [Path(each.name).name for each in found] == ["b.png", "a.png", "other.png"]


# -- audio and numbers -------------------------------------------------------------------------------------------------


def test_audio_is_read_from_files_bytes_and_samples(tmp_path):
    content = wav(channels=2)
    (tmp_path / "a.wav").write_bytes(content)
    for source in (tmp_path / "a.wav", str(tmp_path / "a.wav"), content, Audio.from_json(content)):
        read = Audio.read(source)
        assert (read.sample_rate, read.samples.shape) == (8000, (4000,))
        assert read.at(4000).shape == (2000,)
    samples = torch.linspace(-1, 1, 100)
    for source in (samples, samples.numpy()):
        assert Audio.read(source).sample_rate is None
        assert torch.equal(Audio.read(source).at(123), samples)
    assert Audio.from_json(base64.b64encode(content).decode()).sample_rate == 8000


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (5, "Expected a recording"),
        (Path("/nowhere/a.wav"), "no file"),
        (torch.zeros(2, 100), "one row"),
        (torch.zeros(100, dtype=torch.int32), "floating-point"),
        (torch.full((100,), float("nan")), "finite"),
    ],
    ids=str,
)
def test_audio_refuses_what_is_none(source, said):
    with pytest.raises(BadInput, match=said):
        Audio.read(source)


def test_audio_has_a_limit_of_seconds():
    Audio.read(wav(0.5), Limits(seconds=0.6))
    with pytest.raises(BadInput, match="seconds"):
        Audio.read(wav(0.5), Limits(seconds=0.4))


def test_number_is_read_from_a_word_or_a_number():
    assert Number.read("2.5") == Number.read(2.5) == 2.5
    for source in ("much", None, [1], True, "nan"):
        with pytest.raises(BadInput):
            Number.read(source)


@pytest.mark.parametrize("kind", [Text, Image, Audio, Number], ids=lambda kind: kind.kind)
def test_schemas_of_inputs_are_valid(kind):
    check_schema(kind.json_schema())
    assert kind.kind


def test_a_number_may_be_one_of_numpy_and_a_refusal_is_short():
    assert all(Number.is_single(x) and Number.read(x) == 3 for x in (np.int64(3), np.float32(3)))
    with pytest.raises(BadInput) as refused:
        Number.read(np.zeros((8, 8, 3)))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 120
