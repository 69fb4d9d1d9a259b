"""A context without a model: what each prompt's samples are worth is written down in the test."""

from fake_task import FakeTask

from lyceum.core.types import Continuation, Grade, Sampling, Task
from lyceum.rollout.flat import Flat
from lyceum.tasks import base as tasks
from lyceum.utils.seeds import counter_seed

RIGHT, WRONG = Grade(1.0, True), Grade(0.0, False)


def text_of(messages):
    return "\n".join(str(message["content"]) for message in messages)


class FakeContext(FakeTask):
    """Answers by prompt: ``grades[prompt]`` are the grades of its samples in the order in which they are drawn, the
    last of them for all that follow; ``otherwise`` for prompts that are not listed.

    Notes each request as (prompt, n).
    """

    def __init__(self, grades=None, otherwise=WRONG, *, progress=1.0, step=1000, budget=1 << 62, key="run", limit=1000):
        self.grades, self.otherwise = dict(grades or {}), otherwise
        self.progress, self.step, self.budget, self.key = progress, step, budget, key
        self.limit = limit
        self.asked, self.drawn = [], {}

    def begin(self, task):
        tokens = self.render(task.messages)
        super().begin(task, tokens, self.decode(tokens))

    def render(self, messages):
        return [ord(character) for character in text_of(messages)]

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    async def extend(self, node, n, sampling=None, *, keep=False):
        prompt = node.root.text
        assert self.tokens_left(node), "an engine would refuse it"
        self.asked.append((prompt, n))
        children = []
        for _ in range(n):
            number = self.drawn[prompt] = self.drawn.get(prompt, -1) + 1
            # One token a sample, whose log-probability says under which prompt it was drawn.
            logprob = -float(len(prompt))
            drawn = Continuation([number], [logprob], [logprob], [0], "stop")
            children.append(node.add_drawn(drawn, text=f"s{number}", role=self.role))
            children[-1].stats["grade"] = self._grade(prompt, number)
        self.spend(n)
        self.tree.sampled_tokens += n
        return children

    def _grade(self, prompt, number):
        listed = self.grades.get(prompt)
        return self.otherwise if listed is None else listed[min(number, len(listed) - 1)]

    def judged(self, leaf):
        return leaf.stats["grade"]

    def tokens_left(self, node):
        return max(0, self.limit - len(node.path_tokens()))

    def seed(self, *key):
        return counter_seed(self.key, *key)

    @property
    def budget_left(self):
        return self.left(self.budget - self.tree.sampled_tokens)


class Source(tasks.Source):
    """A few tasks; a hint stands behind the prompt: ``Q|hint``."""

    def __init__(self, *tasks):
        self.tasks = tasks

    def __len__(self):
        return len(self.tasks)

    def __getitem__(self, index):
        return self.tasks[index]

    def hinted(self, task, hint):
        question = text_of(task.messages).partition("|")[0]
        return task.with_messages([{"role": "user", "content": f"{question}|{hint.text}"}], hint=hint)

    def to_propose(self, task):
        return ({"role": "user", "content": f"unlike {task.id}"},)

    def proposed(self, text, like):
        return "format"


def ask(question="Q", answer=None, **columns):
    return Task(question, ({"role": "user", "content": question},), answer, columns)


def flat(samples):
    return Flat(samples=samples, sampling=Sampling()).build()


def prompt_of(leaf):
    return leaf.path()[0].text
