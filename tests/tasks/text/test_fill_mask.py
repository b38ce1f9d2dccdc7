"""Hidden words guessed: as transformers' pipeline does, each mask by itself, alone or in a batch."""

import pytest
import torch

import regard
from regard.core.errors import BadInput, Unsupported
from regard.models import build
from regard.tasks.text.masked_lm import FillMask, fill_masks
from regard.tokens.tokenizer import Tokenizer
from regard.weights.hf import bert

LINES = [
    "The old dog barks at the cat.",
    "A cat sleeps on the mat, and the dogs look on.",
    "Two dogs play in the snow.",
]


def small(head="masked", **settings):
    torch.manual_seed(0)
    text = Tokenizer.train(LINES * 3, kind="bert", size=120, lower=True)
    model = build("bert", vocab=text.size, width=16, heads=4, layers=2, length=24, head=head, **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return FillMask(model, text)


@pytest.mark.parametrize("head", ["masked", "pretraining"])
def test_guesses_are_the_likeliest_words_of_the_whole_vocabulary(head):
    fill = small(head)
    found = fill("The old [MASK] barks at the [MASK].", top_k=fill.text.size).masks
    assert len(found) == 2
    ids = torch.tensor([fill.encode("The old [MASK] barks at the [MASK].")])
    assert (ids == fill.text.mask).sum() == 2
    with torch.no_grad():
        logits = fill.model(ids)
    shares = (logits if head == "masked" else logits[0])[0].softmax(-1)
    for guesses, at in zip(found, (ids[0] == fill.text.mask).nonzero().flatten(), strict=True):
        assert sum(g.probability for g in guesses) == pytest.approx(1, abs=1e-4)
        assert [g.token for g in guesses] == shares[at].sort(descending=True).indices.tolist()
        assert guesses[0].probability == pytest.approx(float(shares[at].max()), rel=1e-4)
        assert guesses[0].word == fill.text.pieces([guesses[0].token])[0]


def test_a_batch_equals_its_singles():
    fill = small()
    lines = [
        "The [MASK].",
        "A cat [MASK] on the mat, and the [MASK] look on.",
        "[MASK]",
        "Two dogs [MASK] in the snow.",
    ]
    for mine, line in zip(fill(lines, top_k=3), lines, strict=True):
        alone = fill(line, top_k=3)
        assert mine.text == alone.text
        assert [[g.token for g in mask] for mask in mine.masks] == [[g.token for g in mask] for mask in alone.masks]
        for a, b in zip(mine.masks, alone.masks, strict=True):
            assert [g.probability for g in a] == pytest.approx([g.probability for g in b], rel=1e-4)
    assert fill([]) == []


def test_guesses_are_those_of_transformers_pipeline(tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = small()
    bert.save(tmp_path / "m", ours.model, ours.text)
    theirs = transformers.pipeline("fill-mask", model=str(tmp_path / "m"), top_k=4)
    fill = regard.load(tmp_path / "m")
    assert isinstance(fill, FillMask)
    for line in ("The old [MASK] barks.", "[MASK] dogs", "a[MASK]b, c"):
        (mine,) = fill(line, top_k=4).masks
        for guess, wanted in zip(mine, theirs(line), strict=True):
            assert guess.token == wanted["token"]
            assert guess.probability == pytest.approx(wanted["score"], rel=1e-4)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["The dog barks."], r"text 1 has no \[MASK\]"),
        (["a [MASK]", "The [mask] barks."], r"text 2 has no \[MASK\]"),
        ([""], "text 1 is empty"),
        (["[MASK] " * 30], r"text 1 has 32 tokens with special tokens, but this model takes 24"),
        (["[MASK]", 7], "text 2: Expected a text"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(texts, said):
    with pytest.raises(BadInput, match=said):
        small()(texts)


def test_other_bad_input():
    with pytest.raises(BadInput, match="top_k must be at least 1, got 0"):
        small()(["[MASK]"], top_k=0)
    text = Tokenizer.train(LINES * 3, kind="wordpiece", size=120)
    with pytest.raises(BadInput, match="needs a tokenizer with a mask token"):
        FillMask(build("bert", size="tiny", vocab=text.size), text)


def test_saved_and_loaded_is_the_same(tmp_path):
    fill = small("pretraining")
    regard.save(fill, tmp_path / "m")
    again = regard.load(tmp_path / "m")
    assert isinstance(again, FillMask)
    assert again(["The [MASK] barks."]) == fill(["The [MASK] barks."])


def test_words_are_put_where_the_masks_were():
    assert fill_masks("The [MASK] sat on the [MASK].", ["cat", "mat"]) == "The cat sat on the mat."
    assert fill_masks("The dog [MASK] bark", ["##s"]) == "The dogs bark"
    assert fill_masks("a [MASK]", ["##"]) == "a ##"


def test_attention_sees_the_mask_as_one_word():
    traces = small().attention("The [MASK] barks.")
    assert traces[0].rows[:3] == ("[CLS]", "the", "[MASK]")


FIRST = ["The old dog barks at the cat.", "Two dogs play in the snow.", "A cat sleeps."]
SECOND = ["The cat sleeps.", "A [MASK] looks on.", "Two dogs play in the snow, and the cat looks on."]


def test_what_follows_is_read_off_the_two_texts_in_a_row():
    fill = small("pretraining")
    found = fill.nsp_probabilities(FIRST, SECOND)
    for first, second, share in zip(FIRST, SECOND, found, strict=True):
        ids, which = fill.text.with_special_tokens(fill.token_ids(first), fill.token_ids(second))
        with torch.no_grad():
            _, logits = fill.model(torch.tensor([ids]), torch.tensor([which]))
        assert share == pytest.approx(float(logits[0].softmax(-1)[0]), rel=1e-4)
        assert fill.nsp_probabilities([first], [second]) == pytest.approx([share], rel=1e-4)  # whoever its company is
    assert len({round(share, 4) for share in found}) == 3
    assert fill.nsp_probabilities([], []) == []


def test_what_follows_is_what_transformers_says(tmp_path):
    transformers = pytest.importorskip("transformers")
    ours = small("pretraining")
    bert.save(tmp_path / "m", ours.model, ours.text)
    theirs = transformers.BertForNextSentencePrediction.from_pretrained(tmp_path / "m").eval()
    cut = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    fill = regard.load(tmp_path / "m")
    assert fill.has_nsp_head
    for first, second, share in zip(FIRST, SECOND, fill.nsp_probabilities(FIRST, SECOND), strict=True):
        ids, which = fill.text.with_special_tokens(fill.token_ids(first), fill.token_ids(second))
        assert cut(first, second)["input_ids"] == ids  # they read [MASK] as one token too
        with torch.no_grad():
            logits = theirs(torch.tensor([ids]), token_type_ids=torch.tensor([which])).logits
        assert share == pytest.approx(float(logits[0].softmax(-1)[0]), rel=1e-4)


def test_pairs_that_cannot_be_judged_are_refused():
    fill = small("pretraining")
    for texts, others, said in (
        (["a", "b"], ["a"], "as many first as second texts, got 2 and 1"),
        (["a", " "], ["a", "b"], "text 2 is empty"),
        (["a", "the " * 12], ["b", "cat " * 12], "pair 2 has 27 tokens with special tokens, but this model takes 24"),
        ("a", ["b"], "give a list"),
    ):
        with pytest.raises(BadInput, match=said):
            fill.nsp_probabilities(texts, others)
    assert not small("masked").has_nsp_head
    with pytest.raises(Unsupported, match="no head for next-sentence prediction"):
        small("masked").nsp_probabilities(["a"], ["b"])


def test_words_are_asked_for_at_the_masks_and_nowhere_else():
    fill, asked = small(), []
    fill.model.head.register_forward_pre_hook(lambda head, given: asked.append(given[3]))
    fill(["The [MASK] [MASK].", "[MASK] dogs"])
    assert asked[0].tolist() == [[2, 3], [1, 0]]


def test_every_number_of_a_text_has_its_place():
    fill = small()
    line = " The [MASK] barks[MASK], x"
    assert len(fill.token_ids(line)) == len(fill.spans(line))
    read = {line[begin:end].lower() for begin, end in fill.spans(line)}
    assert {"the", "[mask]", ","} <= read
    assert [
        line[b:e] for (b, e), i in zip(fill.spans(line), fill.token_ids(line), strict=True) if i == fill.text.mask
    ] == ["[MASK]"] * 2
