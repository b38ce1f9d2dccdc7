"""transformers' BERT with each of its heads and ours, from the same weights: values, gradients, maps."""

import pytest
import torch
import torch.nn.functional as F

from regard.core.errors import BadInput, Unsupported
from regard.losses.fused_linear_cross_entropy import fused_linear_cross_entropy
from regard.models.bert import BERT, Config
from regard.weights.hf import bert
from regard.weights.table import import_state_dict

from .harness import gradients_equal, hf_peer, maps_equal, maps_of, round_trip, with_weights_of

transformers = pytest.importorskip("transformers")

VOCAB = 40
HEADS = {
    None: "BertModel",
    "pretraining": "BertForPreTraining",
    "masked": "BertForMaskedLM",
    "classes(3)": "BertForSequenceClassification",
    "tags(5)": "BertForTokenClassification",
    "span": "BertForQuestionAnswering",
}


def peer(head="pretraining", **settings):
    """A tiny random BERT in float64, every tensor of it away from its initial value."""
    config = transformers.BertConfig(
        **{
            "vocab_size": VOCAB,
            "hidden_size": 16,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "intermediate_size": 24,
            "max_position_embeddings": 32,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "num_labels": {"classes(3)": 3, "tags(5)": 5}.get(head, 2),
        }
        | settings
    )
    theirs = hf_peer(getattr(transformers, HEADS[head]), config)
    theirs.config.architectures = [HEADS[head]]
    return theirs


def pair(head="pretraining", **settings):
    theirs = peer(head, **settings)
    ours = BERT(bert.import_config(theirs.config.to_dict())).double().eval()
    assert ours.config.head == head
    return theirs, with_weights_of(theirs, ours, bert)


def batch():
    """Three pairs of texts of different lengths, padded on the right."""
    tokens, lengths = torch.randint(1, VOCAB, (3, 7)), torch.tensor([7, 4, 2])
    there = torch.arange(7) < lengths[:, None]
    return tokens.masked_fill(~there, 0), torch.randint(2, (3, 7)), lengths, there


def answer(head, out):
    """What they answer, in the shape that ours has."""
    if head is None:
        return (out.last_hidden_state,)
    if head == "pretraining":
        return out.prediction_logits, out.seq_relationship_logits
    return (torch.stack([out.start_logits, out.end_logits], -1),) if head == "span" else (out.logits,)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("settings", [{}, {"hidden_act": "relu"}, {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5}],
    ids=str)  # fmt: skip
def test_answers_equal_those_of_bert(head, settings):
    theirs, ours = pair(head, **settings)
    tokens, segments, lengths, there = batch()
    with torch.no_grad():
        expected = answer(head, theirs(tokens, attention_mask=there.long(), token_type_ids=segments))
        found = ours(tokens, segments, lengths)
    for mine, wanted in zip(found if head == "pretraining" else (found,), expected, strict=True):
        mine, wanted = (mine[there], wanted[there]) if mine.ndim == 3 else (mine, wanted)
        torch.testing.assert_close(mine, wanted, rtol=1e-10, atol=1e-10)


def test_pooled_vector_equals_bert():
    theirs, ours = pair(None)
    tokens, segments, lengths, there = batch()
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=there.long(), token_type_ids=segments).pooler_output
        torch.testing.assert_close(ours.pooled(ours.hidden(tokens, segments, lengths)), expected, rtol=1e-10, atol=0)


def test_answers_equal_those_of_bert_in_float32():
    theirs = peer().float()
    ours = with_weights_of(theirs, BERT(bert.import_config(theirs.config.to_dict())).eval(), bert)
    tokens, segments, lengths, there = batch()
    with torch.no_grad():
        expected = theirs(tokens, attention_mask=there.long(), token_type_ids=segments).prediction_logits
        torch.testing.assert_close(ours(tokens, segments, lengths)[0][there], expected[there], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_gradients_of_all_parameters_equal_those_of_bert(head):
    theirs, ours = pair(head)
    tokens, segments, lengths, there = batch()
    expected = answer(head, theirs(tokens, attention_mask=there.long(), token_type_ids=segments))
    found = ours(tokens, segments, lengths)
    found = found if head == "pretraining" else (found,)
    total = theirs_total = 0.0
    for mine, wanted in zip(found, expected, strict=True):
        mine, wanted = (mine[there], wanted[there]) if mine.ndim == 3 else (mine, wanted)
        pull = torch.randn_like(wanted)
        total, theirs_total = total + (mine * pull).sum(), theirs_total + (wanted * pull).sum()
    total.backward()
    theirs_total.backward()
    compare(theirs, ours, 3 * 16 + 5)


def test_loss_of_pretraining_and_its_gradients_equal_those_of_bert():
    theirs, ours = pair()
    tokens, segments, lengths, there = batch()
    labels, follows = torch.full((3, 7), -100), torch.tensor([0, 1, 1])
    at = torch.tensor([[1, 5], [2, 0], [1, 0]])  # each text has as many places; the second of two is none
    wanted = torch.tensor([[7, 9], [3, -100], [4, -100]])
    for row in range(3):
        for place, word in zip(at[row].tolist(), wanted[row].tolist(), strict=True):
            if word != -100:
                labels[row, place] = word
    out = theirs(
        tokens,
        attention_mask=there.long(),
        token_type_ids=segments,
        labels=labels,
        next_sentence_label=follows,
    )
    words, follow = ours(tokens, segments, lengths, at=at, targets=wanted, loss=fused_linear_cross_entropy)
    total = words / 4 + F.cross_entropy(follow, follows)
    torch.testing.assert_close(total, out.loss, rtol=1e-6, atol=1e-6)
    out.loss.backward()
    total.backward()
    compare(theirs, ours, 3 * 16 + 5)


def compare(theirs, ours, least):
    assert gradients_equal(theirs, bert.table(ours.config), ours, rtol=1e-6, atol=1e-8) >= least


def test_attention_maps_equal_those_of_bert():
    theirs, ours = pair()
    tokens, segments, lengths, there = batch()
    with torch.no_grad():
        maps = theirs(tokens, attention_mask=there.long(), token_type_ids=segments, output_attentions=True).attentions
    maps_equal(maps_of(maps, "encoder"), ours, tokens, segments, lengths)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_import_then_export_is_exact(head):
    theirs = peer(head).float()
    ours = with_weights_of(theirs, BERT(bert.import_config(theirs.config.to_dict())), bert)
    round_trip(theirs.state_dict(), bert.table(ours.config), ours)


@pytest.mark.parametrize("head", HEADS, ids=str)
def test_config_round_trip(head):
    config = bert.import_config(peer(head).config.to_dict())
    assert bert.import_config(bert.export_config(config)) == config
    said = transformers.BertConfig(**bert.export_config(config)).to_dict()
    for name in ("hidden_size", "num_hidden_layers", "intermediate_size", "layer_norm_eps", "id2label"):
        assert said[name] == peer(head).config.to_dict()[name]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "roberta"}, "'roberta'"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_act": "mish"}, "'mish'"),
        ({"architectures": ["BertForMaskedLM"], "tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"architectures": ["BertForMultipleChoice"]}, "BertForMultipleChoice"),
    ],
)
def test_unsupported_checkpoints_raise(change, said):
    with pytest.raises(Unsupported, match=said):
        bert.import_config(peer().config.to_dict() | change)


@pytest.mark.parametrize(
    "settings", [{"positions": "rotary"}, {"norm_kind": "rms"}, {"feedforward": "swiglu"}], ids=str
)
def test_models_that_the_format_cannot_represent_raise(settings):
    (name,) = settings
    with pytest.raises(Unsupported, match=f"BERT needs {name}"):
        bert.table(Config(vocab=9, **settings))


def test_weights_of_another_model_raise_with_both_lists():
    _, ours = pair()
    with pytest.raises(BadInput, match=r"bert\.encoder\.layer\.3\.attention\.self\.query\.weight"):
        import_state_dict(bert.table(ours.config), peer(num_hidden_layers=4).state_dict(), ours)
    with pytest.raises(BadInput, match=r"missing tensors: head\.out"):
        import_state_dict(
            bert.table(Config(vocab=9, head="span")), peer().state_dict(), BERT(Config(vocab=9, layers=3, head="span"))
        )
