"""Recordings as people have them: silent, clipped, one sample, an hour, stereo, 8 to 32 bits, odd rates. The answer is
right, or one line says why there is none."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard import cli
from regard.api import zoo
from regard.core.errors import BadInput
from regard.modalities import Audio, Transcript
from regard.modalities.audio import AudioPreprocess, read_audio
from regard.modalities.base import Limits
from regard.models.hybrid_asr import Config, HybridASR
from regard.tasks.audio.joint_speech_recognition import JointSpeechRecognizer
from regard.tokens.frames import resample

soundfile = pytest.importorskip("soundfile")

RECORDING = Path(__file__).resolve().parents[3] / "docs" / "assets" / "digits.wav"
SAID = "one four zero five five six"  # at 8,000 Hz
SUBTYPES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"]

pytestmark = pytest.mark.skipif("digits" not in zoo(), reason="the model is not here")


@pytest.fixture(scope="module")
def hear():
    return regard.load("digits")


@pytest.fixture(scope="module")
def wave():
    return read_audio(RECORDING, 8000).numpy()


@pytest.fixture(scope="module")
def attends(hear):
    """An untrained model whose attention grows with the square of the length."""
    torch.manual_seed(0)
    sizes = {"channels": 4, "width": 8, "heads": 2, "layers": 1, "kernel": 5, "subsampling_layers": 1}
    config = Config(vocab=hear.text.size, input_dim=40, **sizes, decoder_layers=1, decoder_heads=2)
    return JointSpeechRecognizer(HybridASR(config), hear.text, AudioPreprocess())


def encoded(wave, rate=8000, **how):
    file = io.BytesIO()
    soundfile.write(file, wave, rate, **{"format": "WAV"} | how)
    return file.getvalue()


@pytest.mark.parametrize("subtype", SUBTYPES)
def test_every_depth_of_bits_says_the_same(hear, wave, subtype):
    assert hear(encoded(wave, subtype=subtype)).text == SAID


@pytest.mark.parametrize("rate", [7919, 11025, 44100, 96000])
def test_every_rate_says_the_same(hear, wave, rate):
    assert hear(encoded(resample(torch.from_numpy(wave), 8000, rate).numpy(), rate)).text == SAID


@pytest.mark.parametrize("channels", [2, 6])
def test_every_number_of_channels_says_the_same(hear, wave, channels):
    wide = np.repeat(wave[:, None], channels, 1)
    assert hear(encoded(wide)).text == SAID
    wide[:, 1:] = 0.0  # in one channel only
    assert hear(encoded(wide)).text == SAID


@pytest.mark.parametrize("peak", [1e-3, 2.0])
def test_quiet_and_clipped_recordings_say_the_same(hear, wave, peak):
    loud = wave * (peak / np.abs(wave).max())
    assert hear(encoded(np.clip(loud, -1, 1), subtype="FLOAT")).text == SAID


def test_a_recording_of_nothing_but_clipping_has_a_transcript(hear, attends):
    square = np.sign(np.sin(np.arange(4000) / 9.0)).astype(np.float32)
    for one in (hear, attends):
        assert np.isfinite(one(encoded(square)).score)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "FLOAT"])
def test_silence_in_any_depth_has_an_empty_transcript(hear, attends, subtype):
    for wave in (np.zeros(3000), np.full(3000, 0.25), np.zeros((3000, 2))):
        for one in (hear, attends):
            assert one(encoded(wave, subtype=subtype)) == Transcript("", 0.0)


def test_one_sample_has_an_empty_transcript(hear, attends):
    for rate in (8000, 44100):
        for one in (hear, attends):
            assert one(encoded(np.array([0.7]), rate)) == Transcript("", 0.0)
    assert len(read_audio(encoded(np.array([0.7, -0.7]), 44100), 8000)) == 1


def test_an_hour_is_refused_in_a_line_where_attention_would_need_its_square(attends, tmp_path, capsys):
    with pytest.raises(BadInput, match=r"audio 2: a recording of 360,000 frames is too long: .* at most; cut it"):
        attends.transcribe_frames([torch.randn(50, 40), torch.randn(360_000, 40)])
    with pytest.raises(BadInput, match="360,000 frames is too long"):
        attends.analyze(torch.randn(360_000, 40))
    minutes = np.zeros(180 * 8000, np.float32)
    minutes[::1000] = 0.5
    soundfile.write(tmp_path / "minutes.wav", minutes, 8000)
    regard.save(attends, tmp_path / "model")
    files = [str(file) for file in (RECORDING, tmp_path / "minutes.wav", RECORDING)]
    assert cli.main(["transcribe", *files, "--model", str(tmp_path / "model"), "--beam-size", "1"]) == 1
    out, err = capsys.readouterr()
    first, second, third = out.split("\n")[:3]
    assert (second, first) == ("", third)
    assert err.count("is too long") == 1
    assert "Traceback" not in err


def test_a_limit_of_seconds_reads_no_more_than_that():
    wave = encoded(np.zeros(80_000), 8000)
    assert Audio.read(wave, Limits(seconds=10.0)).samples.shape == (80_000,)
    with pytest.raises(BadInput, match="longer than the 9 seconds that are allowed"):
        Audio.read(wave, Limits(seconds=9.0))


def test_a_cut_file_is_refused_or_read_as_far_as_it_goes():
    whole = encoded(np.ones(900))
    for cut, problem in ((10, "not a sound that can be read"), (44, "no samples")):
        with pytest.raises(BadInput, match=problem):
            read_audio(whole[:cut], 8000)
    assert len(read_audio(whole[:60], 8000)) == 8
