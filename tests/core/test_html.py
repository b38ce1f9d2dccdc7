"""`_repr_html_` of traces, masks and tables: self-contained, without scripts, small."""

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from regard import catalogue
from regard.attention.capture.watch import watch
from regard.attention.mask import CausalMask, DenseMask, DocumentMask, GlobalMask, PaddingMask, SegmentMask, WindowMask
from regard.attention.multihead import MultiHeadAttention
from regard.core import html
from regard.core.trace import Trace

EVIL = "</table><script>alert(1)</script><img src=x onerror=alert(1)>\"'\ud83d\u2028"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def tags(text):
    parser = Tags()
    parser.feed(text)
    return parser.seen


def pictures(text):
    from PIL import Image

    found = [attributes["src"] for tag, attributes in tags(text) if tag == "img"]
    assert all(source.startswith("data:image/png;base64,") for source in found)
    return [Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))) for source in found]


def inert(text):
    text.encode("ascii")
    for tag, attributes in tags(text):
        assert tag in {"div", "b", "span", "br", "img", "table", "tr", "th", "td", "bdi", "p", "pre"}
        assert not any(name.startswith("on") for name in attributes)


def test_words_and_names_of_a_trace_are_escaped():
    words = (EVIL, "b", "c")
    text = Trace(EVIL, torch.rand(1, 2, 3, 3).softmax(-1), rows=words, columns=words)._repr_html_()
    inert(text)
    assert "&lt;script&gt;" in text


def test_the_image_of_a_head_shows_its_weights():
    w = torch.tensor([[1.0, 0.25, 0.0], [0.0, 1.0, 0.0]])
    (picture,) = pictures(Trace("a", w[None, None])._repr_html_())
    assert picture.size == (3, 2)
    levels = np.asarray(picture)  # numbers of the palette
    assert levels.tolist() == [[255, 128, 0], [0, 255, 0]]
    assert picture.convert("RGB").getpixel((2, 0)) == (0xF4, 0xF6, 0xFA)


def test_a_thin_line_of_a_large_map_stays_visible_and_the_html_stays_small():
    w = torch.zeros(1, 1, 3001, 3001)
    w[..., 1234] = 1
    text = Trace("a", w)._repr_html_()
    assert len(text) < 20_000
    assert np.asarray(pictures(text)[0]).max(1).tolist() == [255] * html.MAX_CELLS


def test_nan_empty_and_negative_weights_are_drawn():
    inert(Trace("a", torch.full((1, 1, 2, 2), float("nan")))._repr_html_())
    inert(Trace("a", torch.zeros(1, 1, 0, 4))._repr_html_())
    inert(Trace("a", -torch.rand(3, 20, 2, 2), heads=tuple(range(20)))._repr_html_())


def test_a_labelled_map_shows_percentages():
    w = torch.tensor([[0.5, 0.5], [0.004, 0.996]])[None, None]
    text = Trace("a", w).with_labels(["one", "two"], ["three", "four"])._repr_html_()
    assert "<bdi>three</bdi>" in text
    assert ">50</td>" in text
    assert ">100</td>" in text
    assert ">0</td>" not in text


def test_watched_attention_shows_every_module():
    model = MultiHeadAttention(8, 2)
    with watch(model) as seen:
        model(torch.randn(1, 5, 8))
    text = seen._repr_html_()
    inert(text)
    assert len(pictures(text)) == 2


@pytest.mark.parametrize(
    "mask",
    [
        CausalMask(),
        CausalMask() & PaddingMask(torch.tensor([3, 5])) & (WindowMask(4) | GlobalMask([0])),
        SegmentMask(torch.tensor([[0, 0, 1]])),
        CausalMask() & SegmentMask(torch.tensor([[0, 0, 1]])),
        DocumentMask(torch.tensor([2, 3]), 5, 3),
        DenseMask(torch.eye(4, 7).bool()[None]) & CausalMask(),
    ],
    ids=repr,
)
def test_every_mask_is_drawn_at_its_own_size(mask):
    text = mask._repr_html_()
    inert(text)
    sizes = mask._sizes() or (16, 16)
    (picture,) = pictures(text)
    dense = mask.dense(1, *sizes)[0, 0]
    assert (np.asarray(picture) == 255 * dense.numpy()).all()


def test_catalogue_lists_and_cards_have_html_and_stay_lists_and_strings():
    rows, card = catalogue.list("attention"), catalogue.show("attention/softmax")
    assert isinstance(rows, list)
    assert isinstance(card, str)
    assert str(card) == card
    inert(rows._repr_html_())
    inert(card._repr_html_())
    assert html.escape(card.splitlines()[0]) in card._repr_html_()
