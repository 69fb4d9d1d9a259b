"""Whatever an agent sends: it is told what is wrong, and the run goes on. Without a model, so that many are tried."""

import json

import pytest
from agent_fixtures import POLICIES, SAMPLING, TASKS, trees_of
from fuzz_agents import REQUESTS
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.types import Continuation

pytest.importorskip("openai")


class Says:
    """An engine that says the same to all, in as many tokens as are left."""

    version, tokens_computed, may_step = 0, 0, None

    def __init__(self, policy, text):
        self.tokens = [*policy.encode(text), policy.tokenizer.eos_token_id]

    async def extend(self, request):
        ids = self.tokens[-request.sampling.max_completion_tokens :]
        return [
            Continuation([*ids], [-0.5] * len(ids), [-0.5] * len(ids), [0] * len(ids), "stop") for _ in request.seeds
        ]


@pytest.mark.parametrize("name", POLICIES)
@given(
    bodies=st.lists(REQUESTS, min_size=1, max_size=6),
    says=st.sampled_from(
        ("It is 5.", "<think>\n5\n</think>\n\n5", '<tool_call>\n{"name": "times"}\n</tool_call>', "\x00")
    ),
)
def test_each_request_is_answered_or_told_what_is_wrong(name, bodies, says):
    policy, statuses = POLICIES[name], []

    async def agent(client):
        for path, body in bodies:
            headers = {"authorization": f"Bearer {client.api_key}"}
            reply = await client._client.post(f"http://lyceum/v1{path}", content=body, headers=headers)
            statuses.append(reply.status_code)
            if reply.status_code != 200:
                assert json.loads(reply.content)["error"]["message"]
        return 0.0

    sampling = SAMPLING.model_copy(update={"max_completion_tokens": 5000})
    engine = Says(policy, says)
    rollout, trees = trees_of(agent, policy=policy, engine=engine, sampling=sampling, samples=1, tasks=TASKS[:1])
    assert len(statuses) == len(bodies)
    assert all(status == 200 or 400 <= status < 500 for status in statuses)
    counted = rollout.metrics(trees)
    assert counted["failed"] == counted["late"] == 0
    assert counted["refused"] == sum(status != 200 for status in statuses)
    assert counted["requests"] == sum(status == 200 for status in statuses)
