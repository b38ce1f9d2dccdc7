"""A page of traces holds every map and the rollouts; its tokens are inert text."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch
from alignments import ENGLISH, GERMAN, cross, own, translation

from regard.core.errors import BadInput
from regard.core.trace import Trace
from regard.see import cross_rollout, page, rollout
from regard.see.html_export import dequantise
from regard.see.rollout import max_of_heads

from .snapshots import EVIL
from .test_html_export import data, tags


def weights(content: dict, name: str) -> np.ndarray:
    """The weights as the page's script reads them."""
    part = content["maps"][name]["raw"]
    codes = np.frombuffer(base64.b64decode(part["bytes"]), np.uint8).reshape(-1, *part["cells"])
    return np.stack([dequantise(c, part["zero"], p) for c, p in zip(codes, part["peaks"], strict=True)])


def about(content: dict, kind: str) -> list[dict]:
    return [map for map in content["about"]["maps"] if map["kind"] == kind]


def test_all_layers_and_heads_and_the_rollouts_up_to_each_layer():
    content = data(page(translation(3)))
    assert [len(about(content, kind)) for kind in ("self", "cross", "rollout")] == [6, 3, 9]
    last = about(content, "cross")[2]
    assert (last["name"], last["layer"], last["heads"]) == ("decoder.blocks.2.cross", "2", 4)
    assert (last["rows"], last["columns"]) == ("output", "input")
    assert {name: tuple(side["tokens"]) for name, side in content["about"]["axes"].items()} == {
        "input": ENGLISH,
        "output": GERMAN,
    }
    parts = [(map["part"], map["layer"], map["named"]) for map in about(content, "rollout")]
    assert parts[:2] == [("encoder", "0", ["mean", "max", "min"]), ("encoder", "1", ["mean", "max", "min"])]
    assert [part for part, *_ in parts] == ["encoder"] * 3 + ["decoder"] * 3 + ["cross to input"] * 3


def test_page_holds_the_weights_and_their_products():
    traces = translation(2)
    content = data(page(traces))
    for trace in traces:
        assert np.abs(weights(content, trace.name) - trace.weights[0].numpy()).max() <= 1 / 255
    encoder = [t for t in traces if t.name.startswith("encoder")]
    found = weights(content, f"rollout.{encoder[1].name}")
    assert np.abs(found[0] - rollout(encoder).weights[0, 0].numpy()).max() <= 1 / 255
    last = next(t for t in reversed(traces) if t.kind == "cross")
    back = cross_rollout(last, rollout(encoder, max_of_heads), max_of_heads)
    assert np.abs(weights(content, f"rollout.{last.name}")[1] - back.weights[0, 0].numpy()).max() <= 1 / 255


def test_heads_keep_the_numbers_they_have_in_the_model():
    some = Trace("encoder.blocks.0.mix", torch.rand(1, 2, 3, 3).softmax(-1), heads=(1, 5))
    assert about(data(page([some])), "self")[0]["named"] == ["1", "5"]
    assert "named" not in about(data(page([cross()])), "cross")[0]


def test_tokens_cannot_inject_html():
    m = len(EVIL)
    trace = Trace(EVIL[0], torch.rand(1, 2, m, m).softmax(-1), rows=EVIL, columns=EVIL)
    plain, text = page([torch.eye(3)]), page([trace], title=EVIL[0], note=EVIL[1])
    assert [t for t, _ in tags(text)] == [t for t, _ in tags(plain)]  # not one tag more
    assert text.count("</script") == plain.count("</script")
    assert "&lt;/script&gt;&lt;script&gt;" in text  # the title
    assert "\u2028" not in text
    text.encode("utf-8")  # half an emoji is spelled out
    content = data(text)["about"]
    assert content["axes"]["word"]["tokens"][0] == EVIL[0]
    assert content["axes"]["word"]["tokens"][3:5] == ["a\\u2028b", "\\ud83d"]
    assert content["note"] == EVIL[1]


def test_a_placeholder_in_a_title_is_only_text():
    text = page([torch.eye(3)], title="{{SCRIPT}} {{DATA}}")
    assert "<title>{{SCRIPT}} {{DATA}}</title>" in text


def test_row_sums_other_than_one_are_stored():
    w = torch.full((1, 1, 2, 300), 1 / 300)
    w[:, :, 1] *= 0.4
    assert data(page([Trace("windows.0", w)]))["maps"]["windows.0"]["raw"]["sums"] == [[1.0, 0.4]]
    assert data(page([cross()]))["maps"][cross().name]["raw"]["sums"] == 1


def test_rollout_is_left_out_where_layers_do_not_chain():
    assert not about(data(page([cross(), torch.rand(1, 2, 3, 4)])), "rollout")
    some = Trace("encoder.blocks.0.mix", torch.eye(3)[None, None], queries=(0, 1, 2))
    assert not about(data(page([some])), "rollout")


def test_a_page_of_one_stack_and_an_aligner_are_understood():
    content = data(page([own("blocks", 0, ENGLISH)]))
    assert [(map["kind"], map.get("part")) for map in content["about"]["maps"]] == [("self", None), ("rollout", "")]
    aligned = Trace("aligner", torch.rand(1, 1, 3, 4).softmax(-1), "align")
    content = data(page([aligned]))["about"]
    assert [map["kind"] for map in content["maps"]] == ["align"]
    assert [content["maps"][0][side] for side in ("rows", "columns")] == ["output", "input"]


def test_different_token_lists_are_separate_sides():
    first = Trace("encoder.blocks.0.mix", torch.eye(3)[None, None]).with_labels("abc", "abc")
    other = Trace("encoder.blocks.1.mix", torch.eye(3)[None, None]).with_labels("abc", "xyz")
    sides = data(page([first, other]))["about"]["axes"]
    assert [side["tokens"] for side in sides.values()] == [["a", "b", "c"], ["x", "y", "z"]]


def test_signed_weights_are_encoded():
    assert data(page([torch.randn(2, 5, 5)]))["maps"]["attention"]["raw"]["zero"] == 128


def test_file_size_is_one_byte_per_weight_up_to_a_limit():
    n = 240
    words = [f"word{k}" for k in range(n)]
    trace = Trace("encoder.blocks.0.mix", torch.rand(1, 4, n, n).softmax(-1)).with_labels(words, words)
    empty = len(page([torch.eye(1)]))
    assert len(page([trace])) < 1.4 * (4 + 3) * n * n + 60 * n + empty  # four heads and three rollouts, in base64
    large = Trace("encoder.blocks.0.mix", torch.rand(1, 4, 1500, 1500), queries=tuple(range(1500)))
    content = data(page([large]))
    assert np.prod(content["maps"][large.name]["raw"]["cells"]) * 4 <= 6 * 2**20
    assert content["about"]["maps"][0]["n"] == 1500


def test_the_page_is_written_and_returned(tmp_path):
    text = page(translation(), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == text
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_invalid_input_raises(tmp_path):
    with pytest.raises(BadInput, match="list of traces is empty"):
        page([])
    with pytest.raises(BadInput, match="2 inputs"):
        page([torch.rand(2, 1, 3, 3)])
    with pytest.raises(BadInput, match=r"\.html"):
        page([torch.eye(3)], tmp_path / "page.png")
    assert not list(tmp_path.iterdir())
