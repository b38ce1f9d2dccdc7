"""Write the example of today's format. Once it is released it stays as it is: later versions must read it.

python tests/weights/formats/make.py        from the root
"""

import json
from pathlib import Path

import torch

from regard.models.transformer import Config, Transformer
from regard.tokens.tokenizer import Tokenizer
from regard.weights.folder import FORMAT, save_model
from regard.weights.int8 import dequantize_int8, quantize_int8

HERE = Path(__file__).parent

if __name__ == "__main__":
    torch.manual_seed(0)
    line = "a dog sees a cat"
    text = Tokenizer.train([line, "ein Hund sieht eine Katze"], kind="word", size=16)
    model = Transformer(Config(vocab=text.size, width=8, heads=2, ffn=8, encoder_layers=1, decoder_layers=1)).eval()
    task, card = {"name": "translation", "source": "en", "target": "de"}, "# An example\n"
    save_model(HERE / str(FORMAT), model, text, task, card, dtype="int8")
    model.load_state_dict(dequantize_int8(quantize_int8(model.state_dict())))
    source, target = [text.encode_one(line)], [[1, 4, 5, 6]]
    with torch.no_grad():
        logits = model(torch.tensor(source), torch.tensor(target)).tolist()
    kept = {"line": line, "tokens": source[0], "source": source, "target": target, "logits": logits}
    (HERE / f"{FORMAT}.json").write_text(json.dumps(kept | {"task": task, "card": card}) + "\n", encoding="utf-8")
