"""Questions that were taught are recognised; others are refused with the reason."""

from regard.tokens.question_forms import QuestionForms

FORMS = QuestionForms(
    ["how many {colour} {things} are there", "is the {thing} left of the {thing}"],
    {"colour": ["red", ""], "things": ["bags"], "thing": ["bag", "shoe"]},
)


def test_forms_are_recognised_whatever_the_case_and_punctuation():
    for question in ("How many red bags are there?", "how many BAGS are there", "Is the bag left of the shoe ?!"):
        assert FORMS.explain_refusal(question) == ""


def test_other_questions_are_refused_with_the_reason():
    for question, reason in {
        "How many cats are there?": "never learned: cats",
        "How many red are there?": "form of question",
        "Is the bag left of the bag?": "not compared with itself",
        "?!": "no words",
    }.items():
        assert reason in FORMS.explain_refusal(question)


def test_words_are_those_of_forms_and_slots():
    assert " ".join(FORMS.words()) == "are bag bags how is left many of red shoe the there"


def test_long_unknown_words_are_not_repeated_in_full():
    assert len(FORMS.explain_refusal("How many " + "9" * 5000)) < 300
