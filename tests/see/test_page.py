from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from alignments import ENGLISH, GERMAN, cross, own, translation

from regard.core.errors import BadInput
from regard.core.trace import Trace
from regard.see import page
from regard.see.page import CAVEAT, quantise, restore

EVIL = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!--",
    "a\u2028b\u2029",
    "\ud83d",
    "日本",
    "",
    "]]>",
    "\"'`",
    "&lt;",
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.seen


def data(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


def decoded(layer: dict, told: dict) -> np.ndarray:
    """The weights as the page's script reads them."""
    codes = np.frombuffer(base64.b64decode(layer["bytes"]), np.uint8)
    n, m = len(told["names"][layer["rows"]]), len(told["names"][layer["columns"]])
    codes = codes.reshape(len(layer["heads"]), n, m)
    return np.stack([restore(c, layer["zero"], p) for c, p in zip(codes, layer["peaks"], strict=True)])


def test_four_views_with_all_layers_and_heads():
    told = data(page(translation(3)))
    assert [v["id"] for v in told["views"]] == ["encoder", "decoder", "cross", "rollout"]
    assert [len(v["layers"]) for v in told["views"]] == [3, 3, 3, 9]
    assert told["views"][2]["layers"][2]["heads"] == ["0", "1", "2", "3"]
    assert told["views"][2]["layers"][1]["name"] == "decoder.blocks.1.cross"
    assert told["views"][3]["layers"][0]["heads"] == ["mean", "max", "min"]
    assert sorted(map(tuple, told["names"])) == sorted([GERMAN, ENGLISH])  # each list of words once


def test_the_page_holds_the_weights_it_was_given():
    told = data(page([cross()]))
    layer = told["views"][0]["layers"][0]
    assert np.abs(decoded(layer, told) - cross().weights[0].numpy()).max() <= 1 / 255


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 1e-6), (-1.0, 1.0), (-3.0, 0.0), (0.0, 40.0)])
def test_quantisation_error_is_within_its_bound(low, high):
    w = np.random.default_rng(0).uniform(low, high, (50, 50)).astype(np.float32)
    zero = 128 if low < 0 else 0
    codes, peak = quantise(w, zero)
    assert codes.dtype == np.uint8
    error = np.abs(restore(codes, zero, peak) - w)
    root = np.sqrt(np.abs(w) / peak)
    assert (error <= peak * (root / (255 - zero) + 0.25 / (255 - zero) ** 2) * 1.001).all()  # finer for small weights
    assert error.max() <= peak / (255 - zero) * 1.01


def test_zero_and_peak_come_back_exactly():
    w = np.array([[0.0, 0.37, 0.1]], np.float32)
    back = restore(*(lambda c, p: (c, 0, p))(*quantise(w, 0)))
    assert back[0, 0] == 0
    assert back[0, 1] == pytest.approx(0.37, rel=1e-6)
    assert (restore(quantise(np.zeros((2, 2)), 0)[0], 0, 0.0) == 0).all()


def test_nothing_is_loaded_from_anywhere():
    text = page(translation(), title="see https://example.org", note="http://example.org")
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S).replace(
        "see https://example.org", ""
    )
    assert "http://" not in outside
    assert "https://" not in outside
    assert not re.search(
        r"@import|url\(|fetch\(|XMLHttpRequest|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text
    )
    for tag, attributes in tags(text):
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "srcset", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)


def test_the_policy_allows_the_pages_own_script_and_no_other():
    text = page(translation())
    policy = next(a["content"] for t, a in tags(text) if t == "meta" and "http-equiv" in a)
    script = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_words_of_the_user_are_inert():
    m = len(EVIL)
    trace = Trace(EVIL[0], torch.rand(1, 2, m, m).softmax(-1), rows=EVIL, columns=EVIL)
    plain, text = page([torch.eye(3)]), page([trace], title=EVIL[0], note=EVIL[1])
    assert [t for t, _ in tags(text)] == [t for t, _ in tags(plain)]  # not one tag more
    assert text.count("</script") == plain.count("</script")
    assert "\\u003c/script\\u003e\\u003cscript\\u003ealert(1)" in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text  # the title
    assert "\u2028" not in text
    text.encode("utf-8")  # half an emoji is spelled out
    told = data(text)
    assert told["names"][0][0] == EVIL[0]
    assert told["names"][0][3:7] == ["a\\u2028b\\u2029", "\\ud83d", "日本", "∅"]


def test_a_placeholder_in_a_title_is_only_text():
    text = page([torch.eye(3)], title="{{SCRIPT}} {{DATA}}")
    assert "<title>{{SCRIPT}} {{DATA}}</title>" in text


def test_rows_that_do_not_sum_to_one_are_told_exactly():
    w = torch.full((1, 1, 2, 300), 1 / 300)
    w[:, :, 1] *= 0.4
    layer = data(page([Trace("windows.0", w)]))["views"][0]["layers"][0]
    assert layer["sums"] == [[1.0, 0.4]]
    assert data(page([cross()]))["views"][0]["layers"][0]["sums"] is None


def test_it_says_what_attention_does_not_show():
    assert CAVEAT.count(". ") == 0
    assert CAVEAT in page([cross()])


def test_rollout_is_left_out_where_layers_do_not_chain():
    views = data(page([cross(), torch.rand(1, 2, 3, 4)]))["views"]
    assert [v["id"] for v in views] == ["encoder", "cross"]
    some = Trace("encoder.blocks.0.mix", torch.eye(3)[None, None], queries=(0, 1, 2))
    assert [v["id"] for v in data(page([some]))["views"]] == ["encoder"]


def test_a_page_of_one_stack_and_an_aligner_are_understood():
    views = data(page([own("blocks", 0, ENGLISH)]))["views"]
    assert [v["title"] for v in views] == ["Self-attention", "Rollout"]
    aligned = Trace("aligner", torch.rand(1, 1, 3, 4).softmax(-1), "align")
    assert [v["id"] for v in data(page([aligned]))["views"]] == ["cross"]


def test_signed_weights_are_told_too():
    told = data(page([torch.randn(2, 5, 5)]))
    assert told["views"][0]["layers"][0]["zero"] == 128


def test_long_inputs_take_one_byte_a_weight():
    n = 240
    words = [f"word{k}" for k in range(n)]
    trace = Trace("encoder.blocks.0.mix", torch.rand(1, 4, n, n).softmax(-1)).label(words, words)
    text = page([trace])
    assert len(text) < 1.4 * (4 + 3) * n * n + 60_000  # four heads and three rollouts, in base64


def test_the_page_is_written_and_returned(tmp_path):
    text = page(translation(), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == text
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_what_cannot_be_shown_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no traces"):
        page([])
    with pytest.raises(BadInput, match="2 inputs"):
        page([torch.rand(2, 1, 3, 3)])
    with pytest.raises(BadInput, match=r"\.html"):
        page([torch.eye(3)], tmp_path / "page.png")
    assert not list(tmp_path.iterdir())
