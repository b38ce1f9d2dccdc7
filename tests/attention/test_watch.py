import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from regard.attention.capture.watch import watch
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import RegardError
from regard.models import build


@pytest.fixture
def model():
    return build("transformer", size="tiny", vocab=13, width=16, heads=2, ffn=32, encoder_layers=2, decoder_layers=2)


@pytest.fixture
def batch():
    return torch.randint(3, 13, (3, 6)), torch.randint(3, 13, (3, 5)), torch.tensor([6, 2, 4])


@pytest.mark.parametrize("training", [False, True])
def test_output_and_random_state_are_unchanged_to_the_bit(model, batch, training):
    model.train(training)
    torch.manual_seed(5)
    plain, after = model(*batch), torch.get_rng_state()
    torch.manual_seed(5)
    with watch(model):
        watched = model(*batch)
    assert torch.equal(plain, watched)
    assert torch.equal(torch.get_rng_state(), after)


def test_every_part_is_seen_with_its_kind_and_shape(model, batch):
    with watch(model.eval()) as seen:
        model(*batch)
    assert {n: (t.kind, tuple(t.weights.shape)) for n, t in seen.items()} == {
        "encoder.blocks.0.mix": ("self", (3, 2, 6, 6)),
        "encoder.blocks.1.mix": ("self", (3, 2, 6, 6)),
        "decoder.blocks.0.mix": ("self", (3, 2, 5, 5)),
        "decoder.blocks.0.cross": ("cross", (3, 2, 5, 6)),
        "decoder.blocks.1.mix": ("self", (3, 2, 5, 5)),
        "decoder.blocks.1.cross": ("cross", (3, 2, 5, 6)),
    }
    cross = seen["decoder.blocks.1.cross"].weights
    torch.testing.assert_close(cross.sum(-1), torch.ones(3, 2, 5))
    assert cross[1, :, :, 2:].abs().max() == 0  # padding
    assert seen["decoder.blocks.0.mix"].weights.triu(1).abs().max() == 0  # the future
    assert len(seen.traces("cross")) == 2


def test_only_heads_and_queries_that_are_asked_for(model, batch):
    model.eval()
    with watch(model) as whole:
        model(*batch)
    with watch(model, only="decoder.blocks.1.*", heads=[1], queries=[4, 0]) as seen:
        model(*batch)
    assert set(seen) == {"decoder.blocks.1.mix", "decoder.blocks.1.cross"}
    trace = seen["decoder.blocks.1.cross"]
    torch.testing.assert_close(trace.weights, whole["decoder.blocks.1.cross"].weights[:, [1]][:, :, [4, 0]])
    assert trace.queries == (4, 0)
    assert trace.heads == (1,)


def test_long_inputs_are_computed_in_chunks(model, monkeypatch):
    model.eval()
    source, target = torch.randint(3, 13, (1, 50)), torch.randint(3, 13, (1, 3))
    with watch(model) as whole:
        model(source, target)
    monkeypatch.setattr("regard.attention.capture.watch.QUERY_CHUNK", 7)
    with watch(model) as chunked:
        model(source, target)
    for name in whole:
        torch.testing.assert_close(chunked[name].weights, whole[name].weights)


def test_decoding_step_by_step_is_seen_too(model, batch):
    from regard.decoding.beam_search import beam_search

    model.eval()
    with watch(model, only="decoder.*.cross") as seen:
        beam_search(model, batch[0], batch[2], beam_size=3, max_length=4)
    calls = seen.calls("decoder.blocks.0.cross")
    assert [c.weights.shape[2] for c in calls][:2] == [1, 3]


def test_hooks_are_gone_afterwards_even_after_an_error(model, batch):
    with pytest.raises(ZeroDivisionError), watch(model):
        raise ZeroDivisionError
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_nothing_seen_is_an_error(model):
    with pytest.raises(RegardError, match="did not run inside the block"), watch(model):
        pass
    with (
        pytest.raises(RegardError, match=r"nothing that attends matches 'encoder\.nonsense'"),
        watch(model, only="encoder.nonsense"),
    ):
        pass


@pytest.mark.long
def test_a_compiled_model_runs_eagerly_and_says_so(model, batch, unchecked):
    model.eval()
    plain = model(*batch)
    compiled = torch.compile(model, backend="eager")
    compiled(*batch)
    with pytest.warns(UserWarning, match="runs the compiled model eagerly"), watch(compiled) as seen:
        again = compiled(*batch)
    assert len(seen) == 6
    torch.testing.assert_close(again, plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(*batch), plain)


def test_activation_checkpointing_is_seen_once(model, batch):
    model.train()
    memory = model.embed_tokens(batch[0])
    block = model.encoder.blocks[0]
    with watch(model) as seen:
        checkpoint(block, memory, use_reentrant=False).sum().backward()
    assert len(seen.calls("encoder.blocks.0.mix")) == 1


def test_an_aligner_is_seen_pass_by_pass():
    model = build("rnnsearch", size="tiny", vocab=13, width=8, hidden=8).eval()
    source = torch.randint(3, 13, (2, 6))
    with watch(model) as seen:
        model(source, torch.randint(3, 13, (2, 5)))
        model(source[:1], torch.randint(3, 13, (1, 4)))
    (trace,) = seen.traces("align")
    assert trace.weights.shape == (1, 1, 4, 6)
    with watch(model, queries=[3, 0]) as seen:
        model(source, torch.randint(3, 13, (2, 5)))
    (trace,) = seen.traces()
    assert trace.weights.shape == (2, 1, 2, 6)
    assert trace.queries == (3, 0)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_gradients_of_weights_are_those_that_autograd_finds(backend):
    torch.manual_seed(2)
    attention = f"softmax(backend='{backend}')"
    model = build("transformer", vocab=13, width=12, heads=3, ffn=7, encoder_layers=2, decoder_layers=1, length=9)
    watched = build(
        "transformer", vocab=13, width=12, heads=3, ffn=7, encoder_layers=2, decoder_layers=1, length=9,
        attention=attention,
    )  # fmt: skip
    watched.load_state_dict(model.state_dict())
    model, watched = model.double().eval(), watched.double().eval()
    batch = torch.randint(3, 13, (2, 5)), torch.randint(3, 13, (2, 4)), torch.tensor([5, 3])
    with watch(watched, gradients=True) as seen:
        watched(*batch)[0, 2, 7].backward()

    found = {}
    names = {module.attend: name for name, module in model.named_modules() if hasattr(module, "attend")}

    def written_out(module, q, k, v, mask, bias, layer_state=None):  # the same softmax, its weights kept for autograd
        w = module.weights(q, k, mask, bias)
        w.retain_grad()
        found[names[module]] = w
        return w @ v

    for attend in names:
        attend.forward = written_out.__get__(attend)
    model(*batch)[0, 2, 7].backward()
    assert set(found) == set(seen)
    for name, w in found.items():
        torch.testing.assert_close(seen[name].gradient, w.grad, rtol=1e-9, atol=1e-13)
    assert max(float(w.grad.abs().max()) for w in found.values()) > 1e-4


def test_gradients_are_of_the_heads_and_rows_that_were_asked_for_and_of_the_latest_answer(model, batch):
    model.double().eval()
    with watch(model, gradients=True) as whole, watch(model, heads=[1], queries=[3, 0], gradients=True) as some:
        out = model(*batch)
        assert whole["decoder.blocks.0.cross"].gradient is None
        out[0, 3, 5].backward(retain_graph=True)
        before = whole["decoder.blocks.0.cross"].gradient
        out[1, 3, 6].backward()
    latest = whole["decoder.blocks.0.cross"].gradient
    assert before[1].abs().max() == 0 == latest[0].abs().max()  # rows of a batch do not meet
    torch.testing.assert_close(some["decoder.blocks.0.cross"].gradient, latest[:, [1]][:, :, [3, 0]])


def test_gradients_without_a_graph_are_refused(model, batch):
    with pytest.raises(RegardError, match="needs a graph"), torch.no_grad(), watch(model, gradients=True):
        model(*batch)


def test_what_a_pass_went_through_is_kept_in_order_and_is_of_the_latest_pass(model, batch):
    with watch(model.eval()) as seen:
        model(*batch)
        model(*batch)
    assert [trace.name for trace in seen.last_pass()] == list(seen)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_gradients_of_weights_of_grouped_heads_are_those_that_autograd_finds(kv_heads):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, heads, 5, 3, dtype=torch.float64) for heads in (4, kv_heads, kv_heads))
    q.requires_grad_()
    attend, pull = SoftmaxAttention(), torch.randn(2, 4, 5, 3, dtype=torch.float64)
    with watch(attend, gradients=True) as seen:
        (attend(q, k, v) * pull).sum().backward()
    weights = attend.weights(q, k).detach().requires_grad_()
    ((weights @ v.repeat_interleave(4 // kv_heads, dim=1)) * pull).sum().backward()
    torch.testing.assert_close(seen[""].gradient, weights.grad)
