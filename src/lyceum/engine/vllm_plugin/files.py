"""The backend itself: imported by vLLM alone, in a server's process."""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.platforms import current_platform

from lyceum.engine.vllm_plugin.reload import Missed, write_weights


@dataclass
class FilesInit(WeightTransferInitInfo):
    """Nothing has to be agreed on before the first file."""


@dataclass
class FilesUpdate(WeightTransferUpdateInfo):
    """
    Attributes:
        path: of a safetensors file, where this process can read it; names are those of the model's own files.
        sha256: of the file, in hexadecimal digits.
    """

    path: str
    sha256: str


class FilesTransfer(WeightTransferEngine):
    """Reads all weights of a version from one file. A file that is not whole changes nothing."""

    init_info_cls = FilesInit
    update_info_cls = FilesUpdate
    _missed: list[Missed] | None = None

    def init_transfer_engine(self, init_info: FilesInit) -> None: ...

    def start_weight_update(self) -> None: ...

    def finish_weight_update(self) -> None: ...

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # Not the base class's, which synchronizes an accelerator that a CPU has not.
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: FilesUpdate) -> None:
        with open(update_info.path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != update_info.sha256:
            raise ValueError(f"{update_info.path}: its SHA-256 is {found}, and {update_info.sha256} was announced")
        with safe_open(update_info.path, framework="pt", device="cpu") as file:
            self._missed = write_weights(
                self.model,
                self.model_config,
                lambda: ((name, file.get_tensor(name)) for name in file.keys()),  # noqa: SIM118
                self._missed,
            )
        if current_platform.is_cpu() and self.model_config.hf_text_config.tie_word_embeddings:
            pack_output_layer(self.model)

    def shutdown(self) -> None: ...


def pack_output_layer(model: Any) -> None:
    """Pack a tied output layer's weights again: it is given none of its own, so that vLLM keeps the old ones packed."""
    model.lm_head.quant_method.process_weights_after_loading(model.lm_head)
