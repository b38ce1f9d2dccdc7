"""What peers once answered, kept in files: holds without the peer, and when the peer changes."""

import json
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

from regard.core.config import from_dict
from regard.core.spec import resolve
from regard.models import MODELS, gpt
from regard.models.detr import DETR
from regard.models.detr import Config as DETRConfig
from regard.models.transformer import Config, Transformer
from regard.weights import TABLES
from regard.weights.hf import bert, detr, gpt2, marian, t5
from regard.weights.other import detr as original_detr
from regard.weights.other import torch_transformer
from regard.weights.table import _as_tuple, import_state_dict

GOLDEN = Path(__file__).parent / "golden"


def formulas():
    """The file that made them has the formulas for weights and inputs."""
    spec = spec_from_file_location("golden_make", GOLDEN / "make.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def answer_hf_bert(kept, make):
    model = bert.BERT(bert.import_config(kept["config"]))
    import_state_dict(bert.table(model.config), make.weights(kept["shapes"]), model.eval())
    asked = [torch.tensor(kept["asked"][name]) for name in ("tokens", "segments", "lengths")]
    there = torch.arange(5) < asked[2][:, None]
    return model(*asked) * there[..., None]  # what is answered at padding means nothing


def answer_hf_gpt2(kept, make):
    model = gpt.GPT(gpt2.import_config(kept["config"]))
    import_state_dict(gpt2.table(model.config), make.weights(kept["shapes"]), model.eval())
    return model(torch.tensor(kept["asked"]["tokens"]))


def answer_hf_marian(kept, make):
    model = Transformer(marian.import_config(kept["config"]))
    import_state_dict(marian.table(model.config), make.weights(kept["shapes"]), model.eval())
    asked = kept["asked"]
    return model(torch.tensor(asked["source"]), torch.tensor(asked["target"]), torch.tensor(asked["lengths"]))


def answer_hf_t5(kept, make):
    model = t5.T5(t5.import_config(kept["config"]))
    import_state_dict(t5.table(model.config), t5._normalize_keys(make.weights(kept["shapes"])), model.eval())
    asked = kept["asked"]
    return model(torch.tensor(asked["source"]), torch.tensor(asked["target"]), torch.tensor(asked["lengths"]))


def answer_torch_transformer(kept, make):
    said = kept["config"]
    model = Transformer(
        Config(
            vocab=4,
            width=said["d_model"],
            heads=said["nhead"],
            ffn=said["dim_feedforward"],
            encoder_layers=said["num_encoder_layers"],
            decoder_layers=said["num_decoder_layers"],
            dropout=0.0,
            final_norm=True,
            positions="none",
        )
    )
    import_state_dict(torch_transformer.table(model.config), make.weights(kept["shapes"]), model.eval())
    return model.decoder(make.vectors(2, 3, 8), model.encoder(make.vectors(2, 5, 8)))


def answer_detr(kept, make, table):
    model = DETR(detr.import_config(kept["config"]))
    import_state_dict(table(model.config), make.weights(kept["shapes"]), model.eval())
    out = model(make.vectors(*kept["asked"]["images"]))
    return torch.cat([out.logits[-1], out.boxes[-1]], -1)


def answer_hf_detr(kept, make):
    return answer_detr(kept, make, detr.table)


def answer_original_detr(kept, make):
    return answer_detr(kept, make, original_detr.table)


def of_images(kept):
    """The Config of an image model of ours: its file says which."""
    return from_dict(import_module(MODELS[kept["model"]][0]).Config, kept["config"])


def answer_images(kept, make, name):
    config, module = of_images(kept), import_module(TABLES[name][0])
    model = resolve(MODELS, kept["model"], "model")(config)
    named = getattr(module, "normalize_keys", lambda state: state)
    import_state_dict(module.table(config), named(make.weights(kept["shapes"])), model.eval())
    return model(make.vectors(*kept["asked"]["images"]))


@pytest.mark.parametrize("name", TABLES)
def test_every_table_names_every_tensor_once(name):
    kept = golden(name)
    own = {"hf_bert": bert.Config(vocab=4), "hf_gpt2": gpt.Config(vocab=4), "hf_t5": t5.Config(vocab=4)}
    own |= dict.fromkeys(("hf_detr", "original_detr"), DETRConfig())
    config = of_images(kept) if "model" in kept else own.get(name, Config(vocab=4, positions="sinusoidal"))
    rows = resolve(TABLES, name, "table")(config)
    for side in ("external", "internal"):
        names = [each for row in rows for each in _as_tuple(getattr(row, side)) if each]
        assert len(names) == len(set(names))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", TABLES)
def test_every_table_gives_the_stored_outputs_of_its_peer(name):
    kept = golden(name)
    with torch.no_grad():
        answer = globals().get(f"answer_{name}")
        found = answer_images(kept, formulas(), name) if answer is None else answer(kept, formulas())
    expected = torch.tensor(kept["answer"])
    assert expected.std() > 0.1  # the answers say something
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
