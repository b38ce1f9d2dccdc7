"""Which words a captioner uses for people, and what it looks at for them: is it right for the right reason?

    described as    "man" where at least `MIN_REFERENCES` of a photograph's captions have a word for men and none has
                    one for women; "woman" likewise; other photographs are left out
    confusion       what the captioner writes about these: a word for men, for women, for both, a neutral one, none
    log odds        ln Σ p(words for women) - ln Σ p(words for men), at the place of its word, after those before it
    evidence        the same with the fifth of the photograph blurred that was attended most at that word, and with all
                    but that fifth blurred

A model that takes the word from the surroundings (a kitchen, a snowboard) keeps its log odds when the attended person
is blurred, or attends elsewhere. The words are what annotators wrote about photographs of strangers: they say how
people are described, not who they are.

Hendricks, Burns, Saenko, Darrell, Rohrbach: Women also Snowboard: Overcoming Bias in Captioning Models. ECCV 2018.
arXiv:1803.09797; Zhao, Wang, Yatskar, Ordonez, Chang: Men Also Like Shopping. EMNLP 2017. arXiv:1707.09457
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from regard.core.errors import BadInput
from regard.data.images.captions import clean_caption
from regard.interpret.faithfulness import blurred
from regard.interpret.image_maps import TargetMap, find_maps


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MEN = _words("man men boy boys guy guys male males gentleman gentlemen father dad son brother cowboy")
WOMEN = _words("woman women girl girls lady ladies female females mother mom daughter sister cowgirl")
NEUTRAL = _words(
    "person people child children kid kids baby babies toddler toddlers adult adults player players someone couple "
    "crowd group rider skier snowboarder surfer climber hiker skateboarder biker cyclist swimmer runner"
)
SAID = ("man", "woman", "both", "neutral", "none")
MIN_REFERENCES = 3  # captions that must agree
ATTENDED = 0.2  # share of the photograph that is blurred, or left


def word_group(caption: str) -> str:
    """Return which words for people a caption has, one of `SAID`."""
    words = set(clean_caption(caption).split())
    men, women = bool(words & MEN), bool(words & WOMEN)
    if men or women:
        return "both" if men and women else "man" if men else "woman"
    return "neutral" if words & NEUTRAL else "none"


def described_as(references: Sequence[str]) -> str | None:
    """Return "man" or "woman" where a photograph's captions agree on it."""
    groups = Counter(word_group(each) for each in references)
    for one, other in (("man", "woman"), ("woman", "man")):
        if groups[one] >= MIN_REFERENCES and not groups[other] and not groups["both"]:
            return one
    return None


@dataclass(frozen=True, eq=False)
class PersonWord:
    """What a captioner says about one photograph of a man or a woman."""

    number: int  # of the photograph
    described: str  # by people: man or woman
    caption: str
    said: str  # one of SAID
    word: str = ""  # the first word for men or women, "" if there is none
    map: TargetMap | None = None  # what it attended at that word
    odds: tuple[float, float, float] | None = None  # of woman against man: photo, attended part blurred, only that left

    @property
    def is_wrong(self) -> bool:
        """Whether it wrote the other word."""
        return {self.described, self.said} == {"man", "woman"}


def study(
    captioner: Any, photographs: Iterable[Any], references: Iterable[Sequence[str]], maps: bool = True
) -> list[PersonWord]:
    """Return what a captioner says about the photographs that people describe as a man or as a woman."""
    found = []
    for number, (photo, several) in enumerate(zip(photographs, references, strict=True)):
        if (described := described_as(several)) is None:
            continue
        caption = str(captioner(photo))
        said, words = word_group(caption), clean_caption(caption).split()
        place = next((n for n, word in enumerate(words) if word in MEN | WOMEN), None)
        if place is None or not maps:
            found.append(PersonWord(number, described, caption, said, "" if place is None else words[place]))
            continue
        look = find_maps(captioner, photo)[place]
        odds = log_odds(captioner, words, place, _versions(look))
        found.append(PersonWord(number, described, caption, said, words[place], look, odds))
    if not found:
        raise BadInput("no photograph has captions that agree on a man or a woman")
    return found


def confusion(found: Sequence[PersonWord]) -> dict[str, dict[str, int]]:
    """Return how many photographs of each described group the captioner wrote which words for."""
    return {
        described: {said: sum(x.described == described and x.said == said for x in found) for said in SAID}
        for described in ("man", "woman")
    }


@torch.no_grad()
def log_odds(
    captioner: Any, words: Sequence[str], place: int, pictures: Sequence[np.ndarray]
) -> tuple[float, float, float]:
    """Return the log odds of a word for women against one for men at a place of a caption, on each picture."""
    from regard.tokens.word_tokenizer import word_ids

    ids = word_ids(captioner.text)
    men, women = ([ids[word] for word in sorted(group) if word in ids] for group in (MEN, WOMEN))
    if not men or not women:
        raise BadInput("the captioner's vocabulary has no words for men, or none for women")
    like = next(captioner.model.parameters())
    target = torch.tensor([[captioner.text.bos, *captioner.encode(" ".join(words))]], device=like.device)
    pixels = torch.from_numpy(np.stack(pictures)).to(like.device).permute(0, 3, 1, 2)
    images = captioner.preprocess.normalize(pixels).to(like.dtype)
    logs = captioner.model(images, target.expand(len(images), -1))[:, place].double().log_softmax(-1)
    odds = logs[:, women].logsumexp(-1) - logs[:, men].logsumexp(-1)
    first, second, third = odds.tolist()
    return first, second, third


def _versions(look: TargetMap) -> list[np.ndarray]:
    """Return the picture, the picture with its most attended part blurred, and with all but that part blurred."""
    picture, soft = look.picture, blurred(look.picture)
    order = np.argsort(-look.weights.ravel(), kind="stable")
    attended = np.zeros(look.weights.size, bool)
    attended[order[: round(ATTENDED * order.size)]] = True
    inside = attended.reshape(look.weights.shape)[..., None]
    return [picture, np.where(inside, soft, picture), np.where(inside, picture, soft)]
