"""The words read the patches, padding is not read, and several questions about one image equal single ones."""

import pytest
import torch

import regard
from regard.core.errors import BadInput
from regard.models.vqa_transformer import Config, VQATransformer, picture_encoder


def model():
    torch.manual_seed(0)
    made = regard.build("vqa_transformer", size="tiny").double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


IMAGES, QUESTIONS = torch.randn(2, 3, 24, 24).double(), torch.randint(1, 24, (2, 3, 5))


def test_several_questions_about_an_image_equal_single_ones():
    one = model()
    together = one(IMAGES, QUESTIONS)
    for k in range(3):
        torch.testing.assert_close(together[:, k], one(IMAGES, QUESTIONS[:, k]))


def test_padding_changes_nothing_and_picture_and_words_matter():
    one, question = model(), QUESTIONS[:, 0]
    padded = torch.nn.functional.pad(question, (0, 4))
    torch.testing.assert_close(one(IMAGES, padded), one(IMAGES, question))
    assert not torch.allclose(one(IMAGES.flip(-1), question), one(IMAGES, question))
    assert not torch.allclose(one(IMAGES, question.flip(-1)), one(IMAGES, question))


def test_cross_attention_is_seen_word_by_patch():
    one = model()
    with regard.watch(one) as seen:
        one(IMAGES, QUESTIONS[:, 0])
    maps = [trace.weights.shape for trace in seen.traces("cross")]
    assert maps == [(2, 2, 6, 9)] * 2


def test_wrong_settings_are_refused():
    with pytest.raises(BadInput, match="num_prefix_tokens"):
        VQATransformer(Config(9, 2, picture_encoder(num_prefix_tokens=1, image_size=24)))
    with pytest.raises(BadInput, match="at most 32 words"):
        model()(IMAGES, torch.ones(2, 33, dtype=torch.long))
