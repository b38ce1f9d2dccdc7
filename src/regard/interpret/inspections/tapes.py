"""Inspection of a tape: at every step, the cells that each head read and wrote."""

from __future__ import annotations

from regard.interpret.inspection import NO_POSITION, Axis
from regard.interpret.inspections.declared import DeclaredInspection


class TapeInspection(DeclaredInspection):
    """A tape and the answer of a model with a memory; rows are steps, columns are cells."""

    input_axis = "step"
    figure = "memory"

    def lay_out(self) -> None:
        tape, bits = self.predictor.tape.read_line(str(self.item)), self.predictor.tape.bits  # type: ignore[attr-defined]
        self.model_inputs = (tape.inputs.to(next(self.predictor.model.parameters()).device),)
        steps, answer = tape.inputs[0], str(self.prediction).split()
        said = ["".join(str(int(bit)) for bit in step[:bits]) if step[:bits].any() else "" for step in steps]
        marks = ["" if not step[bits:].any() else "|" for step in steps]
        names = [word or mark or "." for word, mark in zip(said, marks, strict=True)]
        names[len(names) - len(answer) :] = [f"→ {word}" for word in answer]
        self.axes["step"] = Axis("step", names, [NO_POSITION] * len(names), [False] * len(names))
        for held in self.store.values():
            self._axes_of[held.name] = "step", self._numbered(held.columns, "cell")
