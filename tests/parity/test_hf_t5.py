"""transformers' T5ForConditionalGeneration and ours, from the same weights: values, gradients, maps, searches."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from regard.core.errors import BadInput, Unsupported
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
from regard.models.t5 import T5, Config
from regard.weights.hf import t5
from regard.weights.table import import_state_dict

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

VOCAB, PAD, EOS = 40, 0, 1
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
KINDS = {
    "v1.0": {},
    "v1.1": V1_1,
    "wide heads": {"d_kv": 12},
    "one layer more": {"num_decoder_layers": 3},
    "silu": {"feed_forward_proj": "gated-silu"},
    "buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10},
}


def peer(**settings):
    """A tiny random T5 in float64, every tensor of it away from its initial value; with v1.1's head of its own."""
    config = transformers.T5Config(
        **{
            "vocab_size": VOCAB,
            "d_model": 16,
            "d_kv": 4,
            "d_ff": 24,
            "num_layers": 2,
            "num_heads": 4,
            "dropout_rate": 0.0,
            "decoder_start_token_id": PAD,
        }
        | settings
    )
    theirs = hf_peer(transformers.T5ForConditionalGeneration, config)
    if settings.get("tie_word_embeddings") is False:  # today's transformers ties it until other weights are read
        weight = theirs.lm_head.weight.detach()
        theirs.lm_head.weight = torch.nn.Parameter(weight + 0.3 * torch.randn_like(weight))
    return theirs


def exact(theirs):
    """The peer takes the mean square of its norms in float32; here it gets all digits, so that equal means equal."""
    for module in theirs.modules():
        if type(module).__name__ == "T5LayerNorm":
            module.forward = partial(_normed, module)
    return theirs


def _normed(module, x):
    return module.weight * x * (x.square().mean(-1, keepdim=True) + module.variance_epsilon).rsqrt()


def ours_of(theirs):
    tied = theirs.lm_head.weight is theirs.shared.weight
    return T5(replace(t5.import_config(theirs.config.to_dict()), tied=tied))


def pair(**settings):
    theirs = exact(peer(**settings))
    return theirs, with_weights_of(theirs, ours_of(theirs).double().eval(), t5)


def batch():
    """Three pairs of different lengths, padded on the right; long enough for distances to share buckets."""
    source, target = torch.randint(2, VOCAB, (3, 27)), torch.randint(2, VOCAB, (3, 21))
    lengths = torch.tensor([27, 14, 1])
    there = torch.arange(27) < lengths[:, None]
    target[:, 0] = PAD
    return source.masked_fill(~there, PAD), target, lengths, there.long()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_equal_those_of_t5(kind):
    theirs, ours = pair(**KINDS[kind])
    source, target, lengths, there = batch()
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, target, lengths), expected, rtol=1e-9, atol=1e-9)
    assert expected.std() > 0.1


def test_logits_equal_those_of_t5_in_float32():
    theirs = peer().float()
    ours = with_weights_of(theirs, ours_of(theirs).eval(), t5)
    source, target, lengths, there = batch()
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, target, lengths), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["v1.0", "v1.1"])
def test_loss_and_gradients_of_all_parameters_equal_those_of_t5(kind):
    theirs, ours = pair(**KINDS[kind])
    source, target, lengths, there = batch()
    labels = torch.randint(2, VOCAB, target.shape)
    labels[1, 9:] = -100
    logits = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target).logits
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    expected.backward()
    total = ours(source, target, lengths, targets=labels, loss=fused_linear_cross_entropy)
    torch.testing.assert_close(total, expected, rtol=1e-9, atol=1e-9)
    total.backward()
    compared = gradients_equal(theirs, t5.table(ours.config), ours, atol=1e-8)
    assert compared == {"v1.0": 2 * 8 + 2 * 13 + 5, "v1.1": 2 * 9 + 2 * 14 + 6}[kind]


def test_attention_maps_equal_those_of_t5():
    theirs, ours = pair(d_kv=6)
    source, target, lengths, there = batch()
    with torch.no_grad():
        out = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target, output_attentions=True)
    maps_equal(encoder_decoder_maps(out), ours, source, target, lengths, far=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_import_then_export_is_exact(kind):
    theirs = peer(**KINDS[kind]).float()
    ours = with_weights_of(theirs, ours_of(theirs), t5)
    round_trip(theirs.state_dict(), t5.table(ours.config), ours)


@pytest.mark.parametrize("kind", KINDS)
def test_config_round_trip(kind):
    theirs = peer(**KINDS[kind])
    said, again = theirs.config.to_dict(), t5.export_config(ours_of(theirs).config)
    for name in again.keys() & said.keys() - {"architectures", "tie_word_embeddings"}:
        assert again[name] == said[name], name
    assert again["tie_word_embeddings"] == (theirs.config.scale_decoder_outputs)


def forbidden(model, token):
    """A model that never writes one token: its logit is lowered on the way out."""

    def lower(module, args, logits):
        logits = logits.clone()
        logits[..., token] -= 1e9
        return logits

    (model.lm_head if hasattr(model, "lm_head") else model.head).register_forward_hook(lower)


@pytest.mark.parametrize("kind", ["v1.0", "v1.1"])
@pytest.mark.parametrize("beams", [1, 4])
def test_search_finds_what_generate_finds(kind, beams):
    theirs, ours = pair(**KINDS[kind])
    for model in (theirs, ours):  # so that every output has the length asked for
        forbidden(model, EOS)
    source, _, lengths, there = batch()
    found = theirs.generate(
        input_ids=source,
        attention_mask=there,
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        max_new_tokens=23,
        min_new_tokens=23,
        length_penalty=1.0,
    )
    expected = found[:, 1:].unflatten(0, (3, beams)).tolist()
    assert outputs(searched(ours, source, lengths, beams, 23)) == expected


@pytest.mark.parametrize("kind", ["v1.0", "v1.1"])
def test_folders_are_exchanged_with_transformers(kind, tmp_path):
    theirs = peer(**KINDS[kind]).float()
    source, target, lengths, there = batch()
    theirs.save_pretrained(tmp_path / "theirs")
    ours, text = t5.load(tmp_path / "theirs")
    assert text is None
    t5.save(tmp_path / "ours", ours)
    again = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()
    with torch.no_grad():
        expected = theirs(input_ids=source, attention_mask=there, decoder_input_ids=target).logits
        torch.testing.assert_close(ours(source, target, lengths), expected, rtol=1e-4, atol=1e-4)
        found = again(input_ids=source, attention_mask=there, decoder_input_ids=target).logits
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_loaded_folder_generates_like_transformers(tmp_path):
    import regard

    theirs = peer().float()
    words = ["the", "dog", "runs", "a", "cat", "sleeps", "in", "house"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -9.0)] + [(f"▁{word}", -3.0) for word in words]
    tokenizer = transformers.T5Tokenizer(vocab=pieces, extra_ids=4)
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()  # random weights have nothing to say about it
    answer = regard.load(tmp_path)
    prompts = ["the dog runs", "a cat <extra_id_0> in house"]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    expected = theirs.generate(
        **inputs,
        max_new_tokens=7,
        num_beams=1,
        do_sample=False,
        bad_words_ids=[[n] for n in range(len(tokenizer), VOCAB)],
    )
    assert answer(prompts, beam_size=1, max_new_tokens=7) == tokenizer.batch_decode(expected, skip_special_tokens=True)


def test_the_unused_table_of_published_files_is_ignored(tmp_path):
    from safetensors.torch import load_file, save_file

    peer().float().save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.zeros(32, 4)
    save_file(state, tmp_path / "model.safetensors")
    assert isinstance(t5.load(tmp_path)[0], T5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "mt5"}, "'mt5'"),
        ({"feed_forward_proj": "mish", "dense_act_fn": "mish"}, "'mish'"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder in config.json must be True"),
    ],
)
def test_unsupported_checkpoints_raise(change, said):
    with pytest.raises(Unsupported, match=said):
        t5.import_config(peer().config.to_dict() | change)


@pytest.mark.parametrize("settings", [{"norm_kind": "layer"}, {"feedforward": "moe"}], ids=str)
def test_models_that_the_format_cannot_represent_raise(settings):
    (name,) = settings
    with pytest.raises(Unsupported, match=f"T5 needs {name}"):
        t5.table(Config(vocab=9, **settings))


def test_weights_of_another_model_raise_with_both_lists():
    _, ours = pair()
    with pytest.raises(BadInput, match=r"encoder\.block\.2\.layer"):
        import_state_dict(t5.table(ours.config), peer(num_layers=3).state_dict(), ours)


def test_fields_that_published_configs_lack_have_the_values_of_transformers():
    """A v1.1 file has no scale_decoder_outputs; one of v1.0 has neither feed_forward_proj nor tie_word_embeddings."""
    sizes = {"model_type": "t5", "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 3, "num_heads": 4, "vocab_size": 9}
    newer = t5.import_config(sizes | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False})
    assert (newer.feedforward, newer.tied, newer.scale_decoder_outputs) == ("geglu_tanh", False, False)
    older = t5.import_config(sizes)
    assert (older.feedforward, older.tied, older.scale_decoder_outputs) == ("relu", True, True)
    assert (newer.decoder_layers, older.decoder_layers) == (3, 3)
    assert t5.import_config(sizes | {"num_decoder_layers": 2}).decoder_layers == 2
