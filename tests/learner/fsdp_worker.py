"""One of the other processes of ``test_fsdp.py``: ``python fsdp_worker.py KIND``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tiny_models import plain_model, policy_like

from lyceum.learner.fsdp import serve
from lyceum.models.load import LoraSettings, ModelSettings, _with_adapters
from lyceum.models.policy import Policy


def policy(kind: str) -> Policy:
    model = plain_model()
    if kind == "lora":
        model = _with_adapters(model, ModelSettings(lora=LoraSettings(rank=2)))
    return policy_like(model)


if __name__ == "__main__":
    serve(lambda: policy(sys.argv[1]))
