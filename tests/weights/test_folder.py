"""A model in a folder: what comes back, what is refused, and what a failure leaves behind."""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import BadInput, RegardError, UnknownName
from regard.cost.meta_model import InputShape, make_batch
from regard.models import MODELS, build
from regard.models.transformer import Config, Transformer
from regard.tokens.tokenizer import Tokenizer
from regard.weights import folder as folder_module
from regard.weights.folder import load_model, save_model

CONFIG = Config(vocab=300, width=16, heads=2, ffn=24, encoder_layers=1, decoder_layers=2)
LINES = ["two dogs play in the snow", "ein Hund und eine Katze", "0123456789", "ünïcödé"]
ASKED = torch.tensor([[5, 6, 7, 2]]), torch.tensor([[1, 8, 9]])


@pytest.fixture
def model():
    return Transformer(CONFIG).eval()


@pytest.fixture
def text():
    return Tokenizer.train(LINES, kind="bytes", size=280)


@pytest.fixture
def saved(tmp_path, model, text):
    save_model(tmp_path / "m", model, text, {"name": "translation", "source": "en", "target": "de"}, "# A card\n")
    return tmp_path / "m"


def listing(folder):
    """Everything under a folder, hidden or not, with its content."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def change(folder, **values):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config.update(values)
    file.write_text(json.dumps(config))


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_save_load_round_trip(saved, model, text):
    found = load_model(saved)
    assert torch.equal(found.model(*ASKED), model(*ASKED))
    assert found.model.config == model.config
    assert not found.model.training
    assert found.text.encode(LINES) == text.encode(LINES)
    assert (found.text.pad, found.text.eos) == (text.pad, text.eos)
    assert found.task == {"name": "translation", "source": "en", "target": "de"}
    assert found.card == "# A card\n"
    assert found.config["format"] == folder_module.FORMAT
    assert set(found.config["files"]) == {"model.safetensors", "tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize(
    "settings",
    [
        {"tied": False, "head_bias": True},
        {"norm": "pre", "norm_kind": "rms", "feedforward": "swiglu", "kv_heads": 1},
        {"positions": "learned", "length": 20},
        {"positions": "rotary(base=500.0)"},
        {"positions": "relative(buckets=8)"},
        {"attention": ["softmax", "softmax(backend='eager')"]},
    ],
    ids=str,
)
def test_every_kind_of_model_round_trips(tmp_path, settings):
    model = Transformer(replace(CONFIG, **settings)).eval()
    save_model(tmp_path / "m", model)
    found = load_model(tmp_path / "m")
    assert found.model.config == model.config
    assert torch.equal(found.model(*ASKED), model(*ASKED))
    assert (found.text, found.task, found.card) == (None, None, None)


@pytest.mark.parametrize("name", MODELS)
def test_every_registered_model_round_trips(tmp_path, name):
    words = {"vocab": 30} if "vocab" in import_module(MODELS[name][0]).Config.__dataclass_fields__ else {}
    model = build(name, size="tiny", **words).eval()
    save_model(tmp_path / "m", model)
    found = load_model(tmp_path / "m").model
    asked = {"centres": torch.arange(6)} if name == "word2vec" else make_batch(model, InputShape(batch=2, length=5))
    assert type(found) is type(model)
    for a, b in zip(tree_leaves(found(**asked)), tree_leaves(model(**asked)), strict=True):
        assert a is b is None or torch.equal(a, b)


def test_tied_tensors_are_stored_once_and_tied_again(saved):
    from safetensors.torch import load_file

    assert "head.weight" not in load_file(saved / "model.safetensors")
    found = load_model(saved).model
    assert found.head.weight is found.embed.weight


def test_float16_storage_loads_as_float32(tmp_path, model):
    save_model(tmp_path / "full", model)
    save_model(tmp_path / "half", model, dtype="float16")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "full")]
    assert sizes[0] < 0.6 * sizes[1]
    found = load_model(tmp_path / "half").model
    assert all(p.dtype == torch.float32 for p in found.parameters())
    torch.testing.assert_close(found(*ASKED), model(*ASKED), rtol=0.02, atol=0.02)
    save_model(tmp_path / "again", found, dtype=torch.float16)  # rounding twice is rounding once
    assert (tmp_path / "again/model.safetensors").read_bytes() == (tmp_path / "half/model.safetensors").read_bytes()


def test_int8_storage_loads_as_float32_within_half_a_step(tmp_path, model, text):
    from safetensors.torch import load_file

    save_model(tmp_path / "full", model, text)
    save_model(tmp_path / "m", model, text, dtype="int8")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("m", "full")]
    assert sizes[0] < 0.45 * sizes[1]  # small rows: a scale is a good part of one
    stored, found = load_file(tmp_path / "m/model.safetensors"), load_model(tmp_path / "m")
    assert found.config["storage"] == "int8"
    assert found.model.head.weight is found.model.embed.weight
    assert "head.weight" not in stored
    assert "head.weight.scale" not in stored
    mine = model.state_dict()
    for name, value in found.model.state_dict().items():
        assert value.dtype == torch.float32
        if value.ndim < 2:
            assert torch.equal(value, mine[name].half().float())
            continue
        scale = mine[name].flatten(1).abs().amax(1) / 127
        assert ((value - mine[name]).abs().flatten(1) <= 0.5001 * scale[:, None]).all()
    torch.testing.assert_close(found.model(*ASKED), model(*ASKED), rtol=0.1, atol=0.1)
    save_model(tmp_path / "again", found.model, text, dtype=torch.int8)  # rounding twice is rounding once
    again = load_file(tmp_path / "again/model.safetensors")
    for name, value in stored.items():
        torch.testing.assert_close(again[name], value, rtol=1e-6, atol=0)


def test_zero_rows_and_higher_ranks_can_be_stored_in_int8():
    from regard.weights.int8 import dequantize_int8, quantize_int8

    tensors = {"a": torch.randn(3, 4, 5, 2), "b": torch.zeros(2, 3), "n": torch.arange(4), "v": torch.randn(6)}
    tensors["a"][1] = 0
    found = dequantize_int8(quantize_int8(tensors))
    assert {name: x.dtype for name, x in found.items()} == {name: x.dtype for name, x in tensors.items()}
    assert torch.equal(found["b"], tensors["b"])
    assert torch.equal(found["n"], tensors["n"])
    assert torch.equal(found["a"][1], tensors["a"][1])
    torch.testing.assert_close(found["a"], tensors["a"], rtol=0, atol=float(tensors["a"].abs().max()) / 253)


@pytest.mark.parametrize(
    ("change", "said"),
    [(float("inf"), r"'embed\.weight' has values that are not finite"), (float("nan"), "not finite")],
    ids=str,
)
def test_values_that_int8_cannot_store_raise(tmp_path, model, change, said):
    with torch.no_grad():
        model.embed.weight[7, 3] = change
    with pytest.raises(BadInput, match=said):
        save_model(tmp_path / "m", model, dtype="int8")
    assert not any(tmp_path.iterdir())


def test_mismatched_scales_raise(tmp_path, model):
    from regard.weights.int8 import dequantize_int8, quantize_int8

    stored = quantize_int8({"a": torch.randn(3, 4)})
    with pytest.raises(BadInput, match="damaged"):
        dequantize_int8(stored | {"a.scale": torch.ones(2)})
    with pytest.raises(BadInput, match="the name of the scales of 'a'"):
        quantize_int8({"a": torch.randn(3, 4), "a.scale": torch.ones(3)})


def test_a_float64_model_stays_one(tmp_path, model):
    save_model(tmp_path / "m", model.double())
    found = load_model(tmp_path / "m").model
    assert torch.equal(found(*ASKED), model(*ASKED))


def test_values_too_large_for_float16_raise(tmp_path, model):
    with torch.no_grad():
        model.embed.weight[7, 3] = 1e6
    with pytest.raises(BadInput, match=r"'embed\.weight' has values too large for float16"):
        save_model(tmp_path / "m", model, dtype="float16")
    assert not any(tmp_path.iterdir())


def test_infinite_weights_stay_infinite(tmp_path, model):
    with torch.no_grad():
        model.embed.weight[7, 3] = float("-inf")
    save_model(tmp_path / "m", model, dtype="float16")
    assert load_model(tmp_path / "m").model.embed.weight[7, 3] == float("-inf")


def test_column_major_weights_are_saved_contiguously(tmp_path, model):
    expected = model(*ASKED)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.head:
            module.weight.data = module.weight.data.t().contiguous().t()
    save_model(tmp_path / "m", model)
    found = load_model(tmp_path / "m").model
    assert all(p.is_contiguous() for p in found.parameters())
    assert torch.equal(found(*ASKED), expected)


def test_tied_column_major_weights_stay_tied(tmp_path, model):
    model.embed.weight.data = model.embed.weight.data.t().contiguous().t()
    save_model(tmp_path / "m", model)
    found = load_model(tmp_path / "m").model
    assert found.head.weight is found.embed.weight
    assert torch.equal(found.embed.weight, model.embed.weight)


def test_a_compiled_model_is_saved_unwrapped(tmp_path, model):
    save_model(tmp_path / "m", torch.compile(model, backend="eager"))
    assert torch.equal(load_model(tmp_path / "m").model(*ASKED), model(*ASKED))


def test_loading_and_saving_do_not_change_the_random_state(tmp_path, model):
    before = torch.get_rng_state()
    save_model(tmp_path / "m", model)
    load_model(tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_same_model_gives_the_same_files(tmp_path, model, text):
    for name in "ab":
        save_model(tmp_path / name, model, text)
    assert listing(tmp_path / "a") == listing(tmp_path / "b")


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_permissions_follow_the_umask(tmp_path, model, text):
    before = os.umask(0o022)
    try:
        save_model(tmp_path / "m", model, text, card="hello")
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "m").iterdir()} == {0o644}
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o755


# -- what is refused when saving ---------------------------------------------------------------------------------------


def test_an_unregistered_part_raises_with_how_to_register_it(tmp_path):
    model = Transformer(replace(CONFIG, attention=SoftmaxAttention()))
    with pytest.raises(RegardError, match="MECHANISMS"):
        save_model(tmp_path / "m", model)
    assert not any(tmp_path.iterdir())


def test_an_unregistered_model_raises_with_how_to_register_it(tmp_path):
    class Mine(nn.Linear):
        pass

    with pytest.raises(BadInput, match=r"MODELS\['mine'\]"):
        save_model(tmp_path / "m", Mine(2, 2))


def test_a_model_that_differs_from_its_config_raises(tmp_path, model):
    model.decoder.blocks[1].feed.extra = nn.Linear(3, 3)
    del model.encoder.blocks[0].mix_norm.bias
    with pytest.raises(BadInput, match=r"decoder\.blocks\.1\.feed\.extra\.weight.*encoder\.blocks\.0\.mix_norm\.bias"):
        save_model(tmp_path / "m", model)


@pytest.mark.parametrize("value", [torch.float16, float("nan"), {1, 2}], ids=str)
def test_a_task_that_json_cannot_represent_raises(tmp_path, model, value):
    with pytest.raises(BadInput, match="JSON"):
        save_model(tmp_path / "m", model, task={"name": "translation", "beam_size": value})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["int4", "floaty", torch.int16])
def test_an_unknown_storage_dtype_raises(tmp_path, model, dtype):
    with pytest.raises(BadInput, match="choose float16"):
        save_model(tmp_path / "m", model, dtype=dtype)


# -- replacing ---------------------------------------------------------------------------------------------------------


def test_a_saved_model_is_replaced_as_a_whole(saved, model):
    save_model(saved, model)  # without vocabulary, task and card this time
    assert set(listing(saved)) == {"config.json", "model.safetensors"}
    assert [p.name for p in saved.parent.iterdir()] == ["m"]


def test_an_empty_folder_is_filled(tmp_path, model):
    (tmp_path / "m").mkdir()
    save_model(tmp_path / "m", model)
    load_model(tmp_path / "m")


@pytest.mark.parametrize("content", [{"thesis.tex": "ten years"}, {"config.json": "{}"}, {"config.json": "no json"}])
def test_other_folders_are_never_replaced(tmp_path, model, content):
    for name, written in content.items():
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / name).write_text(written)
    before = listing(tmp_path)
    with pytest.raises(BadInput, match="holds other things"):
        save_model(tmp_path / "m", model)
    assert listing(tmp_path) == before


def test_a_saved_model_with_other_files_is_never_replaced(saved, model):
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds other things"):
        save_model(saved, model)
    assert (saved / "notes.txt").read_text() == "mine"


def test_a_file_is_never_replaced(tmp_path, model):
    (tmp_path / "m").write_text("mine")
    with pytest.raises(BadInput, match="is a file"):
        save_model(tmp_path / "m", model)
    assert (tmp_path / "m").read_text() == "mine"


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def at(when, real):
    """The real function, but the disk is full when it is called for the `when`-th time (counted from 0)."""
    calls = count()

    def call(*args, **kwargs):
        return full() if next(calls) == when else real(*args, **kwargs)

    return call


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize(
    ("where", "name", "after"),
    [
        (Path, "mkdir", 0),
        (folder_module, "save_file", 0),
        (os, "replace", 0),
        (folder_module, "write_text", 0),
        (folder_module, "write_text", 1),
        *((os, "fsync", n) for n in range(8)),
        (os, "rename", 0),
        (os, "rename", 1),
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_a_full_disk_changes_nothing(tmp_path, monkeypatch, model, text, fresh, where, name, after):
    if not fresh:
        save_model(tmp_path / "m", Transformer(CONFIG), text, card="the old one")
    elif (name, after) == ("rename", 1):
        pytest.skip("a fresh folder is moved once")
    before = listing(tmp_path)
    monkeypatch.setattr(where, name, at(after, getattr(where, name)))
    with pytest.raises(BadInput, match=r"(?i)no space left") as error:
        save_model(tmp_path / "m", model, text, card="the new one")
    monkeypatch.undo()
    assert "\n" not in str(error.value)
    assert listing(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ([] if fresh else ["m"])


def test_a_folder_that_cannot_be_moved_back_is_not_deleted(saved, monkeypatch, model):
    real, calls = os.rename, count()
    monkeypatch.setattr(os, "rename", lambda *names: real(*names) if next(calls) == 0 else full())
    before = listing(saved)
    with pytest.raises(BadInput, match="what was there is now ") as error:
        save_model(saved, model)
    assert listing(Path(str(error.value).split("what was there is now ")[1])) == before


def test_an_interruption_changes_nothing(saved, monkeypatch, model):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    before = listing(saved.parent)
    monkeypatch.setattr(folder_module, "write_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(saved, model)
    assert listing(saved.parent) == before


LIMITED = """
import resource, sys, torch
from regard.core.errors import BadInput
from regard.models import MODELS, build
from regard.models.transformer import Config, Transformer
from regard.weights.folder import save_model
model = Transformer(Config(vocab=300, width=16, heads=2, ffn=24, encoder_layers=1, decoder_layers=1))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save_model(sys.argv[1], model)
except BadInput as error:
    print(error)
"""


@pytest.mark.skipif(os.name != "posix", reason="file size limits are POSIX's")
def test_a_failed_write_changes_nothing(saved):
    before = listing(saved.parent)
    done = subprocess.run([sys.executable, "-c", LIMITED, str(saved)], capture_output=True, text=True, timeout=60)
    assert "nothing was changed" in done.stdout, done.stderr
    assert listing(saved.parent) == before


# -- what is refused when loading --------------------------------------------------------------------------------------


def refused(folder, match):
    with pytest.raises(RegardError, match=match) as error:
        load_model(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_missing_folder_is_named(tmp_path):
    refused(tmp_path / "nowhere", "there is no folder .*nowhere")


def test_a_file_given_for_a_folder_is_named(saved):
    refused(saved / "model.safetensors", "is a file; give the folder")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    refused(saved, f"there is no {name}")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_in_place_of_a_file_is_named(saved, name):
    (saved / name).unlink()
    (saved / name).mkdir()
    refused(saved, f"{name}")


@pytest.mark.parametrize("keep", [0, 5, 1000, -1])
def test_truncated_weights_raise(saved, keep):
    file = saved / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refused(saved, r"model\.safetensors is damaged, cut short or changed")


def test_a_flipped_bit_raises(saved):
    file = saved / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    refused(saved, r"model\.safetensors is damaged")


def test_a_file_that_is_no_safetensors_raises(saved):
    (saved / "model.safetensors").write_bytes(b"hello")
    change(saved, files={"model.safetensors": folder_module._sha256(saved / "model.safetensors")})
    refused(saved, "is no safetensors file")


def test_an_edited_tokenizer_raises(saved):
    file = saved / "tokenizer.json"
    file.write_text(file.read_text().replace("</s>", "</t>"))
    refused(saved, r"tokenizer\.json is damaged")


def test_a_config_with_other_layers_raises_with_both_lists(saved):
    config = json.loads((saved / "config.json").read_text())["config"]
    change(saved, config=config | {"encoder_layers": 2, "decoder_layers": 1})
    message = refused(saved, "do not fit the model")
    extra, missing = message.split("missing tensors")
    assert "decoder.blocks.1.cross.project.kv.weight" in extra
    assert "encoder.blocks.1.mix.project.qkv.weight" in missing


def test_a_config_with_other_shapes_says_which(saved):
    config = json.loads((saved / "config.json").read_text())["config"]
    change(saved, config=config | {"ffn": 32})
    refused(saved, r"encoder\.blocks\.0\.feed\.up\.weight is \(24, 16\), the config says \(32, 16\)")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"heads": 3}, "not divisible by 3 heads"),
        ({"hedas": 2}, "did you mean 'heads'"),
        ({"width": "wide"}, "'width' must be int, got 'wide'"),
        ({"positions": "sinusoidl"}, "did you mean 'sinusoidal'"),
        ({"width": -16}, "width must be at least 1, got -16"),
        ({"pad": 5000}, "pad must be at least 0 and less than"),
    ],
)
def test_a_config_that_describes_no_model_says_why(saved, settings, match):
    config = json.loads((saved / "config.json").read_text())["config"]
    change(saved, config=config | settings)
    refused(saved, match)


def test_a_config_without_what_a_model_needs_says_what(saved):
    change(saved, config={"width": 16})
    refused(saved, "vocab")


def test_an_unknown_model_suggests_the_nearest(saved):
    change(saved, model="transfromer")
    with pytest.raises(UnknownName, match="did you mean 'transformer'"):
        load_model(saved)


@pytest.mark.parametrize("written", ["", "{", "[1]", "\ufeff{}", "3"])
def test_a_config_that_is_not_a_json_object_raises(saved, written):
    (saved / "config.json").write_text(written, encoding="utf-8")
    refused(saved, r"config\.json is damaged")


@pytest.mark.parametrize("key", ["model", "config", "files", "tied", "dtype", "task"])
def test_a_config_that_lacks_something_says_what(saved, key):
    config = json.loads((saved / "config.json").read_text())
    del config[key]
    (saved / "config.json").write_text(json.dumps(config))
    refused(saved, f"'{key}' is missing")


@pytest.mark.parametrize("files", [{}, {"model.safetensors": "x", "../../etc/passwd": "y"}])
def test_an_invalid_list_of_files_raises(saved, files):
    if files:
        files["model.safetensors"] = folder_module._sha256(saved / "model.safetensors")
    change(saved, files=files)
    refused(saved, "list of files")


def test_a_folder_of_transformers_raises_with_its_importer(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    refused(tmp_path, r"regard\.weights\.hf\.marian\.load")


def test_an_impossible_device_is_named(saved):
    with pytest.raises(BadInput, match="cannot put the model on 'tpu9000'"):
        load_model(saved, device="tpu9000")


# -- formats -----------------------------------------------------------------------------------------------------------

FORMATS = Path(__file__).parent / "formats"
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def test_a_newer_format_raises_with_what_to_do(saved):
    change(saved, format=folder_module.FORMAT + 1, regard="9.0.0")
    refused(saved, r"Regard 9\.0\.0.*pip install -U regard")


@pytest.mark.parametrize("number", [0, -3])
def test_an_unknown_format_raises(saved, number):
    change(saved, format=number)
    refused(saved, "no version of Regard")


@pytest.mark.parametrize("number", [None, "1", 1.5, True])
def test_an_invalid_format_number_raises(saved, number):
    change(saved, format=number)
    refused(saved, "no format number")


def test_older_formats_go_through_the_migrations_in_turn(saved, monkeypatch, model):
    now = folder_module.FORMAT
    monkeypatch.setattr(folder_module, "FORMAT", now + 2)
    change(saved, kind=json.loads((saved / "config.json").read_text())["model"])
    change(saved, model=7)
    steps = {now: lambda c: c | {"model": c["kind"], "seen": [1]}, now + 1: lambda c: c | {"seen": [*c["seen"], 2]}}
    monkeypatch.setattr(folder_module, "MIGRATIONS", steps)
    found = load_model(saved)
    assert found.config["seen"] == [1, 2]
    assert torch.equal(found.model(*ASKED), model(*ASKED))


def check_example(folder, expected):
    found = load_model(folder)
    logits = found.model(torch.tensor(expected["source"]), torch.tensor(expected["target"]))
    torch.testing.assert_close(logits, torch.tensor(expected["logits"]), rtol=1e-4, atol=1e-5)
    assert found.text.encode([expected["line"]]) == [expected["tokens"]]
    assert found.task == expected["task"]
    assert found.card == expected["card"]


@pytest.mark.parametrize("number", range(3, folder_module.FORMAT + 1))
def test_the_stored_example_of_every_format_loads(number):
    check_example(FORMATS / str(number), json.loads((FORMATS / f"{number}.json").read_text()))


@pytest.mark.long
@pytest.mark.parametrize("number", folder_module.CONVERTED)
def test_an_old_format_raises_and_can_be_converted(number, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(FORMATS / str(number), old)
    refused(old, r"python scripts/convert_models\.py")
    before = safetensors.torch.load_file(old / "model.safetensors")
    subprocess.run([sys.executable, str(SCRIPTS / "convert_models.py"), str(old)], check=True, timeout=600)
    after = safetensors.torch.load_file(old / "model.safetensors")
    assert sorted(t.numpy().tobytes() for t in before.values()) == sorted(t.numpy().tobytes() for t in after.values())
    check_example(old, json.loads((FORMATS / f"{number}.json").read_text()))
