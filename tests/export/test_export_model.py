"""Exports: every predictor has a plan or a reason; what is written answers as the model does, without Regard."""

import json
import textwrap
from importlib.util import find_spec

import pytest
import torch

import regard
from regard.api import zoo
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.export import PLANS, REFUSED, export_model, generation
from regard.export import folder as export_folder
from regard.export.folder import line_difference, make_plan, make_script, run_script
from regard.export.plan import Plan
from regard.models import gpt
from regard.tasks import PREDICTORS
from regard.tasks.text.language_modeling import TextGenerator
from regard.tokens.tokenizer import Tokenizer
from tests.contracts.test_predictors import predictor

needs_onnx = pytest.mark.skipif(
    any(find_spec(part) is None for part in ("onnx", "onnxscript", "onnxruntime")), reason="pip install 'regard[onnx]'"
)
FORMATS = [pytest.param("onnx", marks=needs_onnx), "torch"]


pytestmark = pytest.mark.usefixtures("unchecked")  # exporters cannot trace through shape checks


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A small classifier as programs of torch.export, checked."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    place = tmp_path_factory.mktemp("export") / "classifier"
    return export_model(predictor("classification"), place, "torch", check=True)


def test_every_predictor_is_exported_or_refused_with_a_reason():
    assert PLANS.keys().isdisjoint(REFUSED)
    assert {*PLANS, *REFUSED} == {*PREDICTORS}


def test_the_folder_has_all_that_is_needed(exported):
    assert {"model.pt2", "config.json", "run.py", "tokenizer.json", "README.md"} <= {*exported.files}
    config = json.loads((exported.folder / "config.json").read_text("utf-8"))
    assert config["labels"] == predictor("classification").labels
    (graph,) = config["graphs"].values()
    assert [each["shape"] for each in graph["inputs"]] == [["batch", "length"], ["batch", "length"], ["batch"]]
    assert {each.what for each in exported.differences} == {"model", "run.py"}
    assert len(exported.differences) >= 4  # batches of several sizes, and the script


def test_the_script_is_short_and_answers_without_regard(exported):
    """Its answer is that of the predictor; its process cannot import Regard."""
    script = (exported.folder / "run.py").read_text("utf-8")
    code = script.split('"""')[2]
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(lines) <= 15
    assert "regard" not in code
    found = predictor("classification")("A cat sleeps.")
    printed = run_script(exported.folder, ["A cat sleeps."])
    assert line_difference(f"{found.label}\t{found.probability:.4f}", printed) < 1e-3


def test_the_script_keeps_the_letters_of_a_prompt_that_the_model_does_not_know(tmp_path):
    text = Tokenizer.train(["a cat and a dog sat"], kind="char", size=40)
    sizes = {"width": 8, "heads": 2, "layers": 1, "ffn": 16, "length": 24}
    one = TextGenerator(gpt.GPT(gpt.Config(vocab=text.size, eos=text.eos, **sizes)).eval(), text)
    assert "T" in "".join(one.examples)  # which the model does not know
    found = export_model(one, tmp_path / "out", "torch", check=True)
    assert found.differences[-1].what == "run.py"
    assert run_script(tmp_path / "out", ["A cat!"]).startswith("A cat!")


def test_a_text_longer_than_the_cache_of_the_graphs_is_compared_up_to_there(monkeypatch):
    monkeypatch.setattr(generation, "MAX_CAPACITY", 3)
    one = predictor("translation")
    plan, _ = make_plan(one)
    line = one.examples[0]
    short, whole = (str(one(line, beam_size=1, **more)) for more in ({"max_new_tokens": 3}, {}))
    assert plan.answer(line) == short != whole


def test_a_script_that_imports_regard_fails_in_the_check(tmp_path):
    (tmp_path / "run.py").write_text("import regard\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"run\.py failed.*regard"):
        run_script(tmp_path, [])


def test_an_export_that_differs_leaves_nothing_and_an_old_one_unchanged(exported, monkeypatch):
    def different(*given):
        plan, name = make_plan(*given)
        object.__setattr__(plan, "answer", lambda *line: "something else")
        return plan, name

    monkeypatch.setattr(export_folder, "make_plan", different)
    before = {file.name: file.read_bytes() for file in exported.folder.iterdir()}
    with pytest.raises(RegardError, match="otherwise than Regard"):
        export_model(predictor("classification"), exported.folder, "torch", check=True)
    assert {file.name: file.read_bytes() for file in exported.folder.iterdir()} == before
    assert [*exported.folder.parent.iterdir()] == [exported.folder]


def test_graphs_that_differ_from_the_model_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(export_folder, "TOLERANCE", -1.0)
    with pytest.raises(RegardError, match="differs from the model"):
        export_model(predictor("classification"), tmp_path / "new", "torch")
    assert [*tmp_path.iterdir()] == []


def test_a_folder_with_other_files_is_not_replaced(tmp_path):
    (tmp_path / "letter.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="other things"):
        export_model(predictor("classification"), tmp_path, "torch")
    assert [file.name for file in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why_and_what_to_do_instead(name, tmp_path):
    with pytest.raises(Unsupported) as caught:
        export_model(predictor(name), tmp_path / "out", "torch")
    assert REFUSED[name] in str(caught.value)
    assert "regard serve" in str(caught.value)
    assert "--network" in str(caught.value)
    assert [*tmp_path.iterdir()] == []


def test_a_model_in_training_mode_is_exported_for_inference_and_stays_in_it(tmp_path):
    one = predictor("classification")
    one.model.train()
    try:
        found = export_model(one, tmp_path / "out", "torch")
        assert one.model.training
    finally:
        one.model.eval()
    assert max(each.largest for each in found.differences) < 1e-5


def test_other_formats_devices_and_types_are_refused(tmp_path):
    with pytest.raises(BadInput, match="onnx, torch"):
        export_model(predictor("classification"), tmp_path / "out", "tensorflow")
    half = regard.build("vit", size="tiny").half()
    with pytest.raises(BadInput, match="float32"):
        export_model(half, tmp_path / "out", "torch")


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", PLANS)
def test_every_exported_predictor_answers_as_before(name, kind, tmp_path):
    one = predictor(name)
    if name == "glimpse_classification":
        with pytest.raises(Unsupported, match=r"predictor\.paths = 1"):
            make_plan(one)
        one.paths = 1
    found = export_model(one, tmp_path / "out", kind, check=True)
    assert found.differences[-1].what == "run.py"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in zoo() if name != "pen-digits"])
@needs_onnx
def test_every_shipped_model_is_exported(name, tmp_path):
    found = export_model(regard.load(name), tmp_path / "out", "onnx", check=True)
    assert found.differences[-1].what == "run.py"


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", REFUSED)
def test_the_network_of_what_is_refused_is_exported_alone(name, kind, tmp_path):
    found = export_model(predictor(name), tmp_path / "out", kind, check=True, network=True)
    assert "example.npz" in found.files


def test_a_model_without_a_task_is_exported_as_a_network(tmp_path):
    torch.manual_seed(0)
    model = regard.build("deep_sets", size="tiny")
    found = export_model(model, tmp_path / "out", "torch", check=True)
    assert {"model.pt2", "example.npz", "run.py"} <= {*found.files}
    assert found.differences[-1].what == "run.py"


def test_the_script_reads_a_picture_as_the_preprocessing_does(tmp_path):
    """In every crop mode of one size, for tall and wide pictures: to the byte."""
    import math

    import numpy as np
    from PIL import Image, ImageOps

    from regard.export.image import picture_lines
    from regard.modalities import Preprocess

    for size in ((97, 60), (50, 81), (24, 24)):
        file = tmp_path / "picture.png"
        pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)
        for mode in ("squash", "center", "border", "corner"):
            for crop in (1.0, 0.875):
                for target, rounding, channels in (((32, 32), "even", 3), ((24, 40), "down", 1)):
                    mean = (0.5,) * channels
                    shown = Preprocess(
                        target,
                        channels,
                        mean,
                        mean,
                        crop=crop,
                        crop_mode=mode,
                        crop_rounding=rounding,
                        resample="bilinear",
                    )
                    scope = {"file": str(file), "np": np, "Image": Image, "ImageOps": ImageOps, "math": math}
                    exec(textwrap.dedent(picture_lines(shown)), scope)
                    wanted = np.array(shown.view(str(file)))
                    wanted = wanted[None, None] if channels == 1 else wanted.transpose(2, 0, 1)[None]
                    np.testing.assert_array_equal(scope["pixels"], wanted, err_msg=f"{size} {mode} {crop} {target}")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "L", "P", "CMYK", "1"])
def test_the_script_reads_pictures_of_other_modes_as_regard_does(tmp_path, mode):
    import math

    import numpy as np
    from PIL import Image, ImageOps

    from regard.export.image import picture_lines
    from regard.modalities import Preprocess

    file = tmp_path / ("picture.tif" if mode == "CMYK" else "picture.png")
    pixels = np.random.default_rng(0).integers(0, 255, (40, 30, 4), dtype=np.uint8)
    Image.fromarray(pixels).convert("RGB" if mode == "CMYK" else "RGBA").convert(mode).save(file)
    shown = Preprocess((32, 32), 3, (0.5,) * 3, (0.5,) * 3, crop_mode="squash")
    scope = {"file": str(file), "np": np, "Image": Image, "ImageOps": ImageOps, "math": math}
    exec(textwrap.dedent(picture_lines(shown)), scope)
    np.testing.assert_array_equal(scope["pixels"], np.array(shown.view(str(file))).transpose(2, 0, 1)[None])


def test_the_words_of_a_model_stay_words_in_the_script():
    import ast

    quotes = '"' * 3
    for mark in (f"{quotes}\nimport os\nos.abort()\n{quotes}", "\\", f"\\{quotes}", f'{quotes}"', "'''"):
        tree = ast.parse(make_script(Plan((), "", f'"A text with {mark}"...'), "torch", "masked_lm"))
        assert mark in tree.body[0].value.value
        assert [type(node).__name__ for node in tree.body] == [
            "Expr", "Import", "ImportFrom", "Import", "Import", "Assign", "Assign", "FunctionDef"
        ]  # fmt: skip


def test_lines_differ_where_a_number_is_none():
    assert line_difference("cat 0.93", "cat 0.93") == 0
    assert line_difference("cat 0.93", "cat 0.9301") == pytest.approx(1e-4)
    assert line_difference("cat nan", "cat nan") == 0
    for found in ("cat nan", "cat inf", "dog 0.93", "cat", "cat x"):
        assert line_difference("cat 0.93", found) > 1e-3


def test_an_example_moves_no_random_numbers():
    classifier = predictor("classification")  # its weights are drawn
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    plan, _ = make_plan(classifier)
    plan.graphs[0].sample((2, 5))
    assert torch.equal(torch.rand(3), expected)


def test_the_frames_of_the_graph_are_those_of_the_preprocessing():
    from regard.export.audio import frames_graph

    one = predictor("ctc_speech_recognition")
    graph, _ = frames_graph(one)
    noise = torch.randn(5000, generator=torch.Generator().manual_seed(0)) / 100  # a band without sound has no digits
    wave = torch.sin(torch.arange(5000) / 9.0) * torch.linspace(0.1, 1, 5000) + noise
    (found,) = graph.function(wave)
    torch.testing.assert_close(found, one.preprocess(wave), rtol=1e-3, atol=1e-3)


def test_the_script_of_every_plan_is_python():
    for name in PLANS:
        one = predictor(name)
        if name == "glimpse_classification":
            one.paths = 1
        plan, _ = make_plan(one)
        for kind in ("onnx", "torch"):
            compile(make_script(plan, kind, name), "run.py", "exec")
