"""Span corruption: nothing is lost, and as much is removed as in the paper."""

from itertools import islice

import numpy as np
import pytest

from regard.core.errors import BadInput
from regard.data.batching import StreamPosition, prefetch
from regard.data.shards.packing import pack_text
from regard.data.text.span_corruption import (
    EPOCH_STRIDE,
    SpanCorruption,
    corrupt_spans,
    input_length,
    noise_counts,
    random_spans,
    restore_spans,
)
from regard.tokens.sentinels import sentinel_ids


@pytest.mark.parametrize("length", [2, 3, 7, 64, 568, 1001])
@pytest.mark.parametrize(("noise", "mean"), [(0.15, 3.0), (0.5, 1.0), (0.5, 10.0), (0.9, 2.5)])
def test_text_is_restored_from_source_and_target(length, noise, mean):
    taken, count = noise_counts(length, noise, mean)
    marks = np.arange(5000, 5000 + count)
    text = np.arange(length) % 97
    for key in range(20):
        out = random_spans(length, taken, count, [key, key + 100])
        sources, targets = corrupt_spans(np.stack([text, text[::-1]]), out, marks)
        assert restore_spans(sources[1], targets[1], marks) == text[::-1].tolist()
        source, target = sources[0], targets[0]
        assert restore_spans(source, target, marks) == text.tolist()
        assert len(source) == length - taken + count
        assert len(target) == taken + count
        assert sorted(set(source) & set(marks)) == sorted(set(target) & set(marks)) == marks.tolist()


def test_removed_tokens_and_spans_match_the_settings():
    taken, count = noise_counts(1000, 0.15, 3.0)
    assert (taken, count) == (150, 50)
    for key in range(50):
        (out,) = random_spans(1000, taken, count, [key])
        begins = out & ~np.concatenate([[False], out[:-1]])
        assert out.sum() == 150
        assert begins.sum() == 50  # none empty, no two touch
        assert not out[0]


def test_spans_have_all_positions_and_sizes():
    drawn = random_spans(40, 6, 2, range(4000))
    assert abs(drawn.mean() - 0.15) < 1e-9
    sizes = [int(row[np.argmax(row) :].cumprod().sum()) for row in drawn]  # of the first span: 1 to 5, equally likely
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert np.allclose(np.bincount(sizes)[1:] / len(sizes), 0.2, atol=0.03)
    assert (drawn.mean(0)[1:] > 0.01).all()


def test_lengths_equal_the_paper():
    """512 tokens in, 114 out, of 568: as T5 was trained."""
    length = input_length(512, 0.15, 3.0)
    taken, count = noise_counts(length, 0.15, 3.0)
    assert length - taken + count + 1 == 512
    assert taken + count + 1 == 114


def test_invalid_noise_settings_are_refused():
    for wrong in ((512, 0.0, 3.0), (512, 1.0, 3.0), (512, 0.15, 0.5), (3, 0.15, 3.0)):
        with pytest.raises(BadInput, match="noise"):
            input_length(*wrong)


# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("\n\n".join(f"Chapter {n}. The whale number {n} swims {n * n} miles." for n in range(300)), "utf-8")
    return path


def data(file, **settings):
    return SpanCorruption(
        **(
            {"texts": (str(file),), "context_length": 40, "batch_size": 6, "vocab_size": 400, "sentinels": 20}
            | settings
        )
    )


def load(settings, split="train"):
    return settings.load(split, settings.build_tokenizer())


def test_rows_have_one_shape_and_restore_the_text(file):
    part = load(data(file))
    text, marks = part.tokenizer, sentinel_ids(part.tokenizer)
    for item in islice(part.stream(seed=3).start(StreamPosition()), 5):
        batch = item.batch
        assert batch.source.shape == (6, 40)
        assert (batch.source_lengths == 40).all()
        assert (batch.target.shape[1] - 1) % 8 == 0
        assert item.count == 6 * (part.removed + part.spans + 1)
        for source, target, n in zip(
            *(x.tolist() for x in (batch.source, batch.target, batch.target_lengths)), strict=True
        ):
            assert source[-1] == target[n - 1] == text.eos
            assert target[0] == text.bos
            full = restore_spans(source[:-1], target[1 : n - 1], marks)
            message = " ".join(text.decode([full])[0].split())
            assert len(full) == part.length
            assert "whale" in message


def test_spans_differ_between_epochs_and_seeds(file):
    part = load(data(file))
    rows = next(iter(part.stream(0).order(0)[n] for n in range(1)))
    same, again = part.collate(rows, 0).source, part.collate(rows, 0).source
    assert same.equal(again)
    assert not same.equal(part.collate(rows + EPOCH_STRIDE, 0).source)
    assert not same.equal(part.collate(rows, 1).source)


def test_batches_do_not_depend_on_threads_processes_or_start(file):
    stream = load(data(file)).stream(seed=1)
    full = list(islice(stream.start(StreamPosition()), 30))
    assert {item.next_position.epoch for item in full} >= {0, 1}
    later = list(islice(stream.start(full[11].next_position), 18))
    for a, b in zip(full[12:], later, strict=True):
        assert a.batch.source.equal(b.batch.source)
        assert a.batch.target.equal(b.batch.target)
    with prefetch(stream.start(StreamPosition()), workers=3) as batches:
        for a, b in zip(full, islice(batches, 30), strict=True):
            assert a.batch.target.equal(b.batch.target)
    shares = [list(islice(stream.start(StreamPosition(), share, 2), 4)) for share in range(2)]
    for n in range(4):
        assert full[n].batch.source[0::2].equal(shares[0][n].batch.source)
        assert full[n].batch.source[1::2].equal(shares[1][n].batch.source)


def test_shards_give_the_same_rows_as_their_text(file, tmp_path, monkeypatch):
    packed = tmp_path / "shards"
    pack_text([f"train={file}", f"val={file}"], packed, tokens="bytes(400)", documents="paragraph")
    settings = data(packed)
    assert settings.splits() == ["train", "val"]
    part = load(settings)
    assert len(sentinel_ids(part.tokenizer)) == 20
    batch = next(part.stream(0).start(StreamPosition())).batch
    full = restore_spans(
        batch.source[0, :-1].tolist(), batch.target[0, 1 : part.removed + part.spans + 1].tolist(), part.sentinels
    )
    start = int(part.stream(0).order(0)[0][0])
    assert full == part.windows.window(start, start + part.length).tolist()


def test_too_few_sentinels_are_reported(file):
    with pytest.raises(BadInput, match=r"raise data\.sentinels"):
        load(data(file, sentinels=1))


def test_evaluation_rows_are_fixed(file):
    part = load(data(file), "val")
    first, second = list(part.eval_batches(200)), list(part.eval_batches(1000))
    assert sum(len(b.source) for b in first) == sum(len(b.source) for b in second) == len(part)
    assert first[0].source.equal(second[0].source[: len(first[0].source)])


def test_sentinels_stand_in_order_from_the_first_in_source_and_target(file):
    part = load(data(file))
    marks = sentinel_ids(part.tokenizer)
    assert part.spans > 1
    for batch in islice(part.eval_batches(200), 3):
        for row in (*batch.source.tolist(), *batch.target.tolist()):
            assert [token for token in row if token in marks] == marks[: part.spans]


def test_the_spans_of_a_text_follow_their_sentinels():
    tokens = np.array([[10, 11, 12, 13, 14, 15, 16, 17]])
    out = np.array([[False, True, True, False, False, True, False, True]])
    source, target = corrupt_spans(tokens, out, [90, 91, 92])
    assert source.tolist() == [[10, 90, 13, 14, 91, 16, 92]]
    assert target.tolist() == [[90, 11, 12, 91, 15, 92, 17]]
