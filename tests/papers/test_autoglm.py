import asyncio
from random import Random
from types import SimpleNamespace

import pytest
from fake_task import roll
from guidance_fakes import FakeContext
from pydantic import ValidationError

from lyceum.core.types import Continuation, Exchange
from lyceum.papers.autoglm._app import App, Element, at, look_in, mutated, to_grounder, to_planner
from lyceum.papers.autoglm.curriculum_evolving_goals import PREDICTED, EvolvingGoals, predicted_success
from lyceum.papers.autoglm.environment_app import AppEnvironment
from lyceum.papers.autoglm.guidance_planner_grounder import PlannerGrounder, Sessions
from lyceum.papers.autoglm.tasks_app import AppTasks, app_of, made
from lyceum.papers.autoglm.tasks_app_demonstrations import AppDemonstrations
from lyceum.rollout.flat import Flat
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

APP = App("s", "AC")  # A lies in menu 3, C in menu 1


def named(app, name):
    return next(element for element in app.screen if element.name == name)


class Playing(FakeContext):
    """The planner names what should be pressed; the grounder gives the right place in ``right`` of its samples, the
    last ones, and none in the others."""

    def __init__(self, right, wordless=False):
        super().__init__()
        self.right, self.wordless, self.app = right, wordless, None

    def follow(self, turn, messages):
        return len(turn.path_tokens()), self.render(messages)

    async def extend(self, node, n, sampling=None, *, keep=False):
        self.asked.append((self.role, n))
        if self.role == "planner":
            shown = self.decode(node.tokens)
            apps = [App("s", "AC", menu, pressed) for menu in ("", "1", "2", "3") for pressed in (0, 1)]
            app = next(app for app in apps if to_planner(app) == shown)
            texts = ["?" if self.wordless else named(app, app.wanted).look] * n
        else:
            screen, _, look = node.root.text.partition("@")
            place = screen[screen.index(look) + 1]
            texts = ["x"] * (n - self.right) + [place] * self.right
        drawn = [Continuation([*map(ord, text)], [-1.0], [-1.0], [0], "stop") for text in texts]
        return [node.add_drawn(one, text, role=self.role) for one, text in zip(drawn, texts, strict=True)]


def played(right, samples=1, **how):
    guide = PlannerGrounder(groundings=4).build(AppTasks().build("train", 0), seed=0)
    context = Playing(right, **how)
    tree = roll(guide(Flat(samples=samples).build()), context, made("s", "AC"))
    guide.observe([tree])
    return tree, guide.metrics(), context


def test_the_planner_sees_names_and_the_grounder_places():
    screen = [Element("1", "k", "3"), Element("2", "d", "5")]
    assert to_grounder(screen, "d") == "k3d5@d"
    assert at(screen, "5").name == "2"
    assert [at(screen, text) for text in ("6", "35", "x", "")] == [None] * 4
    assert [look_in(text) for text in (" d ", "x", "dk", "")] == ["d", None, None, None]
    shown = to_planner(APP)
    assert shown.endswith("?A")
    assert sorted(set(shown) & set("0123456789")) == ["1", "2", "3"]


def test_goals_are_pressed_in_order_from_the_menu_that_holds_them():
    assert APP.wanted == "3"
    menu = APP.after(named(APP, "3"))
    assert (menu.menu, menu.wanted, menu.names) == ("3", "A", "0ABF")
    first = menu.after(named(menu, "A"))
    assert (first.menu, first.pressed, first.done, first.wanted) == ("", 1, False, "1")
    wrong = first.after(named(first, "3"))
    assert wrong.wanted == "0"
    assert wrong.after(named(wrong, "A")) is None
    back = wrong.after(named(wrong, "0"))
    menu = back.after(named(back, "1"))
    assert menu.after(named(menu, "C")).done


def test_a_session_goes_from_words_to_places_and_each_role_is_paid_for_its_own_part():
    tree, metrics, context = played(right=4)
    roles = [leaf.role for leaf in tree.chosen]
    assert roles == ["planner", *["grounder"] * 16]
    assert [leaf.grade.outcome for leaf in tree.chosen] == [1.0] * 17
    assert len(tree.chosen[0].written) == 4, "two menus, two buttons"
    assert context.asked == [("planner", 1), ("grounder", 4)] * 4
    assert metrics["places/right"] == metrics["sessions/solved"] == 1
    assert metrics["presses/missed"] == 0
    assert len({leaf.root.key for leaf in tree.chosen[1:]}) == 4, "places are compared for one screen and look alone"


def test_the_first_place_is_pressed_and_the_others_are_paid_all_the_same():
    # Three of four places are right, but not the first: nothing is pressed, up to the 6 turns of two goals.
    tree, metrics, _ = played(right=3)
    assert [leaf.grade.outcome for leaf in tree.chosen] == [0.0] + [0.0, 1.0, 1.0, 1.0] * 6
    assert metrics["presses/missed"] == metrics["turns/mean"] == 6
    assert metrics["places/right"] == 0.75
    assert metrics["sessions/solved"] == 0


def test_words_that_name_nothing_are_not_grounded():
    tree, metrics, _ = played(right=4, samples=2, wordless=True)
    assert [leaf.grade.outcome for leaf in tree.chosen] == [0.0, 0.0]
    assert metrics["turns/wordless"] == 12
    assert "places/right" not in metrics


def test_by_rule_words_are_found_as_they_are_meant():
    task = made("s", "AC")

    def step(said, *before):
        world = AppEnvironment().build()
        return asyncio.run(world.step(world.replay(task, [Exchange(one, "") for one in before]), None, said, None))

    menu = named(APP, "3").look
    found = step(menu)
    assert found.messages[0]["content"] == to_planner(App("s", "AC", "3"))
    assert step("nothing").failed == 1
    inside = App("s", "AC", "3")
    other = next(name for name in inside.names if name not in "0A")
    assert step(named(inside, other).look, menu).end
    assert step(named(inside, other).look, menu).reward == 0


def tree_of(task, *solved):
    return SimpleNamespace(task=task, notes=lambda kind: [Sessions(solved=list(solved))] if kind is Sessions else [])


def test_failed_tasks_are_changed_and_drawn_where_they_are_neither_easy_nor_hopeless():
    source = AppTasks(levels=[1]).build("train", 0)
    curriculum = EvolvingGoals(share=1.0, rate=1.0).build(source, seed=0)
    assert all(PREDICTED not in task.columns for task in curriculum.draw(4)), "nothing has failed yet"
    curriculum.observe([tree_of(made("s", "AB"), 0.0, 0.0, 0.0, 1.0), tree_of(made("t", "C"), 1.0)])
    # A session of two goals that succeeds in a quarter counts a half for each.
    assert (curriculum.pool, curriculum.reached["A"], curriculum.reached["C"]) == (["AB"], 0.5, 1.0)
    new = curriculum.draw(20)
    assert all(task.columns[PREDICTED] <= 0.75 for task in new)
    assert all(sum(a != b for a, b in zip("AB", task.answer, strict=False)) <= 2 for task in new)
    assert {len(task.answer) for task in new} == {1, 2, 3}
    other = EvolvingGoals(share=1.0, rate=1.0).build(source, seed=0)
    other.load_state_dict(curriculum.state_dict())
    assert [task.answer for task in other.draw(5)] == [task.answer for task in curriculum.draw(5)]
    curriculum.observe([tree_of(new[0], 1.0)])
    assert curriculum.metrics()["tasks/new"] == 1
    assert curriculum.metrics()["success/error"] == pytest.approx(1 - new[0].columns[PREDICTED])


def test_easy_changes_are_rejected_and_the_drawn_task_stays():
    curriculum = EvolvingGoals(share=1.0, attempts=3).build(AppTasks().build("train", 0), seed=0)
    curriculum.pool, curriculum.reached = ["A"], dict.fromkeys("ABCDEFGHI", 1.0)
    assert PREDICTED not in curriculum.draw(1)[0].columns
    curriculum.observe([])
    assert curriculum.metrics()["rejected/easy"] == 3
    assert predicted_success([0.5, 0.5, 1]) == 0.25


def test_one_goal_is_changed_added_or_left_out():
    found = {mutated(Random(i), "AB", 3) for i in range(200)}
    assert {"A", "B"} <= found
    assert {goals for goals in found if len(goals) == 3} == {f"AB{goal}" for goal in "CDEFGHI"}
    assert all(len(set(goals)) == len(goals) for goals in found)
    assert not any(len(mutated(Random(i), "ABC", 3)) > 3 for i in range(50))


def test_demonstrations_without_misses_are_right():
    source = AppDemonstrations(misses=0).build("train", 0)
    for task in (source[i] for i in range(60)):
        text, said = task.messages[0]["content"], task.columns["demonstration"]
        if "@" in text:
            screen, _, look = text.partition("@")
            assert said == screen[screen.index(look) + 1]
        else:
            assert said in text


def test_other_tasks_are_refused():
    for part in (AppEnvironment(), PlannerGrounder(), EvolvingGoals()):
        with pytest.raises(RecipeError, match="the tasks are of no app; allowed: tasks 'app'"):
            part.check_tasks(Chain().build("train", 0))
    with pytest.raises(ValidationError, match="allowed: less than it"):
        EvolvingGoals(harder=0.8)
    assert app_of(made("s", "AC")) == APP
