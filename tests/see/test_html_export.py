"""An exported inspection is one file that loads nothing, runs only its own script, and holds the weights."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import numpy as np
import pytest

from regard.see.html_export import (
    Snapshot,
    dequantise,
    max_pool_columns,
    quantize_int8,
    render_html,
    sample_rows,
    to_json,
)

from ..core.test_html import tags
from .snapshots import EVIL, make_snapshot


def data(text):
    (found,) = re.findall(r'<script type="application/json" id="regard-inspection">(.*?)</script>', text, re.S)
    return json.loads(found)


@pytest.fixture(scope="module")
def text():
    return render_html(make_snapshot())


def test_file_holds_the_weights(text):
    told, given = data(text), make_snapshot()
    for name, views in given.maps.items():
        for view, weights in views.items():
            part = told["maps"][name][view]
            codes = np.frombuffer(base64.b64decode(part["bytes"]), np.uint8).reshape(weights.shape)
            back = np.stack([dequantise(c, part["zero"], p) for c, p in zip(codes, part["peaks"], strict=True)])
            assert np.abs(back - weights).max() <= weights.max() / 255
    assert told["about"]["axes"]["input"]["tokens"][0] == EVIL[0]


def test_tokens_cannot_inject_html(text):
    plain = render_html(make_snapshot(words=("one", "two", "three")))
    assert [tag for tag, _ in tags(text)] == [tag for tag, _ in tags(plain)]
    assert text.count("</script") == plain.count("</script") == 2
    text.encode("utf-8")
    assert "\u2028" not in text


def test_the_policy_allows_its_own_script_and_style_and_nothing_else(text):
    policy = next(a["content"] for t, a in tags(text) if t == "meta" and "http-equiv" in a)
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_nothing_is_loaded_from_anywhere(text):
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)
    assert not re.search(
        r"@import|url\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", outside
    )
    for tag, attributes in tags(text):
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "srcset", "style"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)


@pytest.mark.parametrize(("count", "size"), [(7, 3), (10, 9), (5, 5), (3, 8), (4096, 48), (97, 96), (1, 4)])
def test_reduced_maps_use_the_bins_of_embedded_js(count, size):
    weights = np.random.default_rng(1).random((2, 3, count)).astype(np.float32)
    less, rows = max_pool_columns(weights, size), sample_rows(count, size)
    kept = less.shape[2]
    assert kept == len(rows) == min(count, size)
    for cell in range(kept):
        own = [k for k in range(count) if k * kept // count == cell]  # as embedded.js reads it
        assert (less[..., cell] == weights[..., own].max(-1)).all()
        assert rows[cell] in own


def test_negative_and_nan_weights_are_encoded():
    given = make_snapshot()
    name = next(iter(given.maps))
    odd = given.maps[name]["raw"] - 0.5
    part = data(render_html(Snapshot(given.about, {name: {"raw": odd}})))["maps"][name]["raw"]
    assert part["zero"] == 128
    odd[0, 0, 0] = np.nan
    render_html(Snapshot(given.about, {name: {"raw": odd}}))


def test_json_export_holds_the_weights():
    told = json.loads(json.dumps(to_json(make_snapshot())))
    name = "encoder.blocks.1.mix"
    assert np.abs(np.array(told["maps"][name]) - make_snapshot().maps[name]["raw"]).max() <= 1e-5


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 1e-6), (-1.0, 1.0), (-3.0, 0.0), (0.0, 40.0)])
def test_quantisation_error_is_within_its_bound(low, high):
    w = np.random.default_rng(0).uniform(low, high, (50, 50)).astype(np.float32)
    zero = 128 if low < 0 else 0
    codes, peak = quantize_int8(w, zero)
    assert codes.dtype == np.uint8
    error = np.abs(dequantise(codes, zero, peak) - w)
    root = np.sqrt(np.abs(w) / peak)
    assert (error <= peak * (root / (255 - zero) + 0.25 / (255 - zero) ** 2) * 1.001).all()  # finer for small weights
    assert error.max() <= peak / (255 - zero) * 1.01


def test_zero_and_peak_come_back_exactly():
    w = np.array([[0.0, 0.37, 0.1]], np.float32)
    back = dequantise(*(lambda c, p: (c, 0, p))(*quantize_int8(w, 0)))
    assert back[0, 0] == 0
    assert back[0, 1] == pytest.approx(0.37, rel=1e-6)
    assert (dequantise(quantize_int8(np.zeros((2, 2)), 0)[0], 0, 0.0) == 0).all()
