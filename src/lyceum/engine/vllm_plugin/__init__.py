"""Weights by files, in a vLLM server's own process: a backend for ``vllm serve --weight-transfer-config``.

Installing lyceum beside vLLM is enough: vLLM calls :func:`register` in each of its processes (entry point
``vllm.general_plugins``). Written against vLLM 0.32. Nothing else of lyceum is imported here.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

BACKEND = "lyceum-files"


def register() -> None:
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:  # vLLM calls this more than once
        WeightTransferEngineFactory.register_engine(BACKEND, "lyceum.engine.vllm_plugin.files", "FilesTransfer")
