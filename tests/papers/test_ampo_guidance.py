import math
from dataclasses import replace

import pytest
from fake_task import NO_MODEL, FakeTask, roll

from lyceum.core.settings import Composition
from lyceum.core.types import Continuation, Origin, Task
from lyceum.papers.ampo.guidance_multi_guidance import MultiGuidance
from lyceum.rollout.flat import Flat
from lyceum.tasks.chain import grade_leaves, make_task
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

PLAIN, FIXED, AGAIN, BAD = "37+8=45#45", "37+8=55!45#45", "37+8=55?0:37+8=45#45", "37+8=55#55"
POOL = [{"teacher": name, "text": text} for name, text in zip("pfab", (PLAIN, FIXED, AGAIN, BAD), strict=True)]
TASK = make_task("t", 37, [8])
TASK = replace(TASK, columns={**TASK.columns, "demonstrations": POOL})
WRONG, RIGHT = "37+8=55#55", "37+8=45#45"
END = 1
LIKELY = {"37+8=55!45#": (0.9, 0.1), "37+8=55?0:37+8=45#": (0.6, 0.6), "37+8=45#": (0.4, 0.4)}


class Context(FakeTask):
    """Characters are tokens. The answer's two characters have probabilities 0.9 and 0.1 after the corrected slip, 0.6
    and 0.6 after the second try, 0.4 and 0.4 after the plain chain."""

    def __init__(self, limit=1000):
        self.limit, self.scored = limit, []

    def begin(self, task):
        super().begin(task, [7, 8])

    def tokens_left(self, node):
        return self.limit - len(node.path_tokens())

    def encode(self, text):
        return [*self.encode_after([], text), END]

    def encode_after(self, path, text):
        return [ord(character) for character in text]

    async def score(self, path):
        text = "".join(map(chr, path[2:]))
        self.scored.append(text)
        return [0.0] * (len(path) - 2) + [math.log(p) for p in LIKELY[text[:-2]]]

    def seed(self, *key):
        return 0

    def judged(self, leaf):
        return run_async(grade_leaves(TASK, [leaf], NO_MODEL))[0]


def guided(*texts, task=TASK, limit=1000, **settings):
    async def rollout(context, start, n):
        for text in texts:
            tokens = context.encode(text)
            logprobs = [-0.5] * len(tokens)
            start.add_drawn(Continuation(tokens, logprobs, logprobs, [0] * len(tokens), "stop"), text)
        return list(start.children)

    guide = MultiGuidance.model_validate({"answer": {"after": "#"}, **settings}).build(None, seed=0)
    context = Context(limit)
    tree = roll(guide(rollout), context, task)
    guide.observe([tree])
    return tree, context, guide.metrics()


def texts(tree):
    return [leaf.text for leaf in tree.trajectories]


def test_where_all_fail_the_best_understood_solutions_replace_as_many_failures():
    tree, context, metrics = guided(WRONG, WRONG, WRONG)
    # Means of the two probabilities: 0.5 corrected, 0.6 second try, 0.4 plain. The likelihood of the whole answer
    # would rank them 0.09, 0.36, 0.16, and take the plain one instead of the corrected.
    assert texts(tree) == [WRONG, AGAIN, FIXED]
    assert [leaf.origin for leaf in tree.trajectories] == [Origin.POLICY, Origin.TEACHER, Origin.TEACHER]
    assert [leaf.grade.outcome for leaf in tree.trajectories] == [0, 1, 1]
    # The reference answer is scored, not the teacher's; the wrong solution is not scored at all.
    assert context.scored == [PLAIN, FIXED, AGAIN]
    note = tree.metadata["multi-guidance"]
    assert [(teacher, round(score, 6)) for teacher, score in note.ranked] == [("a", 0.6), ("f", 0.5), ("p", 0.4)]
    assert (metrics["groups/guided"], metrics["left_out/wrong"]) == (1, 1)
    assert (metrics["chosen/a"], metrics["chosen/f"]) == (1, 1)
    assert "chosen/p" not in metrics
    assert metrics["comprehension/chosen"] == pytest.approx(0.55)
    assert metrics["comprehension/others"] == pytest.approx(0.4)


def test_one_that_was_solved_once_needs_no_teacher():
    tree, context, metrics = guided(WRONG, RIGHT)
    assert texts(tree) == [WRONG, RIGHT]
    assert not context.scored
    assert (metrics["groups/failed"], metrics["groups/guided"]) == (0, 0)


def test_fewer_usable_solutions_replace_fewer_failures():
    task = replace(TASK, columns={"demonstrations": POOL[2:], **{k: TASK.columns[k] for k in ("start", "operations")}})
    assert texts(guided(WRONG, WRONG, WRONG, task=task)[0]) == [WRONG, WRONG, AGAIN]
    # 13 characters and the end of sequence hold the corrected slip, not the second try.
    tree, _, metrics = guided(WRONG, WRONG, WRONG, max_completion_tokens=14)
    assert texts(tree) == [WRONG, FIXED, PLAIN]
    assert metrics["left_out/too_long"] == 1


def test_a_solution_without_the_mark_is_understood_least():
    tree, _, _ = guided(WRONG, WRONG, answer="boxed")
    assert [score for _, score in tree.metadata["multi-guidance"].ranked] == [0, 0, 0]


def test_at_random_nothing_is_scored():
    tree, context, metrics = guided(WRONG, WRONG, choose="random")
    assert not context.scored
    assert len(tree.trajectories) == 2
    assert "comprehension/chosen" not in metrics
    assert "score" in MultiGuidance().needed
    assert "score" not in MultiGuidance(choose="random").needed


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        ({}, "none of the tasks has a column 'demonstrations'"),
        ({"demonstrations": ["37"]}, "allowed: a list of {teacher, text}"),
        ({"demonstrations": {"teacher": "a", "text": "b"}}, "allowed: a list of {teacher, text}"),
        ({"demonstrations": [{"teacher": "a", "text": 3}]}, "allowed: a list of {teacher, text}"),
        ({"demonstrations": [{"teacher": "a/b", "text": ""}]}, "allowed: a name of letters"),
        ({"demonstrations": [{"teacher": f"t{i}", "text": ""} for i in range(33)]}, "names 33 teachers"),
        ({"demonstrations": POOL}, "none of the tasks has a reference answer"),
    ],
)
def test_tasks_that_cannot_be_taught_are_refused(columns, line):
    with pytest.raises(RecipeError, match=line):
        MultiGuidance().check_tasks([Task("t", (), columns=columns)])


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="where no reasoning stands before the answer"):
        MultiGuidance.model_validate({"answer": "whole"})
    [line] = MultiGuidance(replaced=8).conflicts(Composition(rollout=Flat(samples=8)))
    assert line.startswith("guidance.multi-guidance.replaced: got 8 with rollout.samples 8")
