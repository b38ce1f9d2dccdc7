"""The gallery covers the whole table: a matrix of the right size for every mechanism, or the reason why not."""

import json

import numpy as np
import pytest
from PIL import Image

from regard import cli
from regard.attention import MECHANISMS
from regard.attention.mechanisms import softmax
from regard.core.spec import resolve
from regard.interpret.mechanism_gallery import (
    FAMILIES,
    example_spec,
    image_subject,
    mechanism_gallery,
    sentence_subject,
)
from regard.see.html_export import render_gallery

WORDS = ["the", "animal", "did", "not", "cross", "the", "street"]


@pytest.fixture(scope="module")
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def found(picture):
    return mechanism_gallery([sentence_subject(WORDS), sentence_subject(WORDS, causal=True), image_subject(picture)])


def test_every_mechanism_is_there_by_family(found):
    every = {each["name"]: each for family in found["families"] for each in family["mechanisms"]}
    assert every.keys() == MECHANISMS.keys()
    assert {family["name"] for family in found["families"]} <= set(FAMILIES)
    for name, entry in every.items():
        sentence, causal, image = entry["maps"]
        assert entry["what"]
        assert entry["cost"]
        for made, size in ((sentence, 7), (causal, 7), (image, 64)):
            assert "refused" in made or np.shape(made["weights"]) == (size, size), name
            assert made.get("refused", "no") != ""
        if "weights" in causal:
            assert np.abs(np.triu(causal["weights"], 1)).max() < 1e-6, name
        traits = resolve(MECHANISMS, name, "attention").traits
        assert "weights" in sentence or "weights" in image or traits.causality == "strict", f"{name}: {sentence}"


def test_softmax_is_that_of_its_mechanism(found):
    (full,) = (family for family in found["families"] if family["name"] == "full")
    entry = next(each for each in full["mechanisms"] if each["name"] == "softmax")
    x = sentence_subject(WORDS).x
    q = x.unflatten(-1, (4, -1)).transpose(0, 1)[None]
    expected = softmax.SoftmaxAttention(backend="eager").weights(q, q)[0].mean(0)
    np.testing.assert_allclose(entry["maps"][0]["weights"], expected.numpy(), atol=1e-4)


def test_settings_are_small_where_large_ones_would_be_dense():
    for name in MECHANISMS:
        limit = resolve(MECHANISMS, name, "attention").traits.limit
        assert example_spec(name) == name or "(" in example_spec(name)
        assert "=16" not in example_spec(name) or "=16" not in limit


def test_the_page_is_one_file_that_loads_nothing(found, tmp_path):
    page = render_gallery(found, "a <b> & c")
    assert "<title>a &lt;b&gt; &amp; c</title>" in page
    assert "http://" not in page.split("<script")[0]
    data = page.split('id="regard-gallery">')[1].split("</script>")[0]
    assert json.loads(data)["subjects"][0]["tokens"] == WORDS


def test_the_command_writes_it(tmp_path, picture, capsys):
    picture.save(tmp_path / "photo.png")
    out = tmp_path / "page.html"
    assert cli.main(["see", "the animal slept", str(tmp_path / "photo.png"), "--mechanisms", "-o", str(out)]) == 0
    assert "softmax" in capsys.readouterr().out
    assert "regard-gallery" in out.read_text("utf-8")
    assert cli.main(["see", "the animal", "--mechanisms", "-o", str(tmp_path / "page.png")]) == 1
    assert ".html" in capsys.readouterr().err
