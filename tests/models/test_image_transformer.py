"""Image Transformer: an exact distribution over images, causal in the order of generation, stepped as in training."""

import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy

import regard
from regard.core.decodable import Decodable
from regard.core.errors import BadInput, RegardError
from regard.decoding.beam_search import beam_search, greedy_search, sample
from regard.models.image_transformer import SIZES, MixtureOfLogistics, PixelPositions
from tests.long_params import rest_is_long

BLOCKS = "image_local_2d(query_block=(2, 6), memory=(1, 3), order='blocks')"
VARIANTS = {
    "grey": {},
    "rgb": {"channels": 3, "levels": 5},
    "pre": {"channels": 3, "norm": "pre", "image_size": (5, 3)},
    "condition": {"channels": 3, "condition_size": (2, 3)},
    "raster": {"attention": "image_local_2d(query_block=(2, 3), memory=(1, 2))"},
    "blocks": {"channels": 3, "block": (2, 2), "attention": BLOCKS},
    "mixture": {"channels": 3, "mixtures": 2, "levels": 7},
    "classes": {"num_classes": 3, "mixtures": 1},
    "enlarged classes": {"num_classes": 3, "condition_size": 3},
    "enlarged blocks": {"channels": 3, "block": (2, 2), "attention": BLOCKS, "condition_size": 3, "norm": "pre"},
}


@pytest.fixture(autouse=True)
def _double(double):
    pass


def tiny(**settings):
    torch.manual_seed(1)
    return regard.build("image_transformer", size="tiny", **settings).eval()


def images(model, batch=2, size=None):
    size = model.config.image_size if size is None else size
    sides = (size, size) if isinstance(size, int) else size
    return torch.randint(model.config.levels, (batch, model.config.channels, *sides))


def inputs(model, batch=2):
    size = model.config.condition_size
    return images(model, batch), None if size is None else images(model, batch, size)


def classes(model, batch=2):
    return torch.arange(batch) % model.config.num_classes if model.config.num_classes else None


def in_order(model, logits):
    """The logits B C Y X V as they were generated, B N V."""
    number = model.tokens(torch.arange(model.length).view(1, *logits.shape[1:4]) * 0)  # refuses other shapes
    assert number.shape == (1, model.length)
    row, column = model.decoder.positions.cells(torch.arange(model.length))
    channels = model.config.channels
    return logits[:, column % channels, row, column // channels]


@pytest.mark.parametrize("name", rest_is_long(VARIANTS, *VARIANTS.keys() - {"rgb", "condition"}))
def test_steps_equal_one_forward(name):
    model = tiny(**VARIANTS[name])
    assert isinstance(model, Decodable)
    pictures, small = inputs(model)
    labels = classes(model)
    tokens, whole = model.tokens(pictures), in_order(model, model(pictures, small, labels))
    assert torch.equal(model.images(tokens), pictures)
    for prompt in (0, 4):  # from nothing, or from the beginning of an image
        last, state = model.start(
            torch.cat([model.begin(2), tokens[:, :prompt]], 1), small, labels, capacity=model.length
        )
        for t in range(prompt, model.length):
            logits, state = model.step(last, state)
            torch.testing.assert_close(logits[:, 0], whole[:, t])
            last = tokens[:, t : t + 1]
    with pytest.raises(BadInput, match="all of them were generated"):
        model.step(last, state)


@pytest.mark.parametrize("name", VARIANTS)
def test_an_intensity_influences_later_ones_only(name):
    model = tiny(**VARIANTS[name])
    pictures, small = inputs(model, 1)
    tokens = model.tokens(pictures)
    whole = in_order(model, model(pictures, small, classes(model, 1)))[0]
    for n in (0, model.length // 2, model.length - 1):
        changed = tokens.clone()
        changed[0, n] = (changed[0, n] + 1) % model.config.levels
        found = in_order(model, model(model.images(changed), small, classes(model, 1)))[0]
        moved = (found - whole).abs().amax(-1) > 1e-12
        assert not moved[: n + 1].any()
        assert n == model.length - 1 or moved[n + 1]


@pytest.mark.parametrize(
    "settings", [{}, {"condition_size": 1}, {"norm": "pre", "attention": "softmax"}, {"mixtures": 2}]
)
def test_probabilities_of_all_images_sum_to_one(settings):
    for channels, size in ((1, (1, 2)), (2, (1, 1)), (1, (2, 2))):
        model = tiny(image_size=size, channels=channels, levels=3, **settings)
        every = torch.tensor(list(itertools.product(range(3), repeat=model.length))).view(-1, channels, *size)
        small = None if model.encoder is None else images(model, 1, 1).expand(len(every), -1, -1, -1)
        logits = model(every, small)
        each = -cross_entropy(logits.flatten(0, -2), every.flatten(), reduction="none").view(len(every), -1).sum(1)
        torch.testing.assert_close(each.exp().sum(), torch.tensor(1.0))
        assert each.exp().std() > 1e-4  # not simply uniform


def test_a_batch_equals_its_singles_and_every_pixel_of_the_small_image_matters():
    model = tiny(**VARIANTS["condition"])
    pictures, small = inputs(model, 3)
    whole = model(pictures, small)
    for i in range(3):
        torch.testing.assert_close(model(pictures[i : i + 1], small[i : i + 1]), whole[i : i + 1])
    for place in itertools.product(range(3), range(2), range(3)):
        other = small.clone()
        other[(0, *place)] = (other[(0, *place)] + 1) % model.config.levels
        found = model(pictures, other)
        assert not torch.equal(found[0, 0, 0, 0], whole[0, 0, 0, 0])  # the first intensity sees all of it
        assert torch.equal(found[1:], whole[1:])


def test_channels_and_places_are_told_apart():
    model = tiny(channels=3, levels=4)
    same = torch.full((1, model.length), 2)
    vectors = model._embed_from(same, 1)
    assert torch.equal(vectors[0, 0], vectors[0, 3])
    assert not torch.equal(vectors[0, 0], vectors[0, 1])
    places = PixelPositions(8, (4, 6))(torch.zeros(1, 24, 8), torch.arange(24)[None])[0]
    assert len({tuple(row) for row in places.round(decimals=9).tolist()}) == 24
    assert torch.equal(places[0, :4], places[5, :4])  # the row
    assert torch.equal(places[1, 4:], places[7, 4:])  # column and channel


def test_blocks_are_generated_one_after_another():
    model = tiny(**VARIANTS["blocks"])
    numbers = torch.arange(3)[:, None, None] + 3 * (torch.arange(6)[:, None] // 2 * 3 + torch.arange(6) // 2)
    blocks = (numbers // 3)[None]  # of 2 x 2 pixels
    tokens = model.tokens(blocks)[0].view(9, 12)
    assert torch.equal(tokens, torch.arange(9)[:, None].expand(9, 12))


def test_searches_generate_whole_images():
    model = tiny(channels=3, levels=4, image_size=2, condition_size=1)
    small = images(model, 2, 1)
    (greedy, second) = greedy_search(model, model.begin(2), small, max_length=model.length)
    assert len(greedy.tokens) == len(second.tokens) == model.length
    tokens = torch.tensor([greedy.tokens])
    logits = in_order(model, model(model.images(tokens), small[:1]))
    assert torch.equal(logits.argmax(-1), tokens)
    beams = beam_search(model, model.begin(2), small, beam_size=3, num_candidates=3, max_length=model.length)
    for hypothesis in beams[0]:
        tokens = torch.tensor([hypothesis.tokens])
        logits = in_order(model, model(model.images(tokens), small[:1]))
        total = -cross_entropy(logits[0], tokens[0], reduction="sum")
        assert hypothesis.log_probability == pytest.approx(total.item(), abs=1e-4)
    drawn = sample(model, model.begin(1), small[:1], num_samples=3, seed=[5], max_length=model.length)[0]
    assert len({tuple(h.tokens) for h in drawn}) == 3


def test_samples_follow_the_distribution():
    model = tiny(image_size=(1, 2), levels=2)
    with torch.no_grad():
        model.head.weight.mul_(3)
    every = torch.tensor(list(itertools.product(range(2), repeat=2))).view(-1, 1, 1, 2)
    log_probs = model(every).log_softmax(-1).gather(-1, every[..., None]).flatten(1).sum(1)
    drawn = sample(model, model.begin(1), num_samples=1000, seed=[0], max_length=2)[0]
    counts = torch.bincount(torch.tensor([2 * a + b for a, b in (h.tokens for h in drawn)]), minlength=4)
    torch.testing.assert_close(counts / 1000, log_probs.exp(), atol=0.05, rtol=0)


def test_local_attention_covers_a_whole_image_that_is_smaller():
    torch.manual_seed(0)
    local, dense = tiny(attention="image_local_1d(query_block=36)"), tiny(attention="softmax")
    dense.load_state_dict(local.state_dict())
    pictures = images(local)
    torch.testing.assert_close(local(pictures), dense(pictures))


def test_saved_models_are_loaded(tmp_path):
    for name in ("condition", "blocks"):
        model = tiny(**VARIANTS[name]).float()
        regard.save(model, tmp_path / name)
        pictures, small = inputs(model)
        assert torch.equal(regard.load(tmp_path / name)(pictures, small), model(pictures, small))


def test_a_model_learns_one_image():
    model = tiny(norm="pre").train()
    pictures = images(model, 1)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        loss = cross_entropy(model(pictures).flatten(0, -2), pictures.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.3
    (found,) = greedy_search(model.eval(), model.begin(1), max_length=model.length)
    assert torch.equal(model.images(torch.tensor([found.tokens])), pictures)


def test_published_sizes_are_built():
    with torch.device("meta"):
        for size in SIZES:
            model = regard.build("image_transformer", size=size)
            assert (model.encoder is None) == (model.config.condition_size is None)


@pytest.mark.usefixtures("unchecked")
def test_bad_inputs_are_refused():
    model, enlarge = tiny(), tiny(condition_size=3)
    good = images(model)
    for bad, said in (
        (good.double(), "integers of shape"),
        (good[:, 0], "integers of shape"),
        (good[..., :5], r"\(batch, 1, 6, 6\), got int64 of shape \(2, 1, 6, 5\)"),
        (good + 16, "intensity ids must be from 0 to 15"),
        (good - 16, "intensity ids must be from 0 to 15"),
    ):
        with pytest.raises(BadInput, match=said):
            model(bad)
    with pytest.raises(BadInput, match="leave `condition` out"):
        model(good, good[..., :3, :3])
    with pytest.raises(BadInput, match="the small image as `condition`"):
        enlarge(good)
    with pytest.raises(BadInput, match=r"condition must be integers of shape \(batch, 1, 3, 3\)"):
        enlarge(good, good)
    for prompt in (good.new_zeros(1, 0), good.new_zeros(1, 37)):
        with pytest.raises(BadInput, match="from 1 to 36 tokens"):
            model.start(prompt, capacity=36)
    with pytest.raises(BadInput, match="from 0 to 16"):
        model.start(good.new_full((1, 1), 17), capacity=36)
    with pytest.raises(BadInput, match="has 36 tokens, got 37"):
        model.token_logits(good.new_zeros(1, 37))


def test_bad_settings_are_refused():
    for settings, said in (
        ({"levels": 1}, "levels"),
        ({"levels": 257}, "levels"),
        ({"condition_size": 0}, "condition_size"),
        ({"block": (4, 2), "attention": "softmax"}, "cannot be cut into blocks"),
        ({"block": (2, 2), "attention": "image_local_2d(query_block=(2, 2))"}, "order='blocks'"),
        ({"block": (2, 2), "attention": "image_local_2d(query_block=(3, 3), order='blocks')"}, r"query_block=\(2, 2\)"),
        ({"attention": "image_local_2d(query_block=(3, 3), order='blocks')"}, "order='raster'"),
    ):
        with pytest.raises(RegardError, match=said):
            tiny(**settings)


def test_a_mixture_of_logistics_has_the_probabilities_of_its_intervals():
    head = MixtureOfLogistics(4, mixtures=3, levels=6)
    torch.nn.init.normal_(head.project.weight)
    x = torch.randn(5, 4)
    shares, centres, log_scales = head.project(x).chunk(3, -1)
    edges = [(2 * v - 1) / 5 - 1 for v in range(1, 6)]  # between the levels
    cumulative = torch.stack(
        [(shares.softmax(-1) * ((e - centres) / log_scales.exp()).sigmoid()).sum(-1) for e in edges]
    )
    bounds = torch.cat([torch.zeros(1, 5), cumulative, torch.ones(1, 5)])
    torch.testing.assert_close(head(x).exp(), bounds.diff(dim=0).T)
    far = head(1e3 * x)  # where the difference of two sigmoids would vanish
    assert far.isfinite().all()
    torch.testing.assert_close(far.logsumexp(-1), torch.zeros(5), atol=1e-9, rtol=0)


def test_classes_make_other_images_and_are_asked_for():
    model = tiny(num_classes=3)
    pictures = images(model)
    one, other = model(pictures, labels=torch.tensor([0, 0])), model(pictures, labels=torch.tensor([1, 0]))
    assert not torch.allclose(one[0], other[0])
    torch.testing.assert_close(one[1], other[1])
    for call, message in (
        (lambda: model(pictures), "a class for each image"),
        (lambda: model(pictures, labels=torch.tensor([3, 0])), "label"),
        (lambda: model(pictures, labels=torch.tensor([1])), "2 integers"),
        (lambda: tiny()(pictures, labels=torch.tensor([1, 1])), "takes no labels"),
    ):
        with pytest.raises(BadInput, match=message):
            call()
    labels = torch.tensor([2, 1, 0])
    batch = greedy_search(model, model.begin(3), None, labels, max_length=model.length)
    for row, label in enumerate(labels):
        alone = greedy_search(model, model.begin(1), None, label[None], max_length=model.length)
        assert batch[row].tokens == alone[0].tokens
