import io
import itertools
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition, prefetch
from regard.data.images import image_shards
from regard.data.images.image_shards import ImageBatch, ImageShards, decode_image
from regard.data.shards.index import ShardIndex
from regard.data.shards.packing import pack_images
from regard.data.shards.token_shards import TokenShards
from regard.modalities.image import Preprocess


def image(number, size=(20, 14), kind="PNG", **more):
    """An image of one colour, which identifies it."""
    file = io.BytesIO()
    Image.new("RGB", size, (number, 255 - number, 7)).save(file, kind, **more)
    return file.getvalue()


@pytest.fixture
def classes(tmp_path):
    for name, numbers in {"cat": range(12), "dog": range(100, 130)}.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        for i in numbers:
            (tmp_path / "in" / name / f"{i}.png").write_bytes(image(i))
    return tmp_path / "in"


@pytest.fixture
def packed(classes, tmp_path):
    pack_images([classes], tmp_path / "out", val=0.2, shard=1500)
    return tmp_path / "out"


def everything(folder):
    album = [ImageShards(str(folder)).load(part) for part in ShardIndex.read(folder).splits]
    return sorted(part[i] for part in album for i in range(len(part)))


def test_packed_images_are_restored_with_name_and_class(classes, packed):
    index = ShardIndex.read(packed)
    assert index.classes == ("cat", "dog")
    assert len(index.part("train")) > 1
    expected = [(f.read_bytes(), ["cat", "dog"].index(f.parent.name), f.name) for f in classes.rglob("*.png")]
    assert everything(packed) == sorted(expected)
    assert index.check(packed) == []


def test_image_split_depends_on_content_alone(classes, packed, tmp_path):
    for file in list(classes.rglob("*.png")):
        file.rename(file.with_name(f"{255 - int(file.stem)}.png"))  # the order is another one, too
    pack_images([classes], tmp_path / "again", val=0.2, shard=1500)
    albums = [ImageShards(str(folder)).load("val") for folder in (packed, tmp_path / "again")]
    before, after = ({album[i].content for i in range(len(album))} for album in albums)
    assert len(before) > 3
    assert len(before ^ after) <= 2  # the very first image is always trained on


def test_a_flat_folder_has_no_labels(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jpg").write_bytes(image(1, kind="JPEG"))
    (tmp_path / "in" / "notes.txt").write_text("not an image, by its name")
    packed = pack_images([tmp_path / "in"], tmp_path / "out")
    assert packed.skipped == {}
    assert packed.index.classes == ()
    assert ImageShards(str(tmp_path / "out")).load("train")[0].label == -1


def test_images_beside_class_folders_are_refused(classes, tmp_path):
    (classes / "stray.png").write_bytes(image(3))
    with pytest.raises(BadInput, match=r"stray\.png is next to folders of classes"):
        pack_images([classes], tmp_path / "out")


def test_any_number_of_workers_packs_the_same_bytes(classes, packed, tmp_path):
    pack_images([classes], tmp_path / "again", val=0.2, shard=1500, workers=4)
    for file in packed.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_a_packing_of_images_that_failed_resumes(classes, packed, tmp_path):
    def fail(what, done, total):
        if done == 17:
            raise RuntimeError("pulled the plug")

    (classes / "cat" / "2.png").write_bytes(b"no image")
    shutil.rmtree(packed)
    pack_images([classes], packed, val=0.2, shard=1500)
    with pytest.raises(RuntimeError):
        pack_images([classes], tmp_path / "again", val=0.2, shard=1500, progress=fail, every=0)
    again = pack_images([classes], tmp_path / "again", val=0.2, shard=1500)
    assert [path.rsplit("/", 1)[1] for path in again.skipped] == ["2.png"]
    for file in packed.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_unreadable_images_are_skipped_and_named(classes, tmp_path, monkeypatch):
    good = image(5, (64, 64), "JPEG")
    bad = {
        "cut.jpg": good[: len(good) // 2],
        "empty.png": b"",
        "text.png": b"this is no image",
        "script.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
        "bomb.png": image(1, (3000, 3000)),
        "rare.png": image(1, kind="PCX"),  # Pillow could read it, but only a few formats are let in
    }
    for name, content in bad.items():
        (classes / "cat" / name).write_bytes(content)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5_000_000)
    packed = pack_images([classes], tmp_path / "out", val=0)
    why = {path.rsplit("/", 1)[1]: words for path, words in packed.skipped.items()}
    assert sorted(why) == sorted(bad)
    assert "pixels are more than" in why["bomb.png"]
    assert why["text.png"].startswith("cannot be read as an image (it is none of JPEG, PNG")
    assert packed.index.count("train")[1] == 42


def test_no_usable_image_is_an_error(tmp_path):
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"no image of .* can be used: a\.png: cannot be read as an image"):
        pack_images([tmp_path / "a.png"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_batch_has_the_right_pixels_and_labels(packed):
    album = ImageShards(str(packed), image_size=8, batch_size=5).load("train")
    for item in itertools.islice(album.stream(0).start(StreamPosition()), 12):
        assert item.batch.pixels.shape == (5, 3, 8, 8)
        assert item.batch.pixels.dtype == torch.uint8
        assert item.count == 5
        red = item.batch.pixels[:, 0, 4, 4].tolist()
        assert item.batch.labels.tolist() == [int(r >= 100) for r in red]
        assert item.batch.pixels[:, 1, 0, 0].tolist() == [255 - r for r in red]
    assert isinstance(item.batch.to("cpu").rows(2), ImageBatch)
    assert len(item.batch.rows(2).labels) == 2


def test_every_image_comes_once_an_epoch_and_orders_differ(packed):
    album = ImageShards(str(packed), image_size=4, batch_size=1).load("train")
    orders = [[int(album.stream(0).order(e)[i]) for i in range(len(album))] for e in range(3)]
    assert all(sorted(order) == list(range(len(album))) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert sum(len(b.labels) for b in album.eval_batches(7)) == len(album)


def test_images_can_be_resumed_anywhere_with_any_number_of_workers_and_shares(packed):
    album = ImageShards(str(packed), image_size=4, batch_size=6).load("train")
    full = list(itertools.islice(album.stream(1).start(StreamPosition()), 15))
    with prefetch(album.stream(1).start(full[3].next_position, 1, 2), workers=3) as items:
        for a, b in zip(full[4:12], itertools.islice(items, 8), strict=True):
            assert torch.equal(a.batch.pixels[1::2], b.batch.pixels)


def test_image_orientation_is_applied():
    content = io.BytesIO()
    tall = Image.new("RGB", (30, 10))
    exif = tall.getexif()
    exif[0x0112] = 6
    tall.save(content, "JPEG", exif=exif)
    assert decode_image(content.getvalue()).size == (10, 30)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(mode):
    file = io.BytesIO()
    picture = Image.fromarray(np.zeros((4, 6), np.uint16)) if mode == "I;16" else Image.new(mode, (6, 4))
    picture.save(file, "TIFF" if mode == "CMYK" else "PNG")
    assert decode_image(file.getvalue()).mode == "RGB"


def test_a_damaged_shard_is_named(packed):
    file = packed / "train-00000.bin"
    file.write_bytes(b"\xff" * file.stat().st_size)
    album = ImageShards(str(packed), image_size=4).load("train")
    with pytest.raises(BadInput, match=r"(train-00000\.bin is damaged|cannot be read as an image).*regard data check"):
        album.collate(torch.tensor([0]))
    assert "train-00000.bin is damaged" in ShardIndex.read(packed).check(packed)[0]


def test_tokens_are_not_images(packed):
    with pytest.raises(BadInput, match="holds images, not tokens"):
        TokenShards(str(packed)).load("train")
    assert len(ImageShards(str(packed)).quick().load("train")) == 16
    assert image_shards.RECORD_HEADER.size == 8


def test_without_preprocessing_of_their_own_images_have_the_usual_mean_and_spread():
    usual = Preprocess((4, 4))
    assert (usual.mean, usual.std) == (image_shards.MEAN, image_shards.STD)
