"""Every field of a peer's config.json: honoured, refused because it matters, or without effect and not refused.

Each field is changed on its own, and the weights stay. What the peer answers then says what Regard must do.
"""

import json

import pytest
import torch
from safetensors.torch import load_file

import regard
from regard.core.errors import RegardError
from regard.weights.hf import decision_transformer, parakeet, wav2vec2_conformer
from tests.long_params import rest_is_long

transformers = pytest.importorskip("transformers")

VIT = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24, "image_size": 32,
    "patch_size": 8}  # fmt: skip
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4}
BERT = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 24,
    "max_position_embeddings": 32}  # fmt: skip
GPT2 = {"vocab_size": 40, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 32, "bos_token_id": 1,
    "eos_token_id": 1}  # fmt: skip
T5 = {"vocab_size": 40, "d_model": 16, "num_heads": 2, "d_kv": 8, "d_ff": 24, "num_layers": 1,
    "decoder_start_token_id": 0}  # fmt: skip
MARIAN = {"vocab_size": 40, "decoder_vocab_size": 40, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "max_position_embeddings": 32, "pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2,
    "scale_embedding": True, "forced_eos_token_id": 2}  # fmt: skip
DECISION = {"state_dim": 3, "act_dim": 2, "hidden_size": 16, "n_layer": 2, "n_head": 2, "max_ep_len": 30,
    "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
DPT = {**VIT, "image_size": 32, "patch_size": 16, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
    "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8, "num_labels": 3}  # fmt: skip
PARAKEET = {"vocab_size": 9, "pad_token_id": 8, "encoder_config": {"hidden_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "intermediate_size": 24, "num_mel_bins": 16, "subsampling_conv_channels": 8}}  # fmt: skip
CONFORMER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
    "conv_dim": [8, 8], "conv_kernel": [3, 3], "conv_stride": [2, 2], "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "position_embeddings_type": "relative",
    "hidden_act": "swish"}  # fmt: skip
DETR = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "num_queries": 5, "num_labels": 3,
    "use_timm_backbone": True, "backbone": "resnet18", "use_pretrained_backbone": False}  # fmt: skip
IMAGE_GPT = {"vocab_size": 10, "n_embd": 16, "n_head": 2, "n_layer": 2, "n_positions": 16}
ARCHITECTURES = {
    "BertModel": BERT, "BertForMaskedLM": BERT, "BertForTokenClassification": BERT,
    "BertForSequenceClassification": BERT, "GPT2LMHeadModel": GPT2, "T5Model": T5, "T5ForConditionalGeneration": T5,
    "MarianMTModel": MARIAN, "ViTForImageClassification": VIT, "DeiTForImageClassification": VIT,
    "SwinForImageClassification": SWIN, "Swinv2ForImageClassification": SWIN, "DecisionTransformerModel": DECISION,
    "BertForQuestionAnswering": BERT, "BertForNextSentencePrediction": BERT, "BertForPreTraining": BERT,
    "GPT2Model": GPT2, "ViTModel": VIT, "DeiTForImageClassificationWithTeacher": VIT, "SwinModel": SWIN,
    "Swinv2Model": SWIN, "DPTForDepthEstimation": DPT, "DPTForSemanticSegmentation": DPT, "ParakeetForCTC": PARAKEET,
    "Wav2Vec2ConformerModel": CONFORMER, "DetrForObjectDetection": DETR, "ImageGPTForCausalImageModeling": IMAGE_GPT,
}  # fmt: skip
# Fields that say what the peer returns or what the file is, and labels.
SKIPPED = {"transformers_version", "architectures", "_name_or_path", "model_type", "dtype", "return_dict",
    "output_hidden_states", "output_attentions", "id2label", "label2id"}  # fmt: skip
# Fields of older files that change no answer.
OLD = {"gradient_checkpointing": True, "pruned_heads": {}, "torchscript": True, "torch_dtype": "float16",
    "attn_implementation": "eager", "layerdrop": 0.3, "n_ctx": 7, "summary_first_dropout": 0.3}  # fmt: skip
TOKENS = torch.tensor([[2, 7, 9, 8, 3]])
PIXELS = torch.arange(16)[None] % 9
FRAMES = torch.randn(1, 32, 16, generator=torch.Generator().manual_seed(1))
IMAGE_MODELS = ("ViT", "DeiT", "Swin", "DPT", "Detr")


def changes(config):
    """Every field of a config with other values."""
    for name, value in config.to_dict().items():
        if name in SKIPPED:
            continue
        if name.endswith(("_act", "_act_fn", "activation_function")):
            others = ["relu", "silu", "quick_gelu"]
        elif name == "feed_forward_proj":
            others = ["gated-gelu", "gelu"]
        elif name == "problem_type":
            others = ["multi_label_classification"]
        elif isinstance(value, bool):
            others = [not value]
        elif isinstance(value, int):
            others = [2 * value or 1]
        else:
            others = [0.37] if value is None or isinstance(value, float) else []
        yield from ((name, other) for other in others)
    yield from OLD.items()


def peer_of(name, config):
    """The peer with random weights that do not depend on the config's fields for training."""
    torch.manual_seed(0)
    peer = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in peer.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return peer


def answer(name, peer):
    with torch.no_grad():
        if name == "DecisionTransformerModel":
            states, actions, returns, times = episode()
            return peer(states, actions, None, returns, times, torch.ones(1, 4)).action_preds
        if name.startswith(("Parakeet", "Wav2Vec2")):
            return peer.encoder(FRAMES)[0] if name.startswith("Wav2Vec2") else peer(FRAMES).logits
        if name == "ImageGPTForCausalImageModeling":
            return peer(PIXELS).logits
        if name.startswith(IMAGE_MODELS):
            out = peer(picture(96 if name.startswith("Detr") else 32))
            return next(out[key] for key in ("logits", "predicted_depth", "pooler_output") if key in out)
        out = peer(TOKENS, decoder_input_ids=TOKENS[:, :3]) if name.startswith(("T5", "Marian")) else peer(TOKENS)
        if name == "BertForQuestionAnswering":
            return torch.stack([out.start_logits, out.end_logits], -1)
        if name == "BertForPreTraining":
            return out.prediction_logits
        return out.last_hidden_state if name in ("BertModel", "T5Model", "GPT2Model") else out.logits


def our_answer(name, folder):
    with torch.no_grad():
        if name == "DecisionTransformerModel":
            states, actions, returns, times = episode()
            return decision_transformer.load(folder)(returns[..., 0], states, actions, times).actions
        if name == "Wav2Vec2ConformerModel":
            return wav2vec2_conformer.load(folder)(FRAMES)
        if name == "ParakeetForCTC":
            return parakeet.load(folder)(FRAMES)[0]
        model = regard.load(folder)
        model = getattr(model, "model", model)
        if name == "ImageGPTForCausalImageModeling":
            return model.token_logits(PIXELS)
        if name.startswith("Detr"):
            return model(picture(96)).logits[-1]
        if name.startswith("DPT"):
            return model(picture())[:, 0] if name == "DPTForDepthEstimation" else model(picture())
        if name.startswith(IMAGE_MODELS):
            return model(picture())
        if name == "GPT2Model":
            return model.hidden(TOKENS)
        if name.startswith("Bert"):
            out = model(TOKENS, None, torch.tensor([5]))
            return out[0] if name == "BertForPreTraining" else out
        return model(TOKENS, TOKENS[:, :3]) if name.startswith(("T5", "Marian")) else model(TOKENS)


def picture(side=32):
    return torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(1))


def episode():
    made = torch.Generator().manual_seed(1)
    states, actions, returns = (torch.randn(1, 4, width, generator=made) for width in (3, 2, 1))
    return states, actions, returns, torch.arange(4)[None]


@pytest.mark.parametrize(
    "name",
    rest_is_long(
        ARCHITECTURES,
        "BertForSequenceClassification",
        "GPT2LMHeadModel",
        "T5ForConditionalGeneration",
        "MarianMTModel",
        "SwinForImageClassification",
    ),
)
def test_every_field_is_honoured_refused_or_without_effect(name, tmp_path):
    cls = getattr(transformers, name)
    config = cls.config_class(**ARCHITECTURES[name])
    peer = peer_of(name, config)
    peer.save_pretrained(tmp_path)
    saved, state, before = json.loads((tmp_path / "config.json").read_text()), peer.state_dict(), answer(name, peer)
    has_copies = len(load_file(tmp_path / "model.safetensors")) < len(state)
    # One table for words and head is in the file once; how logits become probabilities is not seen here, nor which
    # label of Parakeet is the blank.
    may_refuse = {
        "problem_type",
        *(["pad_token_id"] if name == "ParakeetForCTC" else []),
        *(["tie_word_embeddings"] if has_copies else []),
    }
    honoured, refused = set(), set()
    for field, value in changes(config):
        (tmp_path / "config.json").write_text(json.dumps(saved | {field: value}))
        try:
            other = cls(cls.config_class.from_dict(saved | {field: value})).eval()
            other.load_state_dict(state)
            expected = answer(name, other)
        except Exception:  # other shapes, or a value that the peer refuses
            expected = None
        try:
            found = our_answer(name, tmp_path)
        except RegardError as error:
            refused.add(field)
            if expected is not None and torch.equal(expected, before) and field not in may_refuse:
                pytest.fail(f"{field}={value!r} has no effect, but: {error}")
            continue
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4, msg=f"{field}={value!r}")
            honoured.add(field)
    assert len(honoured) >= 10
    assert refused


TIMM = {
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3},
    "swin_tiny_patch4_window7_224": {"img_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2],
        "num_heads": [2, 2], "window_size": 4, "strict_img_size": False},
    "vit_tiny_r_s16_p8_224": {"img_size": 64, "embed_dim": 24, "depth": 1, "num_heads": 3},
    "resnet18": {},
    "mvitv2_tiny": {"img_size": 64},
}  # fmt: skip
TIMM_CHANGES = [
    *((name, 0.3) for name in ("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate",
        "drop_path_rate", "drop_block_rate")),
    ("weight_init", "jax"), ("zero_init_last", False), ("global_pool", "avg"), ("global_pool", "max"),
    ("act_layer", "relu"), ("act_layer", "gelu"), ("act_layer", "mish"), ("qkv_bias", False), ("qk_norm", True),
    ("init_values", 0.1), ("class_token", False), ("reg_tokens", 2), ("no_embed_class", True), ("fc_norm", True),
    ("pre_norm", True), ("num_heads", 4), ("output_stride", 16), ("block_args", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in ("resnet18", "mvitv2_tiny") else n for n in TIMM]
)
def test_every_argument_of_timm_is_honoured_refused_or_without_effect(name, tmp_path):
    timm = pytest.importorskip("timm")
    settings = {"num_classes": 3, **TIMM[name]}
    size = settings.get("img_size", 64)
    x, plain = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1)), None
    honoured, refused = set(), set()
    for field, value in [("num_classes", 3), *TIMM_CHANGES]:
        torch.manual_seed(0)
        try:
            peer = timm.create_model(name, **settings | {field: value}).eval()
        except Exception:  # an argument of another architecture
            continue
        plain = plain or peer
        with torch.no_grad():
            for n, parameter in enumerate(peer.parameters()):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(n)))
            expected = peer(x)
        folder = tmp_path / f"{field}-{value}"
        timm.models.save_for_hf(peer, folder, model_args=settings | {field: value}, safe_serialization=True)
        try:
            model = regard.load(folder).model
        except RegardError as error:
            try:
                peer.load_state_dict(plain.state_dict())
                has_effect = not torch.equal(peer(x), plain(x))
            except RuntimeError:  # other tensors
                has_effect = True
            if not has_effect:
                pytest.fail(f"{field}={value!r} has no effect, but: {error}")
            refused.add(field)
            continue
        with torch.no_grad():
            torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-3, msg=f"{field}={value!r}")
        honoured.add(field)
    assert honoured >= {"drop_rate", "drop_path_rate"}
    assert refused or name == "mvitv2_tiny"
