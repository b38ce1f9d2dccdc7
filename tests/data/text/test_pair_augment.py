import random
import re

from regard.data.text.pair_augment import (
    LONG_FORMS,
    MEN,
    PLACES,
    SHORT_FORMS,
    WOMEN,
    augment_pair,
    change_end,
    replace_names,
    replace_numbers,
)

FRENCH, GERMAN = ("en", "fr"), ("en", "de")


def draws(change, source, target, languages):
    return {change(source, target, random.Random(k), languages) for k in range(60)}


def test_a_name_becomes_the_same_name_on_both_sides():
    for source, target in draws(replace_names, "Tom lives in Boston.", "Tom wohnt in Boston.", GERMAN):
        assert source.replace(" lives in ", " wohnt in ") == target
        assert source.startswith("Tom ") or source.split()[0] not in WOMEN + PLACES
    assert len(draws(replace_names, "Tom lives in Boston.", "Tom wohnt in Boston.", GERMAN)) > 30


def test_two_names_do_not_change_into_each_other():
    pairs = draws(replace_names, "Tom knows Mary.", "Tom kennt Mary.", GERMAN)
    assert all(source.replace("knows", "kennt") == target for source, target in pairs)


def test_a_name_that_one_side_lacks_stays():
    assert draws(replace_names, "Mary sings.", "Maria singt.", GERMAN) == {("Mary sings.", "Maria singt.")}
    assert draws(replace_names, "Tom sings.", "Tom singt mit Tom.", GERMAN) == {("Tom sings.", "Tom singt mit Tom.")}


def test_elision_and_genitive_follow_the_new_name():
    for _, target in draws(replace_names, "Mary's car", "la voiture de Mary", FRENCH):
        before, name = re.fullmatch("la voiture (de |d')(.*)", target).groups()
        assert (before == "d'") == name.startswith(tuple("AEIOUÉ"))
    for source, target in draws(replace_names, "Mary's car", "Marys Auto", GERMAN):
        name = source.removesuffix("'s car")
        assert target == f"{name}{chr(39) if name[-1] in 'sxz' else 's'} Auto"


def test_numbers_change_together_and_keep_their_length():
    pairs = {replace_numbers("I am 25.", "Ich bin 25.", random.Random(k)) for k in range(20)}
    assert len(pairs) > 10
    for source, target in pairs:
        assert (source[:5], target[:8], source[5:]) == ("I am ", "Ich bin ", target[8:])
        assert 13 <= int(source[5:-1]) <= 99
    for pair in (("at 2:30", "um 14.30 Uhr"), ("5 men", "5 Männer"), ("the 20th", "der 20."), ("25", "fünfundzwanzig")):
        assert replace_numbers(*pair, random.Random(0)) == pair


def test_contractions_are_written_either_way():
    def rewrite(text, forms):
        for pattern, form in forms:
            text = pattern.sub(form, text)
        return text

    for short, long in {
        "I don't know.": "I do not know.",
        "I'm here, she can't come.": "I am here, she cannot come.",
        "What's this?": "What is this?",
        "We'd like tea and won't wait.": "We would like tea and will not wait.",
        "They'll come.": "They will come.",
    }.items():
        assert (rewrite(short, LONG_FORMS), rewrite(long, SHORT_FORMS)) == (long, short)
    for text in ("Why don't you go?", "It's been raining.", "Isn't he here?"):
        assert rewrite(text, LONG_FORMS) == text
    for text in ("Yes, I am.", "I know who they are."):
        assert rewrite(text, SHORT_FORMS) == text


def test_the_end_changes_on_both_sides_or_on_none():
    assert draws(change_end, "Where is he?", "Où est-il\u202f?", FRENCH) == {("Where is he", "Où est-il")}
    assert draws(change_end, "Hi!", "Salut !", FRENCH) == {("Hi", "Salut"), ("Hi.", "Salut.")}
    assert draws(change_end, "Hi.", "Salut.", FRENCH) == {("Hi", "Salut"), ("Hi!", "Salut !")}
    assert draws(change_end, "Hi.", "Hallo.", GERMAN) == {("Hi", "Hallo"), ("Hi!", "Hallo!")}
    for pair in (("Hi", "Hallo."), ("Well...", "Na ja.")):
        assert draws(change_end, *pair, GERMAN) == {pair}


def test_a_pair_changes_in_many_ways_and_some_stay():
    pairs = draws(augment_pair, "I don't see Tom.", "Ich sehe Tom nicht.", GERMAN)
    assert {source.startswith("i ") for source, _ in pairs} == {True, False}
    assert ("I don't see Tom.", "Ich sehe Tom nicht.") in pairs
    assert all(target.startswith("Ich sehe ") for _, target in pairs)  # the case of the target stays


def test_names_of_women_and_men_are_apart():
    assert not {*WOMEN} & {*MEN}
    assert not {*WOMEN, *MEN} & {*PLACES}
