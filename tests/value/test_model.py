import copy
import json
import math

import pytest
import torch
from tiny_models import UNFIT, plain_model, policy_like
from transformers import AutoModelForTokenClassification, BertConfig, BertForTokenClassification

from lyceum.core.settings import Composition
from lyceum.core.tree import Node
from lyceum.core.types import Example, Origin
from lyceum.models.load import ModelSettings, load_policy, save_policy
from lyceum.models.packed_paths import packed
from lyceum.models.scratch import character_tokenizer
from lyceum.models.trial import logits_alone, policy_of
from lyceum.run import checkpoint
from lyceum.utils.errors import Diverged, RecipeError
from lyceum.value.model import PathModel, worth
from lyceum.value.training import path_loss

pytestmark = pytest.mark.usefixtures("small_scratch")


def path(*runs):
    """A path of nodes: the prompt's tokens, then each step's."""
    node = Node(None, list(runs[0]), Origin.PROMPT)
    for run in runs[1:]:
        node = node.add(run, Origin.POLICY)
    return node


@pytest.fixture
def policy():
    return policy_like(plain_model())


def spread(model):
    """A head that says different things of different paths."""
    with torch.no_grad():
        torch.nn.init.normal_(model.head.weight, std=1.0, generator=torch.Generator().manual_seed(0))
    return model


def plain(model, tokens):
    """What transformers itself says of each token: the oracle."""
    config = copy.deepcopy(model.model.config)  # what follows writes into it
    own = AutoModelForTokenClassification.from_config(config, attn_implementation="eager").eval()
    own.load_state_dict(model.model.state_dict())
    with torch.no_grad():
        return torch.sigmoid(own(torch.tensor([tokens])).logits[0])


PATHS = [path([5, 6, 7], [8, 9], [10]), path([5, 6, 7], [8, 9]), path([5, 6, 7]), path([11], [12, 13]), path([5, 6, 8])]


def test_a_value_model_of_a_policy_over_rows_reads_each_path_alone():
    causal = UNFIT["attention of its own"]()
    policy = policy_of(causal, character_tokenizer(context=256), logits_alone(causal))
    model = spread(PathModel().build(policy, seed=0))
    assert model(PATHS) == pytest.approx([float(plain(model, each.path_tokens())[-1]) for each in PATHS], abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 7, 1000])
def test_paths_that_share_tokens_are_worth_what_each_is_alone(policy, tokens):
    # Catches a packed forward in which a path sees another one's tokens, or a micro-batch that loses one.
    model = spread(PathModel(micro_batch_tokens=tokens).build(policy, seed=0))
    alone = [float(plain(model, each.path_tokens())[-1]) for each in PATHS]
    assert max(alone) - min(alone) > 0.05
    assert model(PATHS) == pytest.approx(alone, abs=1e-5)
    assert model([]) == []


def test_what_paths_share_is_forwarded_once():
    tries = list(packed([each.path_tokens() for each in PATHS], 1000))
    (trie,) = tries
    assert trie.token == [5, 6, 7, 8, 9, 10, 11, 12, 13, 8]  # 19 tokens in five rows
    assert trie.shared == [0, 5, 3, 0, 2]
    assert [len(trie.rows) for trie in packed([each.path_tokens() for each in PATHS], 9)] == [4, 1]


def test_paths_are_cut_into_runs_without_losing_any():
    paths = [[number] * n for number, n in enumerate((3, 4, 2, 9, 1))]
    assert [[len(row) for row in trie.rows] for trie in packed(paths, 7)] == [[3, 4], [2], [9], [1]]
    assert list(packed([], 7)) == []


def test_a_new_head_says_half_of_every_path_and_leaves_the_policy_alone(policy):
    before = {name: p.clone() for name, p in policy.module.state_dict().items()}
    model = PathModel(lr=1e-2).build(policy, seed=0)
    assert model(PATHS) == [0.5] * len(PATHS)
    model.fit([Example([5, 6, 7], 1.0), Example([5, 6, 8], 0.0)])
    assert all(torch.equal(p, before[name]) for name, p in policy.module.state_dict().items())


def test_it_learns_what_paths_are_worth(policy):
    model = PathModel(lr=1e-2, epochs=30, batch=2).build(policy, seed=0)
    examples = [Example([5, 6, 7], 0.9), Example([5, 6, 8], 0.1), Example([5, 9], 0.6)]
    metrics = model.fit(examples)
    said = model([path([5, 6, 7]), path([5, 6, 8]), path([5], [9])])
    assert said == pytest.approx([0.9, 0.1, 0.6], abs=0.1)
    assert metrics["loss/last"] < 0.01 < metrics["loss/first"]
    assert metrics["updates"] == 60  # 3 paths in updates of 2: two of them, 30 times
    assert metrics["explained-variance"] == pytest.approx(0)  # before: 0.5 of everything
    assert model.fit(examples)["explained-variance"] > 0.8


def test_the_gradient_does_not_depend_on_the_micro_batch(policy):
    examples = [Example([5, 6, 7, 8], 0.9), Example([5, 6, 8], 0.1), Example([5, 9], 0.6), Example([7], 0.0)]
    said = [PathModel(micro_batch_tokens=n).build(policy, seed=0)._update(examples) for n in (1, 1000)]
    # Of 0.5 for every path: (0.4^2 + 0.4^2 + 0.1^2 + 0.5^2) / 4, whatever was forwarded at once.
    assert said == pytest.approx([0.145, 0.145])
    models = [spread(PathModel(epochs=1, micro_batch_tokens=n).build(policy, seed=0)) for n in (1, 1000)]
    gradients = []
    for model in models:
        model.optimizer.step = lambda: None
        model._update(examples)
        gradients.append([p.grad for p in model.parameters])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_path_is_read_at_the_ends_of_its_steps(policy):
    leaf = PATHS[0]  # prompt 5 6 7, steps 8 9 and 10
    model = spread(PathModel().build(policy, seed=0))
    said = plain(model, leaf.path_tokens())[:, 0].tolist()

    def read(**how):
        other = PathModel(**how).build(policy, seed=0)
        other.model.load_state_dict(model.model.state_dict())
        return other([leaf])[0]

    assert read(over="min") == pytest.approx(min(said[4], said[5]), abs=1e-5)
    assert read(over="product") == pytest.approx(said[4] * said[5], abs=1e-5)
    assert read(over="last") == pytest.approx(said[5], abs=1e-5)
    # With a separator, wherever nodes end: token 9 ends a step, and token 10 none.
    nine = policy.tokenizer.decode([9])
    assert read(over="last", separator=nine) == pytest.approx(said[4], abs=1e-5)
    leaf.finish = "stop"  # the last step of a finished path ends with it
    assert read(over="last", separator=nine) == pytest.approx(said[5], abs=1e-5)
    leaf.finish = None


def test_worths_and_losses_are_those_of_the_formulas():
    logits = torch.tensor([0.0, math.log(3), -math.log(3)])  # 1/2, 3/4, 1/4
    assert worth(logits, "min") == pytest.approx(1 / 4)
    assert worth(logits, "product") == pytest.approx(3 / 32)
    assert worth(logits, "last") == pytest.approx(1 / 4)
    target = torch.tensor([1.0, 0.25, 0.25])
    torch.testing.assert_close(path_loss(logits, target, "mse"), torch.tensor([0.25, 0.25, 0.0]))
    ln = math.log
    crossed = torch.tensor([ln(2), -0.25 * ln(0.75) - 0.75 * ln(0.25), -0.25 * ln(0.25) - 0.75 * ln(0.75)])
    torch.testing.assert_close(path_loss(logits, target, "bce"), crossed)


def test_two_labels_are_read_as_wrong_and_right(policy, tmp_path):
    config = plain_model().config
    config.num_labels = 2
    folder = tmp_path / "prm"
    torch.manual_seed(0)
    two = AutoModelForTokenClassification.from_config(config).eval()
    two.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    model = PathModel(path=str(folder)).build(policy, seed=0)
    with torch.no_grad():
        right = torch.softmax(two(torch.tensor([[5, 6, 7]])).logits[0, -1], -1)[1]
    assert model([path([5, 6, 7])]) == pytest.approx([float(right)], abs=1e-5)


def test_a_saved_model_comes_back_and_transformers_reads_it(policy, tmp_path):
    model = spread(PathModel().build(policy, seed=0))
    model.save(tmp_path / "value")
    again = PathModel(path=str(tmp_path / "value")).build(policy, seed=1)
    assert again(PATHS) == model(PATHS)
    read = AutoModelForTokenClassification.from_pretrained(tmp_path / "value")
    with torch.no_grad():
        said = torch.sigmoid(read(torch.tensor([PATHS[0].path_tokens()])).logits[0, -1, 0])
    assert float(said) == pytest.approx(model(PATHS[:1])[0], abs=1e-5)


def test_its_state_goes_through_a_checkpoint_and_learning_goes_on_the_same(policy, tmp_path):
    examples = [Example([5, 6, 7], 0.9), Example([5, 6, 8], 0.1), Example([5, 9], 0.6)]
    whole, cut = (PathModel(lr=1e-2, batch=2).build(policy, seed=3) for _ in range(2))
    for model in (whole, cut):
        model.fit(examples)
    checkpoint.save(tmp_path, 1, cut.state_dict())
    resumed = PathModel(lr=1e-2, batch=2).build(policy_like(plain_model(seed=5)), seed=3)
    resumed.load_state_dict(checkpoint.load(tmp_path / "step-000001"))
    for model in (whole, resumed):
        model.fit(examples)
    assert resumed(PATHS) == whole(PATHS)


def test_adapters_are_merged_into_the_copied_body(tmp_path):
    plain_policy = load_policy(ModelSettings(path="scratch"))
    policy = load_policy(ModelSettings.model_validate({"path": "scratch", "lora": {"rank": 2}}))
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.1)
    save_policy(policy, tmp_path / "merged")
    merged = load_policy(ModelSettings(path=str(tmp_path / "merged")))
    bodies = [PathModel().build(each, seed=0).body for each in (plain_policy, policy, merged)]
    without, adapted, expected = ([p.detach() for p in body.parameters()] for body in bodies)
    assert all(torch.equal(a, b) for a, b in zip(adapted, expected, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(adapted, without, strict=True))
    assert all(p.requires_grad for p in bodies[1].parameters())


def test_what_is_no_token_classifier_is_refused(policy, tmp_path):
    save_policy(policy, tmp_path / "causal")
    settings = PathModel(path=str(tmp_path / "causal"))
    (line,) = settings.conflicts(Composition())
    assert "holds LlamaForCausalLM; allowed: the folder of a model *ForTokenClassification" in line
    with pytest.raises(RecipeError, match="holds LlamaForCausalLM"):
        settings.build(policy, seed=0)
    # A config that says what its weights are not: transformers would make a head up.
    config = json.loads((tmp_path / "causal" / "config.json").read_text())
    (tmp_path / "causal" / "config.json").write_text(
        json.dumps(config | {"architectures": ["LlamaForTokenClassification"], "num_labels": 1})
    )
    with pytest.raises(RecipeError, match=r"missing: 2 of \d+ \(score.bias, score.weight\); .*not of one model"):
        settings.build(policy, seed=0)
    assert "weights that are missing: 2 of" in settings.conflicts(Composition())[0]
    assert "has no place for: 1 (lm_head.weight); " in settings.conflicts(Composition())[1]
    for config in ("no json", "[" * 100_000, "[]", '{"architectures": 5}'):
        (tmp_path / "causal" / "config.json").write_text(config)
        assert (
            "config.json" in settings.conflicts(Composition())[0]
            or "no architecture" in settings.conflicts(Composition())[0]
        )
    assert "no folder ./there" in PathModel(path="./there").conflicts(Composition())[0]


def test_another_vocabulary_is_refused(policy, tmp_path):
    model = PathModel().build(policy, seed=0)
    model.tokenizer.add_tokens(["<other>"])
    model.save(tmp_path / "value")
    with pytest.raises(RecipeError, match=r"value.path: the tokenizer of .* is not the policy's"):
        PathModel(path=str(tmp_path / "value")).build(policy_like(plain_model()), seed=0)


def test_a_model_that_looks_ahead_is_refused(policy, tmp_path):
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertForTokenClassification(BertConfig(vocab_size=99, num_labels=1, **small)).save_pretrained(tmp_path / "bert")
    policy.tokenizer.save_pretrained(tmp_path / "bert")
    with pytest.raises(RecipeError, match="lets tokens see those after them"):
        PathModel(path=str(tmp_path / "bert")).build(policy, seed=0)


def test_a_separator_that_does_nothing_is_refused(policy):
    (line,) = PathModel(separator="#").conflicts(Composition())
    assert "value.separator: got '#' with value.over 'end'" in line
    with pytest.raises(RecipeError, match="no token of the policy's vocabulary holds 'ab'"):
        PathModel(separator="ab", over="min").build(policy, seed=0)


def test_a_worth_that_is_none_is_refused(policy):
    with pytest.raises(ValueError, match=r"a path's value is 1.5; allowed: 0 to 1"):
        PathModel().build(policy, seed=0).fit([Example([5], 1.5)])


def test_a_value_model_whose_weights_diverge_says_so(policy):
    model = PathModel(lr=1e6).build(policy, seed=0)
    model.optimizer.param_groups[0]["weight_decay"] = 1e30  # each update multiplies the weights by 1e36
    with pytest.raises(Diverged, match=r"the value model diverged at its update 2; lower value\.lr"):
        model.fit([Example([5, 6, 7], 1.0)])
