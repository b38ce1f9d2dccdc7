from regard.core.errors import FEW, nearest

NAMES = ("pronounce_cpu", "pronounce_gpu", "t5_pronounce", "hard_pronounce", "luong_multi30k")


def test_names_that_begin_with_what_was_typed_come_first():
    assert nearest("pronounce", NAMES) == "did you mean 'pronounce_cpu' or 'pronounce_gpu'?"
    assert nearest("luong", NAMES) == "did you mean 'luong_multi30k'?"
    assert nearest("a", "abc") == "did you mean 'a'?"
    assert nearest("na", ["nab", "nag", "nap"]) == "did you mean 'nab', 'nag' or 'nap'?"


def test_where_none_begins_so_or_too_many_do_the_closest_is_offered():
    assert nearest("t5_pronunce", NAMES) == "did you mean 't5_pronounce'?"
    assert nearest("zzz", NAMES) == "known: " + ", ".join(sorted(NAMES))
    assert nearest("", NAMES).startswith("known: ")
    many = [f"name{i}" for i in range(FEW + 1)]
    assert nearest("name", many) == "did you mean 'name6'?"
    assert nearest("x", []) == "known: none"
