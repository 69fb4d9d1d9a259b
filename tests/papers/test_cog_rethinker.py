import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat, prompt_of

from lyceum.papers.cog_rethinker.guidance_rethink import Rethink
from lyceum.utils.errors import RecipeError

SPLIT = "Q|split in 4"
ATTEMPTS = ["Q\ns0\nagain", "Q\ns1\nagain", "Q\ns2\nagain"]
WORDS = {"decompose": "split in {level}", "refine": "again"}


class Context(FakeContext):
    def follow(self, node, messages):
        tokens = self.render([{"content": node.text}, *messages])
        return len(node.root.tokens), [ord("\n"), *tokens]


def rethought(grades, *, limit=1000, budget=1 << 62, **settings):
    context = Context(grades, limit=limit, budget=budget)
    guide = Rethink(**{**WORDS, **settings}).build(Source(ask()), seed=0)
    tree = roll(guide(flat(3)), context, ask("Q", level=4), 3)
    guide.observe([tree])
    return tree, context, guide.metrics()


def test_a_failed_problem_is_split_and_what_becomes_correct_is_also_put_below_the_direct_prompt():
    tree, context, metrics = rethought({SPLIT: [WRONG, RIGHT, RIGHT]})
    assert context.asked == [("Q", 3), (SPLIT, 3)]
    # The new group under its own prompt, then its two correct samples once more below the direct one.
    assert [prompt_of(leaf) for leaf in tree.trajectories] == [SPLIT] * 3 + ["Q"] * 2
    assert [leaf.text for leaf in tree.trajectories] == ["s0", "s1", "s2", "s1", "s2"]
    assert [leaf.grafted for leaf in tree.trajectories] == [False] * 3 + [True] * 2
    assert tree.solved_unaided == 0
    counts = {"groups/failed": 1, "groups/guided": 1, "too_long/prompts": 0}
    counts |= {"samples/decompose": 3, "right/decompose": 2, "rescued_by/decompose": 1}
    assert metrics == counts | {"samples/refine": 0, "right/refine": 0, "rescued_by/refine": 0}


def test_where_splitting_fails_each_wrong_attempt_is_shown_and_corrected():
    tree, context, metrics = rethought({ATTEMPTS[1]: [RIGHT]})
    assert context.asked == [("Q", 3), (SPLIT, 3), *((prompt, 1) for prompt in ATTEMPTS)]
    assert [prompt_of(leaf) for leaf in tree.trajectories] == [*ATTEMPTS, "Q"]
    assert (metrics["samples/refine"], metrics["right/refine"], metrics["rescued_by/refine"]) == (3, 1, 1)
    assert metrics["rescued_by/decompose"] == 0


def test_the_samples_are_spread_over_fewer_attempts():
    _, context, _ = rethought({}, ways=("refine",), attempts=2)
    assert context.asked == [("Q", 3), (ATTEMPTS[0], 2), (ATTEMPTS[1], 1)]


def test_where_nothing_helps_the_failed_group_stays():
    tree, _, metrics = rethought({})
    assert [prompt_of(leaf) for leaf in tree.trajectories] == ["Q"] * 3
    assert (metrics["groups/failed"], metrics["groups/guided"]) == (1, 1)


def test_a_problem_that_was_solved_once_is_left_alone():
    _, context, metrics = rethought({"Q": [WRONG, RIGHT]})
    assert context.asked == [("Q", 3)]
    assert metrics["groups/failed"] == 0


def test_without_room_or_tokens_the_failed_group_stays():
    _, context, metrics = rethought({}, limit=2)  # the prompt and one token
    assert context.asked == [("Q", 3)]
    assert metrics["too_long/prompts"] == 4
    _, context, metrics = rethought({}, budget=3)
    assert context.asked == [("Q", 3)]
    assert metrics["groups/guided"] == 0


def test_bad_input_is_refused():
    with pytest.raises(RecipeError, match=r"decompose: got \{levle\} \(did you mean 'level'"):
        Rethink(decompose="{levle}").check_tasks(Source(ask(level=1)))
    Rethink(decompose="{levle}", ways=("refine",)).check_tasks(Source(ask(level=1)))
    with pytest.raises(ValueError, match="each of decompose, refine once"):
        Rethink(ways=("refine", "refine"))
    with pytest.raises(ValueError, match=r"allowed: \{column\}"):
        Rethink(decompose="{level.__class__}")
