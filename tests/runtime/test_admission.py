"""Staleness is bounded by waiting: nothing is trained late, nothing twice, nothing left out."""

from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from lyceum.runtime.admission import in_time, may_begin, should_begin, to_train

DEADLINES = st.lists(st.integers(0, 4), max_size=5)


def some_schedule(deadlines, version, size):
    """By trying all: whether each group can be given a step, at most its deadline, with at most so many per step."""
    steps = range(version, max(deadlines, default=version) + 1)
    return any(
        all(step <= deadline for step, deadline in zip(chosen, deadlines, strict=True))
        and all(chosen.count(step) <= size for step in steps)
        for chosen in product(steps, repeat=len(deadlines))
    )


@given(DEADLINES, st.integers(0, 3), st.integers(1, 3))
def test_a_set_of_deadlines_is_in_time_where_some_schedule_is(deadlines, version, size):
    assert in_time(deadlines, version, size=size) == some_schedule(deadlines, version, size)


@given(DEADLINES, st.lists(st.integers(0, 4), max_size=3), st.integers(0, 3), st.integers(1, 3))
def test_a_step_waits_only_where_no_choice_of_groups_leaves_the_others_in_time(ready, running, version, size):
    chosen = to_train(ready, running, version, size=size)
    possible = [
        which
        for which in combinations(range(len(ready)), size)
        if some_schedule([*(d for i, d in enumerate(ready) if i not in which), *running], version + 1, size)
    ]
    assert (chosen is None) == (not possible)
    assert chosen is None or tuple(chosen) in possible


def test_a_group_that_others_overtook_is_waited_for():
    # Bound 2, two groups a step, begun under versions 0 0 1 1 2 2. One of the first is still under way in step 2, its
    # last: AReaL's count would let step 2 train two others, and the group would be trained in step 3, 3 updates late.
    assert to_train([2 + 2, 2 + 2], [0 + 2], 2, size=2) is None
    assert to_train([2 + 2, 2 + 2, 0 + 2], [], 2, size=2) == [0, 2]


def test_what_begins_is_bounded_and_ends_with_the_stage():
    assert may_begin(0, 0, steps=10, size=4, staleness=2) == 12
    assert may_begin(7, 3, steps=10, size=4, staleness=2) == 5
    assert may_begin(3, 9, steps=10, size=4, staleness=2) == 1
    assert may_begin(9, 9, steps=10, size=4, staleness=2) == 0


def test_no_group_begins_sooner_than_it_is_needed():
    assert should_begin(12, ready=0, waiting=0, size=4) == 4
    assert should_begin(12, ready=7, waiting=1, size=4) == 3
    assert should_begin(2, ready=7, waiting=1, size=4) == 2
    assert should_begin(12, ready=7, waiting=5, size=4) == 0
    assert should_begin(12, ready=8, waiting=0, size=4) == 0


@settings(max_examples=300, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(0, 4), st.integers(1, 8))
def test_whatever_takes_how_long_each_group_is_trained_once_within_the_bound(data, size, staleness, steps):
    running, ready, trained, dropped, number = {}, {}, [], [], 0
    eager = data.draw(st.booleans())
    for version in range(steps):
        while True:
            new = may_begin(len(running) + len(ready), version, steps=steps, size=size, staleness=staleness)
            if not eager:
                new = should_begin(new, len(ready), data.draw(st.integers(0, len(running))), size=size)
            for _ in range(new):
                running[number], number = version, number + 1
            names = sorted(ready)
            deadlines = [ready[name] + staleness for name in names]
            chosen = to_train(deadlines, [h + staleness for h in running.values()], version, size=size)
            if chosen is not None:
                break
            assert running, "a step that waits has something to wait for"
            # Any of those under way ends next; some are dropped and give their place back.
            ends = data.draw(st.sampled_from(sorted(running)))
            drop = len(dropped) < 20 and data.draw(st.booleans())
            (dropped.append(ends), running.pop(ends)) if drop else ready.update({ends: running.pop(ends)})
            if data.draw(st.booleans()) and running:  # a lost worker's group begins again, under newer weights
                again = data.draw(st.sampled_from(sorted(running)))
                running[again] = version
        assert len(chosen) == size
        for i in chosen:
            assert 0 <= version - ready[names[i]] <= staleness
        trained += [names[i] for i in chosen]
        for i in chosen:
            del ready[names[i]]
    assert len({*trained}) == len(trained) == steps * size
    assert sorted([*trained, *dropped, *running, *ready]) == list(range(number))
    assert not running, "none began that was not to be trained"
    assert not ready
