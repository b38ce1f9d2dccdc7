from itertools import pairwise

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput
from regard.data import data_dir
from regard.data.audio.an4 import AN4, change_speed
from regard.data.audio.fsdd import WORDS, SpokenDigits, read_recordings
from regard.data.audio.speech_batch import collate_speech, count_targets, spec_augment
from regard.data.batching import StreamPosition
from regard.modalities.audio import read_audio


def there(name):
    try:
        data_dir.find_dataset(name)
    except BadInput:
        return False
    return True


digits = pytest.mark.skipif(not there("fsdd"), reason="the digits are missing: set REGARD_DATA")
an4 = pytest.mark.skipif(not there("an4"), reason="AN4 is missing: set REGARD_DATA")
FEW = SpokenDigits(train_strings=40, eval_strings=30, batch_size=8)


def some(stream, place, many):
    batches = stream.start(place)
    return [next(batches) for _ in range(many)]


@digits
def test_splits_are_disjoint_and_test_is_the_official_one():
    text = FEW.build_tokenizer()
    _, _, digit, speaker, take, test = read_recordings("fsdd")
    used = {part: np.concatenate([np.concatenate(own) for own in FEW.load(part, text).clips]) for part in FEW.splits()}
    assert {part: len(rows) for part, rows in used.items()} == {"train": 2400, "val": 300, "test": 300}
    assert len(np.unique(np.concatenate(list(used.values())))) == 3000
    assert test[used["test"]].all()
    assert set(take[used["test"]]) == set(range(5))
    assert set(take[used["val"]]) == set(range(45, 50))
    for part in used.values():  # every digit of every speaker
        assert len(set(zip(digit[part], speaker[part], strict=True))) == 60


@digits
def test_string_is_one_speakers_recordings_with_pauses():
    part = FEW.load("val", FEW.build_tokenizer())
    speaker = read_recordings("fsdd")[3]
    for key in range(30):
        plan = part.plan(key)
        assert 1 <= len(plan.clips) <= 7
        assert len(set(speaker[plan.clips])) == 1
        wave = part.waveform(plan)
        assert len(wave) == part.samples(plan)
        at = int(plan.pauses[0])
        for clip, pause in zip(plan.clips, plan.pauses[1:], strict=True):
            own = part.waves[part.offsets[clip] : part.offsets[clip + 1]].astype(np.float32) / 32768
            captured = wave[at : at + len(own)].numpy()
            assert np.corrcoef(own, captured)[0, 1] > 0.99
            at += len(own) + int(pause)
        assert part.transcript(plan).split() == [WORDS[d] for d in part.digit[plan.clips]]


@digits
def test_training_strings_depend_on_seed_epoch_and_row_alone():
    part = FEW.load("train", FEW.build_tokenizer())
    first, again = some(part.stream(3), StreamPosition(), 7), some(SpokenDigits(train_strings=40, batch_size=8).load("train", FEW.build_tokenizer()).stream(3), StreamPosition(), 7)  # fmt: skip  # noqa: E501
    for a, b in zip(first, again, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a.batch, b.batch, strict=True))
    later = some(part.stream(3), first[4].next_position, 2)  # taken up in the second epoch
    for a, b in zip(first[5:], later, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a.batch, b.batch, strict=True))
    said = [{tuple(row) for d in some(part.stream(seed), StreamPosition(epoch), 5) for row in d.batch.target.tolist()} for seed, epoch in ((3, 0), (3, 1), (4, 0))]  # fmt: skip  # noqa: E501
    assert said[0] != said[1] != said[2] != said[0]


@digits
def test_evaluation_strings_do_not_depend_on_training_settings():
    text = FEW.build_tokenizer()
    plain = FEW.load("test", text).examples
    other = (
        SpokenDigits(
            train_strings=7, eval_strings=30, batch_size=3, speed_perturbation=False, max_gain_db=0.0, time_masks=0
        )
        .load("test", text)
        .examples
    )
    assert all(torch.equal(a, b) and said == also for (a, said), (b, also) in zip(plain, other, strict=True))
    assert len(plain) == 30
    found = [len(said.split()) for _, said in FEW.load("test", text).examples]
    assert set(found) <= set(range(1, 8))


@digits
def test_a_batch_is_padded_with_zeros_and_counts_words_and_ends():
    part = FEW.load("test", FEW.build_tokenizer())
    (batch, *_) = part.eval_batches(2000)
    assert batch.frames.shape[1] % 8 == 0
    for row, count in zip(batch.frames, batch.frame_lengths.tolist(), strict=True):
        assert row[count:].abs().sum() == 0
    assert count_targets(batch) == int((batch.target_lengths - 1).sum())
    assert sum(len(b.frames) for b in part.eval_batches(2000)) == 30
    text = FEW.build_tokenizer()
    assert batch.target[0, 0] == text.bos
    assert batch.target[0, batch.target_lengths[0] - 1] == text.eos


@digits
def test_speed_perturbation_changes_the_length():
    part = FEW.load("train", FEW.build_tokenizer())
    plan = part.plan(5)
    slow, fast = (part.waveform(plan._replace(speed=speed)) for speed in (9, 11))
    assert len(slow) / len(fast) == pytest.approx(11 / 9, rel=1e-3)


@an4
def test_an4_has_its_official_parts_and_normalised_features():
    data = AN4()
    text = data.build_tokenizer()
    parts = {name: data.load(name, text) for name in data.splits()}
    assert {name: len(part) for name, part in parts.items()} == {"train": 853, "val": 95, "test": 130}
    assert sum(len(said.split()) for _, said in parts["test"].examples) == 773
    frames, said = parts["test"].examples[0]
    assert frames.shape[1] == data.features == 39
    torch.testing.assert_close(frames[:, :13].mean(0), torch.zeros(13), atol=1e-4, rtol=0)
    assert text.decode([text.encode_one(said)])[0] == said
    batch = some(parts["train"].stream(1), StreamPosition(), 1)[0].batch
    assert batch.frames.shape[0] == 32
    for part in parts.values():  # two halvings leave room for every letter
        for frames, said in part.examples:
            ids = text.encode_one(said)
            again = sum(a == b for a, b in pairwise(ids))
            assert (len(frames) + 3) // 4 >= len(ids) + again


def test_spec_augment_masks_little_and_depends_on_the_generator_alone():
    x = torch.ones(100, 40)
    hidden = spec_augment(x, 2, 12, 2, 6, np.random.default_rng(1))
    assert torch.equal(hidden, spec_augment(x, 2, 12, 2, 6, np.random.default_rng(1)))
    assert x.min() == 1
    rows, columns = (hidden == 0).all(1).sum(), (hidden == 0).all(0).sum()
    assert 0 <= rows <= 20
    assert 0 <= columns <= 12
    assert torch.equal(spec_augment(x, 0, 12, 0, 6, np.random.default_rng(1)), x)
    assert spec_augment(torch.ones(1, 3), 2, 12, 2, 6, np.random.default_rng(1)).shape == (1, 3)


# -- files -------------------------------------------------------------------------------------------------------------


def tone(path, rate, channels=1, seconds=0.5, **how):
    soundfile = pytest.importorskip("soundfile")
    wave = np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)[:, None] * np.linspace(1, 0.5, channels)
    soundfile.write(path, 0.5 * wave, rate, **how)
    return path


@pytest.mark.parametrize(("kind", "rate", "channels"), [("wav", 8000, 1), ("flac", 44100, 2), ("wav", 16000, 3)])
def test_audio_is_resampled_and_mixed_to_mono(tmp_path, kind, rate, channels):
    wave = read_audio(tone(tmp_path / f"a.{kind}", rate, channels), 8000)
    assert wave.shape == (4000,)
    expected = 0.375 if channels > 1 else 0.5
    assert wave[200:-200].abs().max() == pytest.approx(expected, rel=0.02)


def test_invalid_audio_is_refused_in_one_line(tmp_path):
    soundfile = pytest.importorskip("soundfile")
    (tmp_path / "text.wav").write_text("this is no sound")
    (tmp_path / "empty.wav").write_bytes(b"")
    soundfile.write(tmp_path / "nothing.wav", np.zeros(0), 8000)
    soundfile.write(tmp_path / "nan.wav", np.full(10, np.nan), 8000, subtype="FLOAT")
    soundfile.write(tmp_path / "slow.wav", np.zeros(10), 1)
    for name, expected in (
        ("text.wav", "not a sound that can be read"),
        ("empty.wav", "not a sound that can be read"),
        ("nothing.wav", "no samples"),
        ("nan.wav", "not finite"),
        ("slow.wav", "sample rate of 1 Hz, too low"),
        ("missing.wav", "there is no file"),
        ("", "is not a file"),
    ):
        with pytest.raises(BadInput, match=expected) as caught:
            read_audio(tmp_path / name, 8000)
        assert "\n" not in str(caught.value)


def test_empty_transcripts_can_be_batched():
    text = SpokenDigits().build_tokenizer()
    batch = collate_speech([torch.zeros(3, 4), torch.zeros(5, 4)], ["", "two two"], text)
    assert batch.target_lengths.tolist() == [2, 4]
    assert batch.frames.shape == (2, 8, 4)


def test_frames_at_another_speed_are_interpolated():
    x = torch.arange(20.0)[:, None] * torch.tensor([[1.0, -2.0]])
    fast, slow = change_speed(x, 11), change_speed(x, 9)
    assert (len(fast), len(slow)) == (18, 22)
    for changed, step in ((fast, 20 / 18), (slow, 20 / 22)):
        torch.testing.assert_close(
            changed[2:-2].diff(dim=0), torch.tensor([[step, -2 * step]]).expand(len(changed) - 5, 2)
        )
    assert change_speed(x, 10) is x
    assert change_speed(x[:1], 11).shape == (1, 2)


@an4
def test_an4_has_other_speeds_in_training_alone():
    still, moving = (
        AN4(limit=12, time_masks=0, mel_masks=0),
        AN4(limit=12, time_masks=0, mel_masks=0, speed_perturbation=True),
    )
    text = still.build_tokenizer()
    part, changed = still.load("train", text), moving.load("train", text)
    sizes = [len(part.training_example(row, row)[0]) for row in range(12)]
    others = [len(changed.training_example(row, row)[0]) for row in range(12)]
    assert sizes == [len(frames) for frames, _ in part.examples] != others
    assert {round(10 * a / b) for a, b in zip(sizes, others, strict=True)} == {9, 10, 11}
    assert others == [len(changed.training_example(row, row)[0]) for row in range(12)]
    for one, other in zip(moving.load("val", text).examples, still.load("val", text).examples, strict=True):
        assert torch.equal(one[0], other[0])
