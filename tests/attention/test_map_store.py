import numpy as np
import pytest
import torch

import regard
from regard.attention.capture.map_store import ComputedMap, watch_lazy
from regard.attention.capture.watch import watch
from regard.attention.mask import CausalMask, KeyMask, WindowMask
from regard.attention.mechanisms.softmax import SoftmaxAttention
from regard.core.errors import BadInput, RegardError, Unsupported
from regard.decoding.beam_search import greedy_search
from regard.models import build


def transformer(**changes):
    sizes = {"vocab": 13, "width": 24, "heads": 4, "ffn": 32, "encoder_layers": 2, "decoder_layers": 2}
    return build("transformer", size="tiny", **sizes | changes).eval()


@pytest.fixture
def batch():
    return torch.randint(3, 13, (3, 7)), torch.randint(3, 13, (3, 5)), torch.tensor([7, 2, 4])


def both(model, *inputs):
    with torch.no_grad(), watch(model) as seen, watch_lazy(model, values=True) as store:
        model(*inputs)
    return seen, store


@pytest.mark.parametrize("changes", [{}, {"kv_heads": 2}, {"positions": "rotary"}, {"positions": "alibi"}])
def test_any_rows_are_to_the_bit_what_watching_gives(batch, changes):
    model = transformer(**changes)
    seen, store = both(model, *batch)
    assert store.names() == list(seen)
    for name, held in store.items():
        whole = seen[name].weights
        assert (held.kind, held.heads, held.rows, held.columns) == (seen[name].kind, *whole.shape[1:])
        assert torch.equal(held.weights(), whole)
        with torch.no_grad(), watch(model, queries=[3, 0]) as some:
            model(*batch)
        assert torch.equal(held.weights(queries=[3, 0]), some[name].weights)
        torch.testing.assert_close(held.weights(heads=[3, 1], queries=[4]), whole[:, [3, 1]][:, :, [4]])
        torch.testing.assert_close(held.rows_of([4, 1]), whole[:, :, [4, 1]])


@pytest.mark.parametrize("changes", [{}, {"kv_heads": 2}, {"positions": "alibi"}])
def test_columns_are_those_of_the_matrix(batch, changes):
    seen, store = both(transformer(**changes), *batch)
    for name, held in store.items():
        for head in range(held.heads):
            torch.testing.assert_close(held.columns_of([2, 0], head), seen[name].weights[:, head][:, :, [2, 0]])
            torch.testing.assert_close(held.column(head, 1), seen[name].weights[:, head, :, 1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("mask", [None, CausalMask(), WindowMask(9), KeyMask(torch.arange(150)[None] % 3 == 0)])
def test_columns_of_a_long_softmax_map_attend_once(monkeypatch, dtype, mask):
    """Weights of a few keys tell the normalizers; in a sharp head these may round to zero, and rows are summed."""
    torch.manual_seed(0)
    q, k = (torch.randn(1, 2, 150, 8).to(dtype) for _ in range(2))
    q[:, 1] *= 60
    attend = SoftmaxAttention().eval()
    given = {"q": q, "k": k, "weights_kwargs": {"mask": mask}, "module": attend, "compute": attend.weights}
    held = ComputedMap(name="a", kind="self", heads=2, headwise=True, **given)
    whole, calls = held.weights(), []
    mix = attend.mix
    monkeypatch.setattr(attend, "mix", lambda *args: calls.append(1) or mix(*args))
    for keys in ([0, 149], [77], list(range(20, 36))):
        for head in (0, 1):
            found = held.columns_of(keys, head)
            tolerance = 1e-12 if dtype is torch.float64 else 1e-3
            torch.testing.assert_close(found, whole[:, head][:, :, keys], atol=tolerance, rtol=tolerance)
    assert len(calls) == 2  # once for each head


@pytest.mark.parametrize("training", [False, True])
def test_output_and_random_state_are_unchanged_to_the_bit(batch, training):
    model = transformer(dropout=0.1).train(training)
    torch.manual_seed(5)
    plain, after = model(*batch), torch.get_rng_state()
    torch.manual_seed(5)
    with watch_lazy(model, values=True):
        again = model(*batch)
    assert torch.equal(plain, again)
    assert torch.equal(torch.get_rng_state(), after)


@pytest.mark.parametrize("kind", ["swin", "swinv2", "mvit", "vit"])
def test_regrouped_tokens_are_asked_for_by_their_cells(kind):
    model = build(kind, size="tiny").eval()
    size = model.config.image_size if isinstance(model.config.image_size, int) else 32
    seen, store = both(model, torch.randn(2, 3, size, size))
    for name, held in store.items():
        whole = seen[name].operator()
        assert (held.rows, held.columns) == whole.shape[-2:]
        rows, keys, last = [0, held.rows // 3, held.rows - 1], [0, held.columns // 2], held.heads - 1
        torch.testing.assert_close(held.rows_of(rows, [last]), whole[:, [last]][:, :, rows])
        torch.testing.assert_close(held.columns_of(keys, last), whole[:, last][..., keys])
    passed = store.last_pass()
    assert [step.kind for step in passed] == [step.kind for step in seen.last_pass()]
    assert all(torch.equal(a.weights, b.weights) for a, b in zip(passed, seen.last_pass(), strict=True))


def test_an_aligners_rows_are_those_of_the_pass(batch):
    model = build("rnnsearch", size="tiny", vocab=13, width=8, hidden=12, align_width=10).eval()
    with torch.no_grad(), watch(model) as seen, watch_lazy(model) as store:
        model(*batch)
        model(*batch)  # only the latest pass counts
    (name,) = store
    assert store[name].kind == "align"
    assert torch.equal(store[name].weights(), seen[name].weights)
    assert torch.equal(store[name].column(0, 2), seen[name].weights[:, 0, :, 2])
    with pytest.raises(Unsupported, match="no output projection"):
        store[name].value_norms()


def test_while_a_model_writes_the_latest_step_is_kept(batch):
    model = transformer()
    with torch.no_grad(), watch(model) as seen, watch_lazy(model) as store:
        greedy_search(model, batch[0], batch[2], max_length=4)
    for name, held in store.items():
        assert torch.equal(held.weights(), seen[name].weights)
    assert store["decoder.blocks.1.mix"].rows == 1


def test_what_is_kept_is_not_changed_by_what_runs_later(batch):
    model = transformer()
    _, store = both(model, *batch)
    before = {name: held.weights() for name, held in store.items()}
    model(*[each.flip(0) for each in batch])
    assert all(torch.equal(held.weights(), before[name]) for name, held in store.items())


@pytest.mark.parametrize("changes", [{}, {"kv_heads": 2}])
def test_the_length_of_a_value_is_what_a_weight_of_one_adds(batch, changes):
    model = transformer(**changes)
    inputs = {}
    mixer = model.encoder.blocks[1].mix
    handle = mixer.register_forward_pre_hook(lambda module, args: inputs.update(x=args[0]))
    with torch.no_grad(), watch_lazy(model, values=True) as store:
        model(*batch)
    handle.remove()
    _, _, v = mixer.project(inputs["x"])
    v = v.repeat_interleave(4 // v.shape[1], 1)  # B H M E
    head_dim = v.shape[-1]
    for head in range(4):
        added = v[:, head] @ mixer.join.out.weight[:, head * head_dim : (head + 1) * head_dim].T
        torch.testing.assert_close(store["encoder.blocks.1.mix"].value_norms()[:, head], added.norm(dim=-1))
    with torch.no_grad(), watch_lazy(model) as plain:
        model(*batch)
    with pytest.raises(Unsupported, match="values=True"):
        plain["encoder.blocks.1.mix"].value_norms()


def test_only_a_bounded_amount_is_kept(batch):
    model = transformer()
    with pytest.raises(BadInput, match="shorter input"), watch_lazy(model, max_bytes=1000):
        model(*batch)
    with torch.no_grad(), watch_lazy(model) as store:
        model(*batch)
    with torch.no_grad(), watch_lazy(model, max_bytes=store.bytes) as same:  # exactly at the limit
        model(*batch)
    assert same.bytes == store.bytes
    with torch.no_grad(), pytest.raises(BadInput, match="shorter input"), watch_lazy(model, max_bytes=store.bytes - 1):
        model(*batch)


def test_what_is_not_there_is_refused(batch):
    model = transformer()
    _, store = both(model, *batch)
    held = store["encoder.blocks.0.mix"]
    for ask in (
        lambda: held.rows_of([7]),
        lambda: held.column(0, 7),
        lambda: held.column(4, 0),
        lambda: held.rows_of([-1]),
    ):
        with pytest.raises(BadInput, match="there are 0 to"):
            ask()
    with pytest.raises(KeyError, match="no map of"):
        store["encoder"]
    with pytest.raises(RegardError, match="did not run"), watch_lazy(model):
        pass
    with pytest.raises(RegardError, match="nothing that attends"), watch_lazy(model, "nowhere"):
        pass


def test_a_row_of_a_long_text_does_not_make_the_matrix(monkeypatch):
    model = build("gpt", size="tiny", vocab=11, length=2048, layers=1).eval()
    with torch.no_grad(), watch_lazy(model) as store:
        model(torch.randint(0, 11, (1, 2048)))
    (held,) = store.values()
    made = []
    own = held.compute
    object.__setattr__(held, "compute", lambda *args, **rest: made.append(out := own(*args, **rest)) or out)
    line = held.rows_of([2000])
    assert sum(each.numel() for each in made) == held.heads * 2048
    np.testing.assert_allclose(line.sum(-1).numpy(), 1, rtol=1e-5)
    assert regard.watch_lazy is watch_lazy
