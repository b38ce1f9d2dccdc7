"""Laws of interventions: what is not touched stays to the bit, what is touched is (other weights) times v."""

import warnings

import pytest
import torch

from regard.attention.capture.map_store import watch_lazy
from regard.attention.capture.watch import watch
from regard.attention.mask import CausalMask, DenseMask
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.decoding.beam_search import beam_search, greedy_search
from regard.interpret.interventions import Intervention, attention_modules, intervene
from regard.models import build

WAYS = ["off", "uniform", "identity", "previous", "mask"]


@pytest.fixture(autouse=True)
def _double(double):
    pass


def transformer(**more):
    sizes = {"vocab": 13, "width": 18, "heads": 3, "ffn": 32, "encoder_layers": 2, "decoder_layers": 2}
    return build("transformer", size="tiny", **sizes | more).eval()


def gpt(**more):
    return build("gpt", size="tiny", **{"vocab": 13, "width": 24, "heads": 6, "layers": 2, "length": 32} | more).eval()


def batch():
    return torch.randint(3, 13, (3, 6)), torch.randint(3, 13, (3, 5)), torch.tensor([6, 2, 4])


def one(do, **more):
    return {"do": do} | ({"mask": [[1, 0], [None, 2]]} if do == "mask" else {}) | more


def state(model):
    """All that a module is made of, hooks and shadows too."""
    return [
        (name, sorted(vars(m)), len(m._forward_hooks), len(m._forward_pre_hooks)) for name, m in model.named_modules()
    ]


def test_nothing_intervened_is_the_same_to_the_bit():
    model, given = transformer(), batch()
    before = model(*given)
    with intervene(model, []):
        assert torch.equal(model(*given), before)


@pytest.mark.parametrize("do", WAYS)
def test_afterwards_everything_is_as_it_was_also_after_an_error(do):
    model, given = transformer(), batch()
    before, made = model(*given), state(model)
    with intervene(model, [one(do, map="encoder.*")]):
        assert not torch.equal(model(*given), before)
    assert state(model) == made
    with (
        pytest.raises(ZeroDivisionError),
        intervene(model, [one(do, map="encoder.*"), {"do": "positions", "spec": "none"}]),
    ):
        1 / 0  # noqa: B018
    assert state(model) == made
    assert torch.equal(model(*given), before)


@pytest.mark.parametrize("kv_heads", [6, 2])
def test_a_head_that_is_off_is_its_share_of_the_join_taken_away(kv_heads):
    model = gpt(layers=1, kv_heads=kv_heads)
    mix, x = model.decoder.blocks[0].mix, torch.randn(2, 7, 24)
    q, k, v = mix.project(x)
    heads = mix.attend(q, k, v, CausalMask())
    matrix = mix.join.out.weight.unflatten(1, (6, 4))  # C H D
    share = torch.einsum("bnd,cd->bnc", heads[:, 4], matrix[:, 4])
    whole = mix(x, mask=CausalMask())
    with intervene(mix, [{"do": "off", "heads": [4]}]):
        torch.testing.assert_close(mix(x, mask=CausalMask()), whole - share)


@pytest.mark.parametrize("do", WAYS)
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_other_heads_are_the_same_to_the_bit_and_the_watched_weights_are_those_applied(do, kv_heads):
    model = gpt(layers=1, kv_heads=kv_heads)
    attend = model.decoder.blocks[0].mix.attend
    q, k, v = torch.randn(2, 6, 5, 4), torch.randn(2, kv_heads, 5, 4), torch.randn(2, kv_heads, 5, 3)
    own = attend(q, k, v, CausalMask())
    with intervene(attend, [one(do, heads=[1, 4])]):
        out, weights = attend(q, k, v, CausalMask()), attend.weights(q, k, CausalMask())
        some = attend.weights(q, k, CausalMask(), queries=[3, 1])
    kept = [0, 2, 3, 5]
    assert torch.equal(out[:, kept], own[:, kept])
    assert not torch.allclose(out[:, [1, 4]], own[:, [1, 4]])
    torch.testing.assert_close(weights @ v.repeat_interleave(6 // kv_heads, 1), out)
    assert torch.equal(some, weights[:, :, [3, 1]])
    assert weights.triu(1).abs().max() == 0  # the future stays out of sight


def test_the_ways_are_what_they_say():
    model, found = gpt(layers=1), {}
    tokens = torch.randint(3, 13, (1, 4))
    for do in ("off", "uniform", "identity", "previous"):
        with intervene(model, [{"do": do}]), watch(model) as seen:
            model(tokens)
        found[do] = seen["decoder.blocks.0.mix"].weights[0, 0]
    assert found["off"].abs().max() == 0
    thirds = torch.ones(4, 4).tril() / torch.arange(1, 5.0)[:, None]
    torch.testing.assert_close(found["uniform"], thirds)
    assert torch.equal(found["identity"], torch.eye(4))
    assert torch.equal(found["previous"], torch.eye(4)[[0, 0, 1, 2]])


def test_padding_is_never_looked_at():
    model, given = transformer(), batch()
    for do in ("uniform", "identity", "previous"):
        with intervene(model, [{"do": do, "map": "encoder.*"}]), watch(model) as seen:
            model(*given)
        assert seen["encoder.blocks.0.mix"].weights[1, :, :, 2:].abs().max() == 0
    with intervene(model, [{"do": "uniform", "map": "*.cross"}]), watch(model) as seen:
        model(*given)
    torch.testing.assert_close(
        seen["decoder.blocks.1.cross"].weights[1], torch.tensor([0.5, 0.5, 0, 0, 0, 0]).expand(3, 5, 6)
    )


def test_a_drawn_mask_is_the_mechanism_under_that_mask():
    model = gpt(layers=1)
    attend = model.decoder.blocks[0].mix.attend
    q, k, v = torch.randn(1, 6, 5, 4), torch.randn(1, 6, 5, 4), torch.randn(1, 6, 5, 4)
    allowed = torch.ones(1, 5, 5, dtype=torch.bool).tril()
    allowed[0, 3, 1] = allowed[0, :, 2] = False
    with intervene(attend, [{"do": "mask", "mask": [[3, 1], [None, 2]]}]):
        torch.testing.assert_close(attend(q, k, v, CausalMask()), attend.forward(q, k, v, DenseMask(allowed)))


def test_a_mask_joins_what_else_is_done_and_the_last_of_the_others_counts():
    model, tokens = gpt(layers=1), torch.randint(3, 13, (1, 4))
    changes = [{"do": "off"}, {"do": "mask", "mask": [[3, 3]]}, {"do": "uniform", "heads": [2]}]
    with intervene(model, changes), watch(model) as seen:
        model(tokens)
    weights = seen["decoder.blocks.0.mix"].weights[0]
    assert weights[[0, 1, 3]].abs().max() == 0
    torch.testing.assert_close(weights[2, 3], torch.tensor([1, 1, 1, 0]) / 3)


@pytest.mark.parametrize("order", ["watch outside", "watch inside"])
@pytest.mark.parametrize("name", ["transformer", "rnnsearch"])
def test_whoever_watches_sees_the_changed_maps(order, name):
    model = transformer() if name == "transformer" else build("rnnsearch", size="tiny", vocab=13).eval()
    changes = [{"do": "uniform"}]
    if order == "watch outside":
        with watch(model) as seen, intervene(model, changes):
            model(*batch())
    else:
        with intervene(model, changes), watch(model) as seen:
            model(*batch())
    for trace in seen.traces():
        row = trace.weights[1, 0, 0]
        torch.testing.assert_close(row[row > 0].max(), row[row > 0].min())


CHANGES = [
    [{"do": "off", "map": "decoder.blocks.0.mix", "heads": [1]}],
    [{"do": "uniform", "map": "*.cross"}],
    [{"do": "previous", "map": "decoder.*.mix", "heads": [0, 2]}, {"do": "identity", "map": "encoder.*"}],
    [{"do": "mask", "map": "decoder.*.mix", "mask": [[1, 0], [2, 1], [3, 0]]}],
    [{"do": "mask", "map": "*.cross", "mask": [[0, 1], [1, 0], [2, 3], [3, 2]]}],
    [{"do": "positions", "spec": "alibi"}],
    [{"do": "mechanism", "spec": "softmax(scale=2.0)", "heads": [0]}],
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: "+".join(each["do"] for each in c))
def test_written_step_by_step_and_read_at_once_are_the_same(changes):
    """The changed model is one model: what beam search scores while writing is what a pass over the text scores."""
    torch.manual_seed(3)
    model = transformer()
    for parameter in model.parameters():
        parameter.data *= 2  # further from indifference
    source, lengths = torch.randint(3, 13, (2, 5)), torch.tensor([5, 4])
    with torch.no_grad(), intervene(model, changes):
        for hypotheses in zip(
            beam_search(model, source, lengths, max_length=7, beam_size=3, num_candidates=3),
            source,
            lengths,
            strict=True,
        ):
            found, words, length = hypotheses
            for hypothesis in found:
                target = torch.tensor([[model.config.bos, *hypothesis.tokens]])
                logits = model(words[None, :length], target).log_softmax(-1)[0]
                written = [*hypothesis.tokens, model.config.eos][: len(logits)]
                scores = logits[torch.arange(len(written)), written]
                total = scores.sum() if hypothesis.finished else scores[: len(hypothesis.tokens)].sum()
                torch.testing.assert_close(torch.tensor(hypothesis.log_probability), total, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    "changes", [[{"do": "mask", "mask": [[0, 1], [1, 0], [2, 3]]}], [{"do": "uniform"}], [{"do": "off"}]]
)
def test_recurrent_decoders_too_write_as_they_read(changes):
    torch.manual_seed(3)
    model = build("rnnsearch", size="tiny", vocab=13).eval()
    source = torch.randint(3, 13, (1, 5))
    with torch.no_grad(), intervene(model, changes):
        (found,) = greedy_search(model, source, torch.tensor([5]), max_length=4)
        logits = model(source, torch.tensor([[model.config.bos, *found.tokens]])).log_softmax(-1)[0]
        total = sum(logits[at, token] for at, token in enumerate(found.tokens))
        total = total + (logits[len(found.tokens), model.config.eos] if found.finished else 0)
    torch.testing.assert_close(torch.tensor(found.log_probability), total)


def test_a_masked_place_does_not_reach_an_aligner():
    model = build("rnnsearch", size="tiny", vocab=13).eval()
    with intervene(model, [{"do": "mask", "mask": [[1, 0], [1, 2]]}]), watch(model) as seen:
        model(torch.randint(3, 13, (1, 4)), torch.randint(3, 13, (1, 3)))
    (trace,) = seen.traces()
    rows = trace.weights[0, 0]
    assert rows[1, [0, 2]].abs().max() == 0
    assert rows[[0, 2]].min() > 0
    torch.testing.assert_close(rows.sum(-1), torch.ones(3))


def test_without_positions_a_reordered_input_gives_the_same_output_reordered():
    model = build("bert", size="tiny", vocab=13, width=12, heads=3, layers=2, ffn=24, length=16).eval()
    tokens, order = torch.randint(3, 13, (1, 6)), torch.tensor([0, 3, 1, 5, 2, 4])
    with intervene(model, [{"do": "positions", "spec": "none"}]):
        straight, turned = model.hidden(tokens), model.hidden(tokens[:, order])
    torch.testing.assert_close(turned, straight[:, order])
    assert not torch.allclose(model.hidden(tokens[:, order]), model.hidden(tokens)[:, order])


@pytest.mark.parametrize("name", ["vit", "swin", "mvit", "cct"])
@pytest.mark.parametrize("do", ["off", "uniform"])
def test_models_over_images_can_be_changed(name, do):
    model = build(name, size="tiny", image_size=32).eval() if name != "mvit" else build(name, size="tiny").eval()
    side = getattr(model.config, "image_size", 32)
    side = side if isinstance(side, int) else side[0]
    image = torch.randn(1, 3, side, side)
    before = model(image)
    with intervene(model, [{"do": do}]), watch(model) as seen:
        assert not torch.allclose(model(image), before)
    assert seen
    assert torch.equal(model(image), before)


def test_grids_and_windows_can_be_read_without_their_positions():
    for name in ("vit", "swin"):
        model = build(name, size="tiny", image_size=32).eval()
        for parameter in model.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
        image = torch.randn(1, 3, 32, 32)
        with intervene(model, [{"do": "positions", "spec": "none"}]):
            without = model(image)
        assert not torch.allclose(without, model(image))
        with pytest.raises(Unsupported, match="left out"), intervene(model, [{"do": "positions", "spec": "alibi"}]):
            pass


WRONG = [
    ({"do": "of"}, "did you mean 'off'"),
    ({"do": "off", "map": "decoder.blocks.7.mix"}, "nothing that attends matches"),
    ({"do": "off", "head": [1]}, "has no 'head'"),
    ({"do": "off", "heads": []}, "no head"),
    ({"do": "off", "heads": [-1]}, "counted from 0"),
    ({"do": "off", "heads": "all"}, "list of numbers"),
    ({"do": "mask"}, "needs pairs"),
    ({"do": "mask", "mask": [[1]]}, "pairs"),
    ({"do": "mask", "mask": [[1, None]]}, "counted from 0"),
    ({"do": "uniform", "mask": [[1, 1]]}, "of its own"),
    ({"do": "mechanism"}, "needs the spec"),
    ({"do": "mechanism", "spec": "sofmax"}, "did you mean 'softmax'"),
    ({"do": "positions", "spec": "learned"}, "learned"),
    ({"do": "identity", "map": "*.cross"}, "another sequence"),
    ("off", "not a str"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG, ids=lambda x: str(x)[:40])
def test_what_cannot_be_done_is_refused_with_what_can(wrong, says):
    model = transformer()
    made = state(model)
    with pytest.raises(RegardError, match=says), intervene(model, [wrong]):
        pass
    assert state(model) == made


def test_a_head_that_is_not_there_is_refused():
    model = transformer()
    with pytest.raises(BadInput, match="3 heads"), intervene(model, [{"do": "off", "heads": [3]}]):
        model(*batch())


def test_models_that_do_not_attend_or_did_not_run_say_so():
    with pytest.raises(Unsupported, match="nothing attends"), intervene(torch.nn.Linear(2, 2), [{"do": "off"}]):
        pass
    with pytest.raises(RegardError, match="did not run"), intervene(transformer(), [{"do": "off"}]):
        pass
    model = transformer().train()
    with pytest.raises(RegardError, match="eval"), intervene(model, [{"do": "off"}]):
        model(*batch())


def test_windows_take_no_drawn_mask_and_aligners_no_identity():
    with (
        pytest.raises(Unsupported, match="windows"),
        intervene(build("swin", size="tiny", image_size=32), [one("mask")]),
    ):
        pass
    with (
        pytest.raises(Unsupported, match="aligner"),
        intervene(build("rnnsearch", size="tiny", vocab=13), [one("identity")]),
    ):
        pass


@pytest.mark.parametrize("change", [one("mask", map="*.cross"), {"do": "off", "heads": [1]}, {"do": "uniform"}])
def test_what_is_kept_is_asked_for_later_and_is_the_changed_map(change):
    model, given = transformer(), batch()
    with intervene(model, [change]), watch(model) as seen, watch_lazy(model) as store:
        model(*given)
    for name, trace in seen.items():
        assert torch.equal(store[name].weights(), trace.weights)
        assert torch.equal(store[name].weights(heads=[1], queries=[2, 0]), trace.weights[:, [1]][:, :, [2, 0]])
        torch.testing.assert_close(store[name].column(1, 1), trace.weights[:, 1, :, 1])


def test_gradients_reach_the_weights_of_a_changed_head():
    model, tokens = gpt(layers=1), torch.randint(3, 13, (1, 4))
    with intervene(model, [{"do": "uniform", "heads": [2]}]), watch(model, gradients=True) as seen:
        model(tokens)[0, -1, 5].backward()
    gradient = seen["decoder.blocks.0.mix"].gradient
    assert gradient.shape == (1, 6, 4, 4)
    assert gradient[0, 2].abs().max() > 0


def test_a_compiled_model_runs_eagerly_and_says_so(unchecked):
    model, tokens = gpt(layers=1), torch.randint(3, 13, (1, 4))
    fast = torch.compile(model, backend="eager")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with torch.no_grad(), intervene(fast, [{"do": "off"}]):
            changed = fast(tokens)
    assert any("eagerly" in str(each.message) for each in said)
    with torch.no_grad(), intervene(model, [{"do": "off"}]):
        assert torch.equal(model(tokens), changed)


def test_interventions_read_the_form_in_which_they_travel():
    given = {"map": "encoder.*", "heads": [2, 0, 2], "do": "mask", "mask": [[None, 3], [1, 2]]}
    read = Intervention.of(given)
    assert (read.heads, read.mask) == ((0, 2), ((None, 3), (1, 2)))
    assert Intervention.of(read) is read
    assert list(attention_modules(gpt())) == ["decoder.blocks.0.mix", "decoder.blocks.1.mix"]


def test_a_mechanism_that_needs_the_sizes_of_its_place_can_be_put_in():
    model = build("bert", vocab=20, width=16, heads=2, layers=2, length=16, head=None).eval()
    tokens = torch.randint(20, (2, 12))
    plain = model(tokens)
    change = {"map": "encoder.blocks.0.mix", "do": "mechanism", "spec": "reformer(chunk=4, rounds=1)", "heads": [1]}
    with intervene(model, [change]):
        changed = model(tokens)
    assert torch.isfinite(changed).all()
    assert not torch.allclose(changed, plain)
