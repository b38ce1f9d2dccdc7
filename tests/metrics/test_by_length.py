"""Buckets of input length: every input in one of them, empty ones left out."""

from regard.metrics.by_length import SENTENCE_BUCKETS, SPELLING_BUCKETS, bucket_label, score_by_length


def test_every_input_is_in_one_bucket_and_ends_belong_to_the_lower():
    lengths = [5, 6, 10, 11, 31, 1, 0, 400]
    rows = score_by_length(lengths, SENTENCE_BUCKETS, lambda inside: {"inside": inside})
    assert [bucket_label(row) for row in rows] == ["1-5", "6-10", "11-15", "31+"]
    assert [row["inside"] for row in rows] == [[0, 5, 6], [1, 2], [3], [4, 7]]
    assert [row["count"] for row in rows] == [3, 2, 1, 2]
    spelled = score_by_length(range(50), SPELLING_BUCKETS, lambda _: {})
    assert [bucket_label(row) for row in spelled] == ["1-4", "5-6", "7-8", "9-10", "11-12", "13+"]
    assert sum(row["count"] for row in spelled) == 50
    every = score_by_length(range(50), SENTENCE_BUCKETS, lambda _: {})
    assert [bucket_label(row) for row in every] == ["1-5", "6-10", "11-15", "16-20", "21-25", "26-30", "31+"]
