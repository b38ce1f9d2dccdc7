import math

import pytest
import torch

import regard
from regard.core.errors import BadInput, UnknownName, Unsupported
from regard.interpret.compare import compare_outputs

CASES = [
    ("en-de", {"text": "Two dogs are playing in the snow."}, {"do": "off", "map": "decoder.*.cross"}),
    ("gru-additive", {"text": "Two dogs are playing in the snow."}, {"do": "uniform"}),
    ("sounds-en", {"text": "xylophone"}, {"do": "off"}),
    ("shakespeare", {"text": "To be, or not", "max_new_tokens": 12}, {"do": "positions", "spec": "none"}),
    ("fill-en", {"text": "A man is riding a [MASK]."}, {"do": "uniform"}),
    ("languages", {"text": "Wo ist der Bahnhof?"}, {"do": "off"}),
]


@pytest.fixture(scope="module")
def loaded():
    found = {}

    def get(name):
        if name not in found:
            found[name] = regard.load(name)
        return found[name]

    return get


@pytest.mark.parametrize(("name", "given", "change"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_the_loss_of_what_was_said_grows_when_attention_is_spoilt(loaded, name, given, change):
    found = compare_outputs(loaded(name), given, [change])
    target = found["target"]
    assert len(target["tokens"]) == len(target["original"]) == len(target["changed"]) > 0
    assert found["loss"]["changed"] > found["loss"]["original"] + 0.05
    assert found["loss"]["original"] == pytest.approx(-sum(target["original"]) / len(target["original"]))
    again = compare_outputs(loaded(name), given, [change])
    assert again == found


def test_the_log_probability_is_that_of_the_search(loaded):
    found = compare_outputs(loaded("en-de"), {"text": "Two dogs play."}, [{"do": "off", "heads": [0]}])
    tokens = found["target"]["original"]
    assert found["original"]["score"] == pytest.approx(sum(tokens) / len(tokens), abs=1e-4)


def test_a_classifier_shows_both_distributions(loaded):
    found = compare_outputs(loaded("languages"), {"text": "Wo ist der Bahnhof?"}, [{"do": "off"}])
    for side in ("original", "changed"):
        assert sum(found[side]["probabilities"].values()) == pytest.approx(1)
    label = found["original"]["text"]
    assert math.exp(found["target"]["changed"][0]) == pytest.approx(found["changed"]["probabilities"][label])


def test_images_too(tmp_path):
    from io import BytesIO

    from PIL import Image

    from regard.modalities.image import Preprocess
    from regard.models import build
    from regard.tasks.image.image_classification import ImageClassifier

    picture = BytesIO()
    Image.effect_noise((40, 40), 80).save(picture, "PNG")
    torch.manual_seed(1)
    model = build("vit", size="tiny", image_size=32, num_classes=3)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    predictor = ImageClassifier(model, ["a", "b", "c"], Preprocess(32))
    found = compare_outputs(predictor, {"image": picture.getvalue()}, [{"do": "off"}])
    assert found["original"]["probabilities"] != found["changed"]["probabilities"]


def test_what_cannot_be_compared_is_refused(loaded):
    with pytest.raises(BadInput, match="nothing to compare"):
        compare_outputs(loaded("languages"), {"text": "Wo?"}, [])
    with pytest.raises(BadInput, match="give a text"):
        compare_outputs(loaded("languages"), {"text": " "}, [{"do": "off"}])
    with pytest.raises(BadInput, match="beam_size is a number"):
        compare_outputs(loaded("en-de"), {"text": "Two dogs.", "beam_size": 1000}, [{"do": "off"}])
    with pytest.raises(UnknownName, match="CTCSpeechRecognizer has no option 'text'"):
        compare_outputs(loaded("digits"), {"text": "x"}, [{"do": "off"}])
    with pytest.raises(Unsupported, match="declares no outputs"):
        compare_outputs(torch.nn.Linear(1, 1), {"text": "x"}, [{"do": "off"}])
