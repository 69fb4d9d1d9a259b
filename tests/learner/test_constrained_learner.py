"""The learner repeats the constraint that tokens were sampled under."""

import asyncio
from dataclasses import replace

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Request, Sampling, Task
from lyceum.engine.constraint.json_schema import JsonSchemaConstraint
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.learner._forward import allowed_bits, row_outputs
from lyceum.models import policy as policy_module
from lyceum.models.bits import unpacked
from lyceum.utils.aio import run_async

SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 2, "maxItems": 4}
JSON = JsonSchemaConstraint(json_schema=SCHEMA)


def sampled(policy, temperature, n=12):
    """Trees whose trajectories go on from a shared first part, drawn under the constraint."""
    engine = EmbeddedConfig().build(policy)
    sampling = Sampling(temperature=temperature, constraint=JSON, max_completion_tokens=24)

    async def grow(prompt):
        root = Node.prompt(prompt)
        tree = Tree(Task(str(prompt), ()), [root])
        (first,) = await engine.extend(Request(prompt, [1], sampling.model_copy(update={"max_completion_tokens": 3})))
        head = root.add_drawn(first)
        path = head.path_tokens()
        for c in await engine.extend(Request(path, range(n // 2), sampling, written=3)):
            head.add_drawn(c).grade = Grade(1.0)
        for c in await engine.extend(Request(prompt, range(10, 10 + n // 2), sampling)):
            root.add_drawn(c).grade = Grade(0.0)
        return tree

    async def both():
        return await asyncio.gather(grow([5, 6, 7]), grow([8, 9]))

    trees = run_async(both())
    return build_forest(trees, temperature=temperature, constraint=JSON.build(policy))


@pytest.fixture(scope="module")
def policy():
    return policy_like(plain_model("llama-gqa"))


@pytest.mark.parametrize("layout", ["tree", "rows"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_its_log_probabilities_are_those_that_the_tokens_were_drawn_with(policy, layout, temperature):
    forest = sampled(policy, temperature)
    rows = forest.rows()
    wanted = forest.trainable(rows)
    out = row_outputs(policy, forest, wanted, layout=layout, needs=frozenset({"entropy"}))
    behaviour = rows.gather(forest.behaviour_logprob)
    torch.testing.assert_close(out.logprob[wanted], behaviour[wanted], rtol=0, atol=2e-5)
    free = row_outputs(policy, replace(forest, constraint=None), wanted, layout=layout)
    assert (free.logprob[wanted] < behaviour[wanted] - 0.1).float().mean() > 0.5, "without it they would differ"
    # What it excludes is the difference, at any temperature.
    assert out.excluded is not None
    torch.testing.assert_close(out.excluded[wanted], (out.logprob - free.logprob)[wanted], rtol=1e-4, atol=1e-4)
    assert free.excluded is None
    assert bool(out.entropy.isfinite().all())


def test_pieces_of_the_vocabulary_change_nothing(policy, monkeypatch):
    forest = sampled(policy, 1.0)
    wanted = forest.trainable(forest.rows())

    def gradients():
        policy.module.zero_grad()
        out = row_outputs(policy, forest, wanted, layout="tree", needs=frozenset({"entropy"}))
        (out.logprob.sum() + 0.1 * out.entropy.sum()).backward()
        return out, [p.grad.clone() for p in policy.module.parameters()]

    whole, of_whole = gradients()
    monkeypatch.setattr(policy_module, "_LOGIT_ELEMENTS", 99 * 7)
    pieces, of_pieces = gradients()
    torch.testing.assert_close(pieces.logprob, whole.logprob)
    torch.testing.assert_close(pieces.excluded, whole.excluded)
    for one, other in zip(of_pieces, of_whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_gradient_of_the_masked_log_softmax_is_that_of_float64(policy):
    torch.manual_seed(0)
    before = torch.randn(6, policy.output.weight.shape[1])
    allowed = torch.rand(6, 99) < 0.2
    token = torch.randint(99, (6,))
    allowed[torch.arange(6), token] = True
    bits = torch.zeros(6, 4, dtype=torch.int64)
    for t in range(99):
        bits[:, t // 32] |= allowed[:, t].long() << (t % 32)
    bits = bits.to(torch.int32)  # the highest bit is the sign
    assert torch.equal(unpacked(bits, 99), allowed)

    own = before.clone().requires_grad_()
    out = policy_module.token_outputs(policy, own, token, temperature=0.8, entropy=True, allowed=bits)
    (out.logprob.sum() + out.entropy.sum()).backward()

    exact = before.double().requires_grad_()
    z = (exact @ policy.output.weight.detach().double().T) / 0.8
    # Over the allowed tokens alone, one row after another: no mask, no infinity.
    total = torch.zeros((), dtype=torch.float64)
    for row in range(6):
        kept = allowed[row].nonzero().squeeze(1)
        nats = z[row, kept].log_softmax(-1)
        total = total + nats[(kept == token[row]).nonzero().item()] - (nats.exp() * nats).sum()
    total.backward()
    torch.testing.assert_close(own.grad, exact.grad.float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(out.logprob.sum() + out.entropy.sum(), total.float(), rtol=1e-5, atol=1e-5)


def test_a_constraint_begins_anew_after_the_text_of_others_and_binds_the_policy_alone(policy):
    ids = policy.tokenizer.convert_tokens_to_ids
    root = Node.prompt([5, 6])
    first = root.add_drawn(drawn([ids("["), ids("4")]))
    tool = first.add([ids("x"), ids("y")], Origin.TOOL)
    again = tool.add_drawn(drawn([ids("["), ids("7")]))
    taught = root.add([ids("n"), ids("o")], Origin.TEACHER)  # a demonstration that is no JSON
    for leaf in (again, taught):
        leaf.grade = Grade(1.0)
    tree = Tree(Task("t", ()), [root], chosen=[again, taught])
    forest = build_forest([tree], constraint=JSON.build(policy))
    wanted = forest.trainable(forest.rows(), (Origin.POLICY, Origin.TEACHER))
    index = forest.rows().index[wanted]
    allowed = unpacked(allowed_bits(forest, wanted, index), 99)
    opening = [ids("[")]
    got = [row.nonzero().squeeze(1).tolist() for row in allowed]
    assert got[0] == got[2] == opening
    assert got[1] == got[3] == sorted(ids(list("0123456789")))
    assert bool(allowed[4:].all()), "a demonstration is trained as it is"


def test_a_token_of_the_policy_that_is_not_allowed_is_an_error(policy):
    root = Node.prompt([5, 6])
    leaf = root.add_drawn(drawn([40, 41]))
    leaf.grade = Grade(1.0)
    forest = build_forest([Tree(Task("t", ()), [root])], constraint=JSON.build(policy))
    with pytest.raises(ValueError, match="does not allow"):
        row_outputs(policy, forest, forest.trainable(forest.rows()), layout="tree")


def drawn(tokens):
    return Continuation(tokens, [0.0] * len(tokens), [0.0] * len(tokens), [0] * len(tokens), "stop")
