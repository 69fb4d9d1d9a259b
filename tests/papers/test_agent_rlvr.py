from dataclasses import replace

from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat, prompt_of

from lyceum.papers.agent_rlvr.guidance_test_feedback import RetryWithFeedback

FAILED = replace(WRONG, details="f(1) is 2")


class Context(FakeContext):
    def follow(self, node, messages):
        tokens = self.render([{"content": node.text}, *messages])
        return len(node.root.tokens), [ord("\n"), *tokens]


def retried(grades, **settings):
    context = Context(grades)
    guide = RetryWithFeedback(guidance="{feedback}!", **{"retries": 2, **settings}).build(Source(ask()), seed=0)
    tree = roll(guide(flat(3)), context, ask("Q"), 3)
    guide.observe([tree])
    return tree, context, guide.metrics()


def test_a_failed_attempt_is_tried_again_with_what_the_tests_said():
    again = "Q\ns1\nf(1) is 2!"
    tree, context, metrics = retried({"Q": [RIGHT, FAILED, RIGHT], again: [WRONG, RIGHT]})
    assert context.asked == [("Q", 3), (again, 2)]
    assert [prompt_of(leaf) for leaf in tree.trajectories] == ["Q"] * 3 + [again] * 2
    assert metrics == {"attempts/failed": 1, "attempts/silent": 0, "attempts/guided": 2, "attempts/rescued": 1}


def test_at_most_so_many_are_tried_again_and_the_attempts_before_may_be_left_out():
    tree, context, metrics = retried({"Q": [FAILED]}, most=1, keep=False)
    assert len(context.asked) == 2
    assert {prompt_of(leaf) for leaf in tree.trajectories} == {"Q\ns0\nf(1) is 2!"}
    assert metrics["attempts/failed"] == 3


def test_a_verifier_that_says_nothing_guides_nobody():
    _, context, metrics = retried({"Q": [WRONG]})
    assert context.asked == [("Q", 3)]
    assert metrics["attempts/silent"] == 3
