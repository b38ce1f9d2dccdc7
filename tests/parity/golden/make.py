"""Write the golden files anew: what the peers answer, for weights and inputs that are formulas.

python tests/parity/golden/make.py        from the root, with the peers installed
"""

import json
import math
import os
from functools import partial
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

HERE = Path(__file__).parent


def weights(shapes):
    """A state dict from names and shapes alone: no random numbers, so every version of torch gives the same."""
    state = {}
    for k, (name, shape) in enumerate(shapes.items()):
        index = torch.arange(math.prod(shape), dtype=torch.float64)
        values = torch.sin(index * (0.7 + 0.013 * k) + k).reshape(shape)
        scales = ("norm" in name and name.endswith("weight")) or name.endswith("running_var")  # which are near 1
        state[name] = 1 + 0.2 * values if scales else 0.4 * values
    return state


def vectors(*shape):
    """Inputs for models that take vectors."""
    return torch.cos(torch.arange(math.prod(shape), dtype=torch.float64) * 1.3).reshape(shape)


def make_hf_marian():
    import transformers

    config = transformers.MarianConfig(
        vocab_size=24,
        d_model=8,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=12,
        decoder_ffn_dim=12,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=23,
        eos_token_id=0,
        decoder_start_token_id=23,
        max_position_embeddings=16,
    )
    model = transformers.MarianMTModel(config).double().eval()
    tied = ("embed_tokens.weight", "lm_head.weight", "embed_positions.weight")
    shapes = {n: list(v.shape) for n, v in model.state_dict().items() if not n.endswith(tied)}
    model.load_state_dict(weights(shapes), strict=False)
    source, target, lengths = [[5, 6, 7, 8, 0], [9, 10, 0, 23, 23]], [[23, 11, 12, 13], [23, 14, 15, 16]], [5, 3]
    there = torch.arange(5) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor(source), attention_mask=there.long(), decoder_input_ids=torch.tensor(target)
        ).logits
    asked = {"source": source, "lengths": lengths, "target": target}
    said = {k: v for k, v in config.to_diff_dict().items() if k != "transformers_version"} | {"model_type": "marian"}
    write("hf_marian", f"transformers {transformers.__version__}", said, shapes, asked, logits)


def make_hf_gpt2():
    import transformers

    config = transformers.GPT2Config(
        vocab_size=24, n_embd=8, n_layer=2, n_head=2, n_inner=12, n_positions=16, eos_token_id=0, bos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config).double().eval()
    shapes = {n: list(v.shape) for n, v in model.state_dict().items() if n != "lm_head.weight"}
    model.load_state_dict(weights(shapes), strict=False)
    tokens = [[5, 6, 7, 8, 0], [9, 10, 0, 23, 22]]
    with torch.no_grad():
        logits = model(torch.tensor(tokens)).logits
    said = {k: v for k, v in config.to_diff_dict().items() if k != "transformers_version"} | {"model_type": "gpt2"}
    write("hf_gpt2", f"transformers {transformers.__version__}", said, shapes, {"tokens": tokens}, logits)


def make_hf_t5():
    import transformers

    config = transformers.T5Config(
        vocab_size=24,
        d_model=8,
        d_kv=6,
        d_ff=12,
        num_layers=2,
        num_decoder_layers=1,
        num_heads=2,
        relative_attention_num_buckets=4,
        relative_attention_max_distance=5,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).double().eval()
    tied = ("embed_tokens.weight", "lm_head.weight")
    shapes = {n: list(v.shape) for n, v in model.state_dict().items() if not n.endswith(tied)}
    model.load_state_dict(weights(shapes), strict=False)
    source, target, lengths = [[5, 6, 7, 8, 1], [9, 10, 1, 0, 0]], [[0, 11, 12, 13], [0, 14, 15, 16]], [5, 3]
    there = torch.arange(5) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor(source), attention_mask=there.long(), decoder_input_ids=torch.tensor(target)
        ).logits
    asked = {"source": source, "lengths": lengths, "target": target}
    said = {k: v for k, v in config.to_diff_dict().items() if k != "transformers_version"} | {"model_type": "t5"}
    write("hf_t5", f"transformers {transformers.__version__}", said, shapes, asked, logits)


def make_hf_bert():
    import transformers

    config = transformers.BertConfig(
        vocab_size=24,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
    )
    model = transformers.BertForMaskedLM(config).double().eval()
    tied = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
    shapes = {n: list(v.shape) for n, v in model.state_dict().items() if n not in tied}
    model.load_state_dict(weights(shapes), strict=False)
    tokens, segments, lengths = [[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]], [[0, 0, 0, 1, 1], [0, 0, 1, 0, 0]], [5, 3]
    there = torch.arange(5) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        logits = model(torch.tensor(tokens), attention_mask=there.long(), token_type_ids=torch.tensor(segments)).logits
    said = {k: v for k, v in config.to_diff_dict().items() if k != "transformers_version"}
    said |= {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    asked = {"tokens": tokens, "segments": segments, "lengths": lengths}
    write("hf_bert", f"transformers {transformers.__version__}", said, shapes, asked, logits * there[..., None])


def make_torch_transformer():
    settings = {"d_model": 8, "nhead": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "dim_feedforward": 12}
    model = torch.nn.Transformer(**settings, dropout=0.0, batch_first=True).double()
    shapes = {n: list(v.shape) for n, v in model.state_dict().items()}
    model.load_state_dict(weights(shapes))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
    with torch.no_grad():
        out = model(vectors(2, 5, 8), vectors(2, 3, 8), tgt_mask=mask)
    write("torch_transformer", f"torch {torch.__version__}", settings, shapes, {}, out)


def make_vit():
    import timm
    import transformers

    ours = {"num_classes": 3, "image_size": 12, "patch_size": 4, "width": 8, "heads": 2, "layers": 2, "ffn": 12}
    sizes = {"img_size": 12, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2, "mlp_ratio": 1.5}
    for name, model, architecture in (("timm_vit", "vit", "vit_base_patch16_224"), ("timm_deit", "deit", DISTILLED)):
        images(name, timm, timm.create_model(architecture, num_classes=3, **sizes), model, ours)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    sizes |= {"image_size": 12, "patch_size": 4, "num_labels": 3}
    hf = ours | {"eps": 1e-12, "positions": "learned(antialias=False)"}
    vit = transformers.ViTForImageClassification(transformers.ViTConfig(**sizes))
    images("hf_vit", transformers, vit, "vit", hf)
    deit = transformers.DeiTForImageClassificationWithTeacher(transformers.DeiTConfig(**sizes))
    images("hf_deit", transformers, deit, "deit", hf)


def make_google_vit():
    """Its own program needs flax; timm reads the same files."""
    import tempfile

    import numpy as np
    import timm

    from regard.models.vit import Config, ViT
    from regard.weights.other import google_vit
    from regard.weights.table import export_state_dict as written

    ours = {
        "num_classes": 3,
        "image_size": 12,
        "patch_size": 4,
        "width": 8,
        "heads": 2,
        "layers": 2,
        "ffn": 12,
        "feedforward": "gelu_tanh",
    }
    config = Config(**ours)
    shapes = {name: list(value.shape) for name, value in written(google_vit.table(config), ViT(config)).items()}
    sizes = {"img_size": 12, "patch_size": 4, "embed_dim": 8, "depth": 2, "num_heads": 2, "mlp_ratio": 1.5}
    model = timm.create_model("vit_base_patch16_224", num_classes=3, act_layer="gelu_tanh", **sizes).double().eval()
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file.name, **{name: value.numpy() for name, value in weights(shapes).items()})
        model.load_pretrained(file.name)
    with torch.no_grad():
        answer = model(vectors(2, 3, 12, 12))
    asked = {"images": [2, 3, 12, 12]}
    write("google_vit", f"timm {timm.__version__}, which reads its files", ours, shapes, asked, answer, model="vit")


def make_vit_pytorch():
    from importlib.metadata import version

    import vit_pytorch

    sizes = {"image_size": 12, "patch_size": 4, "dim": 8, "depth": 2, "heads": 2, "dim_head": 4, "mlp_dim": 12}
    ours = {"num_classes": 3, "image_size": 12, "patch_size": 4, "width": 8, "heads": 2, "layers": 2, "ffn": 12}
    vit_pytorch.__version__ = version("vit-pytorch")
    theirs = vit_pytorch.ViT(num_classes=3, **sizes)
    images("vit_pytorch", vit_pytorch, theirs, "vit", ours | {"stem": "normed", "eps": 1e-5})


def make_swin():
    import timm
    import transformers

    ours = {
        "num_classes": 3,
        "image_size": 24,
        "patch_size": 2,
        "width": 8,
        "heads": (2, 4),
        "layers": (2, 1),
        "window_size": 4,
    }
    sizes = {"img_size": 24, "patch_size": 2, "embed_dim": 8, "num_heads": (2, 4), "depths": (2, 1), "window_size": 4}
    asked = {"shape": (2, 3, 24, 24)}
    for version, size in (("", "tiny_patch4_window7_224"), ("v2", "tiny_window8_256")):
        theirs = timm.create_model(f"swin{version}_{size}", num_classes=3, **sizes)
        images(f"timm_swin{version}", timm, theirs, f"swin{version}", ours | {"padding": "shifted"}, **asked)
    sizes = {"image_size": 24, "patch_size": 2, "embed_dim": 8, "num_heads": (2, 4), "depths": (2, 1), "window_size": 4}
    for version in ("", "v2"):
        config = getattr(transformers, f"Swin{version}Config")(num_labels=3, **sizes)
        theirs = getattr(transformers, f"Swin{version}ForImageClassification")(config)
        images(f"hf_swin{version}", transformers, theirs, f"swin{version}", ours | {"padding": "attend"}, **asked)


def make_mvit():
    import timm
    import torchvision
    from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
    from torchvision.models.video.mvit import MSBlockConfig, MViT

    ours = {"layers": [1, 2, 1, 1], "width": 4, "image_size": 32, "num_classes": 5, "class_token": True}
    cfg = MultiScaleVitCfg(depths=(1, 2, 1, 1), embed_dim=4, num_heads=1, use_cls_token=True)
    images("timm_mvitv2", timm, MultiScaleVit(cfg, img_size=32, num_classes=5), "mvit", ours, (2, 3, 32, 32))
    ours = {"layers": [1, 1], "width": 4, "image_size": 16, "num_frames": 4, "kv_stride": 2, "num_classes": 5}
    ours |= {"class_token": True, "residual_pooling": "patches"}
    every, settings = [3, 3, 3], {"residual_pool": True, "residual_with_cls_embed": False}
    blocks = [
        MSBlockConfig(1, 4, 4, every, every, [1, 1, 1], [1, 2, 2]),
        MSBlockConfig(2, 4, 8, every, every, [1, 2, 2], [1, 1, 1]),
    ]
    theirs = MViT((16, 16), 4, blocks, **settings, rel_pos_embed=True, proj_after_attn=True, num_classes=5)
    images("torchvision_mvit", torchvision, theirs, "mvit", ours, (2, 3, 4, 16, 16))


DISTILLED = "deit_base_distilled_patch16_224"


def images(name, peer, theirs, model, config, shape=(2, 3, 12, 12)):
    """What an image model of a peer's answers to a batch of this shape; ours is called `model`, with this Config."""
    theirs = theirs.double().eval()
    shapes = {n: list(v.shape) for n, v in theirs.state_dict().items()}
    theirs.load_state_dict(weights(shapes))
    with torch.no_grad():
        answer = theirs(vectors(*shape))
    answer = getattr(answer, "logits", answer)
    said = f"{peer.__name__} {peer.__version__}"
    write(name, said, config, shapes, {"images": list(shape)}, answer, model=model)


def make_timm_resnet():
    import timm
    from timm.models.resnet import BasicBlock, ResNet

    ours = {"num_classes": 3, "image_size": 24, "layers": [1, 1, 1, 1]}
    theirs = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=3)
    images("timm_resnet", timm, theirs, "resnet", ours, (2, 3, 24, 24))


def make_timm_hybrid():
    import timm
    from timm.layers import HybridEmbed
    from timm.models.vision_transformer import VisionTransformer
    from timm.models.vision_transformer_hybrid import _resnetv2

    backbone = _resnetv2((1, 1))
    sizes = {"img_size": 16, "patch_size": 1, "embed_dim": 8, "depth": 1, "num_heads": 2, "mlp_ratio": 1.5}
    theirs = VisionTransformer(embed_layer=partial(HybridEmbed, backbone=backbone), num_classes=3, **sizes)
    ours = {"num_classes": 3, "image_size": 16, "patch_size": 1, "width": 8, "heads": 2, "layers": 1, "ffn": 12}
    images("timm_vit_hybrid", timm, theirs, "vit", ours | {"stem": "hybrid(layers=(1, 1))"}, (2, 3, 16, 16))


def make_efficientnet_lite():
    """Its own program is not on PyPI; timm computes the same, with its tensors in the same order."""
    import timm
    from timm.models.efficientnet import _gen_efficientnet_lite

    from regard.models.efficientnet_lite import Config, EfficientNetLite
    from regard.weights.other import efficientnet_lite
    from regard.weights.table import export_state_dict, import_state_dict

    ours = {"num_classes": 3, "width_factor": 0.3, "depth_factor": 0.5, "image_size": 32}
    model = EfficientNetLite(Config(**ours)).double()
    table = efficientnet_lite.table(model.config)
    shapes = {name: list(value.shape) for name, value in export_state_dict(table, model).items()}
    import_state_dict(table, weights(shapes), model)
    theirs = _gen_efficientnet_lite("tf_efficientnet_lite0", 0.3, 0.5, pad_type="same", bn_eps=1e-3, num_classes=3)
    theirs.load_state_dict(dict(zip(theirs.state_dict(), model.state_dict().values(), strict=True)))
    with torch.no_grad():
        answer = theirs.double().eval()(vectors(2, 3, 32, 32))
    said, asked = f"timm {timm.__version__}, which computes the same", {"images": [2, 3, 32, 32]}
    write("efficientnet_lite", said, ours, shapes, asked, answer, model="efficientnet_lite")


def make_dpt():
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 12}
    sizes |= {"image_size": 32, "backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [4, 4, 6, 6]}
    sizes |= {"fusion_hidden_size": 4, "use_auxiliary_head": False, "num_labels": 2}
    ours = {"num_outputs": 2, "image_size": 32, "width": 8, "heads": 2, "layers": 4, "ffn": 12, "eps": 1e-12}
    ours |= {"out_layers": [1, 2, 3, 4], "reassemble_widths": [4, 4, 6, 6], "fusion_width": 4}
    theirs = transformers.DPTForSemanticSegmentation(transformers.DPTConfig(**sizes))
    images("hf_dpt", transformers, theirs, "dpt", ours, (1, 3, 32, 32))


def make_detr():
    """The original program is not on PyPI; transformers computes the same."""
    import transformers

    from regard.models.detr import DETR
    from regard.weights.hf import detr as hf
    from regard.weights.other import detr as original
    from regard.weights.table import export_state_dict, import_state_dict

    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_queries": 3, "num_labels": 2}
    config = transformers.DetrConfig(backbone="resnet18", use_pretrained_backbone=False, **sizes)
    theirs = transformers.DetrForObjectDetection(config).double().eval()
    said = {k: v for k, v in config.to_dict().items() if k != "transformers_version"}
    said |= {"architectures": ["DetrForObjectDetection"]}
    ours = DETR(hf.import_config(said)).double()
    asked, peer = {"images": [2, 3, 64, 64]}, f"transformers {transformers.__version__}"
    shapes = {name: list(value.shape) for name, value in hf.normalize_keys(theirs.state_dict()).items()}
    for name, table in (("hf_detr", hf.table), ("original_detr", original.table)):
        if name == "original_detr":
            state = export_state_dict(table(ours.config), ours)
            shapes, peer = {key: list(value.shape) for key, value in state.items()}, f"{peer}, which computes the same"
        import_state_dict(table(ours.config), weights(shapes), ours)
        state = export_state_dict(hf.table(ours.config), ours)
        theirs.load_state_dict({key: state[hf.normalize_keys({key: 0}).popitem()[0]] for key in theirs.state_dict()})
        with torch.no_grad():
            out = theirs(vectors(*asked["images"]))
        write(name, peer, said, shapes, asked, torch.cat([out.logits, out.pred_boxes], -1))


def make_vit_pytorch_cct():
    from importlib.metadata import version

    import vit_pytorch
    from vit_pytorch.cct import CCT

    sizes = {"img_size": 12, "embedding_dim": 8, "n_conv_layers": 2, "kernel_size": 3, "stride": 1, "padding": 1}
    sizes |= {"num_layers": 2, "num_heads": 2, "mlp_ratio": 2, "num_classes": 3, "positional_embedding": "learnable"}
    ours = {
        "num_classes": 3,
        "image_size": 12,
        "kernel": 3,
        "convolutions": 2,
        "width": 8,
        "heads": 2,
        "layers": 2,
        "mlp_ratio": 2.0,
    }
    vit_pytorch.__version__ = version("vit-pytorch")
    images("vit_pytorch_cct", vit_pytorch, CCT(**sizes), "cct", ours)


def rounded(values):
    return [rounded(value) for value in values] if isinstance(values, list) else round(values, 9)


def write(name, peer, config, shapes, asked, answer, **more):
    answer = rounded(answer.tolist())
    golden = {"peer": peer, "config": config, "shapes": shapes, "asked": asked, "answer": answer} | more
    (HERE / f"{name}.json").write_text(json.dumps(golden) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make_hf_bert()
    make_google_vit()
    make_hf_gpt2()
    make_hf_marian()
    make_mvit()
    make_swin()
    make_hf_t5()
    make_torch_transformer()
    make_vit()
    make_vit_pytorch()
    make_vit_pytorch_cct()
    make_timm_hybrid()
    make_timm_resnet()
    make_detr()
    make_dpt()
    make_efficientnet_lite()
