"""Image datasets in memory: disjoint splits, fixed by the seed; folders with problems."""

import itertools
import logging

import numpy as np
import pytest
import torch
from PIL import Image

from regard.core.errors import BadInput, RegardError
from regard.data.batching import StreamPosition, prefetch
from regard.data.images import image_dataset
from regard.data.images.image_dataset import ImageDataset
from regard.data.images.image_shards import ImageBatch


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """41 cats and 23 dogs of different shapes; the red channel identifies each image."""
    folder = tmp_path_factory.mktemp("pets")
    for label, (name, count) in enumerate((("cat", 41), ("dog", 23))):
        (folder / name).mkdir()
        for number in range(count):
            colour = (number, 100 + label, 7)
            Image.new("RGB", (20 + number, 30), colour).save(folder / name / f"{number:02d}.png")
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A data folder with a small MNIST: image k is all k."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "mnist").mkdir()
    made = {}
    for part, count in (("train", 120), ("test", 30)):
        made[f"{part}_images"] = np.arange(count, dtype=np.uint8)[:, None, None].repeat(28, 1).repeat(28, 2)
        made[f"{part}_labels"] = np.arange(count, dtype=np.uint8) % 10
    np.savez(folder / "mnist" / "mnist.npz", **made)
    return folder


@pytest.fixture
def mnist(digits, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(digits))
    return ImageDataset("mnist", batch_size=16)


def is_stored(name):
    try:
        return image_dataset.find_file(name).is_file()
    except BadInput:
        return False


def write_cifar10(folder, train=40, test=20):
    """Write a small lossless CIFAR-10: image k is (k, 100, 200) everywhere but in its first row, which is 0."""
    folder.mkdir(parents=True)
    for part, count in (("train", train), ("test", test)):
        images = np.empty((count, 32, 32, 3), np.uint8)
        images[:] = np.stack([np.arange(count), np.full(count, 100), np.full(count, 200)], 1)[:, None, None]
        images[:, 0] = 0
        np.save(folder / f"{part}_images.npy", images)
        np.save(folder / f"{part}_labels.npy", np.arange(count, dtype=np.uint8) % 10)


def which(held):
    return held.pixels[:, 0, 0, 0].tolist()


def test_image_splits_are_disjoint_and_complete(mnist):
    train, val, test = (mnist.load(part) for part in ("train", "val", "test"))
    assert len(val) == 12
    assert sorted(which(train) + which(val)) == list(range(120))
    assert which(test) == list(range(30))
    for held in (train, val, test):
        assert held.labels.tolist() == [number % 10 for number in which(held)]
        assert held.pixels.shape[1:] == (1, 28, 28)
        assert held.pixels.dtype == torch.uint8


def test_validation_split_depends_on_the_seed_alone(mnist):
    def drawn(**changes):
        return which(ImageDataset("mnist", **changes).load("val"))

    assert drawn() == drawn(batch_size=7, train_fraction=0.5)
    assert drawn(seed=1) != drawn()


def test_train_fraction_is_taken_of_every_class(mnist):
    half, all_of_it = (ImageDataset("mnist", train_fraction=share).load("train") for share in (0.5, 1.0))
    for label in range(10):
        few, count = int((half.labels == label).sum()), int((all_of_it.labels == label).sum())
        assert few == round(0.5 * count)
    assert (
        set(which(ImageDataset("mnist", train_fraction=0.2).load("train"))) < set(which(half)) < set(which(all_of_it))
    )
    assert len(ImageDataset("mnist", limit=9).load("train")) == 9


def test_images_are_gathered_on_the_device(mnist):
    train = mnist.load("train")
    item = next(iter(train.stream(0).start(StreamPosition())))
    assert item.count == 16
    assert item.batch.indices.shape == item.batch[0].shape == (16,)
    there = item.batch.to("cpu")
    assert isinstance(there, ImageBatch)
    assert there.pixels[:, 0, 3, 4].tolist() == [which(train)[row] for row in item.batch.indices.tolist()]
    assert there.labels.tolist() == [number % 10 for number in there.pixels[:, 0, 0, 0].tolist()]
    assert torch.equal(item.batch.rows(3).to("cpu").pixels, there.pixels[:3])
    assert train.on("cpu").pixels is train.on("cpu").pixels  # one copy a device


def test_every_image_comes_once_an_epoch_in_orders_that_differ(mnist):
    stream = ImageDataset("mnist", batch_size=12).load("train").stream(3)
    orders = [torch.cat([stream.order(epoch)[i] for i in range(9)]).tolist() for epoch in range(3)]
    assert all(sorted(order) == list(range(108)) for order in orders)
    assert orders[0] != orders[1] != orders[2]


def test_batches_can_be_resumed_anywhere(mnist):
    train = mnist.load("train")
    full = list(itertools.islice(train.stream(1).start(StreamPosition()), 15))
    with prefetch(train.stream(1).start(full[7].next_position, 1, 2), workers=2) as items:
        for a, b in zip(full[8:], itertools.islice(items, 7), strict=True):
            assert torch.equal(a.batch.indices[1::2], b.batch.indices)


def test_repeats_within_a_batch_keep_the_epoch_length(mnist):
    plain, repeated = (ImageDataset("mnist", batch_size=12, repeats=r).load("train").stream(0).order(0) for r in (1, 3))
    assert len(plain) == len(repeated) == 9
    rows = torch.cat([repeated[i] for i in range(9)])
    assert repeated[0].unique(return_counts=True)[1].tolist() == [3] * 4
    assert len(rows) == 108
    assert len(rows.unique()) == 36
    with pytest.raises(BadInput, match="does not divide"):
        ImageDataset("mnist", batch_size=16, repeats=3)


def test_images_are_resized(mnist):
    held = ImageDataset("mnist", image_size=14).load("test")
    assert held.pixels.shape == (30, 1, 14, 14)
    assert which(held) == list(range(30))


def test_the_fingerprint_changes_with_the_images(mnist):
    base = mnist.load("train").fingerprint()
    assert base == ImageDataset("mnist", batch_size=3).load("train").fingerprint()
    assert base != ImageDataset("mnist", train_fraction=0.5).load("train").fingerprint()


def test_missing_or_damaged_dataset_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    with pytest.raises(RegardError, match="no dataset 'mnist'"):
        ImageDataset("mnist").load("train")
    (tmp_path / "mnist").mkdir()
    with pytest.raises(BadInput, match=r"no .*mnist\.npz"):
        ImageDataset("mnist").load("train")
    for junk in (b"", b"PK\x03\x04 broken", b"\x93NUMPY rubbish"):
        image_dataset._load_array.cache_clear()
        (tmp_path / "mnist" / "mnist.npz").write_bytes(junk)
        with pytest.raises(BadInput, match=r"mnist\.npz") as error:
            ImageDataset("mnist").load("train")
        assert "\n" not in str(error.value)
    image_dataset._load_array.cache_clear()


# -- folders -----------------------------------------------------------------------------------------------------------


def test_folder_of_classes_is_split_into_train_and_val(pets):
    data = ImageDataset(str(pets), image_size=16, val_fraction=0.25)
    assert data.splits() == ["all", "train", "val"]
    assert data.labels() == ["cat", "dog"]
    train, val = data.load("train"), data.load("val")
    assert (len(train), len(val)) == (48, 16)
    found = [tuple(held.pixels[i, :2, 8, 8].tolist()) for held in (train, val) for i in range(len(held))]
    assert len(set(found)) == 64
    for held in (train, val):
        assert (held.pixels[:, 1, 8, 8] - 100).tolist() == held.labels.tolist()
        assert held.pixels.shape[1:] == (3, 16, 16)


def test_folder_with_splits_is_used_unchanged(pets, tmp_path):
    for part in ("train", "val", "test"):
        (tmp_path / part).symlink_to(pets, target_is_directory=True)
    data = ImageDataset(str(tmp_path), image_size=8)
    assert data.splits() == ["test", "train", "val"]
    assert [len(data.load(part)) for part in ("train", "val", "test")] == [64, 64, 64]


def test_unreadable_files_are_skipped_counted_and_named(pets, tmp_path, caplog):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for file in list((pets / name).iterdir())[:9]:
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    for name in ("cat/broken.jpg", "dog/empty.png"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "dog" / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(50))
    for name in ("notes.txt", ".DS_Store", "Thumbs.db"):
        (tmp_path / "dog" / name).write_text("no image, by its name")
    full = next(iter((pets / "cat").iterdir())).read_bytes()
    (tmp_path / "cat" / "without an ending").write_bytes(full)
    data = ImageDataset(str(tmp_path), image_size=8, val_fraction=0.1)
    with caplog.at_level(logging.WARNING, "regard"):
        held = [data.load(part) for part in ("train", "val")]
    assert sum(map(len, held)) == 19
    skipped = [path.name for part in held for path in part.skipped]
    assert sorted(skipped) == ["broken.jpg", "empty.png", "phone.heic"]
    assert "cannot be read and are left out" in caplog.text
    assert "broken.jpg" in caplog.text
    assert "empty.png" in caplog.text


def test_class_without_readable_images_is_named(pets, tmp_path, caplog):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for file in list((pets / name).iterdir())[:9]:
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    for name in ("bird", "fish"):
        (tmp_path / name).mkdir()
    (tmp_path / "bird" / "a.png").write_bytes(b"nothing")
    with caplog.at_level(logging.WARNING, "regard"):
        ImageDataset(str(tmp_path), image_size=8, val_fraction=0.1, seed=3).load("train")
    assert "there is no training image of bird, fish" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, "regard"):
        ImageDataset(str(pets), image_size=8).load("train")
    assert not caplog.text


def test_folder_without_images_is_refused(pets, tmp_path):
    with pytest.raises(BadInput, match="has no subfolders"):
        ImageDataset(str(tmp_path)).labels()
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadInput, match="has no image"):
        ImageDataset(str(tmp_path)).load("train")
    (tmp_path / "cat" / "a.png").write_bytes(b"nothing")
    with pytest.raises(BadInput, match=r"no image of the split 'val' of .* can be read"):
        ImageDataset(str(tmp_path), val_fraction=0.01).load("val")
    with pytest.raises(BadInput, match="has 1 image, of which none is left for the split 'train': add more"):
        ImageDataset(str(tmp_path), val_fraction=0.01).load("train")
    (tmp_path / "both" / "train").mkdir(parents=True)
    (tmp_path / "both" / "train" / "cat").symlink_to(pets / "cat", target_is_directory=True)
    (tmp_path / "both" / "val" / "wolf").mkdir(parents=True)
    with pytest.raises(BadInput, match="a class 'wolf'"):
        ImageDataset(str(tmp_path / "both")).load("val")


def test_too_large_folder_says_what_to_do(pets, monkeypatch):
    monkeypatch.setattr(image_dataset, "MAX_PIXEL_BYTES", 1000)
    with pytest.raises(BadInput, match=r"regard data pack .* --images"):
        ImageDataset(str(pets), image_size=32).load("train")


WRONG = [
    {"val_fraction": 0.0},
    {"val_fraction": 1.0},
    {"train_fraction": 0.0},
    {"train_fraction": 1.5},
    {"repeats": 0},
    {"image_size": 0},
    {"batch_size": 0},
    {"limit": 0},
]


@pytest.mark.parametrize("wrong", [*WRONG, {"image_size": -5}])
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(BadInput):
        ImageDataset("mnist", **wrong)


# -- lossless CIFAR-10 and its copy ------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["cifar10_lossless", "cifar10"])
def test_cifar10_is_read_from_lossless_arrays(tmp_path, monkeypatch, folder):
    write_cifar10(tmp_path / folder)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    data = ImageDataset("cifar10")
    assert data.splits() == ["test", "train", "val"]
    train, val, test = (data.load(part) for part in ("train", "val", "test"))
    assert sorted([*train.pixels[:, 0, 1, 0].tolist(), *val.pixels[:, 0, 1, 0].tolist()]) == list(range(40))
    assert test.pixels[:, :, 5, 7].tolist() == [[k, 100, 200] for k in range(20)]  # channels come first
    assert not test.pixels[:, :, 0].any()
    assert test.labels.tolist() == [k % 10 for k in range(20)]
    with pytest.raises(BadInput, match="cifar10_jpeg"):
        ImageDataset("cifar10_jpeg").load("test")


def test_the_lossless_folder_comes_before_the_copy(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar10_jpeg.npz").write_bytes(b"the copy")
    assert image_dataset.find_file("cifar10_jpeg") == tmp_path / "cifar10" / "cifar10_jpeg.npz"
    with pytest.raises(BadInput, match=r"no lossless CIFAR-10.*data\.path=cifar10_jpeg"):
        ImageDataset("cifar10").load("train")
    write_cifar10(tmp_path / "cifar10_lossless")
    assert image_dataset.find_file("cifar10") == tmp_path / "cifar10_lossless" / "train_images.npy"


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("test_images", np.zeros((20, 3, 32, 32), np.uint8)),  # channels first
        ("test_images", np.zeros((20, 32, 32, 3), np.float32)),
        ("test_labels", np.zeros(19, np.uint8)),
        ("test_labels", np.full(20, 10, np.uint8)),
        ("test_labels", None),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, monkeypatch, name, array):
    write_cifar10(tmp_path / "cifar10")
    monkeypatch.setenv("REGARD_DATA", str(tmp_path))
    (tmp_path / "cifar10" / f"{name}.npy").write_bytes(b"no array")
    if array is not None:
        np.save(tmp_path / "cifar10" / f"{name}.npy", array)
    with pytest.raises(BadInput, match=r"expected|cannot be read"):
        ImageDataset("cifar10").load("test")


# -- the real ones -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", image_dataset.IMAGE_DATASETS)
def test_known_datasets_match_their_table(name):
    try:
        image_dataset.find_file(name)
    except BadInput as error:
        pytest.skip(f"{error}; set REGARD_DATA")
    known, held = image_dataset.IMAGE_DATASETS[name], ImageDataset(name, limit=2000).load("test")
    assert held.pixels.shape == (2000, len(known.mean), known.size, known.size)
    assert sorted(held.labels.unique().tolist()) == list(range(10))
    values = held.pixels.double() / 255
    assert torch.allclose(values.mean((0, 2, 3)), torch.tensor(known.mean, dtype=torch.float64), atol=0.015)
    assert torch.allclose(values.std((0, 2, 3)), torch.tensor(known.std, dtype=torch.float64), atol=0.015)


@pytest.mark.skipif(not is_stored("cifar10_jpeg"), reason="cifar10_jpeg is missing: set REGARD_DATA")
def test_grey_images_are_the_luma_of_the_coloured_ones():
    colour, grey = (ImageDataset("cifar10_jpeg", limit=5, grayscale=gray).load("test") for gray in (False, True))
    assert grey.pixels.shape == (5, 1, 32, 32)
    expected = (colour.pixels.float() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    torch.testing.assert_close(grey.pixels.float(), expected, atol=0.51, rtol=0)
    assert ImageDataset("cifar10", grayscale=True).mean == (0.4809,)
