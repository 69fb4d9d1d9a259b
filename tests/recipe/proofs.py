"""What every shipped recipe has to show: that its method's mechanism acts, and that without it a run is another one.

A new recipe adds its line to ``LINES``; one in a paper's folder has it there, in ``proof.py``.
"""

from __future__ import annotations

from lyceum.core.paper_folders import shipped
from lyceum.recipe.proof import (
    BRIEF,
    BRIEFER,
    FLAT,
    FLAT_ROLLOUT,
    JUDGES,
    LEARNS,
    LONGER,
    ONE_AT_A_TIME,
    SMOLLM2,
    WITHOUT_PENALTY,
    WRITES_PROGRAMS,
    Proof,
    proof_of,
    stages,
)

GUESSES = [*stages(12, 2, 2, 1), "stages.0.tasks_per_step=16", "checkpoint_every=100"]
"""Few steps of fine-tuning, after which the model guesses numbers, and of three stages with ever more turns."""

SHORT_JUDGEMENTS = "stages.0.tasks={kind: chain-judgements, forms: [scores], levels: [1]}"
"""Of chains of one operation, which are soon learnt."""

SHORT_MARKS = "stages.0.tasks.parts.0.tasks.levels=[1]"

SOON_LEARNT = [SHORT_JUDGEMENTS, "stages.0.tasks_per_step=2", "stages.0.learner.warmup_steps=1", "checkpoint_every=100"]

SHORTEST = "tasks.parts.1.tasks.tasks.levels=[3]"
"""Solutions of two steps before the last, which are soon learnt."""

LINES: dict[str, Proof] = {
    "a-lol": Proof(
        ["a-lol/kept", "a-lol/left_out"],
        {
            "objective.ratio=none": "weights",
            "objective=reinforce": "weights",  # without the choice of rows: `kept` is not logged
            "credit.scale=std": "credit",
        },
        ["steps=2", "tasks_per_step=8", "data.tasks=8"],
    ),
    "absolute-zero": Proof(
        ["guidance/proposer-solver/proposals/solved_between"],
        {"guidance.0.rejected=0": "grades"},  # others: tests/stages/test_models_and_roles.py
        [*stages(1, 2), "model={beside}/model"],
        given={"guidance/proposer-solver/proposals/solved_between": "proposals that earn their proposer something"},
        beside=["stages.0.steps=40", "stages.1.steps=1", "stages.1.tasks_per_step=1", "checkpoint_every=100"],
    ),
    "acecode": Proof(
        [f"reward/part/code-efficiency/{part}" for part in ("efficiency", "dearer")],
        {"reward={kind: code}": "grades", "reward.passes=1": "grades"},
        ["stages.0.steps=1", "stages.1.steps=2", "stages.1.tasks_per_step=8", "model={beside}/model"],
        beside=[*WRITES_PROGRAMS, "stages.0.steps=34", "stages.1.steps=1", "stages.1.tasks_per_step=1"],
    ),
    "acereason": Proof(
        ["groups/with_gradient"],
        {
            "stages.1.curriculum={kind: subset, by: provenance, only: [functions]}": "draw",
            "stages.3.curriculum={kind: subset, by: provenance, only: [chain]}": "draw",
            "stages.1.learner.updates_per_step=4": "weights",
        },
        stages(1, 1, 1, 1, 1),
    ),
    "acre": Proof(
        [f"reward/part/answer-consistency/{name}" for name in ("asked", "consistent", "second_right")],
        {
            "reward={kind: answer-consistency, extract: {after: '#'}, first_right: 1, second_right: 0}": "grades",
            "reward=task": "generation",
        },
        # The fewest steps of fine-tuning after which the model answers at all.
        [
            *stages(1, 19, 2),
            *("stages.1.tasks_per_step=16", "stages.1.learner.lr=1e-3", "stages.1.learner.warmup_steps=1"),
            "stages.2.rollout.samples=4",
        ],
    ),
    "adaptive-dapo": Proof(
        ["oversample/surplus", "groups_dropped"],
        {"stages.1.collect.oversample=null": "draw"},
        WRITES_PROGRAMS + stages(17, 2, tasks=2)[2:],
    ),
    "adcl": Proof(
        [
            *(f"curriculum/{name}/tasks" for name in ("tested", "moved")),
            "guidance/guide-grpo/groups/rescued",
        ],
        {"curriculum.tests=0": "draw", "guidance=[]": "generation"},
        ["steps=2", "tasks_per_step=8", "tasks.size=8", "tasks.levels=[4, 8]", "curriculum.window=8"],
    ),
    "aepo": Proof(
        [
            *(f"rollout/branching-turns/{count}" for count in ("branches", "by_entropy", "held_back")),
            *("rollout/branching-turns/whole < 5", "credit/tokens_raised", "clip/high"),
        ],
        {
            "rollout.whole=5": "generation",
            "rollout.penalty=0": "generation",
            "credit.entropy_weight=0": "credit",
            "objective.keep_high=false": "weights",
        },
        ["steps=4", "tasks_per_step=4", "learner.warmup_steps=1"],
    ),
    "alp-gmm": Proof(
        ["curriculum/components/mixture"],
        {"curriculum.random_share=1": "generation", "curriculum.fit_every=1000": "generation"},
        ["steps=4", "tasks_per_step=4", "curriculum.fit_every=8", "curriculum.most_components=3"],
    ),
    "amft": Proof(
        ["imitated/rows", "amft/imitation < 0.8", "amft/agreement < 0"],
        {
            "stages.1.objective.meta_lr=0": "weights",
            "stages.1.objective.entropy_lr=0": "weights",
            "stages.1.guidance=[]": "generation",
        },
        stages(1, 3),
    ),
    "ampo": Proof(
        ["guidance/multi-guidance/groups/guided", "guidance/multi-guidance/comprehension/others", "external/weight"],
        {
            "guidance=[]": "generation",
            "guidance.0.choose=random": "generation",
            "objective.shaping=1e9": "weights",
        },
    ),
    "arpo": Proof(
        [f"rollout/branching-turns/{count}" for count in ("branches", "by_entropy")],
        {"rollout.entropy_weight=0": "generation", "rollout.whole=8": "generation"},
        BRIEFER,
    ),
    "astro": Proof(
        ["traces/found"],
        {"stages.0.traces={kind: solutions, per_task: 4}": "weights"},
        ["stages.0.steps=1", "stages.0.tasks_per_round=2", "stages.1.steps=2", "stages.1.tasks_per_step=2"],
    ),
    "balanced-filtering": Proof(["groups_dropped"], {"collect={keep: all}": "draw"}),
    "barfi": Proof(
        ["outer/steps/correct/moved", "outer/token-budget/moved"],
        {"stages.0.outer_lr=0": "credit"},
        ["steps=3", "tasks_per_step=8"],
    ),
    "bfs-prover": Proof(
        ["guidance/search-where-hard/searched/tasks", "traces/found", "rollout/best-first/right"],
        {"guidance=[]": "generation"},
        ["steps=2", "rounds=1", "tasks_per_round=4", "tasks.levels=[7]"],
    ),
    "bfs-prover-v2": Proof(
        ["traces/steps_left_out", "traces/found"],
        {"traces.surprise=null": "weights"},
        ["steps=2", "rounds=1", "tasks_per_round=4", "tasks.levels=[7]"],
    ),
    "brorl": Proof(
        [LEARNS],
        {"stages.1.rollout.samples=8": "generation"},
        [*stages(3, 2), "stages.0.until={least_rise: 0.9, window: 1}", "stages.1.rollout.samples=16"],
    ),
    "calculator": Proof(
        ["rollout/turns/calls"],
        {FLAT_ROLLOUT: "generation", "rollout.environment.modulus=50": "generation"},
    ),
    "canon": Proof(
        ["credit/high_ahead", "credit/low_ahead"],
        {"credit.between=0": "credit", "credit={kind: group, scale: none}": "forest"},
        BRIEFER,
    ),
    "carl": Proof(
        ["reward/part/overlong < 0", "reward/part/format/failed", LEARNS],
        {
            "reward.2.weight=0": "grades",
            "reward.3.weight=0": "grades",
            "reward=[{kind: task, weight: 0}, rubric]": "grades",
        },
    ),
    "cascade-rl": Proof(
        ["pairs", "data/kept", "mpo/generation", "mpo/quality", LEARNS],
        {
            "stages.offline.objective=dpo": "weights",
            "stages.offline.objective.quality=0": "weights",
            "stages.offline.objective.generation=0": "weights",
            "stages.online.objective=ppo-clip": "weights",
        },
        [
            *("stages.start.steps=1", "stages.start.tasks_per_step=4", "stages.offline.data.tasks=8"),
            *("stages.offline.steps=2", "stages.offline.tasks_per_step=2"),
            *("stages.online.steps=2", "stages.online.tasks_per_step=2"),
        ],
        given={"data/kept": "problems of the offline stage that have both a right and a wrong sample"},
    ),
    # The bound itself, a ratio of 5, is not reached in 20 steps of 16 tasks: its header says so.
    "cispo": Proof([LEARNS], {"objective.kind=ppo-clip": "weights"}),
    "cliff-start": Proof(["nll"], {"tasks=chain-demonstrations": "draw"}),
    "clip-delta": Proof(
        ["reward/part/clip-delta/changed", "reward/part/clip-delta/refined < 0"], {"reward=task": "grades"}
    ),
    "cls-rl": Proof([LEARNS], {"objective.kl.coefficient=0": "weights"}, needs=SMOLLM2),
    "cog-rethinker": Proof(
        [
            *(f"guidance/rethink/rescued_by/{way}" for way in ("decompose", "refine")),
            *("imitated/rows", "reward/part/overlong < 0"),
        ],
        {"guidance.0.ways=[refine]": "generation", "objective.imitation=0": "weights", **WITHOUT_PENALTY},
        ["steps=4", "tasks_per_step=4", "tasks.levels=[9, 8]", "collect.max_waves=1"],
    ),
    "cory": Proof(
        ["guidance/pioneer-observer/groups_changed/share", "role/swaps"],
        {"guidance.0.transfer=false": "generation", "roles.swap_every=null": "generation"},
        ["steps=2", "tasks_per_step=4", "roles.swap_every=1"],
    ),
    "critique-rl": Proof(
        ["guidance/critique/refined/all", "guidance/critique/right/share", "guidance/critique/right/share < 1"],
        {"stages.1.guidance.0.helpful_from=1": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        given={
            f"guidance/critique/right/share{bound}": "verdicts, right or not, whose use is what the mechanism pays"
            for bound in ("", " < 1")
        },
        beside=[*JUDGES, "stages.0.steps=24", "stages.1.steps=1", "stages.1.tasks_per_step=1"],
    ),
    "cos-m-o-s": Proof(
        ["reward/part/curiosity", "pairs/later_steps"],
        {
            "stages.first-round.reward.0.target=50": "grades",
            "stages.first-round.objective.of=trajectories": "weights",
        },
        [*stages(1, 1, 1, tasks=2), "stages.first-round.data.tasks=2", "stages.second-round.data.tasks=2"],
    ),
    "cure": Proof(
        ["rollout/critical_tokens/resampled", "groups_dropped", "reward/part/overlong < 0"],
        {f"stages.0.rollout={FLAT}": "draw", **WITHOUT_PENALTY},
        stages(2, 1),
    ),
    "cures": Proof(
        ["curriculum/tested/tasks", "curriculum/most-samples/task > 8", "curriculum/least-samples/task < 8"],
        {"curriculum.temperature=1e6": "draw", "curriculum.allocate=false": "draw", "curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=4", "curriculum.pool=8"],
    ),
    "curr-reft": Proof(
        [LEARNS, "reward/part/text-overlap", "traces/found"],
        {
            "stages.choice.curriculum=uniform": "draw",
            "stages.open.reward=[task]": "grades",
            "stages.self-improvement.traces.per_task=null": "weights",
        },
        [*stages(1, 1, 1, 1, 1, tasks=2), "stages.5.steps=1", "stages.5.tasks_per_round=3"],
        # A letter is never given before some hundred steps of fine-tuning.
        late={"reward/part/choice": "stages.choice.reward=[task]"},
        longer=[
            *stages(200, 1, 1, 1, 1, tasks=8),
            *("stages.0.tasks_per_step=16", "stages.5.steps=1", "stages.5.tasks_per_round=3", "checkpoint_every=1000"),
        ],
    ),
    "d3s": Proof(
        ["credit/rows_left_out", "credit/tokens_left_out"],
        {"credit.rows=1": "credit", "credit.tokens=1": "credit"},
        BRIEFER,
    ),
    "dapo": Proof(
        ["groups_dropped", "reward/part/overlong < 0"],
        {"collect.keep=all": "draw", **WITHOUT_PENALTY},
        late={"clip/high": "objective.clip_high=100"},
        longer=["steps=3", "tasks_per_step=32", "learner.warmup_steps=1"],
    ),
    "deepsearch": Proof(
        [
            *(f"rollout/mcts/{name}" for name in ("frontier_moves", "negatives_with_choice", "right")),
            *(f"guidance/search-where-hard/{name}" for name in ("searched/tasks", "dropped/tasks", "used/solutions")),
            *("credit/all_wrong_groups_trained", "curriculum/easy/found", "reward/part/overlong < 0"),
        ],
        {
            "guidance.0.cached_tasks=0": "generation",
            "credit.equal=skip": "credit",
            "rollout.selection=uct-from-root": "generation",
            "guidance=[]": "generation",
            "rollout.negative=random": "grades",
            "reward=[task]": "grades",
        },
        # A pool of which the second step draws again what the first did not solve.
        ["steps=2", "tasks_per_step=6", "tasks.levels=[7, 8]", "curriculum.pool=6", "curriculum.least=1"],
    ),
    "demo": Proof([LEARNS], {"credit=reinforce": "credit"}),
    "dgrpo": Proof(
        ["curriculum/weight/chain > 1", "curriculum/weight/chain-compare < 1"],
        {f"curriculum.{which}=false": "forest" for which in ("family", "item")},
    ),
    "direct-advantage": Proof(
        ["value/updates", "credit/values/spread", "credit/steps_with_gain", "direct/steps_with_advantage"],
        {"stages.actor.value={kind: model}": "grades"},
        [
            *("stages.critic.steps=1", "stages.critic.rounds=1", "stages.critic.tasks_per_round=4"),
            *("stages.actor.steps=2", "stages.actor.tasks_per_step=2"),
        ],
    ),
    "dpo": Proof(["pairs"], {"objective.pairs=1": "weights"}),
    "dr-grpo": Proof(
        [LEARNS], {"credit.scale=std": "credit", "objective={kind: ppo-clip, aggregate: sequence}": "weights"}
    ),
    "dr-po": Proof(
        ["guidance/dataset-reset/rollouts/reset", "guidance/dataset-reset/tokens/given", "reward/part/model/outcome"],
        {"stages.policy.guidance.0.share=0": "generation", "stages.policy.credit.kl_in_reward.coefficient=0": "credit"},
        stages(1, 2),
    ),
    "drive": Proof(
        ["curriculum/easy/found", "curriculum/round", LEARNS],
        {"stages.2.curriculum=uniform": "draw"},
        [
            *stages(1, 1, 3),
            *("stages.2.rollout.samples=16", "stages.2.curriculum.pool=4", "stages.2.curriculum.least=2"),
            "model={beside}/model",
        ],
        beside=[*stages(32, 1, 1), "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"],
    ),
    "drm": Proof(
        [f"credit/drm/{name}" for name in ("size", "counted")] + ["reward/part/drm/coherence/least"],
        {"credit={kind: by-part, parts: {task: 1}}": "credit", "stages.0.reward.1.coherence.weight=0": "grades"},
        [*BRIEF, "stages.0.reward.1.coherence.scorer.tasks=200", "stages.0.reward.1.coherence.scorer.updates=100"],
        given={"reward/part/drm/coherence/least": "a dimension's scores, before its weight"},
    ),
    "drm-dpo": Proof(
        ["pairs", "reward/part/drm/relevance/question"],
        {"stages.0.reward=[task]": "grades", "stages.0.reward.1.coherence.weight=0": "grades"},
        [*BRIEF, "stages.0.reward.1.coherence.scorer.tasks=200", "stages.0.reward.1.coherence.scorer.updates=100"],
    ),
    "drpo": Proof(
        ["drpo/groups", "drpo/moved_by_length", "drpo/outside"],
        {
            "objective.length_temperature=1e6": "weights",
            "objective.penalty=0": "weights",
            "objective=ppo-clip": "weights",
        },
    ),
    "dump": Proof(["curriculum/share/1"], {"curriculum.temperature=1e6": "draw"}),
    "easy-to-hard": Proof(
        ["level/1/correct", "level/6/correct"],
        {f"stages.{i}.curriculum=uniform": "draw" for i in (0, 1)},
        stages(1, 1, 2),
    ),
    "empg": Proof(
        ["credit/steps_amplified", "credit/steps_with_bonus"],
        {"credit.clarity_weight=0": "credit", "credit.certainty_rate=0": "credit"},
        BRIEFER,
    ),
    "epo": Proof(["epo/outside"], {"objective.penalty=0": "weights", "objective=ppo-clip": "weights"}),
    "eva": Proof(
        [
            *("guidance/evolve-prompts/prompts/evolved", "guidance/evolve-prompts/pool/informative"),
            *("guidance/evolve-prompts/spread/parents", "pairs"),
        ],
        {"guidance.0.share=0": "generation", "guidance.0.by=uniform": "generation"},
        [*stages(1, 3, tasks=8), "tasks.levels=[3, 4, 5]", "model={beside}/model"],
        beside=[
            *("stages.0.steps=30", "stages.0.tasks_per_step=24", "stages.0.tasks.parts.0.tasks.levels=[3, 4, 5]"),
            *("stages.1.steps=1", "stages.1.tasks_per_step=1", "checkpoint_every=100"),
        ],
    ),
    "expert-iteration": Proof(
        ["traces/found"],
        {"start=current": "weights", "traces.per_task=1": "weights"},
        ["steps=2", "rounds=2", "tasks_per_round=4"],
    ),
    "expo": Proof(
        ["guidance/self-explanation/groups/guided", "imitated/rows"],
        {"stages.policy.guidance=[]": "generation", "stages.policy.objective.imitation=0": "weights"},
        stages(2, 2),
    ),
    "fgaif": Proof(
        ["reward/part/segment-errors/right", "value/updates", *(f"reward/part/model/{n}" for n in (1, 2, 3))],
        {
            "stages.policy.value.weights=[1, 1, 0]": "grades",
            "stages.policy.credit.process_coefficient=0": "credit",
            "stages.policy.value={kind: model, from_stage: operations}": "grades",
        },
        [*stages(1, 1, 1, 1, 2, tasks=2), "tasks.levels=[1]", SHORT_MARKS, "model={beside}/model"],
        given={"reward/part/segment-errors/right": "the judge's marks, which the models learn"},
        beside=[*stages(40, 1, 1, 1, 1), "tasks.levels=[1]", SHORT_MARKS, *SOON_LEARNT[2:]],
    ),
    "g1": Proof(["traces/distilled"], {"credit=reinforce": "credit"}, needs=SMOLLM2),
    "gain-rl": Proof(
        ["curriculum/moved/places", "curriculum/tokens/read"],
        {"curriculum.shift=0": "draw"},
        ["steps=3", "tasks_per_step=4", "tasks.size=512"],
    ),
    "ghpo": Proof(["guidance/ghpo/groups/guided"], {"guidance=[]": "generation"}),
    "gkd": Proof(
        ["teacher/divergence"],
        {"stages.1.objective.divergence=reverse": "weights"},
        stages(1, 2),
    ),
    "goal-conditioned": Proof(
        ["value/updates", "value/cosine/ahead", "reward/part/model/outcome", "reward/part/model/process"],
        {"stages.preferences.value.contrast=0": "grades", "stages.policy.reward=[task]": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=8", "stages.1.steps=2", "stages.1.tasks_per_step=4"],
    ),
    "grpo": Proof([LEARNS], {"credit=reinforce": "credit"}),
    "grpo-care": Proof(
        ["reward/part/consistency-bonus", "reward/consistency-bonus/groups/parted", "average/updates"],
        {"stages.0.reward.1.weight=0": "grades", ("stages.0.reward=[task]", "stages.0.average=null"): "grades"},
        ["steps=2", "tasks_per_step=8"],
    ),
    "grpo-tcr": Proof(
        ["rollout/turns/calls"],
        {
            FLAT_ROLLOUT.replace("80", "40"): "generation",
            "reward=task": "grades",
            "objective.aggregate=sequence": "weights",
        },
        late={"clip/high": "objective.clip_high=100", "reward/part/overlong < 0": "reward=task"},
        longer=["steps=3", "tasks_per_step=32", "learner.warmup_steps=1"],
    ),
    "gspo": Proof(["clip/low"], {"objective.form=token": "weights", "objective=ppo-clip": "weights"}),
    "guide-grpo": Proof(
        ["guidance/guide-grpo/groups/rescued", "guided/weight"],
        {"guidance=[]": "generation", "objective=ppo-clip": "weights"},
    ),
    "guru": Proof(["groups_dropped"], {"collect={keep: all}": "draw"}, needs=SMOLLM2),
    "heron": Proof(
        ["value/updates", "labels/factor/2", "reward/part/model/outcome"],
        {"stages.preferences.factors=[{by: correct}]": "grades", "stages.policy.reward=[task]": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=8", "stages.1.steps=2", "stages.1.tasks_per_step=4"],
    ),
    "imagined-conversations": Proof(
        # `untrue` was heard by the agent: were answers overwritten by the truth, there would be none.
        [f"rollout/turns/{count}" for count in ("kept", "replaced", "untrue")],
        {
            "stages.offline.rollout.environment.imagined=false": "generation",
            "stages.offline.rollout.environment.critique=false": "generation",
        },
        [*stages(12, 1), "stages.0.tasks_per_step=16", "stages.offline.data.tasks=2", "checkpoint_every=100"],
    ),
    "igpo": Proof(
        ["credit/turns_with_gain", "reward/part/answer-gain/after"],
        {"reward.1.weight=0": "grades", "credit.normalise=separate": "credit", "credit.gamma=0": "credit"},
        BRIEFER,
    ),
    "implicit-prm": Proof(
        ["value/updates", "reward/part/model/process"],
        {"stages.policy.credit.process_coefficient=0": "credit", "stages.implicit.value.lr=1e-30": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=8", "stages.1.steps=2", "stages.1.tasks_per_step=4"],
    ),
    "inpo": Proof(["pairs"], {"objective.tau=0.1": "weights", "objective={kind: dpo, loss: ipo}": "weights"}),
    "ipo": Proof(["pairs"], {"objective.loss=sigmoid": "weights"}),
    "json-answer": Proof(
        ["constraint/acted", "constraint/nats"],
        {"rollout.sampling.constraint=null": "generation"},
    ),
    "kimi-k1-5": Proof(
        ["reward/part/length-range < 0", "regression/held"],
        {"stages.1.reward=[task]": "grades", "stages.1.objective.tau=1e-6": "weights"},
        stages(1, 1, tasks=2),
    ),
    "kl-as-inference": Proof(
        ["forward_kl/moved", "forward_kl/effective_samples < 7"],
        {"objective.beta=1e6": "weights", "objective.prior=old": "weights"},
        ["steps=2", "tasks_per_step=2"],
    ),
    "knapsack": Proof(
        ["curriculum/most-samples/task > 8"],
        {"curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=4", "tasks.levels=[1, 6, 8]"],
    ),
    "kto": Proof(
        ["kto/desirable", "kto/undesirable", "kto/kl"],
        {"objective.loss=apo_zero_unpaired": "weights", "objective.undesirable_weight=0": "weights"},
        given={"kto/desirable": "samples that the loss makes likelier"},
    ),
    "latr": Proof(
        ["rollout/look_ahead/opened", "rollout/look_ahead/dropped", "kl/reference"],
        {"rollout.shares=[[0.0, 0.0]]": "generation", "objective.kl.coefficient=0": "weights"},
    ),
    "lite-ppo": Proof([LEARNS], {"credit.scale=std": "credit", "objective.aggregate=sequence": "weights"}),
    "luffy": Proof(
        ["guidance/demonstrations/groups/guided", "external/weight"],
        {"guidance=[]": "generation", "objective.shaping=1e9": "weights"},
    ),
    "mdpo": Proof(
        ["kl/mdpo", "mdpo/step_size < 1"],
        {"objective.step_size=1e6": "weights", "objective.fall_steps=null": "weights"},
        ["steps=2", "tasks_per_step=2"],
    ),
    "medcco": Proof(
        [f"reward/part/text-overlap{number}" for number in ("", "#2")],
        {"stages.open.curriculum=uniform": "draw", "stages.open.reward=[task]": "grades"},
        stages(1, 2, tasks=2),
    ),
    "mr-rlvr": Proof(
        ["reward/part/task/reordered", LEARNS],
        {
            "stages.1.curriculum.only=[chain]": "draw",
            ("tasks.parts.1.tasks.reorder_share=0", "stages.1.curriculum.only=[masked]"): "draw",
        },
        [*stages(1, 2, 1), SHORTEST, "model={beside}/model"],
        beside=[
            *("stages.0.steps=20", "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"),
            *(f"stages.0.{SHORTEST}", "stages.0.learner.lr=1e-3", "checkpoint_every=100"),
            *(f"stages.{i}.{size}=1" for i in (1, 2) for size in ("steps", "tasks_per_step")),
        ],
        # A chain's step in the head takes more fine-tuning than an order of two.
        late={"reward/part/task/masked": "stages.1.curriculum.only=[reordered]"},
        longer=[
            *stages(120, 2, 1),
            "stages.0.tasks_per_step=32",
            "stages.1.tasks_per_step=32",
            "checkpoint_every=1000",
        ],
    ),
    "multi-domain": Proof([LEARNS], {"credit=reinforce": "credit"}, needs=SMOLLM2),
    "nft": Proof(
        ["nft/groups", "nft/floored"],
        {"objective.negative_weight=0": "weights", "objective.prompt_weight=none": "weights"},
        ["steps=2", "tasks_per_step=2"],
        given={"nft/groups": "groups that the loss is over"},
    ),
    "nsr": Proof(["rows_without_gradient"], {"credit.constant=0": "credit"}),
    "oreo": Proof(
        ["oreo/error"],
        {"objective.value_weight=0": "weights", "objective.beta=0": "weights"},
        [*BRIEF, "data.tasks=4"],
    ),
    "orpo": Proof(["pairs"], {"objective.beta=0": "weights"}),
    "ovm": Proof(
        ["value/updates"],
        {"rollout.segment_tokens=80": "generation"},
        ["steps=2", "rounds=2", "tasks_per_round=6"],
    ),
    "one-shot-cft": Proof(
        ["nll", "tokens_trained"],
        {"stages.0.tasks.problems=null": "generation", "stages.0.tasks.forms=[refine]": "generation"},
    ),
    "open-rs": Proof(
        ["reward/part/length-cosine", "reward/part/format", LEARNS],
        {"reward.1.max_tokens=1000000": "grades", "reward=task": "grades"},
    ),
    "over-optimisation": Proof(
        ["dpo/top_mass", "dpo/top_mass < 1", "dpo/top_entropy"],
        {"objective.loss=ipo": "weights"},
        [*BRIEF, "data.tasks=8"],
    ),
    "p3o": Proof(
        ["pairs", "p3o/difference"],
        {"objective.clip=separate": "weights", "credit.kl_in_reward.coefficient=0": "credit"},
        late={"p3o/clipped": "objective.clip_range=0.99"},  # no ratio of a pair is 0.2 from 1 in so few steps
        longer=LONGER,
    ),
    "pacs": Proof(
        ["groups_of_both"],
        {"objective.balance=false": "weights"},
        given={"groups_of_both": "groups with right and wrong samples, which are balanced"},
    ),
    "pairwise-rl": Proof(
        [*(f"reward/part/win-probability{bound}" for bound in ("", " < 1", "/won", "/won < 1")), LEARNS],
        {"stages.1.reward.1.orders=random": "grades", "stages.1.reward=[task]": "grades"},
        [*stages(1, 2, tasks=2), "stages.1.rollout.samples=4", "tasks.levels=[4]"],
    ),
    "partial-rollouts": Proof(
        ["continued/trajectories", "under_way/trees"],
        {"rollout.tokens_per_step=null": "draw"},
        ["steps=3", "tasks_per_step=4"],
    ),
    "pcl": Proof(
        ["curriculum/value/picked"],
        {"curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=4", "tasks.levels=[1, 8]"],
    ),
    "pcurl": Proof(
        ["curriculum/weight/mean < 1", "reward/part/format", "reward/part/dynamic-length/acted > 0.1"],
        {"stages.hard.reward=null": "grades", "stages.easy.curriculum=uniform": "forest"},
        [*stages(1, 1, 1, 2), "model={beside}/model"],
        beside=[*stages(60, 1, 1, 1, tasks=1), "stages.start.tasks_per_step=24", "checkpoint_every=100"],
    ),
    "poad": Proof(
        ["credit/actions", "credit/tokens_within_actions"], {"credit={kind: gae, gamma: 0.95}": "credit"}, BRIEFER
    ),
    "ppo": Proof(["value_loss", "clip/high"], {"objective.clip_high=100": "weights", "credit.lam=1": "credit"}),
    "ppr": Proof(
        ["reward/part/renorm/steps", "reward/part/renorm/shifted < 0"],
        {"stages.1.reward.1.mu=0": "grades", "stages.1.reward.1.of.principles=[whole]": "grades"},
        [*stages(1, 2, tasks=2), "stages.1.rollout.samples=4", "tasks.levels=[4]"],
        given={"reward/part/renorm/steps": "steps that the judge has marked"},
    ),
    "prime": Proof(
        ["value/updates", "value/pairs/accuracy", "credit/tokens_with_process_reward", "groups_dropped"],
        {
            "value.online=false": "grades",
            "credit.process_coefficient=0": "credit",
            "credit.normalise=none": "credit",
            "collect={keep: all}": "draw",
        },
        ["steps=3", "tasks_per_step=4"],
    ),
    "prlcoder": Proof(
        ["value/updates", "reward/part/code-lines/mutated", "reward/part/clip-delta/refined < 0", LEARNS],
        {"stages.policy.credit.process_coefficient=0": "credit"},
        [*stages(1, 1, 2, tasks=2), "stages.lines.tasks_per_step=4", "model={beside}/model"],
        given={"reward/part/code-lines/mutated": "programs spoilt at one line, from which the model of lines learns"},
        beside=[*stages(20, 1, 1, tasks=2), "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"],
    ),
    "prof": Proof(
        [
            *("value/updates", "reward/part/model/process"),
            *(f"guidance/consistency-filter/{name}" for name in ("dropped/correct", "dropped/wrong", "lead/wrong")),
        ],
        {"stages.policy.guidance=[]": "generation", "stages.steps.value.lr=1e-30": "grades"},
        stages(1, 2),
    ),
    "programs": Proof(
        ["reward/part/code/passed", LEARNS],
        {"reward={kind: code, score: share}": "grades"},
        given={"reward/part/code/passed": "tests passed, of which all or a share count"},
        keys=WRITES_PROGRAMS + stages(17, 2, tasks=2)[2:],
    ),
    "propa": Proof(
        ["traces/distilled", "value/updates"],
        {"stages.0.credit=group": "forest"},
        ["steps=1", "rounds=1", "tasks_per_step=2", "tasks_per_round=4"],
    ),
    "qwenlong-l1": Proof(
        ["curriculum/returned/tasks", "curriculum/phase > 1"],
        {"stages.1.curriculum.returning=0": "draw", "stages.1.curriculum.every_steps=1000": "draw"},
        [*stages(1, 2), "stages.1.curriculum.every_steps=1"],
    ),
    "r1-reward": Proof(
        ["credit/outliers/share", "reward/part/principles", "reward/part/task", LEARNS],
        {"stages.1.credit.outliers=null": "credit", "stages.1.reward=[task]": "grades"},
        [*stages(1, 2), "tasks.levels=[1]", "model={beside}/model"],
        beside=[*stages(36, 1, tasks=1), *SOON_LEARNT],
    ),
    "reasoning-sql": Proof(
        [
            "reward/part/sql/schema_linking",
            *(f"reward/part/{name}" for name in ("format", "feedback/points", "feedback/asked")),
            LEARNS,
        ],
        {"stages.1.reward.0.schema_linking=0": "grades", "stages.1.reward.2.weight=0": "grades"},
        [*stages(1, 2, tasks=2), "model={beside}/model"],
        given={"reward/part/feedback/asked": "answers that the judge was asked about"},
        # Fine-tuned once for all of the runs, and not long enough for a query that SQLite takes.
        beside=[*stages(36, 1, tasks=16), "stages.0.learner.warmup_steps=1", "stages.1.tasks_per_step=1"],
    ),
    "rec": Proof(
        ["rec/masked"],
        {"objective.clip=none": "weights", "objective.weigh=importance": "weights"},
        ["steps=2", "tasks_per_step=8"],
    ),
    "reinforce-plus-plus": Proof(
        ["kl/reference", LEARNS],
        {"credit.kl_in_reward.coefficient=0": "credit", "credit.baseline=group": "credit"},
    ),
    "relift": Proof(
        ["fine_tuning/collected", "fine_tuning/steps"],
        {"fine_tuning.batch=1000": "weights"},
        ["steps=3", "tasks_per_step=4", "fine_tuning.batch=1"],
    ),
    "remix": Proof(
        ["replay/groups", "replay/age", "mix/recorded", "kl/convex", "kl/reference_share < 1"],
        {
            "stages.mixed.replay=null": "draw",
            "stages.mixed.learner.epochs=1": "weights",
            "stages.mixed.objective.kl_convex.coefficient=0": "weights",
            "stages.mixed.objective.kl_convex.least=1": "weights",
        },
        [*stages(4, 2), "stages.mixed.objective.kl_convex.hold_steps=1"],
    ),
    "rest-mcts": Proof(
        ["value/updates", "traces/found"],
        {"value.lr=1e-30": "generation"},
        ["steps=2", "rounds=2", "tasks_per_round=2"],
    ),
    "rest-rl": Proof(
        ["guidance/prefix/groups/prefix", "curriculum/kept/tasks", "value/updates"],
        {("stages.0.curriculum=uniform", "stages.0.guidance=[]"): "draw"},
        [
            *("stages.0.steps=2", "stages.0.tasks_per_step=4", "stages.0.curriculum.pool=4"),
            *("stages.1.steps=2", "stages.1.tasks_per_round=2"),
        ],
    ),
    "rethinkmcts": Proof(
        ["rollout/rethink-mcts/programs", "rollout/rethink-mcts/rethought"],
        {"rollout.rethinks=0": "generation"},  # programs that pass, and evaluations: tests/rollout/test_rethink_mcts.py
        [*stages(1, 2, tasks=1), "stages.1.rollout.iterations=2", *ONE_AT_A_TIME, "model={beside}/model"],
        beside=[*WRITES_PROGRAMS, "stages.1.steps=1", "stages.1.tasks_per_step=1", *ONE_AT_A_TIME],
    ),
    "rl-plus": Proof(
        ["guidance/demonstrations/groups/guided", "external/weight"],
        {"guidance=[]": "generation", "objective.exploration=0": "weights"},
    ),
    "rlbff": Proof(
        ["reward/part/principles/satisfied", "reward/part/principles/satisfied < 1", LEARNS],
        {"stages.1.reward.1.principles=[sound]": "grades", "stages.1.reward=[task]": "grades"},
        stages(2, 2),
    ),
    "rlcs": Proof(
        ["oversample/tasks > 4", "groups_dropped", "curriculum/share/4"],
        {
            "curriculum.offline=unknown": "draw",
            "collect={keep: partly-solved, max_waves: 1}": "draw",
            "collect={keep: all}": "forest",
        },
    ),
    "rmt": Proof(
        ["next_tokens/tokens", "next_tokens/nll", "curriculum/entropy/pool", "curriculum/tokens/budget < 80", LEARNS],
        {
            "curriculum.draws=uniform": "draw",
            "stages.0.reward.1.weight=0": "grades",
            "stages.0.next_tokens.learner.lr=1e-30": "weights",
            "curriculum.every_steps=1000": "grades",
        },
        ["steps=2", "tasks_per_step=2", "curriculum.every_steps=1"],
    ),
    "rlmt": Proof(
        ["reward/part/model/shown", "labels/factor/1", LEARNS],
        {"stages.1.reward.1.shown=whole": "grades", "stages.0.shown=whole": "grades"},
        stages(1, 2, tasks=2),
        given={"labels/factor/1": "comparisons that the reward model learns"},
    ),
    "rloo": Proof([LEARNS], {"credit=reinforce": "credit"}),
    "rlp": Proof(
        ["reward/part/information-gain", "average/updates", LEARNS],
        {
            ("stages.0.reward=[task]", "stages.0.average=null"): "grades",
            ("stages.0.reward.0.baseline=policy", "stages.0.average=null"): "grades",
            "credit=group": "credit",
        },
        ["steps=2", "tasks_per_step=2"],
    ),
    "rlpt": Proof(
        [LEARNS, "reward/part/text-overlap"],
        {"tasks.middle_share=0": "generation", "reward.0.measure=rouge-l": "grades"},
        ["steps=2", "tasks_per_step=2"],
    ),
    "rlsp": Proof(["reward/part/occurrences"], {"reward=task": "grades"}, stages(1, 2)),
    "rorecomp": Proof(
        ["replay/groups", "credit/priority_rows", "credit/compensation_rows", "credit/left_out"],
        {"replay=null": "forest", "credit.share=1": "credit"},
        ["steps=2", "tasks_per_step=8"],
    ),
    "rover": Proof(["rover/abs_next_q"], {"objective.bootstrap=0": "weights"}),
    "rubric-anchors": Proof(
        ["reward/part/rubric/vetoed", "reward/part/rubric/vetoed < 1", "reward/rubric/judge/asked"],
        {"stages.1.reward.1.saturation=0": "grades", "stages.1.reward.1.criteria=[]": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[*JUDGES, "stages.1.steps=1", "stages.1.tasks_per_step=1"],
    ),
    "ruscarl": Proof(
        ["guidance/rubric-scaffold/shown/mean", "reward/part/rubric"],
        {"guidance=[]": "generation", "reward=task": "grades"},
    ),
    "salsa": Proof(
        ["reference/distance", "kl/reference"],
        {"stages.ppo.reference=null": "credit", "stages.own.start=current": "weights"},
        stages(1, 1, 2),
    ),
    "salt": Proof(["credit/steps_shared"], {"credit=group": "forest"}),
    "sapo": Proof(
        ["replay/groups", "replay/files"],
        {"replay=null": "draw"},
        [*BRIEF, "replay.runs=[{beside}]"],
        beside=[*BRIEF, "seed=7"],
    ),
    "sari": Proof(["reward/part/format"], {"reward=task": "grades"}, stages(1, 1, 1, 2)),
    "scaf-grpo": Proof(["guidance/scaffold/groups/guided"], {"guidance=[]": "generation"}),
    "scalinginter-rl": Proof(
        ["rollout/turns/cut", "rollout/turns/mean > 2"],
        {
            "stages.short.rollout.environment.max_turns=5": "generation",
            "stages.longer.rollout.environment.max_turns=5": "generation",
        },
        GUESSES,
    ),
    "sec": Proof(["curriculum/value/5"], {"curriculum.temperature=1e6": "draw"}),
    "seele": Proof(["guidance/seele/share/round_4"], {"guidance=[]": "generation"}, ["steps=2", "tasks_per_step=2"]),
    "self": Proof(
        ["curriculum/easy/found", "kl/reference"],
        {"curriculum=uniform": "draw", "objective.kl.coefficient=0": "weights"},
        ["steps=3", "tasks_per_step=6", "curriculum.pool=6", "curriculum.least=2"],
    ),
    "self-referential": Proof(
        [f"reward/part/self-reference{part}" for part in ("", "/distance")],
        {"stages.0.reward=[task]": "grades"},
        BRIEFER,
    ),
    "sft": Proof(["nll"], {"objective.aggregate=sequence": "weights"}),
    "smollm2-sums": Proof([LEARNS], {"reward=task": "grades"}, ["steps=2", "tasks_per_step=2"], needs=SMOLLM2),
    "spa-rl": Proof(
        ["value/updates", "reward/part/model/process"],
        {"stages.policy.reward.1.turn_bonus=0": "grades", "stages.progress.value.lr=1e-30": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=8", "stages.1.steps=2", "stages.1.tasks_per_step=4"],
    ),
    "spct": Proof(
        ["reward/part/ranking/read", "reward/judge/votes/dropped", "value/paths", LEARNS],
        {
            "stages.3.reward.1.keep=null": "grades",
            "stages.1.reward=[task]": "grades",
            "stages.3.reward.1.shuffle=false": "generation",
        },
        [
            *stages(1, 1, 1, 1, tasks=2),
            *("tasks.parts.0.tasks={kind: chain, levels: [1]}", "tasks.parts.1.tasks.levels=[1]"),
            *(SHORT_JUDGEMENTS, "model={beside}/model"),
        ],
        given={
            "reward/part/ranking/read": "judgements that could be read",
            "value/paths": "judgements that the model of them learns",
        },
        beside=[*stages(40, 1, 1, 1, tasks=2), *SOON_LEARNT],
    ),
    "spear": Proof(
        ["replay/groups", "credit/imitated", "clip_cov/tokens"],
        {
            "replay.after=1000": "forest",
            "credit.coefficient=0": "credit",
            "credit.warm_up_steps=0": "credit",
            "objective=ppo-clip": "weights",
        },
        ["steps=3", "tasks_per_step=8"],
    ),
    "spiral": Proof(
        [
            "guidance/self-play/games/played",
            "role/first/trajectories",
            "role/second/trajectories",
            "credit/baseline/apart",
        ],
        {
            "stages.1.credit=reinforce": "credit",
            ("stages.1.guidance=[]", "stages.1.credit=group"): "generation",  # against the players of the evaluation
        },
        [*stages(24, 3, tasks=2), "stages.0.tasks_per_step=8", "stages.0.learner.warmup_steps=1", "checkpoint_every=9"],
    ),
    "spo": Proof(
        ["credit/rows_tracked", "curriculum/deviation/picked", "curriculum/tasks/known"],
        {"credit=reinforce": "forest", "credit.half_life=1e-9": "credit", "curriculum=uniform": "draw"},
        ["steps=3", "tasks_per_step=8", "tasks.size=12"],
    ),
    "srgpo": Proof(
        ["credit/tokens_with_step_advantage"], {"credit.step_weight=0": "credit", "credit=group": "forest"}, BRIEFER
    ),
    "ssrl": Proof(
        ["rollout/turns/calls", "reward/part/format"],
        {"rollout.environment={kind: calculator, modulus: 100}": "generation"},
    ),
    "step-apo": Proof(
        ["pairs", "pairs/later_steps", "dpo/gap", "dpo/gap < 1"],
        {
            "stages.0.objective.advantage=0": "weights",
            tuple(f"stages.0.objective.{key}" for key in ("of=trajectories", "between=null", "advantage=0")): "weights",
        },
        [*stages(2, 1), "stages.0.data.tasks=8", "stages.1.data.tasks=8"],
    ),
    "t-ppo": Proof(
        ["under_way/trees", "credit/unfinished/trained", "credit/unfinished/held_back", "credit/tokens/value"],
        {
            "credit={kind: gae, gamma: 1.0, lam: 0.95}": "forest",
            "credit.held_back=0": "credit",
            "rollout.tokens_per_step=null": "draw",
        },
        ["steps=2", "tasks_per_step=6"],
    ),
    "thinkless": Proof(
        ["degrpo/control_share", "reward/part/format", "reward/part/format < 1"],
        {
            "stages.1.objective.control_weight=1": "weights",
            "stages.1.reward=[task]": "grades",
            "stages.0.tasks=chain-demonstrations": "draw",
        },
        [*stages(1, 1, tasks=2), "model={beside}/model"],
        beside=[
            *("stages.0.steps=18", "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"),
            *("stages.1.steps=1", "stages.1.tasks_per_step=1", "checkpoint_every=100"),
        ],
    ),
    "tig": Proof([LEARNS], {"credit=reinforce": "credit"}, needs=SMOLLM2),
    "time-r1": Proof(
        ["reward/part/distance/distance", "reward/part/distance/alpha < 0.1", "reward/part/format"],
        {
            "stages.strict.reward.0.lenient.end=0.07": "grades",
            "stages.lenient.reward.0.lenient=null": "grades",
            "stages.easy.curriculum=uniform": "draw",
        },
        stages(1, 1, 2, tasks=2),
        given={"reward/part/format": "completions in the form that earns the bonus"},
    ),
    "to-backtrack": Proof(
        ["traces/distilled"],
        {"stages.0.traces={kind: solutions, per_task: 3}": "weights"},
        ["steps=2", "tasks_per_step=4", "tasks_per_round=12"],
    ),
    "totrl": Proof(
        [LEARNS, "reward/part/occurrences"],
        {"stages.1.curriculum.only=[thinking]": "draw", "stages.2.curriculum.only=[plain]": "draw"},
        [*stages(1, 2, 1, tasks=2), "model={beside}/model"],
        beside=[
            *("stages.0.steps=24", "stages.0.tasks_per_step=16", "stages.0.learner.warmup_steps=1"),
            *(f"stages.{i}.{size}=1" for i in (1, 2) for size in ("steps", "tasks_per_step")),
            "checkpoint_every=100",
        ],
    ),
    "train-long-think-short": Proof(
        ["curriculum/tokens/budget", "reward/part/token-budget", "reward/part/format"],
        {"curriculum.every_steps=1000": "generation", "stages.0.reward=[task]": "grades"},
        [*BRIEF, "curriculum.every_steps=1"],
    ),
    "tp-grpo": Proof(
        ["credit/thoughts/cleared", "credit/tokens_changed", "reward/judged-steps/judge/asked"],
        {"stages.1.credit.unit=step": "credit", "stages.1.credit=group": "forest"},
        [*stages(1, 2), "model={beside}/model"],
        given={"reward/judged-steps/judge/asked": "solutions that the judge was asked about"},
        beside=[*JUDGES, "stages.1.steps=1", "stages.1.tasks_per_step=1"],
    ),
    "treepo": Proof(
        ["rollout/segments/branches", "rollout/segments/fallbacks", "credit/sub_groups", "groups_dropped"],
        {f"rollout={FLAT}": "generation", "credit=group": "forest", "collect.keep=all": "draw"},
    ),
    "treerl": Proof(
        ["rollout/critical_tokens/resampled", "credit/nodes_shared"],
        {f"rollout={FLAT}": "generation", "rollout.uncertainty=entropy": "generation", "credit=group": "forest"},
    ),
    "trpa": Proof(
        ["pairs", "trpa/levels > 2"],
        {
            "objective.anisotropy=1": "weights",
            "objective.trust_region=0": "weights",
            "stages.0.reward=[task]": "grades",
        },
    ),
    "tti": Proof(
        ["rollout/turns/cut", "rollout/turns/mean > 2", "replay/groups"],
        {
            "stages.first.rollout.environment.max_turns=6": "generation",
            "stages.second.rollout.environment.max_turns=6": "generation",
            "replay=null": "forest",
            "credit.baseline=batch-mean": "credit",
        },
        GUESSES,
    ),
    "tulu3": Proof(
        ["nll", "pairs", "value_loss"],
        {"stages.dpo.objective.loss=sigmoid": "weights", "stages.rlvr.credit.kl_in_reward.coefficient=0": "credit"},
        stages(1, 2, 2),
    ),
    "unlikeliness": Proof(["reward/part/unlikeliness < 0"], {"stages.0.reward=[task]": "grades"}, BRIEFER),
    "w-reinforce": Proof([LEARNS], {"stages.0.reward=[task]": "grades"}),
    "warm-start": Proof(["nll"], {"objective.aggregate=sequence": "weights"}),
    "wsrl": Proof(
        ["replay/warm_up", "replay/groups", "oreo/error", "value_loss"],
        {"stages.online.replay.warm_up=0": "credit", "stages.online.value_head=new": "credit"},
        given={
            "replay/groups": "recorded groups, of which some warm the value up",
            "oreo/error": "the error of the stage before it",
        },
        keys=[
            *stages(1, 2, tasks=2),
            *("stages.offline.data.tasks=2", "stages.online.replay.warm_up=1", "rollout.samples=2", "tasks.levels=[2]"),
        ],
    ),
    "writing-zero": Proof(
        ["reward/brpo/pairs/compared", "reward/part/brpo/reference", LEARNS],
        {"stages.1.reward.1.orders=both": "generation"},
        JUDGES,
    ),
    "zerosearch": Proof(
        ["rollout/turns/calls", "rollout/turns/noisy"],
        {"stages.1.rollout.environment.noise=[0, 0]": "generation"},
        stages(4, 2, tasks=2),
    ),
}

PROOFS = LINES | {name: proof_of(name) for folder in shipped() for name in folder.recipes}
