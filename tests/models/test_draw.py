"""DRAW: filters equal to a loop over the paper's equations, bound and gradient equal to plain PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.errors import BadInput, RegardError
from regard.models.draw import SIZES, Filterbank


def tiny(dtype=torch.float64, **settings):
    torch.manual_seed(0)
    model = regard.build("draw", size="tiny", **settings).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def example(model, rows=3):
    c, rng = model.config, torch.Generator().manual_seed(1)
    sides = (c.image_size,) * 2 if isinstance(c.image_size, int) else c.image_size
    images = torch.randint(2, (rows, c.channels, *sides), generator=rng).double()
    return images, torch.randn(rows, c.steps, c.latent, generator=rng, dtype=torch.float64)


def filters(raw, size, grid):
    """F_Y and F_X of one image, number by number."""
    rows, columns = grid
    g = [(rows + 1) / 2 * (raw[0] + 1), (columns + 1) / 2 * (raw[1] + 1)]
    variance, delta = math.exp(raw[2]), (max(rows, columns) - 1) / (size - 1) * math.exp(raw[3])
    found = []
    for side, middle in zip(grid, g, strict=True):
        bank = []
        for i in range(1, size + 1):
            at = middle + (i - size / 2 - 0.5) * delta
            row = [math.exp(-((a - at) ** 2) / (2 * variance)) for a in range(1, side + 1)]
            bank.append([value / sum(row) for value in row])
        found.append(torch.tensor(bank, dtype=torch.float64))
    return found


def test_filters_equal_a_loop_over_the_equations():
    for size, grid in ((2, (5, 7)), (5, (9, 6))):
        bank = Filterbank(size, 4, grid).double()
        h = torch.randn(3, 4, dtype=torch.float64)
        window = bank(h)
        for b, raw in enumerate(bank.parameters_from(h).tolist()):
            rows, columns = filters(raw, size, grid)
            torch.testing.assert_close(window.rows[b], rows)
            torch.testing.assert_close(window.columns[b], columns)
            assert window.gamma[b].item() == pytest.approx(math.exp(raw[4]))
            assert window.sigma[b].item() ** 2 == pytest.approx(math.exp(raw[2]))
        images, patch = torch.randn(3, 2, *grid).double(), torch.randn(3, 2, size, size).double()
        for b in range(3):
            wanted = torch.stack([window.rows[b] @ one @ window.columns[b].T for one in images[b]])
            torch.testing.assert_close(window.read(images)[b], wanted)
        torch.testing.assert_close((window.read(images) * patch).sum(), (window.write(patch) * images).sum())


def test_a_window_beside_the_image_reads_its_nearest_pixels():
    bank = Filterbank(3, 1, (6, 6))
    with torch.no_grad():
        bank.parameters_from.weight.zero_()
        bank.parameters_from.bias.copy_(torch.tensor([50.0, -50.0, -30.0, -5.0, 0.0]))
    window = bank(torch.zeros(1, 1))
    assert window.rows[0, :, -1].tolist() == [1.0] * 3  # a sharp one far below, far to the left
    assert window.columns[0, :, 0].tolist() == [1.0] * 3


def lstm(cell, x, state):
    """PyTorch's own cell with these weights."""
    parts = [part for part in (cell.input_gates, cell.context_gates) if part is not None]
    weight = torch.cat([part.weight for part in parts], 1)
    return torch.lstm_cell(x, state, weight, cell.state.weight, parts[0].bias, cell.state.bias)


def plain_bound(model, images, noise):
    """The bound of one image as the paper writes it."""
    c, total = model.config, 0.0
    encoder, decoder = tuple(model.encoder_start), tuple(model.decoder_start)
    canvas = model.canvas
    attends = c.read != "whole"
    for epsilon in noise:
        missing, h = images - 1 / (1 + torch.exp(-canvas)), decoder[0]
        if attends:
            p = F.linear(h[0], model.read.filterbank.parameters_from.weight, model.read.filterbank.parameters_from.bias)
            rows, columns = model.read.filterbank(h).rows[0], model.read.filterbank(h).columns[0]
            read = [p[4].exp() * rows @ channel @ columns.T for picture in (images, missing) for channel in picture]
            seen = torch.cat([part.flatten() for part in read])[None]
        else:
            seen = torch.cat([images.flatten(), missing.flatten()])[None]
        encoder = lstm(model.encoder, torch.cat([seen, h], 1), encoder)
        mean, log_sigma = model.posterior(encoder[0]).chunk(2, 1)
        posterior = torch.distributions.Normal(mean, log_sigma.exp())
        total = total + torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum()
        decoder = lstm(model.decoder, mean + log_sigma.exp() * epsilon, decoder)
        patch = model.write.patch(decoder[0]).reshape(model.write.shape)
        if attends:
            window = model.write.filterbank(decoder[0])
            patch = torch.stack([window.rows[0].T @ one @ window.columns[0] for one in patch]) / window.gamma[0]
        canvas = canvas + patch
    return total - torch.distributions.Bernoulli(logits=canvas).log_prob(images).sum()


def test_bound_and_gradient_equal_plain_pytorch_image_by_image():
    whole = {"read": "whole", "write": "whole"}
    for settings in ({}, {"image_size": (5, 7), "channels": 2, "read": "gaussian(2)"}, whole):
        model = tiny(**settings)
        images, noise = example(model)
        logits, kl = model(images, noise)
        bound = F.binary_cross_entropy_with_logits(logits, images, reduction="none").flatten(1).sum(1) + kl.sum(1)
        wanted = torch.stack([plain_bound(model, *one) for one in zip(images, noise, strict=True)])
        torch.testing.assert_close(bound, wanted)
        found = torch.autograd.grad(bound.sum(), list(model.parameters()))
        expected = torch.autograd.grad(wanted.sum(), list(model.parameters()))
        for (name, _), a, b in zip(model.named_parameters(), found, expected, strict=True):
            torch.testing.assert_close(a, b, msg=name)


def test_generation_is_the_decoder_alone():
    model = tiny()
    images, noise = example(model)
    canvases = model.generate(noise)
    assert canvases.shape == (3, 3, 1, 8, 8)
    with torch.no_grad():  # a posterior that is the prior draws what is generated
        for parameter in model.posterior.parameters():
            parameter.zero_()
    logits, kl = model(images, noise)
    torch.testing.assert_close(logits, canvases[:, -1])
    assert kl.abs().max() == 0


def test_rows_of_a_batch_do_not_change_each_other():
    model = tiny()
    images, noise = example(model, 4)
    logits, kl = model(images, noise)
    for b in range(4):
        one, its = model(images[b : b + 1], noise[b : b + 1])
        torch.testing.assert_close(one[0], logits[b])
        torch.testing.assert_close(its[0], kl[b])


def test_windows_are_watched_as_distributions_over_pixels():
    model = tiny()
    with regard.watch(model) as seen, torch.no_grad():
        model(*example(model))
    for name in ("read", "write"):
        weights = seen[name].operator()
        assert weights.shape == (3, 1, 3, 64)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))


def test_bad_input_is_one_line():
    model = tiny()
    images, noise = example(model)
    with pytest.raises(BadInput, match=r"noise must be of shape \(batch, 3, 4\)"):
        model(images, noise[:, :2])
    with pytest.raises(BadInput, match="images must be of shape"):
        model(images[:, :, :7], noise)
    with pytest.raises(RegardError, match="at least 2 x 2"):
        regard.build("draw", size="tiny", read="gaussian(1)")


def test_sizes_have_the_published_parts():
    windows = {"mnist": (2, 5), "svhn": (12, 12), "cifar10": (5, 5)}  # Table 3: read, write
    for size in SIZES:
        with torch.device("meta"):
            model = regard.build("draw", size=size)
        if size in windows:
            assert (model.read.filterbank.size, model.write.filterbank.size) == windows[size]
