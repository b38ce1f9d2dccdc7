"""The contract of every predictor: a complete declaration, valid schemas, a batch equals its singles, save -> load
gives the same outputs, and bad input is one clear line."""

import json
from dataclasses import fields, is_dataclass
from functools import cache

import pytest
import torch

import regard
from regard.core.cancellation import Cancelled, cancel_when
from regard.core.errors import BadInput, RegardError, UnknownName
from regard.core.spec import resolve
from regard.modalities import Input, Output, PointPreprocess, Preprocess, Text
from regard.modalities.audio import AudioPreprocess
from regard.modalities.graph_preprocess import GraphPreprocess
from regard.models import build
from regard.models.elmo import Config as ELMoConfig
from regard.models.elmo import ELMo
from regard.models.neural_gpu import Config as NeuralGPUConfig
from regard.models.neural_gpu import NeuralGPU
from regard.models.t5 import T5
from regard.models.t5 import Config as T5Config
from regard.models.word2vec import Config as Word2VecConfig
from regard.models.word2vec import Word2Vec
from regard.tasks import PREDICTORS
from regard.tasks.audio.audio_classification import AudioClassifier
from regard.tasks.audio.joint_speech_recognition import JointSpeechRecognizer
from regard.tasks.episodes.decision import DecisionAgent
from regard.tasks.globe.place_classification import PlaceClassifier
from regard.tasks.graphs.graph_classification import GraphClassifier
from regard.tasks.image.captioning import Captioner
from regard.tasks.image.depth_estimation import DepthEstimator
from regard.tasks.image.glimpse_classification import GlimpseClassifier
from regard.tasks.image.image_generation import ImageGenerator, SuperResolution
from regard.tasks.image.object_detection import ObjectDetector
from regard.tasks.image.panoptic_segmentation import PanopticSegmenter
from regard.tasks.image.semantic_segmentation import SemanticSegmenter
from regard.tasks.image.variational_image_generation import LatentImageGenerator
from regard.tasks.image.visual_question_answering import VisualQuestionAnswerer
from regard.tasks.memory.stories import StoryAnswerer
from regard.tasks.memory.tapes import TapePredictor
from regard.tasks.points.point_classification import PointClassifier
from regard.tasks.points.point_segmentation import PointSegmenter
from regard.tasks.predictor import NoOptions, Predictor
from regard.tasks.text.arithmetic import Calculator
from regard.tasks.text.bidirectional_lm import ContextualEmbedder
from regard.tasks.text.chunking import Chunker
from regard.tasks.text.classification import TextClassifier, TextPairClassifier
from regard.tasks.text.embedder import TextEmbedder
from regard.tasks.text.extractive_qa import QuestionAnswerer
from regard.tasks.text.language_modeling import TextGenerator
from regard.tasks.text.masked_lm import FillMask
from regard.tasks.text.pronunciation import Pronouncer
from regard.tasks.text.symbol_prediction import SymbolPredictor
from regard.tasks.text.tagging import Tagger
from regard.tasks.text.text_to_text import TextToTextGenerator
from regard.tasks.text.translation import Translator
from regard.tasks.text.word2vec import NearestWords
from regard.tokens.story_words import StoryWords
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.word_tokenizer import build_vocabulary
from tests.long_params import rest_is_long

LINES = ["The old dog barks at the cat.", "A cat sleeps on the mat, and the dogs look on.", "Two dogs play."]
SMALL = {"width": 16, "heads": 2}


# -- small random models -----------------------------------------------------------------------------------------------


@cache
def tokenizer(kind):
    if kind == "letters":
        return Tokenizer.train(["t h e o l d c a AA B D"] * 2, kind="word", size=60)
    if kind == "vocabulary":
        return build_vocabulary([line.lower().split() for line in LINES], size=40, lower=True)
    return Tokenizer.train(LINES * 3, kind=kind, size=300 if kind == "bytes" else 90, lower=kind == "bert")


def perturb(model):
    """Move all weights, so that outputs of different inputs differ."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def bert(head):
    return perturb(build("bert", vocab=tokenizer("bert").size, layers=1, length=64, head=head, **SMALL))


def transformer(vocab):
    return perturb(build("transformer", vocab=vocab, ffn=32, encoder_layers=1, decoder_layers=1, **SMALL))


def decision_agent():
    from tests.tasks.episodes import test_decision

    return DecisionAgent(test_decision.model(test_decision.task()), 6)


def t5():
    size = tokenizer("bytes").size
    config = T5Config(vocab=size, encoder_layers=1, decoder_layers=1, ffn=32, head_dim=8, **SMALL)
    return TextToTextGenerator(perturb(T5(config)), tokenizer("bytes"), max_new_tokens=5)


def elmo():
    text = tokenizer("vocabulary")
    config = ELMoConfig(vocab=text.size, width=16, hidden=16, filters=(8, 8, 8), highway_layers=1)
    return ContextualEmbedder(ELMo(config), text)


def gpt():
    text = tokenizer("bytes")
    return TextGenerator(perturb(build("gpt", vocab=text.size, layers=1, length=64, eos=text.eos, **SMALL)), text)


def story_answerer():
    words = StoryWords.of([*LINES, "Who barks?"], ["cat", "dog", "cat,dog"])
    model = perturb(build("memn2n", size="tiny", vocab=words.size, num_classes=3))
    return StoryAnswerer(model, list(words.answers), list(words.others), 4)


def captioner(name="show_attend_and_tell"):
    text = tokenizer("vocabulary")
    config = {"vocab": text.size, "pad": text.pad, "bos": text.bos, "eos": text.eos}
    return Captioner(perturb(build(name, size="tiny", **config)), text, Preprocess(32), max_words=6)


def question_answerer():
    words = StoryWords.of(["what colour is the", "bag shoe"], ["red", "blue"])
    model = perturb(build("vqa_transformer", size="tiny", vocab=words.size, num_classes=2))
    slots = {"thing": ["bag", "shoe"]}
    forms = ["what colour is the {thing}", "is the {thing} the {thing}"]
    return VisualQuestionAnswerer(model, words.answers, words.others, forms, slots, Preprocess(24))


def image_transformer(**settings):
    return perturb(build("image_transformer", size="tiny", image_size=4, layers=1, **settings))


MAKE = {
    "translation": lambda: Translator(transformer(tokenizer("bytes").size), tokenizer("bytes")),
    "language_modeling": gpt,
    "text_to_text": t5,
    "embedding": lambda: TextEmbedder(bert(None), tokenizer("bert")),
    "masked_lm": lambda: FillMask(bert("masked"), tokenizer("bert")),
    "decision": decision_agent,
    "chunking": lambda: Chunker(transformer(tokenizer("bytes").size + 200), tokenizer("bytes"), ["NP", "VP"]),
    "classification": lambda: TextClassifier(bert("classes(3)"), tokenizer("bert"), ["a", "b", "c"]),
    "pair_classification": lambda: TextPairClassifier(bert("classes(2)"), tokenizer("bert"), ["a", "b"], 32),
    "tagging": lambda: Tagger(bert("tags(3)"), tokenizer("bert"), ["x", "y", "z"]),
    "extractive_qa": lambda: QuestionAnswerer(bert("span"), tokenizer("bert"), max_answer_tokens=4),
    "story_answering": story_answerer,
    "word2vec": lambda: NearestWords(
        Word2Vec(Word2VecConfig(vocab=tokenizer("vocabulary").size, width=6)), tokenizer("vocabulary")
    ),
    "bidirectional_lm": elmo,
    "handwriting": lambda: regard.load("pen-digits"),
    "pronunciation": lambda: Pronouncer(transformer(tokenizer("letters").size), tokenizer("letters")),
    "ctc_speech_recognition": lambda: regard.load("digits"),
    "speech_recognition": lambda: regard.load("digits-listen"),
    "joint_speech_recognition": lambda: JointSpeechRecognizer(
        perturb(build("hybrid_asr", size="tiny", vocab=14, input_dim=40, layers=1)),
        regard.load("digits-listen").text,
        AudioPreprocess(),
    ),
    "arithmetic": lambda: Calculator(
        NeuralGPU(NeuralGPUConfig(vocab=7, width=4, rows=1, decoder="image", length_offset=2.0))
    ),
    "symbol_prediction": lambda: SymbolPredictor(
        perturb(build("bert", vocab=19, layers=1, length=32, head="tags(19)", **SMALL)), 24
    ),
    "tapes": lambda: TapePredictor(perturb(build("ntm", size="tiny")), settings={"bits": 4}),
    "image_classification": lambda: regard.load("fashion"),
    "captioning": captioner,
    "glimpse_classification": lambda: GlimpseClassifier(
        perturb(build("ram", size="tiny", num_classes=3)), ["a", "b", "c"], Preprocess(12, 1, (0.5,), (0.5,)), 2
    ),
    "image_generation": lambda: ImageGenerator(image_transformer()),
    "super_resolution": lambda: SuperResolution(image_transformer(channels=3, condition_size=2)),
    "variational_image_generation": lambda: LatentImageGenerator(perturb(build("draw", size="tiny"))),
    "semantic_segmentation": lambda: SemanticSegmenter(
        perturb(build("segmenter", size="tiny", num_outputs=3)), ["a", "b", "c"], Preprocess(32)
    ),
    "depth_estimation": lambda: DepthEstimator(
        perturb(build("dpt", size="tiny", num_outputs=1)), Preprocess(32, crop_mode="corner")
    ),
    "object_detection": lambda: ObjectDetector(perturb(build("detr", size="tiny", num_classes=2)), ["a", "b"], CORNER),
    "panoptic_segmentation": lambda: PanopticSegmenter(
        perturb(build("detr", size="tiny", num_classes=2, masks=True)), ["a", "b"], CORNER, ["b"]
    ),
    "visual_question_answering": question_answerer,
    "graph_classification": lambda: GraphClassifier(
        perturb(build("graph_transformer", size="tiny", input_dim=1, position_dim=3, num_outputs=3)),
        ["a", "b", "c"],
        GraphPreprocess(1, "laplacian", 3),
    ),
    "place_classification": lambda: PlaceClassifier(
        perturb(build("siren", size="tiny", num_outputs=3)), ["a", "b", "c"]
    ),
    "audio_classification": lambda: AudioClassifier(
        perturb(build("cct", size="tiny", num_classes=3, channels=1, image_size=(24, 40))),
        ["no", "yes", "why"],
        AudioPreprocess(),
        max_frames=24,
    ),
    "point_classification": lambda: PointClassifier(
        perturb(build("point_transformer", size="tiny", num_classes=3)), ["a", "b", "c"], PointPreprocess(40)
    ),
    "point_segmentation": lambda: PointSegmenter(
        perturb(build("point_transformer", size="tiny", num_classes=3, head="points")),
        ["a", "b", "c"],
        PointPreprocess(40),
    ),
}


@cache
def predictor(name):
    torch.manual_seed(0)
    return MAKE[name]()


CORNER = Preprocess(64, crop_mode="corner")
PHOTOS = [
    (torch.arange(size).remainder(251).byte().reshape(shape).numpy(),)
    for size, shape in ((9120, (40, 76, 3)), (1584, (33, 16, 3)))
]
WAVE = torch.sin(torch.arange(4000) / 9.0)
SENTENCES = [(line,) for line in (LINES[1], "A cat.", LINES[0])]  # one tuple an item, one value a field
ITEMS = {
    "masked_lm": [("The [MASK] dog barks at the [MASK] .",), ("[MASK] dogs",)],
    "decision": [(60.0,), (20.0,)],
    "pair_classification": [(LINES[0], LINES[1]), ("dogs", "A cat sleeps.")],
    "extractive_qa": [(LINES[1], "Who sleeps?"), ("A cat.", "Which old dog barks at the cat?")],
    "story_answering": [(LINES[0] + " A cat sleeps.", "Who sleeps?"), ("A cat.", "Which dog barks at the cat?")],
    "word2vec": [("dog",), ("cat",)],
    "handwriting": [("31",), ("4",)],
    "pronunciation": [("the",), ("old",), ("cat",)],
    "ctc_speech_recognition": [(WAVE,), (WAVE[:2500],)],
    "speech_recognition": [(WAVE,), (WAVE[:2500],)],
    "joint_speech_recognition": [(WAVE,), (WAVE[:2500],)],
    "audio_classification": [(WAVE,), (WAVE[:2500],), (WAVE[::2],)],
    "arithmetic": [("1011+110",), ("1+1",)],
    "tapes": [("1010 0111",), ("0001",)],
    "symbol_prediction": [("0 9 1 12 . 1 ? 0 ?",), ("3 1 4 . ? ? ?",)],
    "image_classification": [(image.mul(255).byte().numpy(),) for image in (torch.ones(28, 28), torch.eye(28))],
    "image_generation": [(3,), (0,), (3.0,)],
    "variational_image_generation": [(3,), (0,), (3.0,)],
    "graph_classification": [
        ({"nodes": 5, "edges": [[0, 1], [1, 2], [3, 4]]},),
        ({"nodes": 1, "edges": []},),
        ({"nodes": 3, "edges": [[0, 1], [2, 1]], "directed": True},),
    ],
    "place_classification": [("48.86 N, 2.35 E",), ({"latitude": -33.9, "longitude": 151.2},), ("90, 0",)],
    "point_classification": [(torch.randn(n, 3, generator=torch.Generator().manual_seed(n)),) for n in (50, 2, 17)],
    "super_resolution": [(image.mul(255).byte().numpy(),) for image in (torch.ones(2, 2), torch.eye(2))],
}
ITEMS["point_segmentation"] = ITEMS["point_classification"]
ITEMS["glimpse_classification"] = ITEMS["image_classification"]
ITEMS |= dict.fromkeys(
    ("semantic_segmentation", "object_detection", "panoptic_segmentation", "depth_estimation", "captioning"), PHOTOS
)
QUESTIONS = ("What colour is the bag?", "Is the shoe the bag?", "Who are you?")
ITEMS["visual_question_answering"] = [
    (*image, question) for image, question in zip([*PHOTOS, PHOTOS[0]], QUESTIONS, strict=True)
]
OPTIONS = {  # outputs that depend on nothing but their item
    "language_modeling": {"temperature": 0, "max_new_tokens": 6},
    "handwriting": {"max_points": 40},
    "object_detection": {"min_score": 0.2},
    "panoptic_segmentation": {"min_score": 0.2},
}
NAMES = list(PREDICTORS)


def items(name):
    return ITEMS.get(name, SENTENCES)


def columns(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def outputs(name, rows, one=None):
    """The outputs of items as `predict` gives them."""
    one = predictor(name) if one is None else one
    read, _ = one.read(columns(rows))
    return one.predict(read, one.make_options(OPTIONS.get(name, {})))


def test_every_predictor_is_tested():
    assert set(MAKE) == set(PREDICTORS)


# -- declaration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_declaration_is_complete(name):
    cls = resolve(PREDICTORS, name, "task")
    assert issubclass(cls, Predictor)
    assert cls.inputs
    assert all(issubclass(kind, Input) for kind in cls.inputs.values())
    assert issubclass(cls.outputs, Output)
    assert cls.predict is not Predictor.predict
    assert cls.__doc__
    assert is_dataclass(cls.options)
    assert cls.options.__dataclass_params__.frozen
    for option in fields(cls.options):
        assert option.metadata.get("help"), f"{cls.options.__name__}.{option.name} has no help"
    assert isinstance(cls.make_options({}), cls.options)  # every option has a default
    if all(kind is Text for kind in cls.inputs.values()):
        assert cls.examples
        for number, example in enumerate(cls.examples, 1):
            assert cls.item_from_json(example, number)


# -- schemas -----------------------------------------------------------------------------------------------------------

TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None)}
KEYWORDS = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "minItems", "maxItems"),
    *("minLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "default", "description"),
    *("format", "contentEncoding", "contentMediaType", "$schema"),
}


def check_schema(schema):
    """Assert that a JSON schema uses known keywords, well formed."""
    assert isinstance(schema, dict)
    assert schema.keys() <= KEYWORDS, schema.keys() - KEYWORDS
    assert schema.get("type", "number") in (*TYPES, "number")
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    for inner in (*schema.get("properties", {}).values(), *schema.get("anyOf", ())):
        check_schema(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            check_schema(schema[key])
    if "default" in schema:
        assert fits(schema["default"], schema), schema


def fits(value, schema):
    """Return whether a JSON value fits a schema."""
    if "anyOf" in schema and not any(fits(value, inner) for inner in schema["anyOf"]):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    kind = schema.get("type")
    if kind == "number" and (not isinstance(value, (int, float)) or isinstance(value, bool)):
        return False
    if kind in TYPES and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        return False
    if kind in ("number", "integer"):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        return low <= value <= high and (above is None or value > above) and (below is None or value < below)
    if kind == "string":
        return len(value) >= schema.get("minLength", 0)
    if kind == "array":
        sized = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return sized and all(fits(each, schema.get("items", {})) for each in value)
    if kind == "object":
        known, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        others = [each for key, each in value.items() if key not in known]
        return (
            all(key in value for key in schema.get("required", ()))
            and all(fits(value[key], inner) for key, inner in known.items() if key in value)
            and (not others or more is True or (more is not False and all(fits(each, more) for each in others)))
        )
    return True


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_valid_and_requests_and_answers_fit_them(name):
    one = predictor(name)
    for schema in (one.input_schema(), one.options_schema(), one.output_schema(), one.request_schema()):
        check_schema(schema)
        json.dumps(schema)
    check_schema(one.answer_schema())
    found = outputs(name, items(name)[:1])
    answer = json.loads(json.dumps({"model": name, "outputs": [each.to_json() for each in found]}))
    assert fits(answer, one.answer_schema()), answer
    again = one.outputs.from_json(answer["outputs"][0])
    assert found[0].difference(again) == pytest.approx(0, abs=1e-4)
    if all(kind is Text for kind in one.inputs.values()):
        rows = [dict(zip(one.inputs, row, strict=True)) for row in items(name)]
        request = {"inputs": rows, "options": OPTIONS.get(name, {})}
        assert fits(request, one.request_schema())
        assert fits({"inputs": [{}]}, one.request_schema()) is False
        assert fits({"inputs": rows, "options": {"no_such": 1}}, one.request_schema()) is False


# -- outputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_gives_what_its_singles_give(name):
    rows = items(name)
    together = outputs(name, rows)
    assert len(together) == len(rows)
    for row, found in zip(rows, together, strict=True):
        assert isinstance(found, predictor(name).outputs)
        (alone,) = outputs(name, [row])
        assert found.difference(alone) == pytest.approx(0, abs=1e-4)
    assert predictor(name).predict([], predictor(name).make_options({})) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_call_takes_one_item_or_a_list(name):
    one, rows = predictor(name), items(name)
    options = OPTIONS.get(name, {})
    single, several = one(*rows[0], **options), one(*columns(rows[:2]), **options)
    assert len(several) == 2
    if name == "embedding":  # a tensor: C, and B C
        torch.testing.assert_close(several[0], single, rtol=1e-4, atol=1e-5)
    else:
        assert isinstance(single, one.outputs)
        assert single.difference(several[0]) == pytest.approx(0, abs=1e-4)
    assert len(one(*([[]] * len(one.inputs)))) == 0
    assert len(one(*columns(rows[:1]), **options)) == 1  # a list of one is a list
    if len(one.inputs) > 1:  # rows by field, or in the order of the fields
        by_field = [dict(zip(one.inputs, row, strict=True)) for row in rows[:2]]
        assert one(by_field[0], **options).difference(single) == pytest.approx(0, abs=1e-4)
        for given in (by_field, [tuple(row) for row in rows[:2]]):
            assert [a.difference(b) for a, b in zip(one(given, **options), several, strict=True)] == pytest.approx(
                [0, 0], abs=1e-4
            )
        assert one([]) == []
        assert f"Item 2 has {len(one.inputs) + 1} values" in refused(lambda: one([tuple(rows[0]), (*rows[0], 1)]))
    assert one.to("cpu") is one
    assert isinstance(several, torch.Tensor if name == "embedding" else list)


@pytest.mark.parametrize("name", NAMES)
def test_a_predictor_prints_what_goes_in_what_comes_out_and_its_model(name):
    one = predictor(name)
    said = repr(one)
    assert "\n" not in said
    assert len(said) < 300
    assert said.startswith(f"{type(one).__name__}({', '.join(one.inputs)} -> {one.outputs.__name__}")
    assert f"{type(one.model).__name__}, " in said
    assert "on cpu" in said
    for label in getattr(one, "labels", ())[:1]:
        assert str(label) in said


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_gives_the_same_outputs(name, tmp_path):
    one = predictor(name)
    regard.save(one, tmp_path / "saved")
    again = regard.load(tmp_path / "saved")
    assert type(again) is type(one)
    assert regard.api.predictor_class(tmp_path / "saved") is type(one)
    for a, b in zip(outputs(name, items(name)), outputs(name, items(name), again), strict=True):
        assert a.difference(b) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_work_that_nobody_waits_for_ends(name):
    one = predictor(name)
    read, _ = one.read(columns(items(name)))
    with cancel_when(lambda: True), pytest.raises(Cancelled):
        one.predict(read, one.make_options(OPTIONS.get(name, {})))


# -- bad input ---------------------------------------------------------------------------------------------------------


def refused(act, kind=RegardError):
    with pytest.raises(kind) as caught:
        act()
    assert str(caught.value)
    assert "\n" not in str(caught.value).strip(), str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_bad_input_is_one_clear_line(name):
    one, row = predictor(name), items(name)[0]
    first = next(iter(one.inputs))
    wrong = [object(), *row[1:]]
    said = refused(lambda: one(*([row[n], wrong[n]] for n in range(len(row)))), BadInput)
    assert f"{first} 2" in said
    assert f"got {len(row) + 1}" in refused(lambda: one.read((*row, row[0])), BadInput)
    refused(lambda: one(object()))
    if len(row) > 1:  # one value and a list of others: a text is not a list of its letters
        assert "list per field" in refused(lambda: one(row[0], [row[1]] * len(row[0])), BadInput)
    if one.inputs[first] is Text:
        taken = {"": (Translator, Pronouncer), "\ud800": (Translator, TextToTextGenerator)}  # empty; half a character
        for text, kinds in taken.items():
            if type(one) in kinds:
                assert isinstance(one(text), Text)
            else:
                refused(lambda text=text: one(text, *row[1:]))
    refused(lambda: one.item_from_json({first: row[0], "no_such": 1}), UnknownName)


@pytest.mark.parametrize("name", NAMES)
def test_bad_options_are_one_clear_line(name):
    one = predictor(name)
    assert "no_such" in refused(lambda: one.make_options({"no_such": 1}), UnknownName)
    for option in fields(one.options) if one.options is not NoOptions else ():
        assert option.name in refused(lambda option=option: one.make_options({option.name: object()}))
        bounds = option.metadata.get("range")
        low = None if bounds is None else bounds.low if bounds.low is not None else bounds.above
        if low is not None and isinstance(option.default, (int, float)):
            below = low - (1 if isinstance(option.default, int) or bounds.low is not None else 0)
            assert option.name in refused(lambda option=option, below=below: one.make_options({option.name: below}))


LONG = {"text": ("9" * 5000, "word " * 3000), "word": ("9" * 5000, "dog " * 3000), "target_return": (1e30, "9" * 5000)}
REFUSE_LONG = ("arithmetic", "symbol_prediction", "tapes", "word2vec", "decision")


@pytest.mark.parametrize("name", REFUSE_LONG)
def test_what_is_refused_for_its_length_is_not_repeated_in_full(name):
    one = predictor(name)
    for given in LONG[next(iter(one.inputs))]:
        assert len(refused(lambda given=given: one(given))) < 400
        if name == "symbol_prediction":
            assert len(refused(lambda given=given: one(f"{given} ?"))) < 400


def test_a_tape_repeated_a_number_of_times_of_thousands_of_digits_is_refused():
    one = TapePredictor(build("ntm", size="tiny"), "repeat_copy", {"bits": 4})
    refused(lambda: one("1010 x" + "9" * 5000), BadInput)


@pytest.mark.parametrize("name", rest_is_long(NAMES, "captioning", "chunking", "decision"))
def test_a_task_in_config_json_with_values_of_other_kinds_is_refused_in_one_line_or_loaded(name, tmp_path):
    folder = tmp_path / "saved"
    regard.save(predictor(name), folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    for key in config["task"]:
        for value in (10**9, None, "x", {}, [], [[1]]):
            hostile = config | {"task": config["task"] | {key: value}}
            (folder / "config.json").write_text(json.dumps(hostile), encoding="utf-8")
            said = ""
            try:
                regard.load(folder)
            except RegardError as error:
                said = str(error)
            assert "\n" not in said
