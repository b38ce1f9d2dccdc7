"""Deformable attention against transformers', against a loop over points, and its matrix."""

import pytest
import torch
from torch import nn

from regard.attention.capture.map_store import watch_lazy
from regard.attention.capture.watch import watch
from regard.attention.deformable import DeformableAttention
from regard.core.errors import BadInput, Unsupported
from regard.models import build

SHAPES = [(5, 7), (3, 4), (2, 2)]
CELLS = sum(y * x for y, x in SHAPES)


def example(coordinates=2, width=12, heads=3):
    torch.manual_seed(0)
    layer = DeformableAttention(width, heads, levels=3, points=2).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = torch.randn(2, 6, width, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, CELLS, width, dtype=torch.float64, requires_grad=True)
    references = torch.rand(2, 6, 3, coordinates, dtype=torch.float64, requires_grad=True)
    return layer, x, memory, references


@pytest.mark.parametrize("coordinates", [2, 4])
def test_values_and_gradients_equal_those_of_transformers(coordinates):
    modeling = pytest.importorskip("transformers.models.deformable_detr.modeling_deformable_detr")
    from transformers import DeformableDetrConfig

    layer, *inputs = example(coordinates)
    config = DeformableDetrConfig(d_model=12, num_feature_levels=3)
    theirs = modeling.DeformableDetrMultiscaleDeformableAttention(config, num_heads=3, n_points=2).double()
    names = {"sampling_offsets": "offsets", "attention_weights": "scores", "value_proj": "value", "output_proj": "out"}
    for name, ours in names.items():
        getattr(theirs, name).load_state_dict(getattr(layer, ours).state_dict())
    real = torch.rand(2, CELLS) > 0.2
    x, memory, references = inputs
    found = layer(x, memory, references, SHAPES, real)
    expected, _ = theirs(
        x,
        attention_mask=real,
        encoder_hidden_states=memory,
        reference_points=references,
        spatial_shapes=torch.tensor(SHAPES),
        spatial_shapes_list=SHAPES,
    )
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    pull = torch.randn_like(found)
    ours = torch.autograd.grad((found * pull).sum(), [*inputs, *layer.parameters()])
    wanted = torch.autograd.grad((expected * pull).sum(), [*inputs, *theirs.parameters()])
    for a, b in zip(ours, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_output_equals_a_loop_over_points():
    """Bilinear interpolation, written out; a cell's centre is at (i + 0.5) / size."""
    layer, x, memory, references = (each.detach() if torch.is_tensor(each) else each for each in example())
    offsets = layer.offsets(x).view(2, 6, 3, 3, 2, 2)
    attend = layer.scores(x).view(2, 6, 3, 6).softmax(-1).view(2, 6, 3, 3, 2)
    values = layer.value(memory).view(2, CELLS, 3, 4)
    out = torch.zeros(2, 6, 3, 4, dtype=torch.float64)
    start = 0
    for level, (rows, columns) in enumerate(SHAPES):
        for b, n, h, p in torch.cartesian_prod(*map(torch.arange, (2, 6, 3, 2))).tolist():
            px = references[b, n, level, 0] * columns + offsets[b, n, h, level, p, 0] - 0.5
            py = references[b, n, level, 1] * rows + offsets[b, n, h, level, p, 1] - 0.5
            for row in (py.floor(), py.floor() + 1):
                for column in (px.floor(), px.floor() + 1):
                    if 0 <= row < rows and 0 <= column < columns:
                        share = (1 - (py - row).abs()) * (1 - (px - column).abs())
                        cell = start + int(row) * columns + int(column)
                        out[b, n, h] += attend[b, n, h, level, p] * share * values[b, cell, h]
        start += rows * columns
    with torch.no_grad():
        torch.testing.assert_close(layer(x, memory, references, SHAPES), layer.out(out.flatten(2)))


def test_weights_times_values_are_the_output():
    layer, x, memory, references = example(4)
    real = torch.rand(2, CELLS) > 0.3
    weights = layer.weights(x, memory, references, SHAPES, real)
    assert weights.shape == (2, 3, 6, CELLS)
    assert weights.sum(-1).max() <= 1 + 1e-9
    assert not weights.movedim(3, 1)[~real].any()
    mixed = weights @ layer.value(memory).unflatten(-1, (3, 4)).transpose(1, 2)
    out = layer.out(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(out, layer(x, memory, references, SHAPES, real))


def test_new_layers_look_around_their_reference():
    layer = DeformableAttention(8, 4, levels=1, points=2)
    x, references = torch.zeros(1, 1, 8), torch.full((1, 1, 1, 2), 0.5)
    weights = layer.weights(x, torch.zeros(1, 49, 8), references, [(7, 7)])[0, :, 0].view(4, 7, 7)
    for head, (dy, dx) in enumerate([(0, 1), (1, 0), (0, -1), (-1, 0)]):
        expected = torch.zeros(7, 7)
        for far in (1, 2):
            expected[3 + dy * far, 3 + dx * far] = 0.5
        torch.testing.assert_close(weights[head], expected, atol=1e-5, rtol=0)


def test_levels_that_do_not_fit_are_refused():
    layer, x, memory, references = example()
    with pytest.raises(BadInput, match="51 cells are not"):
        layer(x, memory, references, [(5, 7), (3, 4), (2, 3)])
    with pytest.raises(BadInput, match="not divisible"):
        DeformableAttention(10, 3)


def test_watched_rows_are_those_of_the_matrix():
    model = build("deformable_detr", size="tiny").eval()
    images, sizes = torch.randn(1, 3, 70, 100), torch.tensor([[60, 90]])
    with torch.no_grad(), watch(model) as seen:
        model(images, sizes)
    with torch.no_grad(), watch(model, queries=[3, 1], heads=[2]) as some:
        model(images, sizes)
    with torch.no_grad(), watch_lazy(model) as store:
        model(images, sizes)
    for name, kind in (("encoder.1.mix", "self"), ("decoder.1.cross", "cross")):
        whole = seen[name].weights
        assert seen[name].kind == store[name].kind == kind
        torch.testing.assert_close(some[name].weights, whole[:, [2]][:, :, [3, 1]])
        torch.testing.assert_close(store[name].rows_of([3], [2]), whole[:, [2]][:, :, [3]])
        torch.testing.assert_close(store[name].column(2, 4), whole[:, 2, :, 4])
    assert store.bytes < 4 * 2**20
    with pytest.raises(Unsupported, match="forms no matrix"), watch(model, gradients=True):
        model(images, sizes)
