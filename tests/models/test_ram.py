"""RAM against plain loops: what the retina reads, what is published of a sampled location, and what is repeated."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Normal
from torch.utils.flop_counter import FlopCounterMode

import regard
from regard.attention.aligners.hard import collect_choices
from regard.core.errors import BadInput, RegardError
from regard.core.layer_state import PassState
from regard.models.ram import Retina

PLACES = [(0.0, 0.0), (0.3, -0.7), (-1.0, -1.0), (1.0, 1.0), (-1.7, 0.4), (0.2, 3.0), (0.5, 0.25)]


@pytest.fixture(autouse=True)
def _double(double):
    pass


def tiny(**settings):
    torch.manual_seed(1)
    return regard.build("ram", size="tiny", **{"num_classes": 4, "channels": 2} | settings)


def crop(image, x, y, size, scales):
    """Every number of the retina for one image C Y X, one after the other."""
    channels, rows, columns = image.shape
    middle_x, middle_y = (x + 1) * columns / 2, (y + 1) * rows / 2  # in pixels from the corner

    def pixel(c, row, column):
        return float(image[c, row, column]) if 0 <= row < rows and 0 <= column < columns else 0.0

    def between(c, down, right):  # the centre of pixel n is at n + 1/2
        row, column = math.floor(down - 0.5), math.floor(right - 0.5)
        b, a = down - 0.5 - row, right - 0.5 - column
        top = (1 - a) * pixel(c, row, column) + a * pixel(c, row, column + 1)
        low = (1 - a) * pixel(c, row + 1, column) + a * pixel(c, row + 1, column + 1)
        return (1 - b) * top + b * low

    found = []
    for step in (2**scale for scale in range(scales)):
        for c in range(channels):
            for i in range(size):
                for j in range(size):
                    top, left = middle_y + (i - size / 2) * step, middle_x + (j - size / 2) * step
                    inside = [between(c, top + p + 0.5, left + q + 0.5) for p in range(step) for q in range(step)]
                    found.append(sum(inside) / len(inside))
    return torch.tensor(found)


def by_hand(model, image, path):
    """Log p of every location of a path as it was chosen, the means and the logits, for one image."""
    config, state, log_p = model.config, torch.zeros(model.config.hidden), []
    for chosen in path:
        mean = torch.tanh(model.locate.weight @ state / config.hidden**0.5 + model.locate.bias)
        log_p.append(Normal(mean, config.location_std).log_prob(chosen).sum())
        location = chosen.clamp(-1, 1)
        pixels = crop(image, *location.tolist(), config.glimpse_size, config.scales)
        seen = torch.cat([F.relu(model.what(pixels)), F.relu(model.where(location))])
        state = F.relu(model.core(torch.cat([state, F.relu(model.glimpse(seen))])))
    return torch.stack(log_p), model.head(state)


def test_retina_equals_a_plain_loop_inside_and_outside_the_image():
    images, places = torch.randn(len(PLACES), 2, 7, 10), torch.tensor(PLACES)
    for size, scales in ((3, 1), (2, 3), (4, 2)):
        found = Retina(size, scales)(images, places)
        wanted = [crop(image, *place, size, scales) for image, place in zip(images, PLACES, strict=True)]
        torch.testing.assert_close(found, torch.stack(wanted))
    assert not Retina(2, 1)(images, torch.full((len(PLACES), 2), 2.0)).any()  # far outside there is nothing


def test_a_location_between_pixels_crops_them_as_they_are():
    image = torch.randn(1, 1, 8, 6)
    found = Retina(4, 1)(image, torch.tensor([[2 * 3 / 6 - 1, 2 * 5 / 8 - 1]]))  # around the corner of pixels 3 and 5
    torch.testing.assert_close(found.view(4, 4), image[0, 0, 3:7, 1:5])


def test_watched_weights_are_the_gradient_of_the_mean_of_a_glimpse():
    model = tiny(channels=1, scales=2).eval()
    images = torch.randn(2, 1, 9, 12)
    with regard.watch(model) as seen:
        model(images, torch.randn(2, 3, 2))
    (trace,) = seen.traces()
    assert (trace.kind, trace.weights.shape) == ("glimpse", (2, 1, 3, 9 * 12))
    path = torch.tensor([PLACES[:3], PLACES[3:6]])
    weights = model.retina.weights_of(path, (9, 12))
    for t in range(3):
        flat = images.clone().requires_grad_()
        model.retina(flat, path[:, t]).mean(1).sum().backward()
        torch.testing.assert_close(weights[:, 0, t], flat.grad.flatten(1))
    assert (weights.sum(-1) < 1 + 1e-9).all()
    torch.testing.assert_close(weights[0, 0, 0].sum(), torch.tensor(1.0))  # the first glimpse lies inside


def test_a_pass_equals_the_equations_one_by_one():
    model, images = tiny().train(), torch.randn(3, 2, 9, 11)
    path = torch.randn(3, 3, 2)  # some of it outside
    state = PassState()
    with model.force_path(path):
        logits = model(images, pass_state=state)
    found = collect_choices(state)
    for row in range(3):
        log_p, wanted = by_hand(model, images[row], path[row])
        torch.testing.assert_close(found.log_probs[row], log_p)
        torch.testing.assert_close(logits[row], wanted)
    entropy = Normal(0.0, model.config.location_std).entropy() * 2
    torch.testing.assert_close(found.entropy, entropy.expand(3, 3))
    assert found.queries.shape == (3, 3, model.config.hidden)
    assert not found.queries[:, 0].any()  # nothing is known before the first glimpse


def test_locations_are_means_in_eval_mode_and_clamped_samples_in_training():
    model, images = tiny(location_std=0.5), torch.randn(4, 2, 12, 12)
    with torch.no_grad():
        model.locate.bias.copy_(torch.tensor([0.9, -2.0]))
        states, path = model.eval().look(images)
        before = torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], 1)
        means = torch.tanh(before @ model.locate.weight.T / model.config.hidden**0.5 + model.locate.bias)
        torch.testing.assert_close(path, means)
        noise = torch.randn(4, 3, 2)
        _, shaken = model.look(images, noise)
        torch.testing.assert_close(shaken[:, 0], (means[:, 0] + 0.5 * noise[:, 0]).clamp(-1, 1))
        torch.manual_seed(5)
        one = model.train().look(images)[1]
        torch.manual_seed(5)
        assert torch.equal(model.look(images)[1], one)
        assert not torch.equal(model.look(images)[1], one)
    assert one.abs().max() == 1.0  # some samples were outside


def test_an_image_is_the_same_alone_and_in_a_batch_of_any_size():
    model, images = tiny().eval(), torch.randn(5, 2, 13, 10)
    with torch.no_grad():
        together, path = model(images), model.look(images)[1]
        for row in range(5):
            torch.testing.assert_close(model(images[row : row + 1]), together[row : row + 1])
            torch.testing.assert_close(model.look(images[row : row + 1])[1], path[row : row + 1])
        assert model(images[:0]).shape == (0, 4)


def test_products_do_not_grow_with_the_image():
    counts = []
    for side in (12, 96):
        with FlopCounterMode(display=False) as counter:
            tiny().eval()(torch.randn(1, 2, side, side))
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_only_locations_need_the_policy_gradient():
    model = tiny().train()
    F.cross_entropy(model(torch.randn(2, 2, 12, 12)), torch.tensor([0, 1])).backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {"locate.weight", "locate.bias"}


def test_bad_images_and_settings_are_refused():
    model = tiny().eval()
    with pytest.raises(BadInput, match="channel"):
        model(torch.zeros(1, 3, 12, 12))
    for settings in ({"glimpses": 0}, {"scales": 9}, {"location_std": 0.0}, {"glimpse_size": 0}):
        with pytest.raises(RegardError):
            tiny(**settings)
    with torch.no_grad():
        assert model(torch.randn(1, 2, 1, 1)).isfinite().all()  # smaller than a glimpse
