"""transformers' Wav2Vec2-Conformer encoder and Parakeet, and ours, from the same weights: values, gradients, maps."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from regard.attention.capture.watch import watch
from regard.blocks.conformer import ConformerEncoder
from regard.core.errors import BadInput, Unsupported
from regard.models.conformer import Conformer
from regard.weights.hf import parakeet, wav2vec2_conformer
from regard.weights.table import import_state_dict
from tests.long_params import rest_is_long

from .harness import gradients_equal, hf_peer, maps_equal, maps_of, round_trip

transformers = pytest.importorskip("transformers")

FAR = 3e-6  # both make sinusoids in float32
LENGTHS = torch.tensor([41, 9, 24])


def statistics_moved(model):
    """A model whose batch norms have seen something."""
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn_like(buffer) * 0.3)
        if name.endswith("running_var"):
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return model


def parakeet_pair(**settings):
    inner = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
        "conv_kernel_size": 5, "subsampling_factor": 4, "subsampling_conv_channels": 6, "num_mel_bins": 8}  # fmt: skip
    config = transformers.ParakeetCTCConfig(vocab_size=7, pad_token_id=6, encoder_config=inner | settings)
    config.encoder_config._attn_implementation = "eager"
    theirs = statistics_moved(hf_peer(transformers.ParakeetForCTC, config))
    ours = Conformer(parakeet.import_config(config.to_dict())).double().eval()
    import_state_dict(parakeet.table(ours.config), theirs.state_dict(), ours)
    return theirs, ours


def recordings(features=8):
    frames = torch.randn(3, 41, features, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return frames, torch.arange(41) < LENGTHS[:, None]


SETTINGS = [
    {},
    {"subsampling_factor": 8, "scale_input": False},
    {"attention_bias": False, "convolution_bias": False},
    {"subsampling_factor": 2},
]


@pytest.mark.parametrize("settings", rest_is_long(SETTINGS, SETTINGS[0]), ids=str)
def test_logits_of_padded_recordings_equal_parakeet(settings):
    theirs, ours = parakeet_pair(**settings)
    frames, real = recordings()
    with torch.no_grad():
        torch.testing.assert_close(ours(frames)[0], theirs(input_features=frames).logits, rtol=FAR, atol=FAR)
        theirs, ours = theirs.float(), ours.float()  # in float64 its masked rows are NaN
        frames = frames.float() * real[..., None]  # it does not mask what its first convolution reads
        expected = theirs(input_features=frames, attention_mask=real.long()).logits
        logits, lengths = ours(frames, LENGTHS)
    assert expected.shape == logits.shape
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(logits[row, :length], expected[row, :length], rtol=1e-4, atol=1e-4)


def test_the_loss_and_all_gradients_equal_parakeet():
    theirs, ours = parakeet_pair()
    frames, _ = recordings()
    labels = torch.tensor([[1, 1, 4, 2], [3, 6, 6, 6], [5, 2, 6, 6]])  # 6, the blank, is padding
    sizes = (labels != 6).sum(1)
    whole = torch.ones(3, 41, dtype=torch.long)
    expected = theirs(input_features=frames, attention_mask=whole, labels=labels)
    logits, lengths = ours(frames)
    losses = F.ctc_loss(logits.log_softmax(-1).transpose(0, 1), labels, lengths, sizes, blank=6, reduction="none")
    torch.testing.assert_close((losses / sizes).mean(), expected.loss.double(), rtol=1e-6, atol=1e-6)
    weights = torch.randn_like(logits)
    (expected.logits * weights).sum().backward()
    (logits * weights).sum().backward()
    assert gradients_equal(theirs, parakeet.table(ours.config), ours, 1e-4, 1e-5) > 50


def test_maps_equal_parakeet():
    theirs, ours = parakeet_pair()
    frames, _ = recordings()
    with torch.no_grad():
        found = theirs.encoder(frames, output_attentions=True).attentions
    maps_equal(maps_of(found, "encoder"), ours, frames, far=FAR)


def test_parakeet_reads_what_is_saved_and_the_other_way_round(tmp_path):
    theirs, ours = parakeet_pair()
    frames, _ = recordings()
    round_trip(theirs.state_dict(), parakeet.table(ours.config), ours)
    parakeet.save(tmp_path / "mine", ours)
    there = transformers.ParakeetForCTC.from_pretrained(tmp_path / "mine", dtype=torch.float64).eval()
    back = parakeet.load(tmp_path / "mine").double()
    with torch.no_grad():
        torch.testing.assert_close(there(input_features=frames).logits, ours(frames)[0], rtol=FAR, atol=FAR)
        torch.testing.assert_close(back(frames)[0], ours(frames)[0], rtol=FAR, atol=FAR)


def test_what_parakeet_cannot_say_is_refused():
    _, ours = parakeet_pair()
    for settings in ({"subsampling": "conv2d"}, {"conv_norm": "layer"}, {"chunk_size": 4}, {"attention": "linear"}):
        with pytest.raises(Unsupported, match=next(iter(settings))):
            parakeet.table(replace(ours.config, **settings))
    raw = parakeet.export_config(ours.config)
    for change in ({"pad_token_id": 0}, {"encoder_config": {**raw["encoder_config"], "hidden_act": "gelu"}},
                   {"encoder_config": {**raw["encoder_config"], "subsampling_factor": 6}}):  # fmt: skip
        with pytest.raises(Unsupported):
            parakeet.import_config(raw | change)


def wav2vec2_pair(**settings):
    config = transformers.Wav2Vec2ConformerConfig(
        **{"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20,
            "conv_depthwise_kernel_size": 5, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2,
            "position_embeddings_type": "relative", "hidden_act": "swish", "conv_dim": (6,), "conv_stride": (4,),
            "conv_kernel": (4,), "num_feat_extract_layers": 1}
        | settings
    )  # fmt: skip
    theirs = statistics_moved(hf_peer(transformers.Wav2Vec2ConformerModel, config))
    ours = ConformerEncoder(**wav2vec2_conformer.import_arguments(config.to_dict())).double().eval()
    import_state_dict(wav2vec2_conformer.table(3), theirs.encoder.state_dict(), ours)
    return theirs, ours


@pytest.mark.parametrize("frames", rest_is_long([1, 2, 30], 30))
def test_the_encoder_equals_wav2vec2_conformer(frames):
    theirs, ours = wav2vec2_pair()
    x = torch.randn(2, frames, 12, dtype=torch.float64)
    with torch.no_grad():
        expected = theirs.encoder(x).last_hidden_state
        torch.testing.assert_close(ours(x), expected, rtol=FAR, atol=FAR)


def test_gradients_and_maps_equal_wav2vec2_conformer():
    theirs, ours = wav2vec2_pair()
    x = torch.randn(2, 30, 12, dtype=torch.float64)
    weights = torch.randn(2, 30, 12, dtype=torch.float64)
    (theirs.encoder(x).last_hidden_state * weights).sum().backward()
    (ours(x) * weights).sum().backward()
    own = wav2vec2_conformer.table(3)
    mapped = [row for row in own if row.internal is not None]
    assert gradients_equal(theirs.encoder, mapped, ours, rtol=1e-4, atol=1e-5) > 40
    layer = theirs.encoder.layers[1].self_attn
    seen = []
    layer.register_forward_hook(lambda module, args, output: seen.append(output[1]))
    with torch.no_grad():
        theirs.encoder(x)
    with torch.no_grad(), watch(ours) as own_maps:
        ours(x)
    torch.testing.assert_close(own_maps["blocks.1.mix"].weights, seen[0], rtol=1e-6, atol=1e-7)


def test_a_folder_of_wav2vec2_conformer_gives_its_encoder(tmp_path):
    theirs, ours = wav2vec2_pair()
    theirs.save_pretrained(tmp_path / "theirs")
    x = torch.randn(1, 9, 12, dtype=torch.float64)
    found = wav2vec2_conformer.load(tmp_path / "theirs").double()
    with torch.no_grad():
        torch.testing.assert_close(found(x), ours(x), rtol=FAR, atol=FAR)  # read in float32
    for wrong in ({"position_embeddings_type": "rotary"}, {"hidden_act": "gelu"}):
        with pytest.raises(Unsupported, match=next(iter(wrong))):
            wav2vec2_conformer.import_arguments(theirs.config.to_dict() | wrong)


def test_a_cut_folder_is_refused(tmp_path):
    theirs, _ = parakeet_pair()
    theirs.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(BadInput):
        parakeet.load(tmp_path / "theirs")
