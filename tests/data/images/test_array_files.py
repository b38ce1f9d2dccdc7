"""idx files and pickled batches: read as they are published, and nothing in them is run."""

import gzip
import pickle

import numpy as np
import pytest

from regard.core.errors import BadInput
from regard.data.images import array_files
from regard.data.images.array_files import read_array
from regard.data.images.image_dataset import CIFAR10_LABELS, FASHION_MNIST_FIRST, FASHION_MNIST_LABELS, ImageDataset


def idx(array):
    shape = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\x00\x00\x08" + bytes([array.ndim]) + shape + array.tobytes()


@pytest.fixture
def digits(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {}
    for part, name, count in (("train", "train", 30), ("test", "t10k", 11)):
        arrays[f"{part}_images"] = rng.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"{part}_labels"] = rng.integers(0, 10, count).astype(np.uint8)
        (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(arrays[f"{part}_images"])))
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(idx(arrays[f"{part}_labels"]))
    return tmp_path, arrays


def test_idx_files_are_read_as_a_folder_of_ones_own(digits):
    folder, arrays = digits
    data = ImageDataset(str(folder))
    assert data.labels() == [*"0123456789"]
    test = data.load("test")
    assert np.array_equal(test.pixels[:, 0].numpy(), arrays["test_images"])
    assert test.labels.tolist() == arrays["test_labels"].tolist()
    assert len(data.load("train")) + len(data.load("val")) == 30


def test_fashion_mnist_is_told_from_digits_by_its_labels(digits):
    folder, arrays = digits
    arrays["train_labels"][:16] = FASHION_MNIST_FIRST
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(arrays["train_labels"]))
    data = ImageDataset(str(folder))
    assert data.labels() == FASHION_MNIST_LABELS.split(", ")
    assert data.load("test").labels.tolist() == arrays["test_labels"].tolist()


def test_idx_files_are_found_where_torchvision_puts_them(digits, tmp_path):
    folder, arrays = digits
    (folder / "MNIST" / "raw").mkdir(parents=True)
    for file in [*folder.glob("*ubyte*")]:
        file.rename(folder / "MNIST" / "raw" / file.name)
    data = ImageDataset(str(folder))
    assert data.splits() == ["test", "train", "val"]
    assert np.array_equal(data.load("test").pixels[:, 0].numpy(), arrays["test_images"])


def test_a_damaged_idx_file_is_refused(digits):
    folder, arrays = digits
    whole = idx(arrays["train_labels"])
    for content in (
        b"",
        whole[:3],
        whole[:-1],
        whole + b"x",
        b"\x00\x00\x0d" + whole[3:],
        b"\x00\x00\x08\x09" + whole[4:],
    ):
        (folder / "train-labels-idx1-ubyte").write_bytes(content)
        with pytest.raises(BadInput, match="train-labels-idx1-ubyte"):
            read_array(folder / "train-images-idx3-ubyte.gz", "train_labels")


def batches(folder, change=lambda found: found, protocol=2):
    folder.mkdir()
    rng, kept = np.random.default_rng(1), {}
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        pixels, labels = rng.integers(0, 256, (7, 3072), np.uint8), rng.integers(0, 10, 7).tolist()
        kept[name] = pixels, labels
        found = {b"batch_label": b"one", b"labels": labels, b"data": pixels, b"filenames": [b"a.png"] * 7}
        (folder / name).write_bytes(pickle.dumps(change(found), protocol))
    return kept


@pytest.mark.parametrize("protocol", [2, 4])
def test_the_published_batches_of_cifar_10_are_read(tmp_path, protocol):
    kept = batches(tmp_path / "cifar-10-batches-py", protocol=protocol)
    data = ImageDataset(str(tmp_path / "cifar-10-batches-py"))
    assert data.labels() == CIFAR10_LABELS.split(", ")
    test = data.load("test")
    pixels, labels = kept["test_batch"]
    assert np.array_equal(test.pixels.numpy(), pixels.reshape(7, 3, 32, 32))
    assert test.labels.tolist() == labels
    assert len(data.load("train")) + len(data.load("val")) == 35


class Harm:
    def __reduce__(self):
        return (open, ("/tmp/never-written-by-an-unpickler", "w"))


@pytest.mark.parametrize(
    "change",
    [
        lambda found: Harm(),
        lambda found: {**found, b"labels": Harm()},
        lambda found: {**found, b"data": np.array([Harm()], dtype=object)},
        lambda found: {**found, b"data": found[b"data"].astype(np.float32)},
        lambda found: {**found, b"data": found[b"data"][:5]},
        lambda found: {**found, b"labels": [10] * 7},
        lambda found: {**found, b"labels": None},
        lambda found: [1, 2],
    ],
)
def test_any_other_pickle_is_refused_without_running_it(tmp_path, change):
    from pathlib import Path

    batches(tmp_path / "own", change)
    with pytest.raises(BadInput, match="data_batch_1"):
        ImageDataset(str(tmp_path / "own")).load("train")
    assert not Path("/tmp/never-written-by-an-unpickler").exists()


def name(module, attribute):
    return f"c{module}\n{attribute}\n".encode()


PIXELS = name("numpy.core.multiarray", "_reconstruct") + name("numpy", "ndarray") + b"\x85R"
BYTES_TYPE = name("numpy", "dtype") + b"U\x02u1\x85R"


@pytest.mark.parametrize(
    "program",
    [
        b"]r" + (2**25).to_bytes(4, "little"),  # memo number 2 ** 25
        b"\x8e" + (2**40).to_bytes(8, "little"),  # a terabyte of bytes
        b"\x80\x05\x96" + (2**28).to_bytes(8, "little"),  # bytes that may change, which Python takes at once
        name("_codecs", "encode") + b"N}X\x01\x00\x00\x00xK\x01s\x86b",  # attributes of what stands for a function
        name("numpy", "ndarray") + b"N}X\x01\x00\x00\x00xK\x01s\x86b",
        name("numpy", "ndarray") + b"}U\x01xK\x01sb",
        name("numpy.core.multiarray", "_reconstruct") + b"N}U\x01xK\x01s\x86b",
        name("builtins", "exec") + b"U\x011\x85R",
        name("os", "system") + b"U\x04true\x85R",
        name("regard.data.images.array_files", "pickle"),
        name("numpy", "ndarray.__class__"),
        b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93",
        b"Pelsewhere\n",
        b"\x82\x01",  # a registered name
        b"(" * 100_000,
        b"]" * 50_000 + b"a" * 49_999,  # a deep list
        b"}U\x04dataU\x01xsU\x06labels]s",
        b"}U\x04data" + PIXELS + b"s" + b"U\x06labels]s",
        b"}U\x04data" + PIXELS + b"(K\x01(G\x7f\xf0\x00\x00\x00\x00\x00\x00tt" + b"bsU\x06labels]s",
        b"}U\x04data" + PIXELS + b"(K\x01(G\x7f\xf0\x00\x00\x00\x00\x00\x00t" + BYTES_TYPE + b"\x89U\x01xtbsU\x06labels]s",  # noqa: E501
    ],
)  # fmt: skip
def test_hostile_pickles_are_one_sentence_and_take_no_memory(tmp_path, program):
    import tracemalloc

    (tmp_path / "data_batch_1").write_bytes((b"" if program[:1] == b"\x80" else b"\x80\x02") + program + b".")
    states = [vars(each).copy() if hasattr(each, "__dict__") else None for each in array_files.KNOWN.values()]
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="data_batch_1") as error:
            read_array(tmp_path / "data_batch_1", "train_images")
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400
    assert states == [vars(each).copy() if hasattr(each, "__dict__") else None for each in array_files.KNOWN.values()]


def test_names_in_a_pickle_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02" + name("\x1b[2J", "x" * 5000) + b".")
    with pytest.raises(BadInput, match="no array needs") as error:
        read_array(tmp_path / "data_batch_1", "train_images")
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400


def test_a_damaged_batch_is_refused(tmp_path):
    batches(tmp_path / "own")
    file = tmp_path / "own" / "data_batch_1"
    for content in (b"", file.read_bytes()[:100], b"\x80\x04."):
        file.write_bytes(content)
        with pytest.raises(BadInput, match="data_batch_1"):
            read_array(file, "train_images")
