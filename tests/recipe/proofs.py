"""What every shipped recipe has to show: that its method's mechanism acts, and that without it a run is another one.

A new recipe adds its line to ``LINES``; one in a paper's folder has it there, in ``proof.py``.
"""

from __future__ import annotations

from lyceum.analysis.proving import proof_of
from lyceum.core.paper_folders import shipped
from lyceum.recipe.proof import (
    BRIEF,
    FLAT,
    LEARNS,
    WITHOUT_PENALTY,
    WRITES_PROGRAMS,
    Proof,
    short_start,
    stages,
)

SMOLLM2 = "models/smollm2-135m-instruct"
FLAT_ROLLOUT = f"rollout={FLAT}"

GUESSES = [*stages(1, 2, 2, 1), "model={beside}/model"]
"""Few steps of three stages with ever more turns."""
A_GUESSER = short_start(12, 16, warmup=None)
"""A run after which the model guesses numbers."""

SHORT_JUDGEMENTS = "stages.0.tasks={kind: chain-judgements, forms: [scores], levels: [1]}"
"""Of chains of one operation, which are soon learnt."""

SEES = [*stages(1, 2), "model={beside}/model"]

LINES: dict[str, Proof] = {
    "acereason": Proof(
        ["groups/with_gradient"],
        {
            "stages.1.curriculum={kind: subset, by: provenance, only: [functions]}": "draw",
            "stages.3.curriculum={kind: subset, by: provenance, only: [chain]}": "draw",
            "stages.1.learner.updates_per_step=4": "weights",
        },
        stages(1, 1, 1, 1, 1),
    ),
    "adaptive-dapo": Proof(
        ["oversample/surplus", "groups_dropped"],
        {"stages.1.collect.oversample=null": "draw"},
        [*stages(1, 2, tasks=3), "model={beside}/model"],
        beside=WRITES_PROGRAMS,
    ),
    "archive-base": Proof(["nll"], {"stages.0.tasks.vague=1": "generation"}, [*stages(1, 1, tasks=2)]),
    "areal": Proof(  # in fixed order: what it trains in its own depends on the clock (see tests/runtime/test_ready.py)
        ["staleness/mean", "importance/weight"],
        {
            "runtime.staleness=0": "generation",
            ("objective.importance.mode=none", "runtime.ratio=behaviour"): "weights",
        },
        [*BRIEF, "runtime.order=fixed"],
    ),
    "ats": Proof(
        ["traces/found"],
        {
            "traces.backtracks=1": "weights",
            "traces={kind: solutions, per_task: 4}": "weights",
        },
        ["steps=2", "rounds=1", "tasks_per_round=4"],
    ),
    "balanced-filtering": Proof(["groups_dropped"], {"collect={keep: all}": "draw"}),
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
    "carl": Proof(
        ["reward/part/overlong < 0", "reward/part/format/failed", LEARNS],
        {
            "reward.2.weight=0": "grades",
            "reward.3.weight=0": "grades",
            "reward=[{kind: task, weight: 0}, rubric]": "grades",
        },
    ),
    "cliff-start": Proof(["nll"], {"tasks=chain-demonstrations": "draw"}),
    "cls-rl": Proof([LEARNS], {"objective.kl.coefficient=0": "weights"}, needs=SMOLLM2),
    "cls-rl-pictures": Proof(
        [LEARNS],
        {
            'reward={kind: exact, extract: {after: "#"}}': "grades",
            "stages.rl.curriculum.only=[think]": "draw",
            "objective.kl.coefficient=0": "weights",
        },
        SEES,
        beside=short_start(24, 12, warmup=4, lr=4e-3),
    ),
    "craft-gui": Proof(
        ["reward/part/task#2", "reward/part/format", LEARNS],
        {
            **{f"stages.{phase}.curriculum=uniform": "draw" for phase in ("easy", "middle", "hard")},
            "reward=[task]": "grades",
        },
        [*stages(1, 1, 1, 1), "model={beside}/model"],
        beside=short_start(24, 12, warmup=3),
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
    "curr-reft-pictures": Proof(
        [LEARNS, "traces/found"],
        {
            "stages.binary.curriculum=uniform": "draw",
            "stages.choice.curriculum=uniform": "draw",
            "stages.open.curriculum=uniform": "draw",
            "stages.self-improvement.traces.per_task=null": "weights",
        },
        [*stages(1, 1, 1, 1), "stages.4.steps=1", "stages.4.tasks_per_round=4", "model={beside}/model"],
        beside=short_start(24, 12, warmup=4, lr=4e-3),
    ),
    "dapo": Proof(
        ["groups_dropped", "reward/part/overlong < 0"],
        {"collect.keep=all": "draw", **WITHOUT_PENALTY},
        late={"clip/high": "objective.clip_high=100"},
        longer=["steps=3", "tasks_per_step=32", "learner.warmup_steps=1"],
    ),
    "demo": Proof([LEARNS], {"credit=reinforce": "credit"}),
    "dpo": Proof(["pairs"], {"objective.pairs=1": "weights"}),
    "dr-grpo": Proof(
        [LEARNS], {"credit.scale=std": "credit", "objective={kind: ppo-clip, aggregate: sequence}": "weights"}
    ),
    "drive": Proof(
        ["curriculum/easy/found", "curriculum/round", LEARNS],
        {"stages.2.curriculum=uniform": "draw"},
        [
            *stages(1, 1, 3),
            *("stages.2.rollout.samples=16", "stages.2.curriculum.pool=4", "stages.2.curriculum.least=2"),
            "model={beside}/model",
        ],
        beside=short_start(26, 14),
    ),
    "easy-to-hard": Proof(
        ["level/1/correct", "level/6/correct"],
        {f"stages.{i}.curriculum=uniform": "draw" for i in (0, 1)},
        stages(1, 1, 2),
    ),
    "expert-iteration": Proof(
        ["traces/found"],
        {"start=current": "weights", "traces.per_task=1": "weights"},
        ["steps=2", "rounds=2", "tasks_per_round=4"],
    ),
    "g1": Proof(["traces/distilled"], {"credit=reinforce": "credit"}, needs=SMOLLM2),
    "grpo": Proof([LEARNS], {"credit=reinforce": "credit"}),
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
    "gui-r1": Proof(
        ["reward/part/task", "reward/part/format", LEARNS],
        {"reward=[task]": "grades", "reward.0.weight=0.1": "grades"},
        SEES,
        given={"reward/part/task": "right actions, as the tasks' own verifier finds them, before they are weighted"},
        beside=short_start(60, 16, warmup=None),
    ),
    "guru": Proof(["groups_dropped"], {"collect={keep: all}": "draw"}, needs=SMOLLM2),
    "heron": Proof(
        ["value/updates", "labels/factor/2", "reward/part/model/outcome"],
        {"stages.preferences.factors=[{by: correct}]": "grades", "stages.policy.reward=[task]": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=4", "stages.1.steps=2", "stages.1.tasks_per_step=2"],
    ),
    "imagined-conversations": Proof(
        # `untrue` was heard by the agent: were answers overwritten by the truth, there would be none.
        [f"rollout/turns/{count}" for count in ("kept", "replaced", "untrue")],
        {
            "stages.offline.rollout.environment.imagined=false": "generation",
            "stages.offline.rollout.environment.critique=false": "generation",
        },
        [*stages(1, 1), "stages.offline.data.tasks=2", "model={beside}/model"],
        beside=short_start(8, 12),
    ),
    "infi-mmr": Proof(
        [LEARNS],
        {f"stages.{phase}.curriculum=uniform": "draw" for phase in ("text", "captions", "pictures")},
        [*stages(1, 1, 1, 1), "model={beside}/model"],
        beside=short_start(24, 8, warmup=4),
    ),
    "ipo": Proof(["pairs"], {"objective.loss=sigmoid": "weights"}),
    "json-answer": Proof(
        ["constraint/acted", "constraint/nats"],
        {"rollout.sampling.constraint=null": "generation"},
    ),
    "lite-ppo": Proof([LEARNS], {"credit.scale=std": "credit", "objective.aggregate=sequence": "weights"}),
    "luffy": Proof(
        ["guidance/demonstrations/groups/guided", "external/weight"],
        {"guidance=[]": "generation", "objective.shaping=1e9": "weights"},
    ),
    "medcco": Proof(
        [f"reward/part/text-overlap{number}" for number in ("", "#2")],
        {"stages.open.curriculum=uniform": "draw", "stages.open.reward=[task]": "grades"},
        stages(1, 2, tasks=2),
    ),
    "multi-domain": Proof([LEARNS], {"credit=reinforce": "credit"}, needs=SMOLLM2),
    "nsr": Proof(["rows_without_gradient"], {"credit.constant=0": "credit"}),
    "ovm": Proof(
        ["value/updates"],
        {"rollout.segment_tokens=80": "generation"},
        ["steps=2", "rounds=2", "tasks_per_round=3"],
    ),
    "one-shot-cft": Proof(
        ["nll", "tokens_trained"],
        {"stages.0.tasks.problems=null": "generation", "stages.0.tasks.forms=[refine]": "generation"},
    ),
    "one-step-off": Proof(["staleness/mean"], {"runtime.staleness=0": "generation"}),
    "over-optimisation": Proof(
        ["dpo/top_mass", "dpo/top_mass < 1", "dpo/top_entropy"],
        {"objective.loss=ipo": "weights"},
        [*BRIEF, "data.tasks=8"],
    ),
    "ppo": Proof(["value_loss", "clip/high"], {"objective.clip_high=100": "weights", "credit.lam=1": "credit"}),
    "programs": Proof(
        ["reward/part/code/passed", LEARNS],
        {"reward={kind: code, score: share}": "grades"},
        given={"reward/part/code/passed": "tests passed, of which all or a share count"},
        keys=[*stages(1, 2, tasks=2), "model={beside}/model"],
        beside=short_start(17, 10),
    ),
    "pictures-base": Proof(["nll"], {"objective.aggregate=sequence": "weights"}),
    "propa": Proof(
        ["traces/distilled", "value/updates"],
        {"stages.0.credit=group": "forest"},
        ["steps=1", "rounds=1", "tasks_per_step=1", "tasks_per_round=1", "tasks.levels=[1, 2]"],
    ),
    "r1-reward": Proof(
        ["credit/outliers/share", "reward/part/principles", "reward/part/task", LEARNS],
        {"stages.1.credit.outliers=null": "credit", "stages.1.reward=[task]": "grades"},
        [*stages(1, 2), "tasks.levels=[1]", "model={beside}/model"],
        beside=[*short_start(36, 2), SHORT_JUDGEMENTS],
    ),
    "rlmt": Proof(
        ["reward/part/model/shown", "labels/factor/1", LEARNS],
        {"stages.1.reward.1.shown=whole": "grades", "stages.0.shown=whole": "grades"},
        stages(1, 2, tasks=2),
        given={"labels/factor/1": "comparisons that the reward model learns"},
    ),
    "rloo": Proof([LEARNS], {"credit=reinforce": "credit"}),
    "rlsp": Proof(["reward/part/occurrences"], {"reward=task": "grades"}, stages(1, 2)),
    "rooms-base": Proof(["nll"], {"stages.0.tasks.wander=1": "generation"}, [*stages(1, 1, tasks=2)]),
    "rubric-anchors": Proof(
        ["reward/part/rubric/vetoed", "reward/part/rubric/vetoed < 1", "reward/rubric/judge/asked"],
        {"stages.1.reward.1.saturation=0": "grades", "stages.1.reward.1.criteria=[]": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(12, 10, lr=1e-3),
    ),
    "salsa": Proof(
        ["reference/distance", "kl/reference"],
        {"stages.ppo.reference=null": "credit", "stages.own.start=current": "weights"},
        stages(1, 1, 2),
    ),
    "sari": Proof(["reward/part/format"], {"reward=task": "grades"}, stages(1, 1, 1, 2)),
    "scalinginter-rl": Proof(
        ["rollout/turns/cut", "rollout/turns/mean > 2"],
        {
            "stages.short.rollout.environment.max_turns=5": "generation",
            "stages.longer.rollout.environment.max_turns=5": "generation",
        },
        GUESSES,
        beside=A_GUESSER,
    ),
    "self": Proof(
        ["curriculum/easy/found", "kl/reference"],
        {"curriculum=uniform": "draw", "objective.kl.coefficient=0": "weights"},
        ["steps=3", "tasks_per_step=6", "curriculum.pool=6", "curriculum.least=2"],
    ),
    "sft": Proof(["nll"], {"objective.aggregate=sequence": "weights"}),
    "smollm2-sums": Proof([LEARNS], {"reward=task": "grades"}, ["steps=2", "tasks_per_step=2"], needs=SMOLLM2),
    "spa-rl": Proof(
        ["value/updates", "reward/part/model/process"],
        {"stages.policy.reward.1.turn_bonus=0": "grades", "stages.progress.value.lr=1e-30": "grades"},
        ["stages.0.steps=1", "stages.0.tasks_per_step=4", "stages.1.steps=2", "stages.1.tasks_per_step=2"],
    ),
    "step-apo": Proof(
        ["pairs", "pairs/later_steps", "dpo/gap", "dpo/gap < 1"],
        {
            "stages.0.objective.advantage=0": "weights",
            tuple(f"stages.0.objective.{key}" for key in ("of=trajectories", "between=null", "advantage=0")): "weights",
        },
        [*stages(2, 1), "stages.0.data.tasks=8", "stages.1.data.tasks=8"],
    ),
    "stories-base": Proof(
        ["nll"],
        {"stages.0.tasks.levels=[2]": "generation"},
        [*stages(1, 1, 1, tasks=2), "stages.2.learner.warmup_steps=1"],
    ),
    "tig": Proof([LEARNS], {"credit=reinforce": "credit"}, needs=SMOLLM2),
    "to-backtrack": Proof(
        ["traces/distilled"],
        {"stages.0.traces={kind: solutions, per_task: 3}": "weights"},
        ["steps=2", "tasks_per_step=4", "tasks_per_round=12"],
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
        beside=A_GUESSER,
    ),
    "tulu3": Proof(
        ["nll", "pairs", "value_loss"],
        {"stages.dpo.objective.loss=sigmoid": "weights", "stages.rlvr.credit.kl_in_reward.coefficient=0": "credit"},
        stages(1, 2, 2),
    ),
    "visual-rft": Proof(
        ["reward/part/task", "reward/part/format", LEARNS],
        {
            "stages.detection.reward=[task]": "grades",
            "stages.detection.reward.0.weight=0": "grades",
            "stages.classification.reward=[task]": "grades",
        },
        [*stages(1, 2, 2), "model={beside}/model"],
        # Boxes that cover half of what is there: few after so little fine-tuning.
        late={"reward/part/task#2": "stages.detection.reward=[task]"},
        longer=[*stages(1, 6, 1, tasks=16), "model={beside}/model"],
        beside=short_start(80, 24, warmup=10),
    ),
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
}

PROOFS = LINES | {name: proof_of(name) for folder in shipped() for name in folder.recipes}
