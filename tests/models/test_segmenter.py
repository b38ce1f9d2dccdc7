"""Segmenter: both decoders against their formulas."""

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.errors import RegardError


def made(**settings):
    torch.manual_seed(1)
    model = regard.build("segmenter", size="tiny", **settings).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def resized(logits, padded, size):
    grown = F.interpolate(logits, padded, mode="bilinear", align_corners=False)
    return grown[..., : size[0], : size[1]]


def test_the_mask_decoder_is_the_normed_cosine_of_patches_and_classes():
    """The classes last, as the authors have them, and one patch and class after the other."""
    model, images = made(num_outputs=3), torch.randn(2, 3, 30, 21).double()
    head = model.head
    with torch.no_grad():
        patches = model.encoder.grid(images)
        x = torch.cat([head.embed(patches.flatten(1, 2)), head.classes.expand(2, -1, -1)], 1)
        for block in head.blocks.blocks:
            x = block(x)
        x = head.blocks.norm(x)
        cosine = torch.empty(2, 8 * 6, 3).double()
        for b in range(2):
            for n in range(8 * 6):
                for k in range(3):
                    patch = head.project_patches.weight @ x[b, n]
                    label = head.project_classes.weight @ x[b, 8 * 6 + k]
                    cosine[b, n, k] = patch @ label / patch.norm() / label.norm()
        centred = cosine - cosine.mean(-1, keepdim=True)
        normed = centred / (cosine.var(-1, correction=0, keepdim=True) + 1e-5).sqrt() * head.norm.weight
        logits = (normed + head.norm.bias).mT.unflatten(2, (8, 6))
        torch.testing.assert_close(model(images), resized(logits, (32, 24), (30, 21)), rtol=1e-10, atol=1e-10)


def test_the_linear_decoder_is_a_linear_map_of_every_patch():
    model, images = made(num_outputs=3, decoder="linear"), torch.randn(2, 3, 30, 21).double()
    with torch.no_grad():
        logits = F.linear(model.encoder.grid(images), model.head.classify.weight, model.head.classify.bias)
        wanted = resized(logits.permute(0, 3, 1, 2), (32, 24), (30, 21))
        torch.testing.assert_close(model(images), wanted, rtol=1e-10, atol=1e-10)


def test_permuted_classes_have_permuted_logits():
    model, images = made(num_outputs=4), torch.randn(1, 3, 32, 32).double()
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        before = model(images)
        for part in (model.head.classes, model.head.norm.weight, model.head.norm.bias):
            part.copy_(part[order].clone())
        torch.testing.assert_close(model(images), before[:, order], rtol=1e-10, atol=1e-10)


def test_the_decoder_may_be_deeper_than_the_encoder_or_empty():
    for layers in (0, 3):
        model = made(layers=1, decoder_layers=layers, num_outputs=4)
        assert model(torch.randn(1, 3, 32, 32).double()).shape == (1, 4, 32, 32)


def test_watch_shows_what_every_class_looks_at():
    model = made(num_outputs=5)
    with torch.no_grad(), regard.watch(model, only="head.*") as seen:
        model(torch.randn(1, 3, 32, 48).double())
    weights = seen["head.blocks.blocks.1.mix"].weights
    assert weights.shape == (1, 2, 5 + 8 * 12, 5 + 8 * 12)


def test_a_single_output_needs_the_linear_decoder():
    with pytest.raises(RegardError, match="decoder='linear'"):
        regard.build("segmenter", size="tiny", num_outputs=1)


def test_sizes_have_the_parameters_of_the_encoders_of_the_paper():
    for size, millions in (("ti16", 6), ("s16", 22), ("b16", 86), ("l16", 307)):
        with torch.device("meta"):
            encoder = regard.build("segmenter", size=size).encoder
        assert sum(p.numel() for p in encoder.parameters()) / 1e6 == pytest.approx(millions, rel=0.06)
