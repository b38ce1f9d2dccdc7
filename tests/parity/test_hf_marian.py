"""transformers' MarianMTModel and ours, from the same weights: values, gradients, maps, searches."""

import pytest
import torch

from regard.models.transformer import Transformer
from regard.weights.hf import marian
from regard.weights.table import export_state_dict

from .harness import (
    encoder_decoder_maps,
    gradients_equal,
    hf_peer,
    maps_equal,
    outputs,
    round_trip,
    searched,
    with_weights_of,
)

transformers = pytest.importorskip("transformers")

VOCAB, PAD, EOS = 40, 39, 0


def peer(activation="swish", **settings):
    """A tiny random MarianMTModel in float64, every tensor of it away from its initial value."""
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        d_model=16,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        activation_function=activation,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
        max_position_embeddings=48,
        dropout=0.0,
        **settings,
    )
    theirs = hf_peer(transformers.MarianMTModel, config)
    if not config.tie_word_embeddings:  # then transformers ties nothing; ours unties the head only
        for part in (theirs.model.encoder, theirs.model.decoder):
            part.embed_tokens = theirs.model.shared
    theirs.final_logits_bias.normal_()
    return theirs


def pair(activation="swish", **settings):
    """The peer, and ours with its weights. The peer rounds its sinusoids to float32; here it gets exact ones."""
    theirs = peer(activation, **settings)
    config = marian.import_config(theirs.config.to_dict())
    ours = with_weights_of(theirs, Transformer(config).double().eval(), marian)
    theirs.load_state_dict(export_state_dict(marian.table(config), ours))
    return theirs, ours


def batch():
    """Three pairs of different lengths, padded on the right."""
    source, target = torch.randint(1, VOCAB - 1, (3, 7)), torch.randint(1, VOCAB - 1, (3, 6))
    lengths = torch.tensor([7, 4, 1])
    there = torch.arange(7) < lengths[:, None]
    target[:, 0] = PAD
    return source.masked_fill(~there, PAD), target, lengths, there.long()


@pytest.mark.parametrize(
    ("activation", "settings"),
    [("swish", {}), ("relu", {}), ("gelu", {}), ("swish", {"tie_word_embeddings": False})],
)
def test_logits_equal_those_of_marian(activation, settings):
    theirs, ours = pair(activation, **settings)
    source, target, lengths, there = batch()
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, target, lengths), expected, rtol=1e-10, atol=1e-10)


def test_logits_equal_those_of_marian_in_float32():
    theirs = peer().float()
    ours = with_weights_of(theirs, Transformer(marian.import_config(theirs.config.to_dict())).eval(), marian)
    source, target, lengths, there = batch()
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, target, lengths), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_of_all_parameters_equal_those_of_marian(tied):
    theirs, ours = pair(tie_word_embeddings=tied)
    source, target, lengths, there = batch()
    wanted = torch.randn(3, 6, VOCAB, dtype=torch.float64)
    (theirs(input_ids=source, attention_mask=there, decoder_input_ids=target).logits * wanted).sum().backward()
    (ours(source, target, lengths) * wanted).sum().backward()
    compared = gradients_equal(theirs, marian.table(ours.config), ours, rtol=1e-9)
    assert compared == 2 * 16 + 3 * 26 + (1 if tied else 2)


def test_attention_maps_equal_those_of_marian():
    theirs, ours = pair()
    source, target, lengths, there = batch()
    with torch.no_grad():
        out = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target, output_attentions=True)
    maps_equal(encoder_decoder_maps(out), ours, source, target, lengths)


@pytest.mark.parametrize("tied", [True, False])
def test_import_then_export_is_exact(tied):
    theirs = peer(tie_word_embeddings=tied).float()
    ours = with_weights_of(theirs, Transformer(marian.import_config(theirs.config.to_dict())), marian)
    round_trip(theirs.state_dict(), marian.table(ours.config), ours, close=["embed_positions.weight"])


def test_config_round_trip():
    said = peer().config.to_dict()
    again = marian.export_config(marian.import_config(said))
    for name in again.keys() & said.keys() - {"architectures", "forced_eos_token_id"}:
        assert again[name] == said[name], name


def forced(theirs, ours):
    """Forbid the end token in both, so that every output has the length asked for."""
    with torch.no_grad():
        theirs.final_logits_bias[0, EOS] = -1e9
        ours.head.bias[EOS] = -1e9


@pytest.mark.parametrize("beams", [1, 4])
def test_search_finds_what_generate_finds(beams):
    theirs, ours = pair()
    forced(theirs, ours)
    source, _, lengths, there = batch()
    found = theirs.generate(
        input_ids=source,
        attention_mask=there,
        num_beams=beams,
        do_sample=False,
        max_new_tokens=12,
        min_new_tokens=12,
        length_penalty=1.0,
        num_return_sequences=beams,
        return_dict_in_generate=True,
        output_scores=True,
    )
    expected = found.sequences[:, 1:].unflatten(0, (3, beams)).tolist()
    mine = searched(ours, source, lengths, beams, 12)
    if beams > 1:
        scores = torch.tensor([[h.score for h in row] for row in mine])
        torch.testing.assert_close(scores, found.sequences_scores.view(3, beams).float(), rtol=1e-5, atol=1e-5)
    assert outputs(mine) == expected
