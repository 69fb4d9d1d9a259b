from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.steps import Steps, step_ends


def decode(tokens):
    return "".join(map(chr, tokens))


def ends(text, logprob=None, **steps):
    tokens = [ord(c) for c in text]
    return step_ends(tokens, logprob or [-0.1] * len(tokens), Steps(**steps), decode)


def test_a_step_ends_behind_its_separator_and_the_last_one_with_the_completion():
    assert ends("ab\ncd\ne", by="lines", tokens=9) == [3, 6, 7]
    assert ends("ab\ncd\n", by="lines", tokens=9) == [3, 6]
    assert ends("a==b=c", by="marker", markers=("==",), tokens=9) == [3, 6]


def test_a_step_ends_at_its_longest_where_no_separator_comes():
    # The count begins anew behind each step: with 3 a step, "abc", "d\n", "efg", "h".
    assert ends("abcd\nefgh", by="lines", tokens=3) == [3, 5, 8, 9]
    assert ends("abcde", by="tokens", tokens=2) == [2, 4, 5]


def test_a_step_begins_where_the_policy_was_unsure():
    assert ends("abcd", [-0.1, -0.1, -2.0, -0.1], by="entropy", nats=1.0) == [2, 4]


def test_nothing_has_no_steps():
    assert ends("") == []


@given(st.text("ab\n", min_size=1, max_size=20), st.integers(1, 5))
def test_ends_rise_to_the_completions_own_and_steps_are_no_longer_than_asked(text, longest):
    found = ends(text, by="lines", tokens=longest)
    steps = [end - start for start, end in zip([0, *found], found, strict=False)]
    assert found[-1] == len(text)
    assert all(0 < step <= longest for step in steps)
