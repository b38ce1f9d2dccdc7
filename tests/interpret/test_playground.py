"""The lab computes with the parts themselves: its numbers are theirs."""

import pytest
import torch

from regard.attention import ALIGNERS, MECHANISMS
from regard.attention.mask import CausalMask, DocumentMask, GlobalMask, PaddingMask, WindowMask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import RegardError, Unsupported
from regard.core.spec import resolve
from regard.interpret.mask_parser import MASKS, parse_mask
from regard.interpret.playground import (
    MAX_TOKENS,
    align,
    describe_mechanism,
    describe_parts,
    position_matrix,
    self_attention,
    token_vectors,
)
from regard.interpret.worked_example import THINKING_MACHINES, attention_steps
from regard.positions import POSITIONS

TOKENS = ["the", "quick", "brown", "fox", "jumps", "over", "it"]


def test_the_lecture_s_numbers_112_14_088():
    found = attention_steps(**THINKING_MACHINES)
    assert found["tokens"] == ["Thinking", "Machines"]
    assert (found["scores"][0], found["root"]) == ([112.0, 96.0], 8.0)
    assert found["scaled"][0] == [14.0, 12.0]
    assert [round(w, 2) for w in found["weights"][0]] == [0.88, 0.12]


@pytest.mark.parametrize("mask", [None, CausalMask()])
def test_six_steps_are_the_softmax_mechanism(mask, double):
    x, w_q, w_k, w_v = (torch.randn(*shape) for shape in ((5, 4), (4, 3), (4, 3), (4, 2)))
    found = attention_steps(list("abcde"), x.tolist(), w_q.tolist(), w_k.tolist(), w_v.tolist(), d_k=7, mask=mask)
    q, k, v = (torch.tensor(found[name])[None, None] for name in "qkv")
    attend = SoftmaxAttention(scale=7**-0.5)
    torch.testing.assert_close(torch.tensor(found["z"]), attend(q, k, v, mask)[0, 0])
    torch.testing.assert_close(torch.tensor(found["weights"]), attend.weights(q, k, mask)[0, 0])
    torch.testing.assert_close(torch.tensor(found["weighted"]).sum(1), torch.tensor(found["z"]))


@pytest.mark.parametrize("name", list(MECHANISMS))
@pytest.mark.parametrize("mask", ["none", "causal & keys(5)"])
def test_every_mechanism_under_every_mask_with_all_positions(name, mask):
    for positions in POSITIONS:
        check_mechanism(name, positions, mask)


def check_mechanism(name, positions, mask):
    x, learned = token_vectors(TOKENS)
    traits = resolve(MECHANISMS, name, "attention").traits
    if not traits.bias and resolve(POSITIONS, positions, "positions").kind == "bias":
        with pytest.raises(Unsupported, match=r"cannot add a bias|takes no mask of kind"):
            self_attention(TOKENS, x, name, mask, positions)
        return
    if mask != "none" and not {"causal", "padding"} <= traits.masks and "any" not in traits.masks:
        with pytest.raises(Unsupported, match="takes no mask of kind"):
            self_attention(TOKENS, x, name, mask, positions)
        return
    found = self_attention(TOKENS, x, name, mask, positions)
    weights, allowed = torch.tensor(found["weights"]), torch.tensor(found["mask"]["allowed"])
    assert weights.shape == (4, 7, 7), positions
    assert not any(learned), positions
    if MECHANISMS[name][1] == "SoftmaxAttention":
        assert (weights * (1 - allowed)).abs().max() == 0
        torch.testing.assert_close(weights.sum(-1), torch.ones(4, 7, dtype=weights.dtype), atol=1e-6, rtol=0)
        scores = torch.tensor(found["scores"]).masked_fill(allowed == 0, -torch.inf)
        torch.testing.assert_close(weights, scores.softmax(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", list(ALIGNERS))
def test_every_aligner_gives_a_row_for_each_step(name):
    example = next(entry["example"] for entry in describe_parts()["aligners"] if entry["name"] == name)
    x, _ = token_vectors(TOKENS)
    found = align(TOKENS[:3], TOKENS, x[:3], x, example)
    weights = torch.tensor(found["weights"])
    assert weights.shape == (1, 3, 7)
    assert weights.min() >= 0
    assert weights.sum() > 0
    assert found["aligner"]["formula"]
    if found["scores"] is not None:
        torch.testing.assert_close(torch.tensor(found["scores"]).softmax(-1), weights, atol=1e-6, rtol=0)


def test_the_score_functions_are_those_of_their_formulas():
    x, _ = token_vectors(TOKENS)
    dot = torch.tensor(align(TOKENS, TOKENS, x, x, "dot")["scores"][0])
    torch.testing.assert_close(dot, (x @ x.T).to(dot.dtype), atol=1e-4, rtol=1e-5)
    scaled = torch.tensor(align(TOKENS, TOKENS, x, x, "scaled_dot")["scores"][0])
    torch.testing.assert_close(scaled, dot / x.shape[1] ** 0.5)


@pytest.mark.parametrize("name", list(POSITIONS))
def test_positions_say_something_of_every_pair(name):
    found = position_matrix(name, 6)
    matrix = torch.tensor(found["matrix"])
    assert matrix.shape[1:] == (6, 6)
    if name in ("sinusoidal", "rotary", "alibi", "relative", "per_layer"):  # a shift of both changes nothing
        torch.testing.assert_close(matrix[:, 1:, 1:], matrix[:, :-1, :-1], atol=1e-5, rtol=1e-4)


def test_the_lab_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    x, _ = token_vectors(TOKENS)
    first = align(TOKENS, TOKENS, x, x, "additive", seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(3)
    assert align(TOKENS, TOKENS, x, x, "additive", seed=3) == first
    assert align(TOKENS, TOKENS, x, x, "additive", seed=4) != first


def test_known_words_bring_their_vectors():
    own = torch.arange(8.0)
    x, learned = token_vectors(["a", "b"], lambda token: own if token == "a" else None)
    assert learned == [True, False]
    assert torch.nn.functional.cosine_similarity(x[0], own.double(), dim=0) == pytest.approx(1)


def same(left, right, n=6):
    return torch.equal(left.dense(1, n, n).expand(1, 1, n, n), right.dense(1, n, n).expand(1, 1, n, n))


def test_masks_are_read_as_they_are_written():
    assert parse_mask("none", 6) is None
    assert same(parse_mask("causal & (window(2) | global(0))", 6), CausalMask() & (WindowMask(2) | GlobalMask([0])))
    assert same(parse_mask("keys(4)&causal", 6), PaddingMask(torch.tensor([4])) & CausalMask())
    assert same(parse_mask("documents(2, 3)", 6), DocumentMask(torch.tensor([2, 3, 1]), 6, 3))
    for kind in MASKS.values():
        parse_mask(kind.example, 4)


WRONG = [
    "causall", "causal(1)", "window", "window(0)", "window(-1)", "causal and keys(1)", "causal & (", "open('x')",
    "keys(lengths=3)", "keys(1.5)", "documents(9)", "same(1)", "~causal", "causal.mro", "(" * 300, "global('a')",
]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_masks_that_cannot_be_read_are_refused(text):
    with pytest.raises(RegardError):
        parse_mask(text, 6)


@pytest.mark.parametrize("spec", ["softmax(scale='wide')", "softmax(scale=[1])", "softmax(nothing=1)", "linearr"])
def test_parts_that_cannot_be_made_are_refused(spec):
    x, _ = token_vectors(TOKENS)
    with pytest.raises(RegardError):
        self_attention(TOKENS, x, spec)


def test_sizes_are_modest():
    x, _ = token_vectors(TOKENS)
    with pytest.raises(RegardError, match="up to 512"):
        align(TOKENS, TOKENS, x, x, "location(filters=100000000)")
    with pytest.raises(RegardError, match="tokens"):
        token_vectors(["a"] * (MAX_TOKENS + 1))
    with pytest.raises(RegardError, match="rows"):
        attention_steps(["a"], [[1.0] * 17], [[1.0]], [[1.0]], [[1.0]])
    with pytest.raises(RegardError, match="d_k"):
        attention_steps(**THINKING_MACHINES | {"d_k": 0})


def test_options_are_those_of_the_mechanism_and_not_the_sizes_of_its_place():
    for name in MECHANISMS:
        options = describe_mechanism(name)["options"]
        of_the_place = {"width", "heads", "kv_heads", "head_dim", "layer", "grid", "causal", "prefix"}
        assert not options.keys() & of_the_place, name
