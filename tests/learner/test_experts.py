"""Mixtures of experts: the loss that evens out their load, and tokens that go where the engine sent them."""

import asyncio
from dataclasses import replace

import pytest
import torch
from random_trees import letters, random_trees
from tiny_models import HYBRIDS, plain_model, policy_like
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from lyceum.core.forest import EXPERTS, build_forest
from lyceum.core.group import Group
from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import Credited, Grade, Origin, Request, Sampling, Task
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.learner.fsdp import FsdpConfig
from lyceum.learner.local import LocalConfig
from lyceum.models.scratch import character_tokenizer
from lyceum.models.trial import logits_alone, policy_of
from lyceum.objective.ppo_clip import PPOClip
from lyceum.recipe.schema import load_recipe
from lyceum.run.trees import dump_groups, load_groups
from lyceum.training.train import check
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

MIXTURE = "qwen3-experts"  # each of 2 routers sends a token to 2 of 4 experts
STATES = "mamba beside attention"  # one router, and layers whose states branch


def learner(model, **settings):
    return LocalConfig(lr=1e-3, **settings).build(policy_like(model), total_steps=10, needs=frozenset())


def gradients(of, forest):
    noise = torch.randn(forest.n_rows, 1, generator=torch.Generator().manual_seed(1))
    return of.gradients(forest, Credited(noise * forest.trainable(forest.rows())), PPOClip().build())


def flat(tensors):
    return torch.cat([x.flatten() for x in tensors])


def sampled(policy, **config):
    """Two prompts that begin alike, three samples each, and two of what follows a tool after the first of them."""
    engine = EmbeddedConfig(**config).build(policy)
    engine.record_routing()

    async def extend(node, n):
        drawn = await engine.extend(Request(node.path_tokens(), range(n), Sampling(max_completion_tokens=6), keep=True))
        node.note_experts(drawn[0].prefix_experts)
        return [node.add_drawn(each) for each in drawn]

    async def grow(last):
        root = Node.prompt([5, 6, 7, last])
        first, *_ = await extend(root, 3)
        await extend(first.add([11, 12], Origin.TOOL), 2)
        return Tree(Task(str(last), ()), [root])

    async def both():
        return await asyncio.gather(grow(8), grow(9))

    trees = list(run_async(both()))
    for n, leaf in enumerate(leaf for tree in trees for leaf in tree.trajectories):
        leaf.grade = Grade(float(n % 2))
    return trees


def policy(name):
    model = HYBRIDS[name]() if name in HYBRIDS else plain_model(name)
    return policy_of(model, character_tokenizer(context=128), logits_alone(model))


@pytest.mark.parametrize("layout", ["tree", "rows"])
@pytest.mark.parametrize("micro_batch_tokens", [4096, 8])
def test_the_loss_is_transformers_over_all_rows_however_they_are_computed(layout, micro_batch_tokens):
    forest = build_forest(random_trees(13), decode=letters)
    model = plain_model(MIXTURE)
    how = {"layout": layout, "micro_batch_tokens": micro_batch_tokens}
    without = gradients(learner(model, **how), forest)
    measured = gradients(learner(model, router_aux_loss_coef=0, **how), forest)
    assert all(map(torch.equal, without.weights, measured.weights))
    given = gradients(learner(model, router_aux_loss_coef=0.5, **how), forest)

    rows = forest.rows()
    logits = model(rows.gather(forest.token), output_router_logits=True, use_cache=False).router_logits
    loss = load_balancing_loss_func(logits, 4, 2, rows.present.long())
    assert given.metrics["experts/aux_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert measured.metrics["experts/aux_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
    expected = torch.autograd.grad(0.5 * loss, list(model.parameters()), allow_unused=True)
    expected = flat(torch.zeros_like(p) if g is None else g for p, g in zip(model.parameters(), expected, strict=True))
    torch.testing.assert_close(flat(given.weights) - flat(without.weights), expected, atol=2e-6, rtol=1e-4)
    assert expected.abs().max() > 1e-3


def test_couples_in_two_passes_add_the_same_loss():
    objective = PPOClip().build()
    plan = objective.plan
    objective.plan = lambda forest, *of: replace(plan(forest, *of), couple=torch.zeros(forest.n_rows, dtype=torch.long))
    forest, found = build_forest(random_trees(13), decode=letters), []
    for tokens in (4096, 8):
        of = learner(plain_model(MIXTURE), router_aux_loss_coef=0.5, micro_batch_tokens=tokens)
        credited = Credited(torch.ones(forest.n_rows, 1) * forest.trainable(forest.rows()))
        found.append(of.gradients(forest, credited, objective))
    assert "rows_in_two_passes" in found[1].metrics
    torch.testing.assert_close(flat(found[0].weights), flat(found[1].weights), atol=2e-6, rtol=1e-4)


def test_the_loss_evens_the_load_out():
    forest = build_forest(random_trees(13), decode=letters)
    ends = {}
    for coefficient in (0, 1.0):
        of = learner(plain_model(MIXTURE), router_aux_loss_coef=coefficient)
        credited = Credited(1e-6 * forest.trainable(forest.rows()))
        losses = [of.step(forest, credited, PPOClip().build())["experts/aux_loss"] for _ in range(12)]
        ends[coefficient] = losses[-1] - losses[0]
    assert ends[1.0] < ends[0] - 0.02


@pytest.mark.parametrize("name", [MIXTURE, STATES])
def test_replay_changes_nothing_under_the_weights_that_sampled(name):
    trees = sampled(policy(name))
    forest = build_forest(trees)
    rows = forest.rows()
    # All but the first tokens of the two prompts: nothing came before them.
    assert ((forest.columns[EXPERTS] >= 0).all(1) == (forest.position > 0)).all()
    for layout in ("tree", "rows"):
        found = {}
        for replayed in (False, True):
            settings = LocalConfig(replay_routing=replayed, layout=layout, gradient_checkpointing=True)
            of = settings.build(policy(name), total_steps=1, needs=frozenset())
            found[replayed] = gradients(of, forest)
        torch.testing.assert_close(flat(found[True].weights), flat(found[False].weights), atol=1e-5, rtol=1e-5)
        assert found[True].metrics["experts/differed"] == 0
        # All but the last token of each row.
        length = forest.row_length.float()
        assert found[True].metrics["experts/replayed"] == pytest.approx(float((length - 1).sum() / length.sum()))
    assert rows.index.shape[0] == 8


def test_under_other_weights_tokens_go_where_they_were_sent():
    forest = build_forest(sampled(policy(MIXTURE), max_sequences=2, keep_tokens=12))
    other = plain_model(MIXTURE, seed=1)
    found = {}
    for layout in ("tree", "rows"):
        of = learner(other, replay_routing=True, layout=layout)
        went = of._routed(forest).routing
        assert went.choice is not None
        known = went.choice[:, 0, 0] >= 0
        for router, (chosen,) in went.found.items():
            assert torch.equal(chosen.experts[known], went.choice[known, router])
            assert torch.equal(chosen.experts[~known], chosen.own[~known])
        found[layout] = gradients(of, forest)
        assert 0.2 < found[layout].metrics["experts/differed"] < 0.8, "of 2 of 4 at random: 0.5"
    torch.testing.assert_close(flat(found["tree"].weights), flat(found["rows"].weights), atol=1e-5, rtol=1e-4)
    own = gradients(learner(other), forest)
    assert (flat(own.weights) - flat(found["tree"].weights)).abs().max() > 1e-3
    # By hand: transformers' own forward of a row whose gates' choices are replaced by the recorded ones.
    row = forest.select(torch.tensor([0]))
    experts = row.columns[EXPERTS].long()
    plain = plain_model(MIXTURE, seed=1)
    for n, layer in enumerate(plain.model.layers):
        chosen = torch.cat([experts[1:, 2 * n : 2 * n + 2], torch.zeros(1, 2, dtype=torch.long)])

        def forward(hidden, gate=layer.mlp.gate, chosen=chosen):
            logits = torch.nn.functional.linear(hidden, gate.weight)
            weights = logits.softmax(-1).gather(1, chosen)
            return logits, weights / weights.sum(-1, keepdim=True) if gate.norm_topk_prob else weights, chosen

        layer.mlp.gate.forward = forward
    nats = plain(row.token[None]).logits[0, :-1].log_softmax(-1).gather(1, row.token[1:, None]).squeeze(1)
    mask = row.trainable(row.rows())
    got = learner(other, replay_routing=True)._columns(row, needs=frozenset({"logprob"}))["logprob"]
    torch.testing.assert_close(got[1:][mask[0, 1:]], nats.detach()[mask[0, 1:]], atol=1e-5, rtol=1e-5)


def test_what_is_recorded_is_kept_in_files_and_forgotten_under_another_prompt():
    tree, _ = sampled(policy(MIXTURE))
    (read,) = load_groups(dump_groups([Group.read(tree, 1.0, dropped=False)]))
    for node, again in zip(tree.nodes(), read.tree.nodes(), strict=True):
        assert (node.experts == again.experts).all()
    assert torch.equal(build_forest([tree]).columns[EXPERTS], build_forest([read.tree]).columns[EXPERTS])
    leaf = graft(tree.trajectories[0], tree.add_prompt([1, 2, 3]))
    assert not len(leaf.experts)


def test_what_cannot_be_done_is_one_line():
    with pytest.raises(RecipeError, match=r"^learner\.replay_routing: got true, but LlamaForCausalLM has no routers"):
        learner(plain_model(), replay_routing=True)
    with pytest.raises(RecipeError, match=r"learner\.router_aux_loss_coef: got 0\.1, but the family of DeepseekV3ForC"):
        learner(plain_model("deepseek3-latents"), router_aux_loss_coef=0.1)
    with pytest.raises(RecipeError, match=r"Llama4Router chooses cannot be replaced"):
        learner(plain_model("llama4-chunks"), replay_routing=True)
    with pytest.raises(ValueError, match="replay_routing"):
        FsdpConfig.model_validate({"replay_routing": True})
    with pytest.raises(RecipeError, match=r"engine\.kind: got 'vllm', which does not say which experts"):
        check(load_recipe("grpo", ["learner.replay_routing=true", "engine.kind=vllm"]))
    with pytest.raises(RecipeError, match=r"learner\.replay_routing: got true in a stage that samples nothing"):
        check(load_recipe("sft", ["learner.replay_routing=true"]))


def test_the_configurations_coefficient_is_taken():
    of = learner(plain_model(MIXTURE, router_aux_loss_coef=0.25), router_aux_loss_coef="model")
    assert of.experts.coefficient == 0.25
