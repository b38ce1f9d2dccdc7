from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import regard
from regard.core.config import to_dict
from regard.core.errors import BadInput
from regard.decoding.beam_search import Hypothesis
from regard.decoding.ngram_lm import NGramLM
from regard.losses.ctc import ctc_loss, required_frames
from regard.modalities import Audio, Transcript
from regard.models.attention_asr import AttentionASR
from regard.models.attention_asr import Config as ListenerConfig
from regard.models.ctc import CTC
from regard.models.ctc import Config as CTCConfig
from regard.tasks.audio import ctc_speech_recognition, speech_recognition
from regard.tasks.audio.ctc_speech_recognition import CTCSpeechRecognizer, ctc_targets
from regard.tasks.audio.speech_recognition import SpeechRecognizer, _half_peak_range
from tests.tasks.audio_data import FRONT, WORDS, Songs, sung, taught


@pytest.fixture(scope="module")
def task():
    return ctc_speech_recognition.Config(beam_size=4).build(Songs())


@pytest.fixture(scope="module")
def model(task):
    torch.manual_seed(0)
    made = CTC(task.fit(CTCConfig(vocab=1, width=16, hidden=16, layers=1, subsampling_layers=1, dropout=0.0)))
    return taught(task, made, 300)


@pytest.fixture(scope="module")
def hear(task, model):
    return CTCSpeechRecognizer(model, task.text, to_dict(FRONT))


def test_it_learns_what_is_said_though_nobody_says_when(task, model):
    found = task.evaluate(model, "test")
    assert found["wer"] == 0
    assert found["exact_match"] == 1
    assert found["recordings"] == 96
    assert found["too_short"] == found["insertions"] == found["deletions"] == found["substitutions"] == 0
    assert found["words"] == sum(len(said.split()) for _, said in task.dataset("test").examples)
    assert task.evaluate(model, "test", effort=0).keys() == {"loss", "recordings", "too_short"}
    assert task.report(model, "test", beam_size=2)["beam_size"] == 2
    assert task.config.beam_size == 4


def test_the_loss_that_trains_is_that_of_our_own_recursion(task, model):
    batch = next(iter(task.dataset("val").eval_batches(500)))
    total, parts = task.loss(model, batch)
    logits, lengths = model(batch.frames, batch.frame_lengths)
    targets, sizes = ctc_targets(batch)
    wanted = ctc_loss(logits.log_softmax(-1), targets, lengths, sizes, model.blank).sum()
    torch.testing.assert_close(total, wanted, rtol=1e-4, atol=1e-4)
    assert parts["too_short"] == 0
    assert task.count(batch) == int(sizes.sum()) + len(sizes)


def test_what_cannot_be_said_is_left_out_and_counted(task, model):
    batch = next(iter(task.dataset("val").eval_batches(500)))
    short = replace(batch, frame_lengths=batch.frame_lengths.clone())
    short.frame_lengths[0] = 1
    targets, sizes = ctc_targets(batch)
    assert required_frames(targets, sizes)[0] > 1
    kept = replace(
        batch,
        frames=batch.frames[1:],
        frame_lengths=batch.frame_lengths[1:],
        target=batch.target[1:],
        target_lengths=batch.target_lengths[1:],
    )
    model.zero_grad()
    total, parts = task.loss(model, short)
    total.backward()
    with_it = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    task.loss(model, kept)[0].backward()
    assert parts["too_short"] == 1
    assert total.isfinite()
    for a, p in zip(with_it, model.parameters(), strict=True):
        assert a.isfinite().all()
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)
    model.zero_grad()


def test_an_all_padding_batch_and_an_empty_target_have_a_finite_loss(task, model):
    text = task.text
    target = torch.tensor([[text.bos, text.eos, text.pad], [text.bos, 5, text.eos]])
    batch = replace(
        next(iter(task.dataset("val").eval_batches(100))),
        frames=torch.zeros(2, 8, FRONT.features),
        frame_lengths=torch.tensor([0, 0]),
        target=target,
        target_lengths=torch.tensor([2, 3]),
    )
    total, parts = task.loss(model, batch)
    assert total.isfinite()
    assert parts["too_short"] == 1
    spoken = replace(batch, frame_lengths=torch.tensor([8, 8]))
    total, parts = task.loss(model, spoken)
    assert total.isfinite()
    assert parts["too_short"] == 0


def test_sounds_are_transcribed_in_order_whatever_their_company(hear):
    said = ["high low", "mid", "low low high mid", "mid mid"]
    waves = [sung(one, seed=50 + n) for n, one in enumerate(said)]
    heard = hear(waves)
    assert [one.text for one in heard] == said
    for wave, one in zip(waves, heard, strict=True):
        alone = hear([wave])[0]
        assert hear(wave) == alone
        assert (alone.text, alone.words) == (one.text, one.words)
        assert alone.score == pytest.approx(one.score, abs=1e-3)
    assert [one.text for one in hear(waves, beam_size=6)] == said


def test_words_are_heard_when_they_are_sung(hear):
    (heard,) = hear([sung("low high mid")])
    for n, word in enumerate(heard.words):
        begin = (200 + n * 600) / FRONT.sample_rate
        assert begin - 0.06 <= word.start < word.end <= begin + 400 / FRONT.sample_rate + 0.06
    assert [word.word for word in heard.words] == ["low", "high", "mid"]


SILENT = (torch.zeros(4000), torch.full((4000,), 0.3), torch.zeros(1), torch.zeros(0))


def test_silence_and_one_sample_say_nothing(hear):
    for wave in SILENT:
        assert hear([wave]) == hear([wave], beam_size=4) == [Transcript("", 0.0)]
        seen = hear.analyze(wave)
        assert seen.transcript.text == ""
        assert seen.share.shape[0] == seen.path.shape[0] == seen.probabilities.shape[0]
    assert hear([]) == []
    mixed = [sung("low"), torch.zeros(4000), sung("mid high"), torch.zeros(1)]
    assert [one.text for one in hear(mixed)] == ["low", "", "mid high", ""]


def test_a_level_is_silence_in_a_file_of_another_rate_too(hear, tmp_path):
    soundfile = pytest.importorskip("soundfile")
    wave = sung("low").numpy()
    soundfile.write(tmp_path / "level.wav", np.full(9000, 0.3), 4410)
    steps = (wave * 2**14).astype(np.int16)
    opposite = -steps
    opposite[700] += 1  # rounded the other way
    soundfile.write(tmp_path / "opposite.wav", np.stack([steps, opposite], 1), FRONT.sample_rate)
    assert hear([tmp_path / "level.wav", tmp_path / "opposite.wav"]) == [Transcript("", 0.0)] * 2


def test_numpy_arrays_are_sounds(hear):
    wave = sung("mid high")
    (wanted,) = hear([wave])
    for kind in (np.float32, np.float64):
        assert hear([wave.numpy().astype(kind)])[0].text == wanted.text
    assert hear([wave.double()])[0].text == wanted.text


def test_a_sound_that_is_none_is_refused_in_a_line(hear):
    for sound in (torch.full((8000,), float("nan")), np.array([1.0, float("inf")] * 400)):
        with pytest.raises(BadInput, match="audio 1: Samples must be finite numbers"):
            hear([sound])
        with pytest.raises(BadInput, match="Samples must be finite numbers"):
            hear.analyze(sound)
    with pytest.raises(BadInput, match="audio 1: frames must be finite"):
        hear.analyze(torch.full((9, FRONT.features), float("nan")))
    for sound, problem in (
        ([0.1, 0.2], "Expected a recording .*, got list"),
        (np.array(["a"]), "Samples have dtype <U1; expected floating-point"),
        (None, "Expected a recording .*, got NoneType"),
        (
            np.zeros((2, 800), np.float32),
            "Samples must be one row of floating-point numbers, got float32 of \\(2, 800\\)",
        ),
        (np.zeros(800, np.int16), "Samples must be one row of floating-point numbers, got int16"),
    ):
        with pytest.raises(BadInput, match=f"audio 2: {problem}"):
            hear([sung("low"), sound])


def test_a_language_model_judges_what_is_heard(hear, task):
    never = NGramLM.of(task.text.encode(["mid mid mid"] * 50), task.text.size, task.text.bos, task.text.eos)
    wave = sung("low")
    assert hear([wave], beam_size=8)[0].text == "low"
    search = {"scorer": never, "lm_weight": 30.0, "eos": task.text.eos}
    assert hear.transcribe_frames([hear.frames(wave)], beam_size=8, **search)[0].text != "low"


def test_looking_shows_all_ways_and_the_likeliest(hear):
    seen = hear.analyze(sung("low low"))
    assert seen.transcript.text == "low low"
    assert seen.states == ("-", "low", "-", "low", "-")
    torch.testing.assert_close(seen.share.sum(-1), torch.ones(len(seen.share)))
    assert seen.path[0] in (0, 1)
    assert ((seen.path[1:] - seen.path[:-1]) >= 0).all()
    assert seen.labels[-1] == "-"
    other = hear.analyze(sung("low low"), transcript="low mid")
    assert other.transcript.text == "low mid"
    assert other.transcript.score < seen.transcript.score
    with pytest.raises(BadInput, match="too few to say"):
        hear.analyze(torch.zeros(50), transcript="low low low low low low")


def test_it_comes_back_from_a_folder(hear, tmp_path):
    regard.save(hear, tmp_path / "songs", dtype="int8")
    found = regard.load(tmp_path / "songs")
    assert type(found) is CTCSpeechRecognizer
    assert found.preprocess == FRONT
    assert found([sung("high mid")])[0].text == "high mid"


def test_a_recording_has_the_models_rate_or_its_own(hear):
    wave = sung("low")
    assert hear(wave) == hear(Audio(wave, FRONT.sample_rate)) == hear(Audio.read(wave))
    slow = Audio(wave.repeat_interleave(2), 2 * FRONT.sample_rate)
    assert hear([slow, wave])[0].text == "low"


def test_a_model_of_frames_takes_no_audio(hear, task, model):
    with pytest.raises(BadInput, match="made elsewhere"):
        CTCSpeechRecognizer(model, task.text)(sung("low"))
    assert CTCSpeechRecognizer(model, task.text).transcribe_frames([FRONT(sung("low"))])[0].text == "low"
    with pytest.raises(BadInput, match="beam_size must be"):
        hear([sung("low")], beam_size=0)


# -- listening ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def listener():
    torch.manual_seed(0)
    task = speech_recognition.Config(label_smoothing=0.0, beam_size=2).build(Songs())
    sizes = {"conv_width": 16, "width": 8, "hidden": 24, "layers": 1, "subsampling_layers": 2, "dropout": 0.0}
    model = AttentionASR(task.fit(ListenerConfig(vocab=1, aligner="location(filters=4, radius=5)", **sizes)))
    return task, taught(task, model, 350)


@pytest.mark.long
def test_a_listener_learns_it_too(listener):
    task, model = listener
    found = task.evaluate(model, "val", effort=1)
    assert found["wer"] < 0.1
    assert found["loss"] < 0.3
    assert task.report(model, "val", beam_size=2)["wer"] < 0.1


def test_its_loss_is_the_cross_entropy_of_words_and_ends(listener):
    task, model = listener
    batch = next(iter(task.dataset("val").eval_batches(300)))
    total, _ = task.loss(model, batch)
    logits = model(batch.frames, batch.target[:, :-1], batch.frame_lengths).log_softmax(-1).detach()
    wanted = 0.0
    for row, many in enumerate(batch.target_lengths.tolist()):
        for t in range(many - 1):
            wanted -= float(logits[row, t, batch.target[row, t + 1]])
    assert float(total) == pytest.approx(wanted, rel=1e-4)
    assert F.cross_entropy(logits.flatten(0, 1), batch.target[:, 1:].flatten()).isfinite()


def test_a_hearer_hears_and_shows_where_it_listened(listener, tmp_path):
    task, model = listener
    hear = SpeechRecognizer(model, task.text, to_dict(FRONT))
    said = ["mid low", "high"]
    waves = [sung(one, seed=70) for one in said]
    assert [one.text for one in hear(waves, beam_size=2)] == [hear([wave], beam_size=2)[0].text for wave in waves]
    (trace,) = hear.attention(waves[0], "mid low")
    assert list(trace.rows) == ["mid", "low", "</s>"]
    assert trace.weights.shape[-2:] == (3, (FRONT.num_frames(len(waves[0])) + 3) // 4)
    torch.testing.assert_close(trace.weights.sum(-1), torch.ones(1, 1, 3))
    assert hear.seconds == 0.04
    regard.save(hear, tmp_path / "songs")
    assert type(regard.load(tmp_path / "songs")) is SpeechRecognizer


def test_a_hearer_says_when_it_listened_for_each_word(listener):
    task, model = listener
    hear = SpeechRecognizer(model, task.text, to_dict(FRONT))
    waves = [sung(one, seed=70) for one in ("mid low high", "high")]
    for wave, one in zip(waves, hear(waves), strict=True):
        assert [word.word for word in one.words] == one.text.split()
        assert all(0 <= word.start < word.end <= len(wave) / FRONT.sample_rate + 0.1 for word in one.words)
        assert [word.start for word in one.words] == sorted(word.start for word in one.words)
        assert hear([wave])[0].words == one.words
    for wave in SILENT:
        assert hear([wave]) == hear([wave], beam_size=2) == [Transcript("", 0.0)]
        text, (trace,) = hear.analyze(wave)
        assert (text, list(trace.rows)) == ("", ["</s>"])


def test_what_a_listener_shows_is_what_it_says(listener, monkeypatch):
    task, model = listener
    hear = SpeechRecognizer(model, task.text, to_dict(FRONT))
    odd = [task.text.unk, *task.text.encode_one("mid"), task.text.unk]
    monkeypatch.setattr(
        "regard.tasks.audio.speech_recognition.search_recordings", lambda *a, **k: [Hypothesis(odd, -1.0, -1.0, True)]
    )
    (heard,) = hear([sung("mid")])
    text, (trace,) = hear.analyze(sung("mid"))
    assert heard.text == text == "mid"
    assert [word.word for word in heard.words] == ["mid"]
    assert list(trace.rows) == ["<unk>", "mid", "<unk>", "</s>"]


@pytest.mark.parametrize(
    ("weights", "span"),
    [([0.1, 0.4, 0.3, 0.1, 0.1], (1, 2)), ([1.0], (0, 0)), ([0.5, 0.5], (0, 1)), ([0.3, 0.05, 0.4, 0.25], (2, 3))],
)
def test_a_word_lasts_as_far_as_half_of_the_largest_weight(weights, span):
    assert _half_peak_range(torch.tensor(weights)) == span


def test_all_words_are_in_the_vocabulary(task):
    assert set(task.text.pieces(range(4, task.text.size))) == set(WORDS)


def test_words_and_labels_that_are_missing_or_too_many_are_errors(task):
    said, heard = ["ab cd ef", "gh", ""], ["ab ef", "gh gh x", ""]

    class Letters:
        def decode(self, rows):
            return ["".join(map(chr, row)) for row in rows]

    spelt = copy(task)
    spelt.text = Letters()
    found = spelt.errors(*([list(map(ord, line)) for line in side] for side in (heard, said)))
    assert (found["substitutions"], found["insertions"], found["deletions"], found["words"]) == (0, 2, 1, 4)
    assert found["wer"] == 3 / 4
    assert found["ler"] == (3 + 5) / 10  # "cd " is missing, " gh x" is too much
    assert found["exact_match"] == 1 / 3
