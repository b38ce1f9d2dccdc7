import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.config import to_dict
from regard.core.errors import BadInput
from regard.interpret.search_trace import trace_search
from regard.losses.ctc import ctc_loss
from regard.modalities import Transcript
from regard.models.hybrid_asr import Config, HybridASR
from regard.tasks.audio import joint_speech_recognition
from regard.tasks.audio.ctc_speech_recognition import ctc_targets
from regard.tasks.audio.joint_speech_recognition import JointSpeechRecognizer
from regard.tasks.text.translation import shift_targets
from tests.tasks.audio_data import FRONT, Songs, sung, taught

SIZES = {"channels": 8, "width": 16, "heads": 2, "layers": 1, "kernel": 5, "subsampling_layers": 2, "dropout": 0.0}
DECODER = {"decoder_layers": 1, "decoder_heads": 2, "decoder_ffn": 32, "decoder_dropout": 0.0}


@pytest.fixture(scope="module")
def task():
    return joint_speech_recognition.Config(label_smoothing=0.0, beam_size=2, ctc_weight=0.4).build(Songs())


@pytest.fixture(scope="module")
def model(task):
    torch.manual_seed(0)
    made = HybridASR(task.fit(Config(vocab=1, **SIZES, **DECODER)))
    return taught(task, made, 120, 5e-3)


def test_it_learns_with_both_and_is_scored_by_its_own_search(task, model):
    found = task.evaluate(model, "val", effort=1)
    assert found["wer"] < 0.1
    assert task.report(model, "val", beam_size=2)["wer"] < 0.1


def test_the_loss_is_the_weighted_sum_of_both(task, model):
    batch = next(iter(task.dataset("val").eval_batches(300)))
    total, parts = task.loss(model, batch)
    logits = model(batch.frames, batch.target[:, :-1], batch.frame_lengths)
    attention = F.cross_entropy(logits.flatten(0, 1), shift_targets(batch).flatten(), reduction="sum")
    memory, lengths = model.encode(batch.frames, batch.frame_lengths)
    targets, sizes = ctc_targets(batch)
    ctc = ctc_loss(model.ctc_logits(memory).log_softmax(-1), targets, lengths, sizes, model.blank).sum()
    torch.testing.assert_close(total, 0.6 * attention + 0.4 * ctc, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(parts["attention"], attention.detach(), rtol=1e-4, atol=1e-4)
    short = replace(batch, frame_lengths=batch.frame_lengths.clone())
    short.frame_lengths[0] = 1
    total, parts = task.loss(model, short)
    assert total.isfinite()
    assert parts["too_short"] == 1


def test_a_predictor_hears_whatever_the_company_and_says_when(task, model, tmp_path):
    hear = JointSpeechRecognizer(model, task.text, to_dict(FRONT))
    waves = [sung(one, seed=70) for one in ("mid low high", "high", "low low")]
    together = hear(waves, beam_size=2)
    for wave, one in zip(waves, together, strict=True):
        alone = hear([wave], beam_size=2)[0]
        assert (alone.text, alone.words) == (one.text, one.words)
        assert alone.score == pytest.approx(one.score, abs=1e-4)
        assert [word.word for word in one.words] == one.text.split()
    for n, word in enumerate(together[0].words):
        begin = (200 + n * 600) / FRONT.sample_rate
        assert begin - 0.1 <= word.start < word.end <= begin + 0.4
    assert hear([torch.zeros(4000)], ctc_weight=0.5) == [Transcript("", 0.0)]
    with pytest.raises(BadInput, match="ctc_weight must be"):
        hear(waves, ctc_weight=1.5)
    regard.save(hear, tmp_path / "songs")
    found = regard.load(tmp_path / "songs")
    assert type(found) is JointSpeechRecognizer
    assert [one.text for one in found(waves, beam_size=2)] == [one.text for one in together]


def test_its_attention_is_that_of_the_decoder_over_the_frames(task, model):
    hear = JointSpeechRecognizer(model, task.text, to_dict(FRONT))
    text, traces = hear.analyze(sung("mid low"), "mid low")
    assert text == "mid low"
    (trace,) = traces
    assert (trace.kind, list(trace.rows)) == ("cross", ["mid", "low", "</s>"])
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones(trace.weights.shape[:-1]))


@pytest.mark.parametrize("how", ["greedy", "beam"])
def test_the_search_that_is_shown_is_the_joint_one(task, model, how):
    hear = JointSpeechRecognizer(model, task.text, to_dict(FRONT))
    wave = sung("mid low high")
    shown = trace_search(hear, {"audio": wave}, method=how, beam_size=3)
    heard = hear(wave, beam_size=1 if how == "greedy" else 3)
    assert shown["hypotheses"][0]["text"] == heard.text
    assert shown["hypotheses"][0]["total_log_prob"] == pytest.approx(heard.score, abs=1e-4)
    json.dumps(shown, allow_nan=False)
