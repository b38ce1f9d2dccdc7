import itertools
import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import torch

from regard.core.errors import BadInput, UnknownName
from regard.data.batching import StreamPosition, prefetch
from regard.data.shards.index import ShardIndex
from regard.data.shards.packing import pack_text
from regard.data.shards.token_shards import IGNORE_INDEX, TokenBatch, TokenShards, TokenWindows, count_predicted_tokens

WORDS = "the whale is large and swims while a small dog runs over the hill to see it pass by".split()  # noqa: SIM905


def documents(n=400):
    return [" ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(3 + i % 11)) for i in range(n)]


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """Some 3,000 tokens, one document per line, in shards of 1,000."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "text.txt").write_text("\n".join(documents()))
    pack_text([folder / "text.txt"], folder / "shards", "word(100)", "line", val=0.1, shard=2000)
    return folder / "shards"


@pytest.fixture
def own(packed, tmp_path):
    """A copy to damage."""
    return shutil.copytree(packed, tmp_path / "own")


def tokens(folder, split="train"):
    """All tokens of a split, read without the code under test."""
    index = json.loads((folder / "index.json").read_text())
    return np.concatenate([np.fromfile(folder / s["file"], "<u2") for s in index["splits"][split]]).astype(np.int64)


def numbered(n=1000, context=10, rows=4, cuts=(), **more):
    """Windows over 0, 1, 2, ...: every token is its position."""
    return TokenWindows(np.split(np.arange(n, dtype=np.uint16), list(cuts)), context, rows, **more)


def epoch(windows, seed=0, number=0):
    """The first tokens of all rows of an epoch, and all targets."""
    order = windows.stream(seed).order(number)
    batches = [windows.collate(order[i]) for i in range(len(order))]
    return torch.cat([b.inputs[:, 0] for b in batches]).tolist(), torch.cat([b.targets for b in batches])


def test_row_targets_are_the_following_tokens():
    for item in itertools.islice(numbered().stream(0).start(StreamPosition()), 50):
        assert item.batch.inputs.shape == item.batch.targets.shape == (4, 10)
        assert item.batch.inputs.dtype == item.batch.targets.dtype == torch.int64
        assert torch.equal(item.batch.inputs[:, 1:], item.batch.targets[:, :-1])
        assert torch.equal(item.batch.inputs + 1, item.batch.targets)
        assert item.count == 40


@pytest.mark.parametrize("n", [11, 12, 19, 20, 21, 40, 41, 997])
def test_epoch_predicts_no_token_twice_and_drops_less_than_a_batch(n):
    for number in range(5):
        _, targets = epoch(numbered(n), number=number)
        found = targets.flatten().tolist()
        assert len(found) == len(set(found))
        assert len(found) >= 10
        assert len(found) > n - 1 - 10 - 10 - 4 * 10


def test_windows_differ_from_epoch_to_epoch():
    offsets = {epoch(numbered(), number=e)[0][0] % 10 for e in range(20)}
    assert len(offsets) > 5


def test_order_depends_on_seed_and_epoch_alone():
    assert epoch(numbered(), 1, 2)[0] == epoch(numbered(), 1, 2)[0]
    assert epoch(numbered(), 1, 2)[0] != epoch(numbered(), 1, 3)[0]
    assert epoch(numbered(), 1, 2)[0] != epoch(numbered(), 2, 2)[0]


@pytest.mark.parametrize("cuts", [(500,), (3, 4, 5, 999), tuple(range(7, 1000, 7))])
def test_rows_do_not_depend_on_shard_boundaries(cuts):
    for a, b in zip(
        itertools.islice(numbered().stream(3).start(StreamPosition()), 60),
        itertools.islice(numbered(cuts=cuts).stream(3).start(StreamPosition()), 60),
        strict=True,
    ):
        assert torch.equal(a.batch.inputs, b.batch.inputs)
        assert torch.equal(a.batch.targets, b.batch.targets)


@pytest.mark.parametrize("shares", [1, 2, 3, 4, 6])
def test_replicas_together_give_the_batch(shares, packed):
    windows = TokenShards(str(packed), context_length=16, batch_size=4).load("train")
    parts = [list(itertools.islice(windows.stream(5).start(StreamPosition(), i, shares), 30)) for i in range(shares)]
    for k, item in enumerate(itertools.islice(windows.stream(5).start(StreamPosition()), 30)):
        own = [part[k] for part in parts]
        full = torch.empty_like(item.batch.inputs)
        for i in range(shares):
            if i < 4:
                full[i::shares] = own[i].batch.inputs
        assert torch.equal(full, item.batch.inputs)
        assert sum(d.count for d in own) == item.count
        assert all(torch.equal(d.batch.inputs, item.batch.inputs[:1]) for d in own[4:])


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("k", [0, 1, 50, 99])
def test_shards_can_be_resumed_anywhere_with_any_number_of_workers(packed, workers, k):
    windows = TokenShards(str(packed), context_length=16, batch_size=4).load("train")
    full = list(itertools.islice(windows.stream(5).start(StreamPosition()), 110))
    assert full[-1].next_position.epoch >= 2
    again = (
        TokenShards(str(packed), context_length=16, batch_size=4).load("train").stream(5).start(full[k].next_position)
    )
    with prefetch(again, workers=workers) as items:
        for a, b in zip(full[k + 1 : k + 11], itertools.islice(items, 10), strict=True):
            assert torch.equal(a.batch.inputs, b.batch.inputs)
            assert torch.equal(a.batch.targets, b.batch.targets)
            assert (a.count, a.next_position) == (b.count, b.next_position)


def test_rows_equal_the_tokens_of_the_files(packed):
    read = tokens(packed)
    windows = TokenShards(str(packed), context_length=16, batch_size=4).load("train")
    assert len(ShardIndex.read(packed).part("train")) > 2
    assert windows.tokens == len(read)
    for starts in (torch.tensor([0, 990, 995, 1985]), torch.tensor([len(read) - 17])):
        batch = windows.collate(starts)
        for row, start in enumerate(starts.tolist()):
            assert batch.inputs[row].tolist() == read[start : start + 16].tolist()
            assert batch.targets[row].tolist() == read[start + 1 : start + 17].tolist()


@pytest.mark.parametrize("n", [11, 20, 21, 22, 997, 1000])
@pytest.mark.parametrize("size", [1, 25, 10_000])
def test_evaluation_predicts_every_token_once(n, size):
    batches = list(numbered(n).eval_batches(size))
    assert sum(count_predicted_tokens(b) for b in batches) == n - 1
    found = torch.cat([b.targets for b in batches]).flatten()
    assert found[found != IGNORE_INDEX].tolist() == list(range(1, n))
    assert all(len(b.inputs) <= max(1, size // 10) for b in batches)


def test_evaluation_max_rows_are_spread_evenly():
    firsts = torch.cat([b.inputs[:, 0] for b in numbered().eval_batches(40, max_rows=5)]).tolist()
    assert firsts == [0, 200, 400, 600, 800]
    assert sum(count_predicted_tokens(b) for b in numbered().eval_batches(40, max_rows=10_000)) == 999


def test_limit_takes_the_first_rows():
    windows = numbered(limit=3)
    assert windows.tokens == 31
    assert len(windows) == 3
    assert int(torch.cat([b.targets for b in windows.eval_batches(100)]).max()) == 30


def test_few_rows_give_one_smaller_batch():
    item = next(numbered(35, rows=64).stream(0).start(StreamPosition()))
    assert 2 <= len(item.batch.inputs) <= 3
    assert item.next_position == StreamPosition(1, 0)


def test_too_few_tokens_says_what_to_do():
    with pytest.raises(BadInput, match=r"10 tokens.*takes 11.*data\.context"):
        numbered(10)
    with pytest.raises(BadInput, match="must be 1 or more"):
        numbered(rows=0)


def test_batch_to_pin_and_rows():
    batch = numbered().collate(torch.tensor([0, 5, 9]))
    assert isinstance(batch.to("cpu"), TokenBatch)
    assert batch.rows(2).inputs.shape == batch.rows(2).targets.shape == (2, 10)
    assert batch.inputs.is_contiguous()
    assert batch.targets.is_contiguous()


def test_documents_end_with_eos_and_are_restored(packed):
    shards = TokenShards(str(packed))
    text = shards.build_tokenizer()
    parts = {name: ShardIndex.read(packed).count(name)[1] for name in ("train", "val")}
    assert sum(parts.values()) == 400
    found = [shards.document(name, i) for name, count in parts.items() for i in range(count)]
    assert all(ids[-1] == text.eos for ids in found)
    assert sorted(text.decode([ids.tolist() for ids in found])) == sorted(documents())
    with pytest.raises(BadInput, match="numbered from 0"):
        shards.document("val", parts["val"])


def test_byte_count_of_the_text(packed):
    shards = TokenShards(str(packed))
    assert shards.bytes("train") + shards.bytes("val") == sum(len(d.encode()) for d in documents())


def test_the_fingerprint_comes_from_the_index_and_changes_with_the_data(packed, own):
    before = TokenShards(str(own), context_length=16).load("train").fingerprint()
    assert before == TokenShards(str(packed), context_length=32).load("train").fingerprint()
    assert before != TokenShards(str(own), context_length=16).load("val").fingerprint()
    index = json.loads((own / "index.json").read_text())
    index["splits"]["train"][0]["checksum"] = "0" * 32
    (own / "index.json").write_text(json.dumps(index))
    assert before != TokenShards(str(own), context_length=16).load("train").fingerprint()
    index = json.loads((packed / "index.json").read_text())
    index["vocabulary"]["fingerprint"] = "other"
    (own / "index.json").write_text(json.dumps(index))
    assert before != ShardIndex.read(own).fingerprint("train")
    assert numbered().fingerprint() == numbered().fingerprint() != numbered(999).fingerprint()


def test_splits_are_found_by_the_beginning_of_their_names(packed):
    shards = TokenShards(str(packed))
    assert shards.splits() == ["train", "val"]
    assert shards.split("v") == "val"
    with pytest.raises(UnknownName, match="no split 'test'"):
        shards.load("test")


def test_quick_is_small(packed):
    shards = TokenShards(str(packed), context_length=1024, batch_size=512).quick()
    assert next(shards.load("train").stream(0).start(StreamPosition())).batch.inputs.shape == (4, 64)


def test_a_large_vocabulary_is_stored_in_four_bytes(tmp_path):
    np.array([5, 70_000, 3, 2], "<u4").tofile(tmp_path / "train-00000.bin")
    windows = TokenWindows([np.fromfile(tmp_path / "train-00000.bin", "<u4")], 3, 1, vocab_size=70_001)
    assert windows.collate(torch.tensor([0])).targets.tolist() == [[70_000, 3, 2]]


# -- what is wrong with them -------------------------------------------------------------------------------------------


def first(folder):
    return folder / "train-00000.bin"


def test_intact_shards_pass_the_check(packed):
    assert ShardIndex.read(packed).check(packed) == []


def test_truncated_shard_is_named(own):
    first(own).write_bytes(first(own).read_bytes()[:-4])
    with pytest.raises(BadInput, match=r"train-00000\.bin is truncated: [\d,]+ bytes, the index says .*copy it again"):
        TokenShards(str(own), context_length=16).load("train")


def test_missing_shard_is_named(own):
    (own / "train-00001.ends").unlink()
    with pytest.raises(BadInput, match=r"train-00001\.ends is missing"):
        TokenShards(str(own)).load("train")


def test_flipped_bit_is_found_and_the_file_named(own):
    content = bytearray(first(own).read_bytes())
    content[100] ^= 1
    first(own).write_bytes(content)
    ends = bytearray((own / "val-00000.ends").read_bytes())
    ends[0] ^= 1
    (own / "val-00000.ends").write_bytes(ends)
    wrong = ShardIndex.read(own).check(own)
    assert len(wrong) == 2
    assert "train-00000.bin is damaged: its checksum" in wrong[0]
    assert "val-00000.ends is damaged" in wrong[1]


def test_token_outside_the_vocabulary_raises(own):
    content = bytearray(first(own).read_bytes())
    content[20:22] = b"\xff\xff"
    first(own).write_bytes(content)
    windows = TokenShards(str(own), context_length=16).load("train")
    with pytest.raises(BadInput, match=r"train-00000\.bin has the token 65535.*regard data check"):
        windows.collate(torch.tensor([0]))


def test_shards_with_another_tokenizer_are_refused(own):
    (own / "tokenizer.json").write_text((own / "tokenizer.json").read_text() + "\n")
    with pytest.raises(BadInput, match=r"tokenizer\.json is not the tokenizer"):
        TokenShards(str(own)).load("train")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("not json", "not JSON"),
        ("[]", "not an index"),
        ("{}", "not an index"),
        ('{"format": 99}', "newer version"),
        ('{"format": 0}', "older format"),
        ('{"format": 1, "kind": "tokens"}', "content is invalid"),
        (json.dumps({"format": 1} | asdict(ShardIndex("tokens", "uint16", {}))), "content is invalid"),
    ],
    ids=["not-json", "a-list", "no-format", "newer", "older", "half", "no-vocabulary"],
)
def test_invalid_index_says_why(own, written, message):
    (own / "index.json").write_text(written)
    with pytest.raises(BadInput, match=message):
        TokenShards(str(own)).load("train")


@pytest.mark.parametrize("name", ["../train-00000.bin", "/etc/train-00000.bin", "passwd"])
def test_an_index_cannot_point_out_of_its_folder(own, name):
    index = json.loads((own / "index.json").read_text())
    index["splits"]["train"][0]["file"] = name
    (own / "index.json").write_text(json.dumps(index))
    with pytest.raises(BadInput, match="content is invalid"):
        TokenShards(str(own)).load("train")


def test_a_folder_without_shards_says_how_to_make_some(tmp_path):
    with pytest.raises(BadInput, match="regard data pack"):
        TokenShards(str(tmp_path)).load("train")
    with pytest.raises(BadInput, match="no folder of shards 'nowhere-at-all'"):
        TokenShards("nowhere-at-all").load("train")


def test_images_are_not_tokens(own):
    index = json.loads((own / "index.json").read_text())
    (own / "index.json").write_text(json.dumps(index | {"kind": "images"}))
    with pytest.raises(BadInput, match="holds images, not tokens"):
        TokenShards(str(own)).load("train")
