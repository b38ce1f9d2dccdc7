"""The Neural GPU: its unit and its two writers written out, as many steps as columns; and it learns to add."""

import pytest
import torch
from torch import nn

import regard
from regard.core.errors import BadInput, UnknownName
from regard.data.batching import StreamPosition
from regard.data.synthetic.arithmetic import Arithmetic
from regard.models.neural_gpu import Config, NeuralGPU
from regard.tasks.text import arithmetic
from tests.long_params import rest_is_long

from .brute_force_search import targets
from .small_convolutional import small


def unit(units, image, tape=None):
    """The equations of the papers, for one image C Y X."""
    for gates, new in zip(units.gates, units.new, strict=True):
        w = image.shape[0]

        def conv(layer, part, x):
            x = x if tape is None else torch.cat([x, tape])
            weight, bias = layer.weight[part], layer.bias[part]
            return nn.functional.conv2d(x[None], weight, bias, padding=layer.kernel_size[0] // 2)[0]

        def gate(x):
            return torch.clamp(1.2 / (1 + torch.exp(-x)) - 0.1, 0, 1)

        u = gate(conv(gates, slice(w), image))
        r = gate(conv(gates, slice(w, None), image))
        image = u * image + (1 - u) * torch.tanh(conv(new, slice(None), r * image))
    return image


def first_image(model, source, columns):
    image = torch.zeros(model.config.width, model.config.rows, columns, dtype=torch.float64)
    image[:, 0, : len(source)] = model.embed(source).T
    for _ in range(columns):  # as many steps as columns
        image = unit(model.units, image)
    return image


def test_output_t_of_a_plain_image_is_column_t():
    model = small("image", 1)
    source, target = torch.tensor([4, 7, 5, 9]), targets(1, 9)
    image = first_image(model, source, 6)
    expected = model.head(torch.cat([image[:, 0].T, torch.zeros(3, 6, dtype=torch.float64)]))
    torch.testing.assert_close(model(source[None], target)[0], expected)


def test_a_tape_holds_the_written_tokens_and_wraps_around():
    model = small("neural_gpu", 1)
    source, target = torch.tensor([4, 7, 5]), targets(1, 8)[0]
    image, tape = first_image(model, source, 5), torch.zeros(6, 3, 5, dtype=torch.float64)
    expected = []
    for t, word in enumerate(target):
        tape = tape.clone()
        tape[:, 0, t % 5] = model.decoder.embed(word)
        image = unit(model.decoder.units, image, tape)
        expected.append(model.head(image[:, 0, t % 5]))
    torch.testing.assert_close(model(source[None], target[None])[0], torch.stack(expected))


def test_outputs_depend_on_previous_ones_with_a_tape_only():
    source = torch.tensor([[4, 7, 5]])
    one, other = targets(1, 6), targets(1, 6, seed=9)
    for name, heard in (("neural_gpu", True), ("image", False)):
        model = small(name)
        assert bool((model(source, one) - model(source, other)).abs().max() > 1e-6) is heard


def test_number_of_parameters_of_the_first_papers_unit():
    model = regard.build("neural_gpu", size="base", vocab=7)
    count = sum(p.numel() for p in model.units.parameters())
    assert count == 2 * 3 * (3 * 3 * 24 * 24 + 24)  # two units of three banks of kernels each
    taped = sum(p.numel() for p in model.decoder.units.parameters())
    assert taped == 2 * 3 * (3 * 3 * 48 * 24 + 24)  # each of them reads the tape too


def test_mismatched_settings_raise():
    with pytest.raises(BadInput, match="kernel must be odd"):
        regard.build("neural_gpu", vocab=7, kernel=4)
    with pytest.raises(UnknownName, match="did you mean 'image'"):
        regard.build("neural_gpu", vocab=7, decoder="imag")


@pytest.mark.long
@pytest.mark.parametrize("decoder", rest_is_long(["image", "tape"], "image"))
def test_it_learns_to_add(unchecked, decoder):
    data = Arithmetic(digits=2, initial_digits=1, batch_size=48, batches_per_epoch=40, test_digits=(3,))
    task = arithmetic.Config(eval_examples=50).build(data, seed=1)
    torch.manual_seed(1)
    model = NeuralGPU(task.fit(Config(vocab=7, width=16, rows=1, decoder=decoder, length_offset=2.0)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-5)
    stream = task.batches().start(StreamPosition())
    for _ in range(160):
        drawn = next(stream)
        loss, _ = task.loss(model, drawn.batch)
        optimizer.zero_grad()
        (loss / drawn.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert task.evaluate(model, "val")["exact_match"] > 0.9
