"""A look says what `attention` says, and every part of it can be asked for by itself."""

import io
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import regard
from regard.attention.capture.map_store import watch_lazy
from regard.core.errors import BadInput, RegardError, UnknownName, Unsupported
from regard.interpret.inspection import INSPECTIONS, NO_POSITION, inspect
from regard.interpret.inspections.stored import StoredInspection
from regard.modalities.image import Preprocess
from regard.see import rollout
from regard.tasks import PREDICTORS
from regard.tasks.image.image_classification import ImageClassifier

GIVEN = {
    "en-de": {"text": "Two dogs are playing in the snow."},
    "gru-additive": {"text": "Two dogs are playing."},
    "shakespeare": {"text": "ROMEO:\nWhat light", "max_new_tokens": 7},
    "fill-en": {"text": "The [MASK] sat on the [MASK]."},
    "languages": {"text": "Zwei Hunde spielen im Schnee."},
    "sounds-en": {"text": "Xylophone"},
}


@pytest.fixture(scope="module")
def load():
    found = {}

    def one(name):
        if name not in found:
            found[name] = regard.load(name)
        return found[name]

    return one


def picture(width=50, height=40):
    from PIL import Image

    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def wave(seconds=1.0, rate=16_000):
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, 0.1 * np.sin(0.1 * np.arange(int(seconds * rate))), rate, format="WAV")
    return file.getvalue()


def classifier(kind="vit", **sizes):
    torch.manual_seed(0)
    model = regard.build(kind, size="tiny", **sizes)
    with torch.no_grad():
        for parameter in model.parameters():  # away from the beginning, where all looks are even
            parameter.add_(0.1 * torch.randn_like(parameter))
    side = model.config.image_size
    return ImageClassifier(model, [f"kind {n}" for n in range(model.config.num_classes)], Preprocess(side))


def everything_can_be_asked(found):
    about = json.loads(json.dumps(found.about()))
    assert about["maps"]
    for map_ in about["maps"]:
        name, n, m = map_["name"], map_["n"], map_["m"]
        rows, columns = about["axes"][map_["rows"]], about["axes"][map_["columns"]]
        assert (len(rows["tokens"]), len(columns["tokens"])) == (n, m)
        pixels, scales = found.sample(name, 8)
        assert pixels.dtype == np.uint8
        assert pixels.shape == (map_["heads"], 8, 8)
        assert len(scales) == map_["heads"]
        for view in map_["views"]:
            every = np.stack([found.row(name, 0, query, view) for query in range(min(n, 9))])
            assert every.dtype == np.float32
            assert every.shape == (min(n, 9), m)
            for key in (0, m - 1):
                np.testing.assert_allclose(found.column(name, 0, key, view)[:9], every[:, key], atol=2e-6, rtol=2e-6)
        heads = [found.row(name, head, n - 1) for head in range(map_["heads"])]
        np.testing.assert_allclose(found.row(name, -1, n - 1), np.mean(heads, 0), atol=1e-6)
    for side in about["axes"].values():
        assert len(side["tokens"]) == len(side["positions"]) == len(side["special"])
    return about


@pytest.mark.parametrize("name", GIVEN)
def test_every_part_of_every_map_of_a_text_can_be_asked_for(load, name):
    found = inspect(load(name), GIVEN[name], name=name)
    about = everything_can_be_asked(found)
    assert about["model"] == name
    assert found.bytes < 2**20


@pytest.mark.parametrize("name", ["en-de", "gru-additive", "sounds-en"])
def test_a_translations_rows_are_those_that_attention_gives(load, name):
    found = inspect(load(name), GIVEN[name])
    traces = load(name).attention(GIVEN[name]["text"])
    assert [trace.name for trace in traces] == found.store.names()
    for trace in traces:
        rows, columns = found.axes_of(found.store[trace.name])
        assert tuple(found.axes[rows].tokens) == trace.rows
        assert tuple(found.axes[columns].tokens) == trace.columns
        for head in range(trace.weights.shape[1]):
            np.testing.assert_allclose(found.row(trace.name, head, 1), trace.weights[0, head, 1].numpy(), atol=1e-6)
    assert found.output["text"] == load(name)([GIVEN[name]["text"]])[0]


def test_tokens_stand_where_they_are_in_the_text(load):
    line = "Zwei Hunde — größer, café 😀!"
    for side in inspect(load("en-de"), {"text": line, "target_text": line}).axes.values():
        assert side.text == line
        for token, place, special in zip(side.tokens, side.positions, side.special, strict=True):
            if special:
                assert place == {"none": True}
                continue
            begin, end = place["text"]
            assert line[begin:end].strip() or token == "▁"
            if not token.startswith("⟨") and token != "▁":  # bytes of one character share its place
                assert line[begin:end] == token.removeprefix("▁")
    found = inspect(load("fill-en"), {"text": "A [MASK] in the  [MASK]."})
    places = [place for place in found.axes["text"].positions if "text" in place]
    assert ["A [MASK] in the  [MASK]."[slice(*p["text"])] for p in places] == [
        "A",
        "[MASK]",
        "in",
        "the",
        "[MASK]",
        ".",
    ]


def test_a_text_that_is_written_on_keeps_its_places(load):
    found = inspect(load("shakespeare"), {"text": "ROMEO:\nO", "max_new_tokens": 9})
    side = found.axes["text"]
    assert side.text == "ROMEO:\nO" + found.output["text"]
    assert [side.text[slice(*p["text"])] for p in side.positions] == list(side.text)
    given = inspect(load("shakespeare"), {"text": "ROMEO:\nO", "target_text": found.output["text"]})
    assert given.axes["text"].tokens == side.tokens
    np.testing.assert_allclose(given.output["log_probabilities"], found.output["log_probabilities"], atol=1e-4)


def test_a_writer_of_bytes_keeps_its_places_too():
    from regard.tasks.text.language_modeling import TextGenerator
    from regard.tokens.tokenizer import Tokenizer

    text = Tokenizer.train(["zwei Hunde, größer: 😀 und Café"] * 3, "bytes", 300)
    writer = TextGenerator(regard.build("gpt", size="tiny", vocab=text.size), text)
    found = inspect(writer, {"text": "zwei Hunde", "max_new_tokens": 12, "temperature": 1.0, "seed": 3})
    side, prompt = found.axes["text"], found.output["prompt"]
    assert side.text == "zwei Hunde" + found.output["text"]
    assert [side.text[slice(*p["text"])] for p in side.positions[:prompt]] == ["zwei", "Hunde"]
    ends = [place["text"][1] for place in side.positions if "text" in place]
    assert ends == sorted(ends)
    assert ends[-1] <= len(side.text)
    for token, place in zip(side.tokens[prompt:], side.positions[prompt:], strict=True):
        if "text" in place and token.isascii() and token.isalnum():
            assert side.text[slice(*place["text"])] == token


# -- pictures of maps --------------------------------------------------------------------------------------------------


def stored(weights):
    """A look at given weights H N M, through values that softmax attention would give them for."""
    bias = torch.as_tensor(weights).clamp(min=1e-30).log()[None]
    heads, n, m = bias.shape[1:]

    class Bare(torch.nn.Module):
        kind = "self" if n == m else "cross"

        def __init__(self):
            super().__init__()
            self.attend = regard.attention.mechanisms.softmax.SoftmaxAttention()

        def forward(self):
            q, k = torch.zeros(1, heads, n, 4), torch.zeros(1, heads, m, 4)
            return self.attend(q, k, k, None, regard.core.positions.TensorBias(bias))

    model = Bare().eval()
    with torch.no_grad(), watch_lazy(model) as store:
        model()
    sides = {"rows": [str(i) for i in range(n)], "columns": [str(i) for i in range(m)]}
    return StoredInspection(store, sides, lambda held: ("rows", "columns")), store.names()[0]


def test_a_thumbnail_keeps_a_narrow_line_and_says_how_bright_it_is():
    w = np.full((2, 100, 300), 0.5 / 300, dtype=np.float32)
    w[0, :, 140] += 0.5
    w[1, :, 7] += 0.5
    found, name = stored(w)
    pixels, scales = found.sample(name, 16)
    assert (pixels[0] == 255).all(0).nonzero()[0].tolist() == [140 * 16 // 300]
    assert (pixels[1] == 255).all(0).nonzero()[0].tolist() == [0]
    np.testing.assert_allclose(scales, 0.5 + 0.5 / 300, rtol=1e-4)
    assert np.sort(pixels[0], axis=1)[:, -2].max() <= 1


def test_a_tile_of_few_cells_is_the_cells():
    w = np.random.default_rng(0).dirichlet(np.ones(30), (3, 20)).astype(np.float32)
    found, name = stored(w)
    pixels, scale = found.tile(name, 1, (4, 11), (3, 28), 64)
    assert pixels.shape == (7, 25)
    np.testing.assert_allclose(pixels / 255 * scale, w[1, 4:11, 3:28], atol=scale / 255)
    mean, _ = found.tile(name, -1, (0, 20), (0, 30), 5)
    assert mean.shape == (5, 5)
    assert mean.max() == 255


@pytest.mark.parametrize("head", [-1, 0, 1])
@pytest.mark.parametrize("view", ["raw", "without_sink"])
def test_a_tile_in_a_view_is_made_of_the_rows_of_that_view(head, view):
    draw = np.random.default_rng(0)
    w = draw.dirichlet(np.ones(40), (2, 40)).astype(np.float32)
    w[0] *= 0.3
    w[0, :, 17] += 0.7
    found, name = stored(w)
    pixels, scale = found.tile(name, head, (0, 40), (0, 40), 64, view)
    rows = np.stack([found.row(name, head, query, view) for query in range(40)])
    np.testing.assert_allclose(pixels / 255 * scale, rows, atol=scale / 255)
    assert (pixels[:, 17].max() == 0) == (view == "without_sink" and head == 0)


@pytest.mark.parametrize("head", [-1, 2])
def test_a_tile_made_of_a_few_rows_at_a_time_is_the_same(monkeypatch, head):
    w = np.random.default_rng(0).dirichlet(np.ones(30), (3, 23)).astype(np.float32)
    found, name = stored(w)
    whole = found.tile(name, head, (1, 23), (0, 30), 13)
    monkeypatch.setattr("regard.interpret.inspection._TILE_WEIGHTS", 30 * 3 * 4)
    parts = found.tile(name, head, (1, 23), (0, 30), 13)
    np.testing.assert_array_equal(parts[0], whole[0])
    assert parts[1] == whole[1]


def test_a_sink_is_found_and_taken_out_and_the_rest_sums_to_one():
    draw = np.random.default_rng(0)
    w = draw.dirichlet(np.ones(40), (2, 40)).astype(np.float32)
    w[0] *= 0.3
    w[0, :, 17] += 0.7
    found, name = stored(w)
    assert found.sinks(name) == [[17], []]
    row = found.row(name, 0, 5, "without_sink")
    assert row[17] == 0
    np.testing.assert_allclose(row.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(row[:17], w[0, 5, :17] / (1 - w[0, 5, 17]), rtol=1e-3)
    assert found.column(name, 0, 17, "without_sink").max() == 0
    np.testing.assert_allclose(found.column(name, 0, 3, "without_sink")[5], row[3], rtol=1e-3)
    np.testing.assert_array_equal(found.row(name, 1, 5, "without_sink"), found.row(name, 1, 5))


def test_even_attention_has_no_sink():
    causal = np.tril(np.ones((1, 24, 24), dtype=np.float32))
    found, name = stored(causal / causal.sum(-1, keepdims=True))
    assert found.sinks(name) == [[]]


def test_the_view_of_values_is_the_weight_times_their_length(load):
    found = inspect(load("en-de"), GIVEN["en-de"])
    name = "decoder.blocks.1.cross"
    norms = found.store[name].value_norms()[0].numpy()
    for head in (0, 5):
        np.testing.assert_allclose(found.row(name, head, 2, "value"), found.row(name, head, 2) * norms[head], rtol=1e-5)
    every = [found.row(name, head, 2, "value") for head in range(8)]
    np.testing.assert_allclose(found.row(name, -1, 2, "value"), np.mean(every, 0), rtol=1e-5)


def test_many_may_ask_at_once(load):
    found = inspect(load("shakespeare"), GIVEN["shakespeare"])
    name, n = "decoder.blocks.3.mix", len(found.axes["text"].tokens)
    alone = [(found.row(name, 2, q, "without_sink"), look_column) for q in range(n) if (look_column := q) >= 0]
    fresh = inspect(load("shakespeare"), GIVEN["shakespeare"])
    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(lambda q: fresh.row(name, 2, q, "without_sink"), range(n)))
        columns = list(pool.map(lambda k: fresh.column(name, 2, k), range(n)))
    for (row, at), other in zip(alone, rows, strict=True):
        np.testing.assert_array_equal(row, other)
        np.testing.assert_array_equal(columns[at], found.column(name, 2, at))


# -- all layers as one -------------------------------------------------------------------------------------------------


def test_rollout_of_a_text_is_the_row_of_the_product(load):
    for name in ("shakespeare", "fill-en"):
        found = inspect(load(name), GIVEN[name])
        dense = rollout([found.store[each].trace() for each in found.store]).weights[0, 0].numpy()
        for query in (0, 4):
            np.testing.assert_allclose(found.rollout(query), dense[query], atol=1e-5)


def test_rollout_of_a_translation_is_shared_by_source_and_what_was_written(load):
    found = inspect(load("en-de"), GIVEN["en-de"])
    for query in range(3):
        streams = found.paths.rollout("target", query)
        np.testing.assert_allclose(sum(row.sum() for row in streams.values()), 1, rtol=1e-5)
        np.testing.assert_array_equal(found.rollout(query), streams["source"])
        assert streams["target"][query + 1 :].max(initial=0) == 0  # nothing comes from what is written later


def test_relevance_is_the_product_of_weights_and_their_gradients(load):
    predictor = load("languages")
    found = inspect(predictor, GIVEN["languages"])
    (tokens, *_) = found.model_inputs
    with regard.watch(predictor.model, gradients=True) as seen:
        torch.autograd.grad(predictor.model(tokens)[0, 2], predictor.model.embed.weight)
    product = torch.eye(tokens.shape[1], dtype=torch.float64)
    for trace in seen.traces():
        each = (trace.gradient[0].double() * trace.weights[0].double()).clamp(min=0).mean(0)
        product = (torch.eye(len(each)) + each) @ product
    expected = (product - torch.eye(len(product)))[0]
    np.testing.assert_allclose(found.relevance(2), expected.numpy(), atol=1e-7)
    assert predictor.model.embed.weight.grad is None


def test_the_word_that_is_translated_is_the_most_relevant(load):
    found = inspect(load("en-de"), GIVEN["en-de"])
    at = found.axes["target"].tokens.index("▁Hunde")
    assert found.axes["source"].tokens[int(found.relevance(at).argmax())] == "▁dogs"


def test_a_recurrent_model_has_no_rollout(load):
    found = inspect(load("gru-additive"), GIVEN["gru-additive"])
    assert found.about()["rollout_axis"] is None
    assert found.about()["relevance_targets"] == []
    for ask in (found.rollout, found.relevance):
        with pytest.raises(Unsupported, match="not the only way"):
            ask(0)


def test_a_model_that_can_only_be_run_is_looked_at_without_relevance():
    from regard.runtime.inference import pack_weights, quantize_int8

    for change in (pack_weights, quantize_int8):
        predictor = regard.load("en-de")
        change(predictor.model)
        found = inspect(predictor, GIVEN["en-de"])
        everything_can_be_asked(found)
        assert found.about()["relevance_targets"] == []
        assert found.rollout(1).sum() > 0
        with pytest.raises(Unsupported, match="no gradients"):
            found.relevance(1)


def test_what_would_take_too_long_is_refused(load, monkeypatch):
    from regard.interpret.inspections import rollout

    found = inspect(load("shakespeare"), GIVEN["shakespeare"])
    monkeypatch.setattr(rollout, "MAX_ROLLOUT_WEIGHTS", 1000)
    monkeypatch.setattr(rollout, "MAX_RELEVANCE_WEIGHTS", 1000)
    for ask in (found.rollout, found.relevance):
        with pytest.raises(Unsupported, match="shorter input"):
            ask(0)
    with pytest.raises(BadInput, match="shorter input"):
        inspect(load("shakespeare"), GIVEN["shakespeare"], most=1000)


# -- images and sounds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "sizes", "sides"),
    [
        ("vit", {}, {"patches": 65}),
        ("swin", {"image_size": 48}, {"patches": 576, "12 x 12": 144, "6 x 6": 36}),
        ("mvit", {}, {"patches": 256, "8 x 8": 64, "4 x 4": 16, "2 x 2": 4}),
        ("cct", {}, {"patches": 64, "answer": 1}),
    ],
)
def test_tokens_of_a_picture_are_boxes_on_it(kind, sizes, sides):
    found = inspect(classifier(kind, **sizes), {"image": picture()})
    everything_can_be_asked(found)
    assert {name: len(side.tokens) for name, side in found.axes.items()} == sides
    height, width = found.size
    for name in sides:
        boxes = [place["box"] for place in found.axes[name].positions if "box" in place]
        covered = np.zeros((height, width), dtype=int)
        for x, y, w, h in boxes:
            covered[y : y + h, x : x + w] += 1
        assert name == "answer" or covered.min() >= 1
    assert found.picture[:4] == b"\x89PNG"
    shares = found.rollout(len(found.axes[found.output_axis].tokens) - 1)
    assert shares.shape == (sides["patches"],)
    assert 0.5 < shares.sum() < 1.001
    assert (found.relevance(1) >= 0).all()
    assert found.relevance(1).max() > 0


@pytest.mark.parametrize("side", [32, 33])  # of the other a row and a column of patches are cut by the edge
def test_rollout_of_a_vit_is_the_row_of_the_product(side):
    found = inspect(classifier(image_size=side), {"image": picture()})
    dense = rollout([found.store[each].trace() for each in found.store]).weights[0, 0].numpy()
    for query in (0, 30):
        np.testing.assert_allclose(found.rollout(query)[1:], dense[query][1:], atol=1e-6)


def test_a_sound_is_shown_as_frames_in_time(load):
    found = inspect(load("digits"), {"audio": wave(), "target_text": "one two"})
    about = everything_can_be_asked(found)
    assert about["audio"]["seconds"] == pytest.approx(1.0, abs=0.05)
    assert found.audio["spectrogram"][:4] == b"\x89PNG"
    assert found.axes["frames"].positions[-1]["time"][1] == pytest.approx(about["audio"]["seconds"])
    lattice = np.stack([found.row("lattice", 0, state) for state in range(5)])
    np.testing.assert_allclose(lattice.sum(0), 1, atol=1e-4)
    assert [token for token in found.axes["states"].tokens if token != "-"] == ["one", "two"]


# -- what is asked wrongly ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "wrong"),
    [
        ("en-de", {}, "'text' is missing"),
        ("en-de", {"text": 5}, "'text' is a int"),
        ("en-de", {"text": "Hi", "txet": ""}, "did you mean 'text'"),
        ("en-de", {"text": "  "}, "empty line"),
        ("en-de", {"text": "a " * 500}, "at most 200"),
        ("en-de", {"text": "Hi", "beam_size": 1000}, "1 to 64"),
        ("shakespeare", {"text": ""}, "empty"),
        ("shakespeare", {"text": "O", "max_new_tokens": 10**9}, "up to 4096"),
        ("shakespeare", {"text": "O", "max_new_tokens": -1}, "up to 4096"),
        ("fill-en", {"text": "a " * 99}, "this model takes 32"),
        ("languages", {"text": "\t"}, "empty"),
        ("sounds-en", {"text": "two words"}, "more than one word"),
        ("digits", {"audio": b"nonsense"}, "not a sound"),
        ("digits", {"audio": b""}, "not a sound"),
        ("words-en", {"text": "dog"}, "takes no 'text'"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(load, name, given, wrong):
    with pytest.raises(RegardError, match=wrong) as error:
        inspect(load(name), given)
    assert "\n" not in str(error.value)


def test_what_is_not_there_is_refused(load):
    found = inspect(load("en-de"), GIVEN["en-de"])
    name = "decoder.blocks.1.cross"
    for ask in (
        lambda: found.row(name, 8, 0),
        lambda: found.row(name, -2, 0),
        lambda: found.row(name, 0, 7),
        lambda: found.column(name, 0, 9),
        lambda: found.column(name, 0, -1),
        lambda: found.sample(name, 0),
        lambda: found.tile(name, 0, (3, 3), (0, 2), 8),
        lambda: found.tile(name, 0, (0, 8), (0, 2), 8),
        lambda: found.rollout(7),
        lambda: found.relevance(-1),
    ):
        with pytest.raises(BadInput):
            ask()
    for ask in (lambda: found.row("decoder.block.1.cross", 0, 0), lambda: found.row(name, 0, 0, "raww")):
        with pytest.raises(UnknownName, match="did you mean"):
            ask()


def test_every_look_is_of_a_task():
    assert set(INSPECTIONS) <= set(PREDICTORS)
    assert regard.inspect is inspect


# -- changed models ----------------------------------------------------------------------------------------------------


def test_a_look_at_a_changed_model_shows_what_was_applied(load):
    name = "decoder.blocks.1.cross"
    plain = inspect(load("en-de"), GIVEN["en-de"])
    off = inspect(load("en-de"), GIVEN["en-de"], interventions=[{"map": name, "heads": [3], "do": "uniform"}])
    np.testing.assert_allclose(off.row(name, 3, 1), 1 / 9, rtol=1e-6)
    np.testing.assert_allclose(off.column(name, 3, 1), 1 / 9, rtol=1e-6)
    again = inspect(load("en-de"), GIVEN["en-de"])
    np.testing.assert_array_equal(again.row(name, 3, 1), plain.row(name, 3, 1))
    assert off.output["log_probabilities"] != plain.output["log_probabilities"]
    assert again.output == plain.output
    assert (off.relevance(1) != plain.relevance(1)).any()


def test_points_of_the_pen_are_rows_and_the_characters_of_the_text_columns():
    seen = inspect(regard.load("pen-digits"), {"text": "31"})
    (only,) = seen.about()["maps"]
    assert (only["rows"], only["columns"]) == ("pen_points", "text")
    assert seen.axes["text"].tokens == ["3", "1", "[end]"]
    assert seen.axes["text"].positions[1] == {"text": [1, 2]}
    pen, points = seen.axes["pen_points"], seen.output["points"]
    assert only["n"] == len(pen.tokens) == len(points) + 1  # the last step ended the line
    assert (pen.tokens[-1], pen.positions[-1], pen.special[-1]) == ("[end]", NO_POSITION, True)
    np.testing.assert_allclose([each["pen"] for each in pen.positions[:-1]], np.cumsum(points, 0)[:, :2], atol=1e-3)
    lifted = [True, *(bool(up) for *_, up in points[:-1])]
    assert [each["drawn"] for each in pen.positions[:-1]] == [not up for up in lifted]
    first, last = (seen.row(only["name"], 0, query).argmax() for query in (0, only["n"] - 1))
    assert (first, last) == (0, 2)
    assert not only["normalised"]
