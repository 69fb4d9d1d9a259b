from fake_task import roll
from guidance_fakes import FakeContext, Source, flat

from lyceum.core.types import Continuation, Grade, Origin
from lyceum.papers.gtr.guidance_thought_corrector import ThoughtCorrector
from lyceum.tasks.chain import grade, make_task

TASK = make_task("t", 37, [8, -2])
RIGHT, SLIPPED, SHORT = "37+8=45-2=43#43", "37+8=45-2=53#53", "37-2=35#35"


class Writing(FakeContext):
    """The policy writes ``texts``, a token per character, which the chain's own rule judges."""

    def __init__(self, texts):
        super().__init__()
        self.texts = texts

    async def extend(self, node, n, sampling=None, *, keep=False):
        drawn = [self.encode(text) for text in self.texts]
        n = [len(tokens) for tokens in drawn]
        return [
            node.add_drawn(Continuation(tokens, [-1.0] * k, [-1.0] * k, [0] * k, "stop"), text)
            for tokens, k, text in zip(drawn, n, self.texts, strict=True)
        ]

    def encode(self, text):
        return [*map(ord, text), 0]

    def decode(self, tokens):
        return "".join(map(chr, tokens)).replace("\0", "")

    def judged(self, leaf) -> Grade:
        return grade(self.task, leaf)


def corrected(*texts, **settings):
    guide = ThoughtCorrector(**settings).build(Source(TASK), seed=0)
    tree = roll(guide(flat(len(texts))), Writing(texts), TASK)
    guide.observe([tree])
    return tree, guide.metrics()


def test_the_first_wrong_thought_and_what_follows_is_written_again_below_the_right_ones():
    tree, metrics = corrected(RIGHT, SLIPPED)
    own, slipped, taught = tree.chosen
    assert [leaf.completion for leaf in (own, slipped, taught)] == [RIGHT, SLIPPED, RIGHT]
    assert [(node.origin, node.text) for node in taught.path()[1:]] == [
        (Origin.PREFIX, "37+8=45"),
        (Origin.TEACHER, "-2=43#43"),
    ]
    assert taught.grade.correct
    assert taught.root is not own.root, "it is not compared with the group"
    assert metrics == {
        "thoughts/looked_at": 2,
        "thoughts/corrected": 1,
        "tokens/kept": 7,
        "thoughts/distinct": 1.0,
    }


def test_thoughts_that_left_the_path_at_once_are_written_from_the_beginning():
    tree, metrics = corrected(SHORT)
    assert [node.origin for node in tree.chosen[1].path()[1:]] == [Origin.TEACHER]
    assert metrics["tokens/kept"] == 0


def test_equal_corrections_are_one_row_and_a_share_of_the_group_is_looked_at():
    tree, metrics = corrected(SLIPPED, SLIPPED)
    assert len(tree.chosen) == 3
    assert metrics["thoughts/distinct"] == 0.5
    _, metrics = corrected(SLIPPED, SLIPPED, share=0.5)
    assert metrics["thoughts/looked_at"] == 1
