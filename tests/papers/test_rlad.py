import pytest
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat

from lyceum.core.types import Continuation
from lyceum.papers.rlad.guidance_abstractions import Abstractions
from lyceum.papers.rlad.tasks_chain_abstractions import ChainAbstractions


class Abstracting(FakeContext):
    """The abstractor writes ``texts`` in order; what is solved is graded by the prompt."""

    def __init__(self, texts, **how):
        super().__init__(**how)
        self.texts = texts

    async def extend(self, node, n, sampling=None, *, keep=False):
        if self.role != "abstractor":
            return await super().extend(node, n, sampling, keep=keep)
        self.asked.append((node.root.text, n))
        drawn = Continuation([7], [-1.0], [-1.0], [0], "stop")
        self.spend(n)
        self.tree.sampled_tokens += n
        return [node.add_drawn(drawn, text, role=self.role) for text in self.texts]


def abstracted(context, samples=2, answer=None):
    guide = Abstractions(abstractions=len(context.texts), ask="{problem}?").build(Source(), seed=0)
    tree = roll(guide(flat(samples)), context, ask("Q", answer))
    guide.observe([tree])
    return tree, guide.metrics()


def test_an_abstraction_earns_the_accuracy_of_the_answers_with_it():
    # Under "a" one of two answers is right, under "b" both are.
    context = Abstracting(["a", "b"], grades={"Q|a": [RIGHT, WRONG], "Q|b": [RIGHT]})
    tree, metrics = abstracted(context)
    assert [(leaf.role, leaf.grade.outcome) for leaf in tree.chosen] == [
        ("abstractor", 0.5),
        ("abstractor", 1.0),
        *[("solver", outcome) for outcome in (1.0, 0.0, 1.0, 1.0)],
    ]
    assert context.asked == [("Q?", 2), ("Q|a", 2), ("Q|b", 2)]
    assert len({leaf.root.key for leaf in tree.chosen}) == 3, "abstractions, and answers with each, are compared apart"
    assert metrics["accuracy/mean"] == 0.75
    assert metrics["accuracy/best"] == 1
    assert metrics["abstractions/told_apart"] == 1


def test_one_that_states_the_answer_earns_nothing_and_is_not_solved_with():
    context = Abstracting(["it is 48", "begin at 4"], grades={"Q|begin at 4": [RIGHT]})
    tree, metrics = abstracted(context, answer="48")
    assert [leaf.grade.outcome for leaf in tree.chosen[:2]] == [0.0, 1.0]
    assert [prompt for prompt, _ in context.asked] == ["Q?", "Q|begin at 4"]
    assert metrics["abstractions/leaked"] == 1


def test_with_no_token_left_nothing_is_written():
    tree, _ = abstracted(Abstracting(["a"], limit=2))
    assert tree.chosen == []


def test_demonstrations_are_the_chains_own_hints():
    source = ChainAbstractions().build("train", 0)
    for task in (source[i] for i in range(20)):
        assert task.messages[-1]["content"].endswith("=|")
        assert task.columns["demonstration"] in [hint["text"] for hint in task.columns["hints"]]
    with pytest.raises(ValueError, match="problem"):
        Abstractions(ask="help")
