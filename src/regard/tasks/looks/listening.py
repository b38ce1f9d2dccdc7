"""Looking at a sound that a decoder writes down: for every word, where over the frames it listened."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from regard.attention.kept import Held
from regard.core.errors import BadInput
from regard.tasks.hearer import Hearer
from regard.tasks.look import Look
from regard.tasks.looks import texts
from regard.tasks.looks.sounds import frames_side, heard, spectrum


class ListeningLook(Look):
    """A sound and what is said in it; `said` is another text to look for."""

    task = "listening"
    takes: ClassVar[dict[str, Any]] = {"sound": bytes, "beams": int, "said": str}
    input = "frames"
    predictor: Hearer

    def read(self) -> None:
        """Write down what is heard where no text is given, then read both once."""
        hearer, text, beams = self.predictor, self.predictor.text, self.given.get("beams", 4)
        if not 1 <= beams <= 64:
            raise BadInput(f"{beams} beams cannot be searched with here; give 1 to 64")
        frames, wide, lengths = hearer._alone(heard(hearer, self.given["sound"]))
        said, score = self.given.get("said"), None
        if said is None:
            with torch.inference_mode():
                best = hearer.best(frames, wide, lengths, beams)
            ids, score = list(best.tokens), best.log_probability
        else:
            ids = hearer.numbers(said)
        (line,) = text.decode([ids])
        self._run(wide, torch.tensor([[text.bos, *ids]], device=wide.device))
        many = max(held.columns for held in self.store.values())
        front = hearer.front
        assert front is not None
        self.sound = spectrum(frames, front.mels, many * hearer.seconds)
        self.output = {"text": line, "score": score}
        self.sides = {
            "frames": frames_side(many, hearer.seconds),
            "target": texts.side("target", text, [*ids, text.eos], texts.written(text, ids, line), line, (0, 1)),
        }

    def sides_of(self, held: Held) -> tuple[str, str]:
        """Words listen to frames."""
        return "target", "frames"
