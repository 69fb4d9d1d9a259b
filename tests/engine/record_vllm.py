"""Writes what a vLLM server answers to what lyceum asks it, for the fake one of the tests:

    python tests/engine/record_vllm.py URL PLAIN-URL FILE.safetensors > tests/engine/vllm_replies.json

The first server is one that ``engine=vllm-server`` could use, of the model ``base``; the second has none of the options
for that; the file has the model's weights. Names of folders are left out, and what is not read of long answers.
"""

import hashlib
import json
import sys
from pathlib import Path

import httpx2

PARAMS = {"max_tokens": 3, "seed": 5, "ignore_eos": True, "detokenize": False}
PROMPT = [59, 76, 69, 88, 4]


def recorded(url: str, plain: str, weights: Path) -> dict[str, object]:
    client = httpx2.Client(timeout=600, limits=httpx2.Limits(max_keepalive_connections=0))

    def ask(method: str, path: str, content: object = None) -> dict[str, object]:
        answer = client.request(method, path if path.startswith("http") else url + path, json=content)
        try:
            return {"status": answer.status_code, "content": answer.json()}
        except ValueError:
            return {"status": answer.status_code, "content": answer.text}

    def generate(**params: object) -> dict[str, object]:
        body = {"model": model, "token_ids": PROMPT, "sampling_params": PARAMS | params, "stream": False}
        return ask("POST", "/inference/v1/generate", body)

    models = ask("GET", "/v1/models")
    model = models["content"]["data"][0]["id"]
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    update = {"update_info": {"path": str(weights), "sha256": digest}}
    found = {
        "version": ask("GET", "/version"),
        "models": models,
        "is_paused": ask("GET", "/is_paused"),
        "get_world_size": ask("GET", "/get_world_size"),
        "server_info": ask("GET", "/server_info?config_format=json"),
        "update_weights without start": ask("POST", "/update_weights", update),
        "pause": ask("POST", "/pause?mode=abort"),
        "start_weight_update": ask("POST", "/start_weight_update"),
        "start_weight_update again": ask("POST", "/start_weight_update"),
        "update_weights of another digest": ask(
            "POST", "/update_weights", {"update_info": {"path": str(weights), "sha256": "0"}}
        ),
        "start_weight_update anew": ask("POST", "/start_weight_update"),
        "update_weights": ask("POST", "/update_weights", update),
        "finish_weight_update": ask("POST", "/finish_weight_update", {"weight_version": "recorded-1"}),
        "resume": ask("POST", "/resume"),
        "weight_info": ask("GET", "/weight_info"),
        "weight_checker": ask("POST", "/weight_checker", {"action": "checksum"}),
        "generate": generate(temperature=0.8, logprobs=0),
        "generate with most likely": generate(temperature=1.0, logprobs=2),
        "score": generate(temperature=0.0, max_tokens=1, prompt_logprobs=0, logprobs=2, logprob_token_ids=[7, 7]),
        "generate of another model": ask(
            "POST", "/inference/v1/generate", {"model": "another", "token_ids": PROMPT, "sampling_params": PARAMS}
        ),
        "is_paused without routes for training": ask("GET", f"{plain}/is_paused"),
        "generate without scale-out": ask("POST", f"{plain}/inference/v1/generate", {}),
    }
    info = found["server_info"]["content"]["vllm_config"]
    read = ("model", "dtype", "max_model_len", "logprobs_mode", "quantization")
    settings = {name: info["model_config"][name] for name in read}
    transfer = info["weight_transfer_config"]
    found["server_info"]["content"] = {"vllm_config": {"model_config": settings, "weight_transfer_config": transfer}}
    return json.loads(json.dumps(found).replace(model, "MODEL").replace(str(weights), "FILE"))


if __name__ == "__main__":
    print(json.dumps(recorded(*sys.argv[1:3], Path(sys.argv[3])), indent=1))
