"""The arithmetic of the lectures: every number against the slide, and path lengths against a search."""

import json
import math
import re

import pytest

from regard import cli
from regard.cost import lectures

# As the slides write them: number, and what it counts in bytes or in entries.
SLIDES = {
    "pairs of the values of an image": 22e9,
    "tokens, one a pixel": 50e3,
    "patches of 16 x 16": 196,
    "values in a patch": 768,
    "the image as patches": (196, 768),
    "with a class token": (197, 768),
    "entries of a map, 14 x 14 patches": 38_416,
    "entries of a map, 16 x 16 patches": 65_536,
    "all maps, 14 x 14, 48 layers, 16 heads": 112 * 2**20,
    "all maps, 16 x 16, 48 layers, 16 heads": 192 * 2**20,
    "entries of a map, patches of 4 x 4": 9.8e6,
    "all maps of them, 48 layers, 16 heads": 768 * 2**30,
}
NUMBER = re.compile(r"^([\d.,]+) ?(billion|k|M|KB|MB|GB)?$")
WORDS = {"billion": 1e9, "k": 1e3, "M": 1e6, "KB": 2**10, "MB": 2**20, "GB": 2**30}


@pytest.mark.parametrize("what", SLIDES)
def test_value_matches_the_slide(what):
    (line,) = [line for line in lectures.lines() if line.what == what]
    expected = SLIDES[what]
    if isinstance(expected, tuple):
        assert line.value == expected
        return
    digit = {22e9: 1e9, 50e3: 1e3, 9.8e6: 1e5, 112 * 2**20: 2**20}.get(expected, 1)  # of the last digit on the slide
    assert 0 <= line.value - expected < digit  # slides round down


@pytest.mark.parametrize("line", lectures.lines(), ids=lambda line: f"{line.what} {line.formula}")
def test_slide_text_is_the_value_rounded_down(line):
    found = NUMBER.match(line.on_slide)
    if found is None:  # a formula, or a shape
        assert str(line.value) == line.on_slide or line.on_slide in ("M²HW", "R⁴")
        return
    digits, word = found.groups()
    unit = WORDS.get(word, 1)
    assert line.unit == (unit if word != "M" else 10**6)
    last = 10.0 ** -len(digits.partition(".")[2])
    assert math.floor(line.value / unit / last + 1e-9) * last == pytest.approx(float(digits.replace(",", "")))


def test_map_bytes():
    assert [line.value for line in lectures.lines() if line.what == "bytes of that map"] == [150.0625 * 2**10, 2**18]


def test_window_entries():
    for y, x, m in ((56, 56, 7), (28, 56, 7), (12, 8, 4)):
        pairs = sum(m * m for _ in range(y * x))  # every token sees the M² of its window
        assert lectures.window_entries(y, x, m) == m * m * y * x == pairs
    assert lectures.window_entries(14, 14, 14) == lectures.map_entries(lectures.tokens(14, 14))
    assert lectures.window_entries(112, 112, 7) == 4 * lectures.window_entries(56, 56, 7)  # linear in the image


def layers_until_reached(before, n):
    """Return the layers until the last token depends on the first; before(layer, i): what token i reads directly."""
    dependent, layers = {0}, 0
    while n - 1 not in dependent:
        layers += 1
        dependent |= {i for i in range(n) if any(j in dependent for j in before(layers, i))}
    return layers


@pytest.mark.parametrize("n", [2, 3, 10, 27, 28, 100, 129])
def test_path_lengths_equal_a_search(n):
    found = {layer.kind: layer for layer in lectures.layer_kinds(n, 8, kernel=3, window=128)}
    assert found["recurrent"].path == layers_until_reached(lambda _, i: [i - 1], n)  # through time, not through layers
    assert found["attention"].path == layers_until_reached(lambda _, i: range(n), n)
    assert found["convolution of 3"].path == layers_until_reached(lambda _, i: [i, i - 1, i - 2], n)
    assert found["attention within 128"].path == layers_until_reached(lambda _, i: range(i - 128, i + 1), n)
    wide = layers_until_reached(lambda layer, i: [i - k * 3 ** (layer - 1) for k in range(3)], n)
    assert found["convolution of 3, dilated"].path == wide


@pytest.mark.parametrize("n", [2, 3, 10, 27, 28, 41, 42, 100, 129])
@pytest.mark.parametrize("kernel", [3, 5])
def test_centred_path_lengths_equal_a_search(n, kernel):
    found = {layer.kind: layer for layer in lectures.layer_kinds(n, 8, kernel=kernel, window=16)}
    half = kernel // 2
    taps = range(-half, half + 1)
    assert found["recurrent"].centred == found["recurrent"].path
    assert found["attention"].centred == 1
    assert found[f"convolution of {kernel}"].centred == layers_until_reached(lambda _, i: [i + tap for tap in taps], n)
    assert found["attention within 16"].centred == layers_until_reached(lambda _, i: range(i - 8, i + 9), n)
    heard, layers = {0}, 0  # of dilated ones on an endless line: at its edges a signal would have to go round outside
    while n - 1 not in heard:
        heard |= {i + tap * kernel**layers for i in heard for tap in taps}
        layers += 1
    assert found[f"convolution of {kernel}, dilated"].centred == layers


def test_path_lengths_of_512_tokens():
    found = {layer.kind: layer for layer in lectures.layer_kinds(512, 512)}
    plain, wide = found["convolution of 3"], found["convolution of 3, dilated"]
    assert (plain.path, plain.centred, plain.order) == (256, 511, 171)
    assert (wide.path, wide.centred, wide.order) == (6, 7, 6)
    assert [layer.order for layer in found.values()] == [512, 171, 6, 1, 4]  # Vaswani et al. 2017, table 1


def test_command_states_path_assumptions(capsys):
    assert cli.main(["cost", "lecture"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "path: one-sided centred" in out
    assert "convolution of 3 403 M 1 256 511 n / k = 171" in out
    assert "One-sided: a kernel or window ends at its token" in out
    assert cli.main(["cost", "lecture", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert "one-sided" in output["layers_assume"].lower()
    assert {"path", "centred", "order", "formula"} <= set(output["layers"][1])


def test_only_recurrent_layers_are_sequential():
    assert [layer.serial for layer in lectures.layer_kinds(50, 8)] == [50, 1, 1, 1, 1]
    assert lectures.layer_kinds(50, 8)[0].kind == "recurrent"


def test_command_prints_every_line(capsys):
    assert cli.main(["cost", "lecture"]) == 0
    out = capsys.readouterr().out
    for line in lectures.lines():
        assert line.what in out
        assert line.on_slide in out
    for kind in ("recurrent", "convolution of 3", "attention"):
        assert kind in out
