"""Counts of several processes are added up; all else in their states has to be the same."""

import pytest

from lyceum.core.tallies import TALLY, Tally, risen, with_added, without_tallies

BEFORE = {"judge": {TALLY: {"asked": 2, "cost": 0.5}, "level": 1}, "rule": {}}
AFTER = {"judge": {TALLY: {"asked": 5, "cost": 0.5}, "level": 1}, "rule": {}}


def test_what_has_risen_is_added_where_it_was_counted():
    assert risen(BEFORE, AFTER) == {"judge/tally/asked": 3}
    assert with_added(BEFORE, {"judge/tally/asked": 3}) == AFTER
    assert with_added(AFTER, risen(BEFORE, AFTER))["judge"][TALLY]["asked"] == 8
    assert risen(BEFORE, BEFORE) == {}


def test_a_state_without_its_counts_keeps_all_else():
    assert without_tallies(AFTER) == without_tallies(BEFORE) == {"judge": {"level": 1}, "rule": {}}
    assert without_tallies({"guides": [{TALLY: {"n": 1}, "pool": [3]}]}) == {"guides": [{"pool": [3]}]}


def test_a_tally_counts_what_it_names_and_begins_again():
    tally = Tally("asked", "unread")
    tally.count(asked=2, unread=True)
    assert tally.taken() == {"asked": 2, "unread": 1}
    assert tally == {"asked": 0, "unread": 0}
    with pytest.raises(KeyError):
        tally.count(other=1)
