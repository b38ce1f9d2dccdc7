"""Speech over time: the lattice of CTC, or the attention of a decoder over the frames."""

from __future__ import annotations

from pathlib import Path

from regard import see
from regard.interpret.figures.base import InspectionFigure


class AudioAlignmentFigure(InspectionFigure):
    """For every token of a transcript, the frames that it attends to."""

    @property
    def title(self) -> str:
        return f"{self.source}: {self.inspection.output['text'] or 'no speech'}"

    def text(self, width: int = 100) -> str:
        return str(self.inspection.output["text"])

    def save(self, file: Path) -> None:
        inspection = self.inspection
        (trace,) = inspection.traces()
        frames, weights = inspection.frames.numpy(), trace.weights[0, 0].numpy()
        see.audio_alignment(frames, weights, trace.rows, inspection.predictor.seconds, self.title, file)


class CTCLatticeFigure(AudioAlignmentFigure):
    """The states and labels of CTC at every frame."""

    def text(self, width: int = 100) -> str:
        words = [f"    {word['start']:6.2f} s   {word['word']}" for word in self.inspection.output["words"]]
        return "\n".join([super().text(), *words])

    def save(self, file: Path) -> None:
        found = self.inspection.analysis
        frames, probabilities = found.frames.numpy(), found.probabilities.numpy()
        lattice = found.share.numpy(), found.path.numpy(), found.states, found.labels
        see.ctc_lattice(frames, probabilities, *lattice, found.seconds, self.title, file)
