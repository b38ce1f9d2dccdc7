"""transformers' GPT2LMHeadModel and ours, from the same weights: values, gradients, maps, searches."""

from dataclasses import replace

import pytest
import torch

from regard.core.errors import BadInput, Unsupported
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
from regard.models.gpt import GPT
from regard.weights.hf import gpt2
from regard.weights.table import import_state_dict

from .harness import gradients_equal, hf_peer, maps_equal, maps_of, outputs, round_trip, searched, with_weights_of

transformers = pytest.importorskip("transformers")

VOCAB, EOS = 40, 39


def peer(**settings):
    """A tiny random GPT2LMHeadModel in float64, every tensor of it away from its initial value."""
    config = transformers.GPT2Config(
        **{
            "vocab_size": VOCAB,
            "n_embd": 16,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 32,
            "bos_token_id": EOS,
            "eos_token_id": EOS,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        }
        | settings
    )
    return hf_peer(transformers.GPT2LMHeadModel, config)


def pair(**settings):
    theirs = peer(**settings)
    ours = GPT(gpt2.import_config(theirs.config.to_dict())).double().eval()
    return theirs, with_weights_of(theirs, ours, gpt2)


def batch():
    """Three texts of different lengths, padded on the right."""
    tokens, lengths = torch.randint(VOCAB - 1, (3, 7)), torch.tensor([7, 4, 1])
    there = torch.arange(7) < lengths[:, None]
    return tokens.masked_fill(~there, EOS), lengths, there


SETTINGS = [
    {},
    {"n_inner": 24},
    {"activation_function": "relu"},
    {"activation_function": "gelu"},
    {"tie_word_embeddings": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_logits_equal_those_of_gpt2(settings):
    theirs, ours = pair(**settings)
    tokens, lengths, there = batch()
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=there.long()).logits
        torch.testing.assert_close(ours(tokens)[there], expected[there], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(ours(tokens, lengths)[there], expected[there], rtol=1e-10, atol=1e-10)


def test_logits_equal_those_of_gpt2_in_float32():
    theirs = peer().float()
    ours = with_weights_of(theirs, GPT(gpt2.import_config(theirs.config.to_dict())).eval(), gpt2)
    tokens = torch.randint(VOCAB, (3, 9))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_loss_and_gradients_of_all_parameters_equal_those_of_gpt2(tied):
    theirs, ours = pair(tie_word_embeddings=tied)
    tokens = torch.randint(VOCAB, (3, 8))
    labels = tokens.clone()
    labels[1, 3:5] = -100
    out = theirs(tokens, labels=labels)  # shifts by itself, and takes the mean, in float32
    expected = torch.nn.functional.cross_entropy(out.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(out.loss.double(), expected, rtol=1e-6, atol=1e-6)
    expected.backward()
    wanted = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100)
    total = ours(tokens, targets=wanted, loss=fused_linear_cross_entropy)
    mean = total / (wanted != -100).sum()
    torch.testing.assert_close(mean, expected, rtol=1e-10, atol=1e-10)
    mean.backward()
    assert gradients_equal(theirs, gpt2.table(ours.config), ours) == 3 * 12 + 4 + (0 if tied else 1)


def test_attention_maps_equal_those_of_gpt2():
    theirs, ours = pair()
    tokens = torch.randint(VOCAB, (2, 6))
    with torch.no_grad():
        maps = theirs(tokens, output_attentions=True).attentions
    maps_equal(maps_of(maps, "decoder"), ours, tokens)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_import_then_export_is_exact(settings):
    theirs = peer(**settings).float()
    ours = with_weights_of(theirs, GPT(gpt2.import_config(theirs.config.to_dict())), gpt2)
    round_trip(theirs.state_dict(), gpt2.table(ours.config), ours)


def test_config_round_trip():
    said = peer().config.to_dict()
    again = gpt2.export_config(gpt2.import_config(said))
    for name in again.keys() & said.keys() - {"architectures"}:
        assert again[name] == said[name], name


@pytest.mark.parametrize("beams", [1, 4])
def test_search_finds_what_generate_finds(beams):
    """Ragged prompts: theirs padded on the left, ours on the right; no token ends a text."""
    theirs, ours = pair()
    theirs.generation_config.eos_token_id, ours.config = None, replace(ours.config, eos=-1)
    tokens, lengths, _ = batch()
    left = torch.stack([row.roll(7 - n) for row, n in zip(tokens, lengths.tolist(), strict=True)])
    there = torch.arange(7) >= 7 - lengths[:, None]
    found = theirs.generate(
        input_ids=left,
        attention_mask=there.long(),
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        max_new_tokens=10,
        length_penalty=1.0,
        pad_token_id=EOS,
    )
    expected = found[:, 7:].unflatten(0, (3, beams)).tolist()
    assert outputs(searched(ours, tokens, lengths, beams, 10)) == expected


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "gptj"}, "'gptj'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx in config.json must be False"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon"),
        ({"activation_function": "mish"}, "'mish'"),
    ],
)
def test_unsupported_checkpoints_raise(change, said):
    with pytest.raises(Unsupported, match=said):
        gpt2.import_config(peer().config.to_dict() | change)


@pytest.mark.parametrize(
    "settings",
    [{"positions": "rotary"}, {"qk_norm": "rms"}, {"norm_kind": "rms"}, {"feedforward": "swiglu"}, {"kv_heads": 2}],
    ids=str,
)
def test_models_that_the_format_cannot_represent_raise(settings):
    from regard.models.gpt import Config

    (name,) = settings
    with pytest.raises(Unsupported, match=f"GPT-2 needs {name}"):
        gpt2.table(Config(vocab=9, **settings))


def test_weights_of_another_model_raise_with_both_lists():
    _, ours = pair()
    with pytest.raises(BadInput, match=r"transformer\.h\.3\.attn\.c_attn\.weight"):
        import_state_dict(gpt2.table(ours.config), peer(n_layer=4).state_dict(), ours)
