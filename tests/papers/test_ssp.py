from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat
from leaves import leaf

from lyceum.core.types import Continuation, Origin, Task
from lyceum.papers.ssp.guidance_search_self_play import SearchSelfPlay
from lyceum.papers.ssp.tasks_chain_searches import ChainSearches
from lyceum.tasks.chain import Chain


class Readable(Source):
    def proposed(self, text, like):
        return "format" if text == "x=" else Task(text, ({"role": "user", "content": text},))


class Searching(FakeContext):
    """The proposer writes ``texts``, each after a document; answers with documents are graded by their prompt."""

    def __init__(self, texts, **how):
        super().__init__(**how)
        self.texts = texts

    async def extend(self, node, n, sampling=None, *, keep=False):
        if self.role != "proposer":
            return await super().extend(node, n, sampling, keep=keep)
        drawn = Continuation([7], [-1.0], [-1.0], [0], "stop")
        self.spend(n)
        self.tree.sampled_tokens += n
        return [
            node.add_drawn(drawn, "q").add([8], Origin.TOOL, "52").add_drawn(drawn, text, role=self.role)
            for text in self.texts
        ]

    async def ask(self, prefix, n, sampling, *, key):
        self.asked.append((self.decode(prefix), n))
        return [Continuation([0], [-1.0], [-1.0], [0], "stop")] * n

    def judged(self, leaf):
        return leaf.stats.get("grade") or self._grade(leaf.root.text or "documents", 0)

    def decode(self, tokens):
        return "".join(map(chr, tokens))


def played(context, **settings):
    guide = SearchSelfPlay(questions=len(context.texts), mark="#", ends="=", documents="|{documents}", **settings)
    guide = guide.build(Readable(), seed=0)
    tree = roll(guide(flat(2)), context, ask("Q"))
    guide.observe([tree])
    return [leaf.grade.outcome for leaf in tree.chosen], context.asked, guide.metrics()


def test_a_question_that_its_documents_answer_earns_what_the_solver_misses():
    context = Searching(["#a"], grades={"documents": [RIGHT], "a=": [RIGHT, WRONG]})
    outcomes, asked, metrics = played(context, checks=3)
    assert outcomes == [0.5, 1.0, 0.0]
    assert asked == [("a=||52", 3), ("a=", 2)]
    assert metrics == {"questions/all": 1, "questions/answered": 1, "searches/proposer": 1, "accuracy/mean": 0.5}


def test_what_is_no_question_or_is_not_answered_by_its_documents_is_dropped():
    context = Searching(["#x", "no mark", "#b"], grades={"documents": [WRONG]})
    outcomes, _, metrics = played(context, rejected=-0.5)
    assert outcomes == [-0.5] * 3
    assert [metrics[f"rejected/{why}"] for why in ("format", "unmarked", "documents")] == [1, 1, 1]


def test_a_search_to_imitate_ends_in_the_question_that_it_answers():
    source, chains = ChainSearches(levels=[2, 3]).build("train", 0), Chain(levels=[2, 3]).build("train", 0)
    for task in (source[i] for i in range(20)):
        worked, _, question = task.columns["demonstration"].partition("#")
        asked = chains.proposed(f"{question}=", chains[0])
        assert asked.columns["demonstration"].startswith(worked)
        assert leaf(worked).completion.endswith(f"={asked.answer}")
