"""What a user, an environment or a tool wrote earns nothing and counts against nothing, whatever it says."""

from random import Random
from typing import Literal

from fake_task import FakeTask, roll
from hypothesis import given
from hypothesis import strategies as st
from leaves import grades
from leaves import task as task_of

from lyceum.core.forest import build_forest
from lyceum.core.settings import EnvironmentSettings
from lyceum.core.spans import TokenEnds
from lyceum.core.tree import Node, Tree
from lyceum.core.types import ASSISTANT, Continuation, Grade, JudgedStep, Observation, Origin, Sampling, Task
from lyceum.credit.gae import GAE
from lyceum.papers.barfi.reward_steps import StepsReward
from lyceum.papers.pcurl.reward_dynamic_length import DynamicLength
from lyceum.papers.train_long_think_short.reward_token_budget import TokenBudget
from lyceum.reward.choice import Choice
from lyceum.reward.exact import Exact
from lyceum.reward.extract import Extract, vote
from lyceum.reward.format import Format
from lyceum.reward.function import keywords
from lyceum.reward.number import Number
from lyceum.reward.overlong import Overlong
from lyceum.reward.repetition import Repetition
from lyceum.reward.rubric import Rubric
from lyceum.reward.task import TaskReward
from lyceum.reward.trl import arguments
from lyceum.rollout.turns import Turns
from lyceum.tasks.chain import Chain
from lyceum.tasks.countdown import Countdown

WORDS = ["42", "<answer>42</answer>", "8-3=5", "#48", "(C)", "fine ", "\\boxed{C}", "+8=45"]
RIGHT = "<answer>42</answer> <answer>(8-3)*2</answer> \\boxed{C} 37+8=45-2=43+5=48#48 8-3=5 (A)"
NOT_ASSISTANT = (Origin.TOOL, Origin.PROMPT)


def code_points(tokens) -> str:
    return "".join(map(chr, tokens))


def grown(rng: Random, told) -> Tree:
    """A tree whose nodes have these words, written by anyone; what is not the assistant's says what ``told`` gives."""
    tree = Tree(task_of(), [Node(None, [1, 2], Origin.PROMPT, text="What?")])
    nodes = [tree.root]
    for _ in range(rng.randint(1, 9)):
        above, words = rng.choice(nodes), rng.choice(WORDS) * rng.randint(1, 2)
        origin = rng.choice((Origin.POLICY, Origin.POLICY, Origin.PREFIX, Origin.TEACHER, *NOT_ASSISTANT))
        if origin is Origin.POLICY:
            n = len(words)
            drawn = Continuation(list(map(ord, words)), [-1.0] * n, [-1.0] * n, [0] * n, "stop")
            nodes.append(above.add_drawn(drawn, words))
        else:
            text = told(rng, words) if origin in NOT_ASSISTANT else words
            nodes.append(above.add(list(map(ord, text)), origin, text))
            nodes[-1].finish = "stop"
    return tree


def verdicts(tree: Tree) -> list:
    """Everything that reads its trajectories to grade them, to vote or to count."""
    leaves = tree.trajectories
    tags = Extract.model_validate({"tags": "answer"})
    one = task_of("42", rubric=[{"criterion": "answers", "points": 1, "contains": "42"}])
    parts = [
        Exact(extract=tags),
        Number(),
        Format(tags=("answer",)),
        Rubric(),
        Overlong(max_tokens=12, buffer_tokens=8),
    ]
    parts += [TokenBudget(budget_tokens=9), DynamicLength(), Repetition(ngram=2, wrong_only=False)]
    parts += [Repetition(ngram=2, unit="token", wrong_only=False)]
    found: list = [grades(parts, one, *leaves), grades(Choice(), task_of("C"), *leaves)]
    for settings, more in ((Chain(), []), (Countdown(), [StepsReward()])):
        source = settings.build("train", 0)
        found.append(grades([TaskReward(), *more], source[0], *leaves, source=source))
    found.append([(vote(leaf.completion), leaf.policy_tokens) for leaf in leaves])
    found.append([{**keywords(one, leaf), "task": None} for leaf in leaves])
    found.append(arguments(one, leaves, chat=True))
    return found


@given(st.integers(0, 2**32))
def test_no_verifier_vote_or_count_reads_what_others_wrote(seed):
    def silent(rng, words):
        return words[:1]

    def telling(rng, words):
        return RIGHT

    assert verdicts(grown(Random(seed), telling)) == verdicts(grown(Random(seed), silent))


class Scripted(FakeTask):
    """A policy whose every turn says some words, whatever was answered; tokens are code points."""

    def __init__(self, seed: int) -> None:
        self.rng, self.asked = Random(seed), []

    async def extend(self, node, n, sampling=None, *, keep=False, entropy=False):
        assert sampling is not None
        self.asked.append((n, sampling.max_completion_tokens))
        return [self._draw(node, sampling.max_completion_tokens) for _ in range(n)]

    def _draw(self, node, most):
        words = self.rng.choice(WORDS) + self.rng.choice(WORDS)
        said, length = words[:most], len(words[:most])
        finish = "stop" if len(words) < most else "length"
        return node.add_drawn(Continuation([*map(ord, said)], [-1.0] * length, [], [0] * length, finish), said)

    def decode(self, tokens):
        return code_points(tokens)

    def follow(self, node, messages, history="append"):
        """Every other answer has the template rewrite the history from the prompt on."""
        path, text = node.path_tokens(), "".join(message["content"] for message in messages)
        keep = len(path) if len(messages) == 1 else len(node.root.tokens)
        return keep, [*map(ord, text)]

    def tokens_left(self, node):
        return 10_000 - len(node.path_tokens())

    @property
    def budget_left(self):
        return 120

    def judged(self, leaf):
        return Grade(0.0)


class Answers(EnvironmentSettings):
    """Goes on for four turns, in each form that an answer may have."""

    kind: Literal["test-answers"] = "test-answers"
    text: str = ""

    def build(self):
        return self

    def reset(self, task):
        return 0

    def replay(self, task, exchanges):
        return len(exchanges)

    async def step(self, state, turn, said, context):
        forms: list[dict] = [
            {"tokens": tuple(map(ord, self.text))},
            {"messages": ({"role": "tool", "content": self.text},)},
            {"messages": ({"role": "user", "content": self.text},)},
            {"messages": ({"role": "tool", "content": self.text}, {"role": "user", "content": self.text})},
            {"end": True},
        ]
        return Observation(state + 1, **forms[state])


@given(st.integers(0, 2**32))
def test_what_an_environment_answers_in_a_rollout_reaches_no_verifier_limit_or_budget(seed):
    def turned(text):
        context = Scripted(seed)
        settings = Turns(samples=3, environment=Answers(text=text), sampling=Sampling(max_completion_tokens=60))
        tree = roll(settings.build(), context, task_of())
        assert all(leaf.policy_tokens <= 40 for leaf in tree.trajectories), "a third of the budget"
        ends = [(leaf.finish, leaf.stats, leaf.policy_tokens) for leaf in tree.trajectories]
        return verdicts(tree), context.asked, ends, settings.metrics([tree])

    assert turned(RIGHT * 20) == turned("no")


@given(st.integers(0, 2**32))
def test_the_context_has_everything_and_the_completion_the_assistants_side(seed):
    tree = grown(Random(seed), lambda rng, words: words)
    for leaf in tree.nodes():
        below = leaf.path()[1:]
        assert code_points(leaf.path_tokens()[2:]) == "".join(node.text for node in below)
        assert leaf.completion == "".join(node.text for node in below if node.origin in ASSISTANT)
        assert code_points(leaf.completion_tokens) == leaf.completion
        ends = TokenEnds(code_points).of(leaf)
        assert len(ends) == 1 + sum(len(node.tokens) for node in below)
        assert ends[-1] == len(leaf.completion)


def test_a_step_over_a_tools_answer_pays_the_policy_alone():
    root = Node(None, [1], Origin.PROMPT)
    first = root.add_drawn(Continuation([97], [-1.0], [-1.0], [0], "stop"), "a")
    told = first.add([88, 89], Origin.TOOL, "XY")
    leaf = told.add_drawn(Continuation([98, 99], [-1.0] * 2, [-1.0] * 2, [0] * 2, "stop"), "bc")
    leaf.grade = Grade(0.0, steps=(JudgedStep(0, 2, 1.0), JudgedStep(2, 3, 2.0)))
    forest = build_forest([Tree(Task("t", ()), [root])], decode=code_points)
    forest = forest.with_columns(old_value=forest.behaviour_logprob.nan_to_num() * 0)
    credit = GAE(lam=1.0, whiten=False, process_coefficient=1.0).build()
    assert credit(forest).advantage.tolist() == [[0, 3, 0, 0, 3, 2]]


def test_a_prefix_and_a_demonstration_are_help():
    for origin in (Origin.PREFIX, Origin.HINT, Origin.TEACHER):
        tree = Tree(Task("t", ()), [Node(None, [1], Origin.PROMPT)])
        leaf = tree.root.add([2], origin).add_drawn(Continuation([3], [-1.0], [-1.0], [0], "stop"))
        leaf.grade = Grade(1.0, True)
        assert (tree.solved, tree.solved_unaided) == (1, None)
