"""`regard.load` opens text folders of transformers by the architecture that their config.json names."""

import json

import pytest
import torch

import regard
from regard.core.errors import BadInput, Unsupported
from regard.tokens.tokenizer import Tokenizer
from regard.weights.hf import ARCHITECTURES

transformers = pytest.importorskip("transformers")

LINES = ["the cat sat on the mat", "two dogs play in the snow", "where is the station"]
BERT = {
    "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24,
    "max_position_embeddings": 32,
}  # fmt: skip
LABELS = {0: "name", 1: "verb", 2: "other"}
TOKENS = torch.tensor([[2, 7, 9, 8, 3], [2, 9, 7, 3, 0]])
LENGTHS = torch.tensor([5, 4])
SEEN = (torch.arange(5) < LENGTHS[:, None]).long()


def bert_config(vocab):
    return transformers.BertConfig(
        vocab_size=vocab, id2label=LABELS, label2id={v: k for k, v in LABELS.items()}, **BERT
    )


def gpt2_config(vocab):
    return transformers.GPT2Config(vocab_size=vocab, n_embd=16, n_head=2, n_layer=2, n_positions=32)


def t5_config(vocab):
    sizes = {"d_model": 16, "num_heads": 2, "d_kv": 8, "d_ff": 24, "num_layers": 2}
    return transformers.T5Config(vocab_size=vocab, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **sizes)


def marian_config(vocab):
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 32}
    more = {"pad_token_id": 0, "decoder_start_token_id": 0, "eos_token_id": 2, "scale_embedding": True}
    return transformers.MarianConfig(vocab_size=vocab, **sizes, **more)


CONFIGS = {"Bert": bert_config, "GPT2": gpt2_config, "T5": t5_config, "Marian": marian_config}
PREDICTORS = {
    "MarianMTModel": "Translator",
    "BertForPreTraining": "FillMask",
    "BertForMaskedLM": "FillMask",
    "BertForNextSentencePrediction": "TextClassifier",
    "BertForSequenceClassification": "TextClassifier",
    "BertForTokenClassification": "Tagger",
    "BertForQuestionAnswering": "QuestionAnswerer",
    "GPT2LMHeadModel": "TextGenerator",
    "T5ForConditionalGeneration": "TextToTextGenerator",
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(LINES, kind="bert", size=60)


def saved(name, tokenizer, folder, **changes):
    """A folder of transformers with random weights, and the peer."""
    torch.manual_seed(0)
    config = next(make for prefix, make in CONFIGS.items() if name.startswith(prefix))(tokenizer.size)
    if name == "BertForQuestionAnswering":
        config.num_labels = 2
    peer = getattr(transformers, name)(config).eval()
    peer.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save(folder)
    if changes:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
    return peer


def outputs(name, peer, model):
    """The same numbers from both: of the peer and of ours."""
    with torch.no_grad():
        if name.startswith("Bert"):
            out = peer(TOKENS, attention_mask=SEEN)
            ours = model(TOKENS, None, LENGTHS)
            if name == "BertForQuestionAnswering":  # ours rules out padding and [CLS] by -inf elsewhere
                return torch.stack([out.start_logits, out.end_logits], -1), ours
            if name == "BertForPreTraining":
                return out.prediction_logits, ours[0]
            return (out.last_hidden_state if name == "BertModel" else out.logits), ours
        if name.startswith("GPT2"):
            row = TOKENS[:1]
            if name == "GPT2Model":
                return peer(row).last_hidden_state @ model.embed.weight.T, model(row)
            return peer(row).logits, model(row)
        target = TOKENS[:1, :3]
        out = peer(input_ids=TOKENS[:1], decoder_input_ids=target)
        return (out.last_hidden_state if name == "T5Model" else out.logits), model(TOKENS[:1], target)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_folder_of_every_architecture_is_opened_with_its_head_and_task(name, tokenizer, tmp_path):
    folder = tmp_path / "opus-mt-en-de"
    peer = saved(name, tokenizer, folder)
    found = regard.load(folder)
    assert type(found).__name__ == PREDICTORS.get(name, type(found).__name__)
    assert hasattr(found, "model") == (name in PREDICTORS)
    model = getattr(found, "model", found)
    theirs, ours = outputs(name, peer, model)
    finite = torch.isfinite(ours)
    if name.startswith("Bert") and ours.ndim == 3:
        finite &= SEEN[..., None].bool()
    torch.testing.assert_close(ours[finite], theirs[finite], rtol=1e-4, atol=1e-5)
    if name == "MarianMTModel":
        assert (found.source, found.target) == ("en", "de")
    if name in ("BertForSequenceClassification", "BertForTokenClassification"):
        assert found.labels == list(LABELS.values())


def test_a_token_classifier_with_a_pooler_is_still_one(tokenizer, tmp_path):
    peer = saved("BertForTokenClassification", tokenizer, tmp_path)
    from safetensors.torch import load_file, save_file

    state = load_file(tmp_path / "model.safetensors")
    state |= {"bert.pooler.dense.weight": torch.randn(16, 16), "bert.pooler.dense.bias": torch.randn(16)}
    save_file(state, tmp_path / "model.safetensors")
    found = regard.load(tmp_path)
    assert type(found).__name__ == "Tagger"
    ours = found.model(TOKENS, None, LENGTHS)
    theirs = peer(TOKENS, attention_mask=SEEN).logits
    torch.testing.assert_close(ours[SEEN.bool()], theirs[SEEN.bool()], rtol=1e-4, atol=1e-5)


def test_a_config_that_disagrees_with_its_weights_is_refused(tokenizer, tmp_path):
    saved("BertForMaskedLM", tokenizer, tmp_path, architectures=["BertForQuestionAnswering"])
    with pytest.raises(BadInput, match=r"names BertForQuestionAnswering, but its weights have no qa_outputs"):
        regard.load(tmp_path)


def test_an_architecture_that_is_not_supported_is_named_with_those_that_are(tokenizer, tmp_path):
    saved("BertForMaskedLM", tokenizer, tmp_path, architectures=["BertForMultipleChoice"])
    with pytest.raises(Unsupported, match=r"holds a BertForMultipleChoice.*BertForMaskedLM"):
        regard.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"problem_type": "multi_label_classification"}, {"problem_type": "regression"}, {"num_labels": 1}],
    ids=str,
)
def test_classifiers_that_do_not_choose_one_label_are_refused(change, tokenizer, tmp_path):
    peer = saved("BertForSequenceClassification", tokenizer, tmp_path)
    for name, value in change.items():
        setattr(peer.config, name, value)
    type(peer)(peer.config).save_pretrained(tmp_path)
    with pytest.raises(Unsupported, match=r"problem_type|one label"):
        regard.load(tmp_path)


def test_without_a_tokenizer_the_bare_model_is_returned_with_a_warning(tokenizer, tmp_path, caplog):
    saved("MarianMTModel", tokenizer, tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert type(regard.load(tmp_path)).__name__ == "Transformer"
    assert "no tokenizer.json" in caplog.text
