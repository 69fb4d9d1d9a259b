"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "direct-advantage": Proof(
        ["value/updates", "credit/values/spread", "credit/steps_with_gain", "direct/steps_with_advantage"],
        {"stages.actor.value={kind: model}": "grades"},
        [
            *("stages.critic.steps=1", "stages.critic.rounds=1", "stages.critic.tasks_per_round=2"),
            *("stages.actor.steps=2", "stages.actor.tasks_per_step=1"),
        ],
    ),
}
