"""``regard transcribe`` and ``regard see`` of a sound: a line for every file, whatever the file."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard import cli
from regard.api import zoo
from regard.core.config import to_dict
from regard.models.attention_asr import AttentionASR
from regard.models.attention_asr import Config as ListenerConfig
from regard.models.conformer import Config as ConformerConfig
from regard.models.conformer import Conformer
from regard.models.ctc import CTC
from regard.models.ctc import Config as CTCConfig
from regard.models.hybrid_asr import Config as HybridConfig
from regard.models.hybrid_asr import HybridASR
from regard.models.online_alignment import Config as OnlineConfig
from regard.models.online_alignment import OnlineAlignment
from regard.tasks.audio import ctc_speech_recognition
from regard.tasks.audio.ctc_speech_recognition import CTCSpeechRecognizer
from regard.tasks.audio.joint_speech_recognition import JointSpeechRecognizer
from regard.tasks.audio.speech_recognition import SpeechRecognizer
from tests.tasks.audio_data import FRONT, Songs, sung, taught

soundfile = pytest.importorskip("soundfile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    task = ctc_speech_recognition.Config().build(Songs())
    model = CTC(task.fit(CTCConfig(vocab=1, width=16, hidden=16, layers=1, subsampling_layers=1, dropout=0.0)))
    place = tmp_path_factory.mktemp("zoo") / "songs"
    regard.save(CTCSpeechRecognizer(taught(task, model, 300), task.text, to_dict(FRONT)), place)
    return place


@pytest.fixture(scope="module")
def listener(tmp_path_factory):
    task = ctc_speech_recognition.Config().build(Songs())
    sizes = {"conv_width": 8, "width": 8, "hidden": 8, "layers": 1, "subsampling_layers": 1}
    place = tmp_path_factory.mktemp("zoo") / "listener"
    regard.save(
        SpeechRecognizer(AttentionASR(task.fit(ListenerConfig(vocab=1, **sizes))), task.text, to_dict(FRONT)), place
    )
    return place


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    place = tmp_path_factory.mktemp("sounds")
    for name, said in (("a.wav", "low high"), ("b.flac", "mid")):
        soundfile.write(place / name, sung(said).numpy() * 0.5, FRONT.sample_rate)
    wide = np.repeat(sung("high mid").numpy()[:, None], 4, 0) * [0.3, 0.5]
    soundfile.write(place / "stereo.wav", wide, 4 * FRONT.sample_rate)
    soundfile.write(place / "silence.wav", np.zeros(3000), FRONT.sample_rate)
    (place / "text.wav").write_text("no sound")
    return place


def call(*words):
    return cli.main([str(word) for word in words])


def test_a_line_for_every_file(folder, sounds, capsys):
    assert call("transcribe", sounds / "a.wav", sounds / "b.flac", "--model", folder) == 0
    assert capsys.readouterr().out == "low high\nmid\n"
    assert call("transcribe", sounds / "stereo.wav", "--model", folder, "--beam-size", 1) == 0
    assert capsys.readouterr().out == "high mid\n"


def test_json_says_when(folder, sounds, capsys):
    assert call("transcribe", sounds / "a.wav", "--model", folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "low high"
    assert found["input"].endswith("a.wav")
    assert [word["word"] for word in found["words"]] == ["low", "high"]
    assert found["words"][0]["start"] < found["words"][1]["start"]
    assert found["score"] <= 0


def test_a_file_that_is_no_sound_costs_its_own_line_alone(folder, sounds, capsys):
    files = sounds / "text.wav", sounds / "missing.wav", sounds / "b.flac"
    assert call("transcribe", *files, "--model", folder) == 1
    out, err = capsys.readouterr()
    assert out == "\n\nmid\n"
    assert "not a sound that can be read" in err
    assert "there is no file" in err
    assert "Traceback" not in err
    assert call("transcribe", *files, "--model", folder, "--json") == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["input"] for row in rows] == [str(file) for file in files]
    assert [f"regard: {row['error']}" for row in rows[:2]] == err.splitlines()
    assert "error" not in rows[2]


def test_silence_is_no_error_and_says_nothing(folder, listener, sounds, tmp_path, capsys):
    for model in (folder, listener):
        assert call("transcribe", sounds / "silence.wav", "--model", model) == 0
        out, err = capsys.readouterr()
        assert out == "\n"
        assert "silence.wav: no speech recognised" in err
        drawn = "-o", tmp_path / "silence.png", "-o", tmp_path / "silence.html"
        assert call("see", sounds / "silence.wav", "--model", model, *drawn) == 0
        assert capsys.readouterr().out.startswith("\n")


def test_a_model_that_does_not_hear_is_refused(sounds, capsys):
    assert call("transcribe", sounds / "a.wav", "--model", "languages") == 1
    assert "languages is a TextClassifier, not one that transcribes" in capsys.readouterr().err


def test_seeing_a_sound_draws_its_lattice(folder, sounds, tmp_path, capsys):
    assert call("see", sounds / "a.wav", "--model", folder, "--output", tmp_path / "a.png") == 0
    out = capsys.readouterr().out
    assert out.startswith("low high\n")
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert call("see", sounds / "a.wav", "--model", folder, "--output", tmp_path / "a.html") == 0
    assert '"lattice"' in (tmp_path / "a.html").read_text("utf-8")
    capsys.readouterr()
    assert call("see", sounds / "missing.wav", "--model", folder, "--output", tmp_path / "a.png") == 1
    assert "there is no file" in capsys.readouterr().err


@pytest.fixture(scope="module")
def conformers(tmp_path_factory):
    """A CTC and a hybrid recognizer that know nothing yet."""
    torch.manual_seed(0)
    task, place = ctc_speech_recognition.Config().build(Songs()), tmp_path_factory.mktemp("zoo")
    sizes = {"channels": 4, "width": 8, "heads": 2, "layers": 2, "kernel": 5, "subsampling_layers": 1}
    ctc = Conformer(task.fit(ConformerConfig(vocab=1, **sizes)))
    hybrid = HybridASR(task.fit(HybridConfig(vocab=1, **sizes, decoder_layers=2, decoder_heads=2, decoder_ffn=8)))
    regard.save(CTCSpeechRecognizer(ctc, task.text, to_dict(FRONT)), place / "ctc")
    regard.save(JointSpeechRecognizer(hybrid, task.text, to_dict(FRONT)), place / "hybrid")
    return place


def test_seeing_a_sound_draws_the_attention_among_its_frames(conformers, sounds, tmp_path, capsys):
    for name in ("ctc", "hybrid"):
        file, page = tmp_path / f"{name}.png", tmp_path / f"{name}.html"
        given = "see", sounds / "a.wav", "--model", conformers / name, "--target-text", "low high"
        for more in ((), ("--view", "heads"), ("--view", "heads", "--layer", 0, "--head", 1)):
            assert call(*given, *more, "-o", file) == 0, capsys.readouterr().err
            assert file.stat().st_size > 5000
            file.unlink()
        assert call(*given, "-o", page) == 0
        assert "encoder.blocks.1.mix" in page.read_text("utf-8")
        assert call(*given, "--view", "heads", "--layer", 2, "-o", file) == 1
        assert "There is no layer 2; there are 0 to 1" in capsys.readouterr().err
        assert call("transcribe", sounds / "stereo.wav", "--model", conformers / name, "--beam-size", 2) == 0


def test_seeing_a_sound_draws_where_a_listener_listened(listener, sounds, tmp_path, capsys):
    files = tmp_path / "a.png", tmp_path / "a.html"
    given = "--model", listener, "--target-text", "low high", "-o", files[0], "-o", files[1]
    assert call("see", sounds / "a.wav", *given) == 0
    assert capsys.readouterr().out.startswith("low high\n")
    assert all(file.stat().st_size > 5000 for file in files)


def test_a_name_that_is_no_text_names_a_sound_all_the_same(folder, sounds, tmp_path, capsys):
    odd = os.path.join(os.fsencode(tmp_path), b"\xff.wav")
    try:
        shutil.copy(os.fsencode(sounds / "a.wav"), odd)
    except OSError:
        pytest.skip("this file system has no such names")
    assert call("transcribe", os.fsdecode(odd), "--model", folder) == 0
    assert capsys.readouterr().out == "low high\n"


def test_seeing_a_sound_takes_no_option_that_it_would_not_follow(folder, sounds, tmp_path, capsys):
    drawn = "--model", folder, "--output", tmp_path / "a.png"
    for words in (("--layer", 0), ("--head", 0)):
        assert call("see", sounds / "a.wav", *words, *drawn) == 1
        assert f"{words[0]} is for --view heads; leave it out" in capsys.readouterr().err
    for words in (
        ("--view", "heads"),
        ("--max-new-tokens", 3),
        ("--words",),
    ):
        assert call("see", sounds / "a.wav", *words, *drawn) == 1
        assert f"leave out {words[0]}" in capsys.readouterr().err


def test_a_speech_recognizer_is_not_a_translator(folder, sounds, capsys):
    assert call("see", sounds / "a.wav", "--model", folder, "--to", "de") == 1
    assert "is a CTCSpeechRecognizer, not a translator" in capsys.readouterr().err


def test_a_text_with_words_that_were_never_learned_is_refused(folder, listener, sounds, tmp_path, capsys):
    for model in (folder, listener):
        given = "--target-text", "low hello", "--model", model, "--output", tmp_path / "a.png"
        assert call("see", sounds / "a.wav", *given) == 1
        assert "cannot say all of 'low hello'" in capsys.readouterr().err


def test_a_model_that_hears_several_frames_at_a_time_is_drawn_over_the_right_seconds(sounds):
    torch.manual_seed(0)
    task = ctc_speech_recognition.Config().build(Songs())
    config = OnlineConfig(vocab=task.text.size, width=8, hidden=8, layers=1, input_dim=FRONT.features, frame_stack=3)
    hear = SpeechRecognizer(OnlineAlignment(config), task.text, to_dict(FRONT))
    (trace, *_) = hear.attention(sounds / "a.wav", "low high")
    frames = len(hear.frames(sounds / "a.wav"))
    assert trace.weights.shape[-1] == -(-frames // 3)
    assert hear.seconds == pytest.approx(3 * FRONT.hop_ms / 1000)


@pytest.mark.skipif("digits" not in zoo(), reason="the model is not here")
def test_the_recording_of_the_documentation_is_heard_by_the_model_that_ships(capsys):
    recording = Path(__file__).resolve().parents[2] / "docs" / "assets" / "digits.wav"
    assert call("transcribe", recording) == 0
    assert capsys.readouterr().out == "one four zero five five six\n"
