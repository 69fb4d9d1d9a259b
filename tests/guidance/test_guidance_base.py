import pytest
from guidance_fakes import FakeContext, Source, ask
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.component import kinds
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Hint, Origin
from lyceum.guidance.base import (
    Guide,
    check_ladders,
    check_solutions,
    failed,
    is_correct,
    leaks,
    solution_to_give,
    start_with,
)
from lyceum.papers.deepsearch.guidance_search_where_hard import SearchNote
from lyceum.tasks.base import HintsLeak
from lyceum.training.stages.online import Online
from lyceum.utils.errors import RecipeError


def tree_of(*grades):
    tree = Tree(ask(), [Node.prompt([1])])
    for grade in grades:
        leaf = Node(tree.root, [2], Origin.POLICY, [-1.0], [-1.0], [0], "stop")
        leaf.grade = grade
        tree.root.children.append(leaf)
    return tree


@pytest.mark.parametrize(
    ("grades", "is_failed"),
    [
        ([Grade(0.0), Grade(0.0)], True),
        ([Grade(0.0), Grade(1.0)], False),
        ([Grade(0.7, False), Grade(0.1, False)], True),  # shaped, and wrong
        ([Grade(-0.5, True), Grade(0.0, False)], False),  # punished, and right
        ([Grade(-0.5), Grade(0.3)], False),  # nobody says: more than 0 counts
        ([Grade(-0.5), Grade(-0.3)], True),
        ([Grade.ungraded("x"), Grade(0.0)], True),  # what was graded is wrong
        ([Grade.ungraded("x")], False),  # nothing is known of it
        ([], False),
    ],
)
def test_a_group_failed_where_all_that_could_be_graded_is_wrong(grades, is_failed):
    assert failed(tree_of(*grades).trajectories) == is_failed


def test_an_ungraded_leaf_is_not_right():
    assert not is_correct(Node(None, [1], Origin.POLICY))
    assert not is_correct(tree_of(Grade(None, True)).trajectories[0])


@pytest.mark.parametrize(
    ("answer", "text", "says"),
    [
        ("7", "it is 7.", True),
        ("7", "it is 17", False),
        ("7", "it is 7.5", False),  # another number
        ("7", "it is 0.7", False),
        ("1/2", "one gets 1/2 then", True),
        ("Paris", "think of PARIS", True),
        ("Paris", "Parisian", False),
        ("7", "begin with 3", False),
        (["x", "seven"], "it is seven", True),
        (None, "None of it", False),
        ("", "anything", False),
    ],
)
def test_a_hint_leaks_where_it_says_the_answer_as_a_word(answer, text, says):
    assert leaks(ask(answer=answer), text) == says


def test_what_the_problem_says_itself_is_no_leak_and_a_source_may_know_better():
    assert not leaks(ask("is 7 prime?", answer="7"), "look at 7")
    assert not leaks(ask(answer="7").with_note(HintsLeak(False)), "7")
    assert leaks(ask(answer="7").with_note(HintsLeak(True)), "nothing")


def test_ladders_are_checked_as_they_are_given():
    parts = [{"tier": "solution", "text": "3"}, {"tier": "solution", "text": "+ 4 = 7"}]
    with pytest.raises(RecipeError, match=r"g: 1 of 1 tasks have a hint that says the answer, first task 'Q'"):
        check_ladders("g", Source(ask(answer="7", hints=parts), ask("R")), allow_leaks=False)
    # Of a tier that is not given nothing is asked.
    known = [{"tier": "knowledge", "text": "add"}]
    check_ladders("g", Source(ask(answer="7", hints=parts + known)), allow_leaks=False, tiers=("knowledge",))
    check_ladders("g", Source(ask(answer="7", hints=parts)), allow_leaks=True)
    with pytest.raises(RecipeError, match=r"g: none of the tasks has hints; allowed: .*tasks.columns.hints"):
        check_ladders("g", Source(ask(), ask(hints=[])), allow_leaks=False)
    with pytest.raises(RecipeError, match=r"g.tiers: got strategy, but no task has a hint of them; allowed: solution"):
        check_ladders("g", Source(ask(hints=parts)), allow_leaks=False, tiers=("strategy",))


@given(st.integers(0, 11), st.integers(1, 12))
def test_a_solution_is_given_up_to_the_step_before_the_answer_is_said(said_at, length):
    steps = ["42" if i == said_at else "x" for i in range(length + 1)]
    solution = solution_to_give(Source(), ask(answer="42", steps=steps), allow_leaks=False)
    can_give = min(said_at, length)
    assert (solution is None) == (can_give == 0)
    if solution is not None:
        assert len(solution.steps) == can_give
        assert solution.total == length + 1, "shares are of the whole solution"


def test_a_solution_that_says_nothing_before_the_answer_is_none():
    with pytest.raises(RecipeError, match=r"g: none of the tasks has a solution"):
        check_solutions("g", Source(ask(answer="42", steps=["42", "x"])), allow_leaks=False)
    check_solutions("g", Source(ask(answer="42", steps=["42", "x"])), allow_leaks=True)


def test_a_prompt_with_a_hint_is_one_more_root_that_says_which_and_the_same_node_for_the_same_hint():
    context, source = FakeContext(), Source(ask())
    context.begin(source[0])
    start = start_with(Hint("t", "h"), context, source, context.tree.root)
    assert context.tree.roots == [context.tree.root, start]
    assert start.text == "Q|h"
    assert start.stats["hint"] == Hint("t", "h")
    assert start_with(Hint("t", "h"), context, source, context.tree.root) is start
    assert context.tree.trajectories == [], "a prompt that was not continued is no trajectory"


def test_what_was_given_below_the_prompt_stands_below_the_prompt_with_a_hint_too():
    context, source = FakeContext(limit=8), Source(ask())
    context.begin(source[0])
    given = context.tree.root.add([1, 2], Origin.PREFIX, "ab")
    start = start_with(Hint("t", "hint"), context, source, given)
    assert start is None, "Q|hint and two tokens leave none of 8"
    start = start_with(Hint("t", "h"), context, source, given)
    assert (start.root.text, start.tokens, start.text) == ("Q|h", [1, 2], "ab")
    assert start_with(Hint("t", "h"), context, source, given) is start


def test_a_guide_changes_nothing_of_itself():
    guide = Guide()
    rollout = object()
    assert guide(rollout) is rollout
    guide.observe([])
    assert guide.metrics() == guide.state_dict() == {}
    with pytest.raises(ValueError, match=r"unknown"):
        guide.load_state_dict({"x": 1})


@pytest.mark.parametrize("kind", sorted(kinds("guidance").keys() - {"self-play"}))  # which has tasks of its own
def test_a_guide_says_nothing_of_tasks_that_another_one_around_it_kept_to_itself(kind):
    # search-where-hard samples easy tasks and those with cached solutions by itself: inner guides are not asked.
    guide = kinds("guidance")[kind]().build(Source(ask()), seed=0)
    tree = tree_of(Grade(1.0))
    tree.add_note(SearchNote("direct", 0))
    guide.observe([tree])
    metrics = guide.metrics()
    assert all(metrics.get(name, 0) == 0 for name in ("groups/failed", "groups/guided", "without_hints/tasks"))


def stage_with(guide, rollout):
    needed = {"value": "likelihood"} if rollout["kind"] in ("beam", "value-mcts") else {}
    return Online.model_validate({"guidance": [guide], "rollout": rollout, **needed})


@pytest.mark.parametrize("rollout", ["best-first", "value-mcts"])
@pytest.mark.parametrize("guide", ["seele", "rubric-scaffold"])
def test_guides_that_share_trajectories_out_need_a_rollout_with_a_number_of_them(guide, rollout):
    stage = stage_with({"kind": guide}, {"kind": rollout, "trajectories": None})
    lines = [line for line in stage.conflicts(stage.composition()) if line.startswith("rollout.kind")]
    assert len(lines) == 1
    assert f"got '{rollout}' with guidance '{guide}'" in lines[0]


@pytest.mark.parametrize("rollout", ["flat", "critical-tokens", "mcts", "beam", "segments", "look-ahead"])
@pytest.mark.parametrize("guide", ["prefix", "seele", "rubric-scaffold"])
def test_every_guide_goes_with_every_rollout_of_a_number(guide, rollout):
    stage = stage_with({"kind": guide}, {"kind": rollout})
    if rollout != "beam":
        assert stage.conflicts(stage.composition()) == []
