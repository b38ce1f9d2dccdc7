"""Attention of image models on their pixels: for a network that only mixes tokens, rollout equals the network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import regard
from regard.attention.window_attention import WindowAttention
from regard.core.errors import BadInput
from regard.core.trace import Geometry, Slots, Trace
from regard.interpret.image_attribution import run_with_attribution
from regard.positions.bias.window import TableWindowBias
from regard.see import PixelAttribution, max_of_heads, mean_of_heads, rollout
from regard.see.overlay import relative_to_uniform
from regard.tokens.patch_merging import PatchMerging
from regard.tokens.patches import PatchEmbedding


class OnlyMixes(nn.Module):
    """Patches that are means, windows, shifted windows, merging that is a mean, a window; values as they are."""

    def __init__(self, channels: int = 3, window: tuple[int, int] = (2, 3)) -> None:
        super().__init__()
        self.stem = PatchEmbedding(channels, channels, (3, 2), bias=False)
        self.stem.embed.weight.data = torch.eye(channels)[:, :, None, None].repeat(1, 1, 3, 2) / 6
        self.first, self.second = (self._mixer(channels, window, shifted) for shifted in (False, True))
        self.merge = PatchMerging(channels)
        self.merge.norm = nn.Identity()
        mean = torch.eye(channels).repeat(1, 4) / 4
        self.merge.narrow.weight.data = torch.cat([mean, torch.zeros_like(mean)])
        self.third = self._mixer(2 * channels, window, False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for mixer in (self.first, self.second, self.merge, self.third):
            x = mixer(x) if mixer is self.merge else x + mixer(x)
        return x.flatten(1, 2)

    def _mixer(self, width: int, window: tuple[int, int], shifted: bool) -> WindowAttention:
        mixer = WindowAttention(width, 1, TableWindowBias(1, window), shifted)
        qkv, out = mixer.project.qkv, mixer.join.out
        qkv.bias.data[-width:] = 0
        qkv.weight.data[-width:] = torch.eye(width)
        out.weight.data, out.bias.data = torch.eye(width), torch.zeros(width)
        nn.init.normal_(mixer.positions.table)
        return mixer


def seen(model: nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, list[Trace]]:
    with torch.no_grad(), regard.watch(model) as traces:
        return model(images), traces.last_pass()


@pytest.mark.parametrize("size", [(24, 24), (21, 26)])  # the other has windows and squares that are not whole
def test_rollout_of_a_mixing_network_is_the_network(size, double):
    torch.manual_seed(0)
    images = torch.randn(1, 3, *size)
    out, steps = seen(OnlyMixes(), images)
    assert [step.kind for step in steps] == ["move", "self", "self", "move", "self"]
    for n in range(steps[-1].num_outputs):
        found = PixelAttribution(steps, torch.eye(steps[-1].num_outputs)[n]).rollout()
        assert found.shape == size
        mixed = (found * images[0]).sum((1, 2)) * 2**3  # three ways around, of half each
        torch.testing.assert_close(mixed, out[0, n, :3], rtol=0, atol=1e-12)


def test_rows_carried_down_are_rows_of_the_dense_product(double):
    torch.manual_seed(1)
    _, steps = seen(OnlyMixes(), torch.randn(1, 3, 15, 14))
    eye = torch.eye(steps[-1].num_outputs)
    for fuse in (mean_of_heads, max_of_heads):
        for residual in (0.0, 0.3, 1.0):
            product = torch.eye(steps[0].num_inputs)[None]
            for step in steps:
                dense = step.operator()[:, 0] if step.kind == "move" else rollout([step], fuse, residual).weights[:, 0]
                product = dense @ product
            found = [PixelAttribution(steps, row).rollout(fuse=fuse, residual=residual).flatten() for row in eye]
            torch.testing.assert_close(torch.stack(found), product[0], rtol=0, atol=1e-14)


def vit(**changes):
    torch.manual_seed(0)
    sizes = {"num_classes": 5, "image_size": (12, 16), "patch_size": 4, "width": 12, "heads": 3, "layers": 3, "ffn": 17}
    model = regard.build("vit", **{**sizes, **changes}).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # away from the beginning, where all looks are even
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def sight(model, images, answer=None):
    images = images.double().requires_grad_()
    with regard.watch(model, gradients=answer is not None) as traces:
        out = model(images)
        if answer is not None:
            torch.autograd.grad(out[0, answer], images)
    n, token = traces.last_pass()[-1].num_outputs, model.config.pool == "token"
    reads = torch.eye(n)[0] if token else (torch.arange(n) >= model.num_prefix_tokens) / (n - model.num_prefix_tokens)
    return PixelAttribution(traces.last_pass(), reads.double(), model.num_prefix_tokens)


LOOKS_EVENLY = {
    "vit": {"size": "tiny"},
    "vit, mean": {"size": "tiny", "num_prefix_tokens": 0, "pool": "mean"},
    "swin": {"size": "tiny"},
    "swinv2": {"size": "tiny"},
}


@pytest.mark.parametrize("size", [(32, 32), (33, 33), (30, 45), (37, 51)])
@pytest.mark.parametrize("name", LOOKS_EVENLY)
def test_uniform_attention_is_one_everywhere_even_with_incomplete_patches(name, size):
    """Less what stays at a class token, which is on no pixel."""
    model = regard.build(name.partition(",")[0], **LOOKS_EVENLY[name]).double().eval()
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            if "project" in part or "positions" in part:
                parameter.zero_()
    seen_, _ = run_with_attribution(model, torch.randn(1, 3, *size, dtype=torch.float64))
    tokens = seen_.steps[-1].num_inputs - seen_.prefix
    gone = 1 - 1 / (tokens + 1) if seen_.prefix else 1.0
    for layer in range(len(seen_.layers)):
        for found in seen_.heads(layer):
            np.testing.assert_allclose(
                relative_to_uniform(found.numpy(), seen_.uniform_weight(layer)), gone, rtol=1e-12
            )
    dense = rollout([s for s in seen_.steps if s.kind == "self"]).weights[0, 0, 0, 1:].sum() if seen_.prefix else 1.0
    np.testing.assert_allclose(
        relative_to_uniform(seen_.rollout().numpy(), seen_.uniform_weight()), float(dense), rtol=1e-12
    )


def test_incomplete_patch_is_as_bright_as_the_weight_of_its_token():
    seen_ = sight(vit(), torch.randn(1, 3, 13, 19), answer=1)  # 3 whole patches and a row below, 4 whole and 3 columns
    weights = seen_.steps[2].weights[0, :, 0, 1:].unflatten(1, (4, 5))
    torch.testing.assert_close(seen_.heads(1)[:, ::4, ::4] * 16, weights)
    assert (seen_.heads(1)[:, 12, 18] * 16 - weights[:, 3, 4]).abs().max() < 1e-12
    assert (seen_.heads(1).sum((1, 2)) < weights.sum((1, 2))).all()  # the rest is beyond the edge


def test_a_vits_rollout_is_the_row_of_its_class_token_over_patches():
    model = vit()
    seen_ = sight(model, torch.randn(1, 3, 12, 16))
    dense = rollout([s for s in seen_.steps if s.kind == "self"]).weights[0, 0, 0, 1:].view(3, 4)
    whole = dense.repeat_interleave(4, 0).repeat_interleave(4, 1) / 16
    torch.testing.assert_close(seen_.rollout(), whole)
    assert seen_.rollout().sum() < 1  # the rest is at the class token


def test_heads_are_the_rows_of_the_layer():
    seen_ = sight(vit(), torch.randn(1, 3, 12, 16))
    weights = seen_.steps[2].weights[0, :, 0, 1:].unflatten(1, (3, 4))
    found = seen_.heads(1)
    torch.testing.assert_close(found[:, ::4, ::4] * 16, weights)
    asked = seen_.heads(1, query=(9 / 12, 5 / 16))  # a pixel of the patch in row 2, column 1
    torch.testing.assert_close(
        asked[:, ::4, ::4] * 16, seen_.steps[2].weights[0, :, 1 + 2 * 4 + 1, 1:].unflatten(1, (3, 4))
    )
    torch.testing.assert_close(found.sum((1, 2)), 1 - seen_.steps[2].weights[0, :, 0, 0])


def test_without_a_class_token_all_tokens_count_equally():
    seen_ = sight(vit(num_prefix_tokens=0, pool="mean"), torch.randn(1, 3, 12, 16))
    for layer in (0, 2):
        weights = seen_.steps[1 + layer].weights[0].mean(1).unflatten(1, (3, 4))
        torch.testing.assert_close(seen_.heads(layer)[:, ::4, ::4] * 16, weights)
    torch.testing.assert_close(seen_.rollout().sum(), torch.tensor(1.0, dtype=torch.float64))


def test_relevance_is_chefers_rule_written_out():
    seen_ = sight(vit(), torch.randn(1, 3, 12, 16), answer=2)
    n = 13
    relevance = torch.eye(n, dtype=torch.float64)
    for step in seen_.steps[1:]:
        relevance = relevance + (step.gradient * step.weights)[0].clamp(min=0).mean(0) @ relevance
    torch.testing.assert_close(seen_.relevance()[::4, ::4] * 16, relevance[0, 1:].view(3, 4), rtol=1e-12, atol=1e-15)
    assert seen_.relevance().max() > 0


def test_relevance_belongs_to_an_answer_and_its_gradient_is_that_of_the_weights():
    model, images = vit(), torch.randn(1, 3, 12, 16)
    first, second = sight(model, images, answer=0).relevance(), sight(model, images, answer=1).relevance()
    assert (first - second).abs().max() > 1e-3 * first.max()


def test_relevance_is_uniform_for_uniform_attention_and_gradients():
    slots = Slots(torch.arange(6).view(1, 1, 6, 1), (2, 3))
    even = torch.full((1, 2, 6, 6), 1 / 6, dtype=torch.float64)
    steps = [Trace("x", even, geometry=Geometry(slots, slots), gradient=torch.ones_like(even))] * 2
    found = PixelAttribution(steps, torch.full((6,), 1 / 6, dtype=torch.float64)).relevance()
    torch.testing.assert_close(found, torch.full((2, 3), (4 - 1) / 6, dtype=torch.float64))  # (1 + 1)² less 1


def test_query_point_is_found_through_merging():
    _, steps = seen(OnlyMixes(), torch.randn(1, 3, 24, 24))  # tokens of 3 x 2 pixels: 8 x 12, then 4 x 6
    seen_ = PixelAttribution(steps, torch.full((24,), 1 / 24))
    assert seen_._token(0, (7 / 24, 23 / 24)) == 2 * 12 + 11
    assert seen_._token(4, (7 / 24, 23 / 24)) == 1 * 6 + 5
    asked = seen_.heads(2, query=(0.0, 0.0))[0]
    assert asked[: 2 * 6, : 3 * 4].sum() == pytest.approx(1, abs=1e-6)  # its own window of 2 x 3 merged tokens
    assert asked.sum() == pytest.approx(1, abs=1e-6)


def test_invalid_input_raises_a_one_line_error():
    model, images = vit(), torch.randn(1, 3, 12, 16)
    good = sight(model, images)
    cases = [
        (lambda: PixelAttribution([], torch.ones(1)), "No attention was recorded"),
        (lambda: PixelAttribution(good.steps, torch.ones(7), 1), "The head reads 7 tokens, but the last layer has 13"),
        (lambda: PixelAttribution(good.steps[1:], good.reads, 1), "rows and columns"),
        (lambda: good.heads(3), "there is no layer 3; there are 0 to 2"),
        (lambda: good.heads(0, query=(1.0, 0.2)), "outside the image"),
        (lambda: good.relevance(), "watch with gradients=True"),
        (lambda: good.rollout(residual=2), "must be 0 to 1, got 2"),
        (
            lambda: PixelAttribution(good.steps, good.reads, 0).rollout(),
            "A layer reads 13 cells, but the step before it has 12",
        ),
    ]
    for call, message in cases:
        with pytest.raises(BadInput, match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_grid_argument_is_used_without_patch_geometry():
    good = sight(vit(), torch.randn(1, 3, 12, 16))
    bare = PixelAttribution(good.steps[1:], good.reads, 1, grid=(3, 4))
    np.testing.assert_allclose(bare.rollout().numpy(), good.rollout().numpy()[::4, ::4] * 16)
