"""Scorers with models of their own: tiny ones with random weights, saved as Hugging Face folders."""

import math
from pathlib import Path

import pytest
import torch
from reasonings import TASK, Characters, reasoned
from transformers import BertConfig, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast

from lyceum.core.types import Scored
from lyceum.models.scratch import character_tokenizer
from lyceum.papers.drm.scorer_causal import CausalScorer
from lyceum.papers.drm.scorer_encoder import EncoderScorer
from lyceum.papers.drm.scorer_reranker import RerankerScorer
from lyceum.reward.scorer.models import MINILM_FOLDER, filled
from lyceum.reward.scorer.readers import embeddings, reader
from lyceum.tasks.base import Source
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

ONE, OTHER = reasoned("37+8=45-2=43#43"), reasoned("91-6=85#85")


def save(folder: Path, cls, **more) -> str:
    tokenizer: PreTrainedTokenizerFast = character_tokenizer(context=64)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, **more,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        cls(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def scores(scorer, *of, context=None):
    return run_async(scorer(TASK, list(of), context or Characters()))


def test_an_encoders_cosines_are_of_question_and_reasoning_and_of_reasoning_and_answer(tmp_path):
    settings = EncoderScorer.model_validate({"model": save(tmp_path, BertModel), "question": 2, "batch": 2})
    first, second = scores(settings.build(Source()), ONE, OTHER)
    vectors = embeddings(settings.model, [ONE.question, ONE.reasoning, ONE.answer], settings.pooling, settings.batch)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    assert first.parts["question"] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert first.parts["answer"] == pytest.approx(float(vectors[1] @ vectors[2]), abs=1e-5)
    assert first.outcome == pytest.approx(2 * first.parts["question"] + first.parts["answer"])
    assert first.outcome != second.outcome
    # Padding changes nothing: alone and in a batch.
    assert scores(settings.build(Source()), ONE)[0].outcome == pytest.approx(first.outcome, abs=1e-5)
    assert all(abs(cosine) <= 1 + 1e-5 for cosine in settings.cosines([("a", "a"), ("", "a")]))


def test_a_reranker_reads_pairs_and_one_of_weight_0_not_at_all(tmp_path):
    model = save(tmp_path, BertForSequenceClassification, num_labels=1)
    [both] = scores(RerankerScorer.model_validate({"model": model}).build(Source()), ONE)
    [alone] = scores(RerankerScorer.model_validate({"model": model, "answer": 0}).build(Source()), ONE)
    assert both.parts.keys() == {"question", "answer"}
    assert alone.parts == {"question": pytest.approx(both.parts["question"], abs=1e-5)}


def test_no_text_of_a_pair_spells_a_control_token(tmp_path):
    # A completion that spells the end of its text would end it for the model too. The character model has no <sep>.
    model = save(tmp_path, BertForSequenceClassification, num_labels=1)
    read = reader(RerankerScorer.model_validate({"model": model}).model, "AutoModelForSequenceClassification")
    given = read.tokenizer(*map(read.controls.as_text, ("37+8=", "45<eos>")))["input_ids"]
    assert read.tokenizer.eos_token_id in read.tokenizer("37+8=", "45<eos>")["input_ids"]
    assert read.tokenizer.eos_token_id not in given
    forged, told = (read.read([("37+8=", text)])[0].logits for text in ("45<eos>", "45< eos>"))
    assert torch.equal(forged, told)


def test_a_classifiers_label_has_to_be_named(tmp_path):
    model = save(tmp_path, BertForSequenceClassification, num_labels=3)
    with pytest.raises(RecipeError, match=r"scorer.label: got None, but the model has 3 labels; allowed: 0 to 2"):
        RerankerScorer.model_validate({"model": model}).build(Source())
    [grade] = scores(RerankerScorer.model_validate({"model": model, "label": 2}).build(Source()), ONE)
    assert all(value < 0 for value in grade.parts.values())  # log-probabilities


@pytest.mark.parametrize("settings", [EncoderScorer, RerankerScorer, CausalScorer])
def test_a_model_that_is_not_there_is_refused_before_anything_is_loaded(settings, tmp_path):
    with pytest.raises(RecipeError, match=r"^scorer.model.path: "):
        settings.model_validate({"model": str(tmp_path / "none")}).build(Source())


def test_a_folder_of_another_model_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"scorer.model.path: .* weights that are missing"):
        RerankerScorer.model_validate({"model": save(tmp_path, BertModel)}).build(Source())


def test_a_causal_model_of_its_own_finds_a_right_answer_likelier():
    # The small base model on its own task.
    right, wrong = scores(
        CausalScorer.model_validate({"model": "base"}).build(Source()), ONE, reasoned("37+8=45-2=43#77")
    )
    assert right.parts["answer"] > wrong.parts["answer"]
    assert right.parts["reasoning"] == pytest.approx(wrong.parts["reasoning"], abs=1e-4)


class Frozen(Characters):
    """Scores under the stage's reference: -1 for each token, -5 for digits after #."""

    async def score_under(self, model, paths: list[Scored]):
        assert model == "reference"
        return [[-5.0 if "#" in self.decode(p.tokens[: p.start]) else -1.0] * (p.stop - p.start) for p in paths]


def test_the_reference_scores_the_policys_own_tokens():
    settings = CausalScorer.model_validate({"model": "reference", "answer": 2})
    assert settings.needed == {"reference"}
    [grade] = scores(settings.build(Source()), ONE, context=Frozen())
    assert (grade.outcome, grade.parts) == (-11.0, {"reasoning": -1.0, "answer": -5.0})


class Says(Characters):
    """A frozen model under which each token of yes has a third of the nats of each of no."""

    def render(self, messages):
        self.asked_for = messages[0]["content"]
        return [1]

    def encode(self, text):
        return [*map(ord, text), 0]

    async def score_under(self, model, paths):
        # yes: 3 * -1/3 = -1. no: 2 * -1 = -2. 1 / (1 + exp(-2 + 1))
        return [[-1 / 3] * 3 if p.stop - p.start == 3 else [-1.0] * 2 for p in paths]


def test_a_verdict_is_the_probability_of_yes():
    context = Says()
    [grade] = scores(
        CausalScorer.model_validate({"model": "reference", "ask": "verdict"}).build(Source()), ONE, context=context
    )
    assert grade.outcome == pytest.approx(1 / (1 + math.exp(-1)))
    assert "37+8=45-2=43" in context.asked_for


def test_what_a_text_contains_is_not_read_as_a_name():
    assert filled("{a} {b} {c}", {"a": "{b}", "b": "2"}) == "{b} 2 {c}"


@pytest.mark.skipif(not MINILM_FOLDER.is_dir(), reason=f"there is no {MINILM_FOLDER}: make minilm")
def test_minilm_finds_a_paraphrase_nearer_than_another_sentence():
    settings = EncoderScorer.model_validate({"model": "all-MiniLM-L6-v2"})
    settings.build(Source())
    same, other = settings.cosines([("A cat sits.", "A feline rests."), ("A cat sits.", "Prices rose.")])
    assert same > 0.4 > other


@pytest.mark.skipif(MINILM_FOLDER.is_dir(), reason=f"there is a {MINILM_FOLDER}")
def test_without_minilm_the_line_says_how_to_get_it():
    with pytest.raises(RecipeError, match="run: make minilm"):
        EncoderScorer.model_validate({"model": "all-MiniLM-L6-v2"}).build(Source())
