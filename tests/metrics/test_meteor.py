"""METEOR with exact and stem matches, and Porter's stemmer: by hand, and equal to NLTK's."""

import random

import pytest

from regard.core.errors import BadInput
from regard.metrics.meteor import match_words, meteor, score_pair
from regard.metrics.porter_stem import porter_stem

TEXT = """
caresses ponies cats feed agreed plastered motoring sing conflated troubled sized hopping tanned
falling hissing fizzed failing filing happy sky relational conditional valenci digitizer radically
vileli vietnamization predication operator feudalism decisiveness hopefulness formaliti sensitiviti
sensibiliti triplicate formative formalize electrical hopeful goodness revival allowance inference
airliner adjustable replacement dependent adoption communism activate homologous effective
bowdlerize probate rate cease controll roll running children people standing riding snowboarder
jumping dogs wooden grassy playing played player playful skies dying yes aye
"""
WORDS = TEXT.split()


def test_a_score_by_hand():
    # "a dog runs" in "the dog runs fast": dog and runs match in one chunk; P = 2/3, R = 2/4
    mean = (2 / 3) * (2 / 4) / (0.9 * 2 / 3 + 0.1 * 2 / 4)
    assert score_pair(["a", "dog", "runs"], ["the", "dog", "runs", "fast"]) == pytest.approx((1 - 0.5 / 8) * mean)
    assert match_words(["dogs", "ran", "home"], ["home", "ran", "dog"]) == [(0, 2), (1, 1), (2, 0)]
    assert meteor(["a cat", "two dogs"], [["a dog", "a cat"], ["nothing"]]) == [pytest.approx(1 - 0.5 / 8), 0.0]
    assert meteor([""], [["a cat"]]) == [0.0]
    with pytest.raises(BadInput, match="2 captions"):
        meteor(["a", "b"], [["a"]])


def test_stems_equal_nltk():
    stem = pytest.importorskip("nltk.stem.porter", reason="pip install nltk").PorterStemmer(mode="ORIGINAL_ALGORITHM")
    assert [porter_stem(word) for word in WORDS] == [stem.stem(word) for word in WORDS]
    assert [porter_stem(word) for word in ("is", "by", "s")] == ["is", "by", "s"]  # as in Porter's own program


def test_scores_equal_nltk_without_synonyms():
    pytest.importorskip("nltk", reason="pip install nltk")
    from nltk.stem.porter import PorterStemmer
    from nltk.translate.meteor_score import meteor_score

    class NoSynonyms:
        def synsets(self, word):
            return []

    rng, words = random.Random(0), [*WORDS[::9], "runs", "run", "dog", "dogs"]
    stemmer = PorterStemmer(mode="ORIGINAL_ALGORITHM")
    for _ in range(60):
        output, *several = ([rng.choice(words) for _ in range(rng.randint(1, 9))] for _ in range(4))
        wanted = meteor_score(several, output, stemmer=stemmer, wordnet=NoSynonyms())
        (found,) = meteor([" ".join(output)], [[" ".join(each) for each in several]])
        assert found == pytest.approx(wanted)
