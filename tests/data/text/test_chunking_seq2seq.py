"""Chunking with brackets: a parse is written and read back, and only real choices are decisions."""

from itertools import pairwise

import pytest
import torch

from regard.core.errors import BadInput
from regard.data.shards.token_shards import IGNORE_INDEX
from regard.data.text.chunking_seq2seq import (
    CLOSE,
    COPY,
    NUM_WORD_MARKERS,
    OPEN,
    BracketParser,
    ChunkingSeq2Seq,
    ChunkingSymbols,
    encode_parse,
)

SYMBOLS = ChunkingSymbols(100, ("ADVP", "NP", "VP"))
EOS = 2
SENTENCES = """He PRP B-NP
reckons VBZ B-VP
the DT B-NP
deficit NN I-NP
will MD B-VP
narrow VB I-VP
. . O

Confidence NN B-NP
in IN O
the DT B-NP
pound NN I-NP
is VBZ B-VP
widely RB I-VP
expected VBN I-VP

"""


def walk(pieces):
    return BracketParser(SYMBOLS, pieces, EOS)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "train.txt").write_text(SENTENCES * 6)
    (tmp_path / "val.txt").write_text(SENTENCES)
    (tmp_path / "test.txt").write_text("Nobody NN B-NP\nwalks VBZ B-VP\nhome XX B-ADVP\n")
    return tmp_path


def test_parse_contains_its_words_in_order():
    """He/5 reckons/6 7 the/8 . with a word of two pieces."""
    tokens, outside, inside = encode_parse(walk([[5], [6, 7], [8], [9]]), ["B-NP", "B-VP", "B-NP", "O"])
    np, vp, close, at = 100 + OPEN + 1, 100 + OPEN + 2, 100 + CLOSE, 100 + SYMBOLS.decisions
    assert tokens == [at, np, 5, at + 1, close, vp, 6, 7, at + 2, close, np, 8, at + 3, close, 9, EOS]
    n = IGNORE_INDEX
    assert outside == [n, OPEN + 1, n, n, n, OPEN + 2, n, n, n, n, OPEN + 1, n, n, n, COPY, n]
    assert inside == [n, n, n, n, CLOSE, n, n, n, n, CLOSE, n, n, n, CLOSE, n, n]


def test_source_and_target_share_word_markers():
    symbols = ChunkingSymbols(100, ("NP",), ("NN", "VB"))
    at = symbols.marker(0)
    assert symbols.source([[5], [6, 7]], ["VB", "XX"], EOS) == [
        at,
        5,
        at + NUM_WORD_MARKERS + 1,
        at + 1,
        6,
        7,
        at + NUM_WORD_MARKERS + 2,
        EOS,
    ]
    assert symbols.size == at + NUM_WORD_MARKERS + 3
    assert symbols.marker(NUM_WORD_MARKERS + 4) == at + 4
    assert len({*range(symbols.size)}) == symbols.size


TAGGED = [
    ["B-NP"],
    ["O", "O"],
    ["B-NP", "I-NP", "B-NP", "I-NP"],
    ["B-NP", "B-VP", "O", "B-ADVP", "I-ADVP"],
    ["O", "B-NP", "O"],
]


@pytest.mark.parametrize("tags", TAGGED, ids=" ".join)
def test_encoded_parse_is_restored(tags):
    pieces = [[10 + n, 50] if n % 2 else [10 + n] for n in range(len(tags))]
    tokens, *_ = encode_parse(walk(pieces), tags)
    again = walk(pieces)
    for token in tokens:  # replayed, decision by decision
        found = again.next_forced()
        if found is None:
            found = again.decide(token - 100 if token >= 100 else COPY)
        assert found == token
    assert again.ended
    assert again.tags == tags


@pytest.mark.parametrize(
    ("tags", "as_if"),
    [(["I-NP", "I-NP"], ["B-NP", "I-NP"]), (["B-NP", "I-VP"], ["B-NP", "B-VP"]), (["B-XX", "O"], ["O", "O"])],
)
def test_inside_tag_without_begin_starts_a_chunk_and_unknown_kinds_are_ignored(tags, as_if):
    machine = walk([[1], [2]])
    encode_parse(machine, tags)
    assert machine.tags == as_if


def test_any_decisions_give_a_well_formed_parse():
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        pieces = [[n, 90][: 1 + n % 2] for n in range(10, 10 + int(torch.randint(1, 6, (), generator=generator)))]
        machine, tokens, depth = walk(pieces), [], 0
        while not machine.ended:
            token = machine.next_forced()
            if token is None:
                options = machine.options()
                assert len(options) > 1
                token = machine.decide(options[int(torch.randint(len(options), (), generator=generator))])
            tokens.append(token)
            depth += (100 + OPEN <= token < 100 + SYMBOLS.decisions) - (token == 100 + CLOSE)
            assert depth in (0, 1)
        assert depth == 0
        assert [t for t in tokens if t < 100] == [*(i for word in pieces for i in word), EOS]
        assert len(machine.tags) == len(pieces)
        spoken = [t for t in tokens if t < 100 + SYMBOLS.decisions]  # all but the places
        empty = [a for a, b in pairwise(spoken) if a >= 100 + OPEN and b == 100 + CLOSE]
        assert not empty


@pytest.mark.parametrize("speech", [None, 1])
def test_batch_has_sentence_parse_and_decisions(file, speech):
    data = ChunkingSeq2Seq(str(file), pos_column=speech, tokenizer="word", vocab_size=200, pad_to_multiple_of=4)
    text = data.build_tokenizer()
    part, symbols = data.load("train", text), data.symbols(text)
    assert symbols.kinds == ("NP", "VP")
    batch = part.collate(torch.tensor([0, 1]))
    assert batch.source_lengths.tolist() == ([15, 15] if speech is None else [22, 22])
    assert batch.target.shape[1] % 4 == 1
    assert batch.outside.shape == batch.inside.shape == (2, batch.target.shape[1] - 1)
    words = text.encode_one("He reckons the deficit will narrow .")
    pieces = [i for i in batch.target[0].tolist() if i < text.size and i not in (text.bos, text.eos, text.pad)]
    assert pieces == words
    if speech is not None:
        assert batch.source[0, 2] == symbols.marker(0) + NUM_WORD_MARKERS + symbols.speech.index("PRP")
        odd = data.load("test", text)
        assert odd.source.row(0)[8] == symbols.size - 1  # a part of speech that was never seen
    assert sum(x.ne(IGNORE_INDEX).sum() for x in (batch.outside, batch.inside)) == part.stream(0).count(batch)


def test_long_sentences_are_left_out_of_training_only(file):
    data = ChunkingSeq2Seq(str(file), tokenizer="word", vocab_size=200, max_length=23)
    part = data.load("train", data.build_tokenizer())
    assert len(part.usable()) == 6 < len(part)
    assert sum(len(batch.source) for batch in part.eval_batches(64)) == len(part)


def test_tags_without_chunks_are_refused(file):
    data = ChunkingSeq2Seq(str(file), column=1, tokenizer="word", vocab_size=200)
    text = data.build_tokenizer()
    with pytest.raises(BadInput, match="has no chunk tags"):
        data.symbols(text)
