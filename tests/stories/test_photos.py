"""A photo, as a user has one: what is in it, what was looked at; and whatever else a file may turn out to be."""

import json
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard.modalities.image import Preprocess
from regard.tasks.image.image_classification import ImageClassifier

KNOWS = "knows cat, dog, bird; it says one of them whatever it is shown"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained Swin with labels."""
    torch.manual_seed(0)
    sizes = {"image_size": 32, "patch_size": 4, "width": 12, "heads": (2, 4), "layers": (2, 2), "window_size": 4}
    folder = tmp_path_factory.mktemp("zoo") / "swin"
    model = regard.build("swin", num_classes=3, **sizes)
    regard.save(ImageClassifier(model, ["cat", "dog", "bird"], Preprocess(32)), folder)
    return folder


def photo(size=(60, 45), mode="RGB", seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def test_a_photo_is_classified_and_looked_at(model, tmp_path, warm):
    photo().save(tmp_path / "photo.jpg")
    done = warm("classify", "photo.jpg", "--model", model, cwd=tmp_path)
    assert (done.status, len(done.lines), len(done.complaints)) == (0, 1, 1)
    label, share = done.lines[0].split("\t")
    assert label in ("cat", "dog", "bird")
    assert KNOWS in done.err
    done = warm("see", "photo.jpg", "--model", model, "--view", "rollout", cwd=tmp_path)
    assert (done.status, len(done.complaints)) == (0, 1)
    assert done.lines[0].startswith(f"{label} {100 * float(share):.1f} %")
    assert done.lines[-1] == "drawn: attention.png"
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


def bomb():
    """A PNG of some hundred bytes that says it holds 20,000 x 20,000 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def written(place):
    """Files of all kinds: name -> whether there is an image in it."""
    whole = place / "whole.jpg"
    photo((200, 150)).save(whole)
    (place / "cut.jpg").write_bytes(whole.read_bytes()[:3000])
    noise = bytearray(whole.read_bytes())
    noise[2:200] = b"\xff" * 198
    (place / "noise.jpg").write_bytes(bytes(noise))
    (place / "empty.png").write_bytes(b"")
    (place / "text.png").write_text("this is no image", encoding="utf-8")
    (place / "bomb.png").write_bytes(bomb())
    photo((1, 1)).save(place / "one.png")
    photo((1, 900)).save(place / "thin.png")
    photo(mode="CMYK").save(place / "cmyk.jpg")
    photo(mode="L").save(place / "grey.png")
    photo(mode="P").save(place / "palette.gif")
    photo(mode="RGBA").save(place / "clear.png")
    Image.fromarray(np.arange(2000, dtype=np.uint16).reshape(40, 50)).save(place / "sixteen.png")
    photo().save(place / "moving.gif", save_all=True, append_images=[photo(seed=1)])
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    photo().save(place / "turned.jpg", exif=exif)
    bad = {"cut.jpg", "noise.jpg", "empty.png", "text.png", "bomb.png"}
    return {file.name: file.name not in bad for file in sorted(place.iterdir())}


def test_a_folder_of_odd_files_is_gone_through_to_its_end(model, tmp_path, warm):
    kinds = written(tmp_path)
    done = warm("classify", tmp_path, "--model", model, "--json")
    rows = [json.loads(line) for line in done.lines]
    assert {row["input"].rpartition("/")[2]: "label" in row for row in rows} == kinds
    knows, *named, count = done.complaints
    assert done.status == 1
    assert KNOWS in knows
    assert len(named) == list(kinds.values()).count(False)
    for name, good in kinds.items():
        assert good or sum(f"/{name}: " in line for line in named) == 1
    assert count == f"regard: {len(named)} of {len(kinds)} files could not be read"
    assert any("bomb.png: " in line and "pixels" in line for line in named)


def test_every_odd_file_alone_is_drawn_or_refused_in_one_line(model, tmp_path, warm):
    (tmp_path / "files").mkdir()
    for name, good in written(tmp_path / "files").items():
        if name not in ("bomb.png", "cut.jpg", "text.png", "one.png", "thin.png"):
            continue  # a process each is slow; the others go the same way as above
        picture = tmp_path / f"{name}.svg"
        done = warm("see", tmp_path / "files" / name, "--model", model, "--output", picture)
        assert (done.status, len(done.complaints)) == (int(not good), 1), done
        assert picture.exists() == good
        assert good or str(tmp_path / "files" / name) in done.err


def test_a_photo_upright_or_turned_by_its_note_is_the_same(model, tmp_path, warm):
    upright = photo((64, 48))
    upright.save(tmp_path / "upright.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    upright.rotate(90, expand=True).save(tmp_path / "turned.png", exif=exif)
    done = warm("classify", tmp_path / "upright.png", tmp_path / "turned.png", "--model", model, "--all")
    assert done.status == 0
    (first, *one), (second, *other) = (line.split("\t") for line in done.lines)
    assert (first, second) == (str(tmp_path / "upright.png"), str(tmp_path / "turned.png"))
    assert one == other


def test_texts_and_images_are_not_taken_for_one_another(model, translator_folder, tmp_path, warm):
    photo().save(tmp_path / "photo.png")
    for words, said in (
        (["see", "photo.png", "--model", translator_folder], "takes text"),
        (["see", "Two dogs.", "--model", model], "cannot read Two dogs.: no such file"),
        (["classify", "Two dogs.", "--model", model], "takes images, and there is no file 'Two dogs.'"),
        (["classify", "photo.png", "--model", "languages"], "is an image, and languages is a TextClassifier"),
        (["translate", "Two dogs.", "--model", model], "is an ImageClassifier"),
    ):
        done = warm(*words, cwd=tmp_path)
        assert (done.status, len(done.complaints), done.out) == (1, 1, ""), done
        assert said in done.err
    done = warm(
        "see", "Look at this photo.png", "--model", translator_folder, "--beam-size", 1, cwd=tmp_path
    )  # a sentence
    assert done.status == 0
    assert done.lines[0] == "Look at this photo.png"
