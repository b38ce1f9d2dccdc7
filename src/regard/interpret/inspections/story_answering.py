"""Inspection of a question about a story: at every hop, the weight of each sentence."""

from __future__ import annotations

from regard.interpret.inspection import Axis
from regard.interpret.inspections.declared import DeclaredInspection


class StoryInspection(DeclaredInspection):
    """A story, a question and the answers; the one row of a hop is the question, its columns are the sentences."""

    input_axis = "sentence"
    figure = "story_hops"

    def lay_out(self) -> None:
        story, question = self.item["text"], self.item["question"].strip()
        sentences = self.predictor.sentences(story)  # type: ignore[attr-defined]
        found, end = [], 0
        for sentence in sentences:
            begin = story.index(sentence, end)
            end = begin + len(sentence)
            found.append({"text": [begin, end]})
        self.axes["sentence"] = Axis("sentence", sentences, found, [False] * len(sentences), story)
        self.axes["question"] = Axis("question", [question], [{"text": [0, len(question)]}], [False], question)
        for held in self.store.values():
            self._axes_of[held.name] = "question", "sentence"

    def summary(self) -> list[str]:
        return [self.axes["question"].tokens[0], self.output["label"]]
