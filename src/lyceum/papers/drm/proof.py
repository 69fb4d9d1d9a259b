"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEF, Proof

PROOFS = {
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
}
