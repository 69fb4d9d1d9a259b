"""A run's model uploaded to the Hugging Face hub: only on request, and private unless asked otherwise."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from lyceum.core.user_files import describe
from lyceum.run.reader import is_run, read_summary
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.library_messages import quiet
from lyceum.utils.terminal import quoted

UPLOADED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.py", "README.md")
"""Files of a model's folder, and of ``adapter/`` in it; what else lies there stays."""

PATTERNS = [*UPLOADED, *(f"adapter/{pattern}" for pattern in UPLOADED)]


def files_to_upload(path: Path, repo: str, *, which: Literal["model", "best"] = "model") -> list[Path]:
    """The files of a run's model that :func:`push` would upload, without a word to the hub.

    Raises:
        RecipeError: no such model, or an impossible name.
    """
    if not is_run(path):
        raise RecipeError(f"run: {path} is not a run's folder; allowed: one that lyceum train wrote")
    if not read_summary(path).get("finished"):
        raise RecipeError(f"run: {path} has not finished; allowed: a run that has (lyceum train ... --resume)")
    if not (path / which / "config.json").is_file():
        needed = "; a run keeps it with evaluate.save_best=true" if which == "best" else ""
        raise RecipeError(f"run: {path} has no model in {which}/{needed}")
    if not _is_name(repo):
        allowed = "allowed: owner/name of letters, digits, '-', '_' and '.'"
        raise RecipeError(f"repository: got {quoted(repo)}, which is no name on the hub; {allowed}")
    files = sorted(file for file in (path / which).rglob("*") if file.is_file())
    names = ((file, file.relative_to(path / which).as_posix()) for file in files)
    return [file for file, name in names if any(fnmatchcase(name, pattern) for pattern in PATTERNS)]


@quiet()
def push(path: Path, repo: str, *, which: Literal["model", "best"] = "model", public: bool = False) -> str:
    """Upload ``model`` or ``best`` of a finished run, with its card; returns the repository's address.

    Args:
        repo: owner/name; made if there is none.
        public: whether everybody may read it.
    Raises:
        RecipeError: no such model, an impossible name, or a repository that is public where a private one was asked
            for, or the other way round. Nothing was uploaded.
        RunError: the hub refused, or cannot be reached.
    """
    from huggingface_hub import HfApi, constants

    files_to_upload(path, repo, which=which)
    if constants.HF_HUB_OFFLINE:
        raise RecipeError("repository: HF_HUB_OFFLINE is set; allowed: without it")
    api = HfApi()
    try:
        there = api.model_info(repo) if api.repo_exists(repo) else None
        if there is not None and bool(there.private) == public:
            visible, asked = ("private", "public") if there.private else ("public", "private")
            raise RecipeError(
                f"repository: {repo} is there and {visible}, and a {asked} one was asked for; allowed: another name, "
                f"or {'without --public' if public else '--public'}"
            )
        made = api.create_repo(repo, private=not public, exist_ok=True)
        api.upload_folder(
            repo_id=repo,
            folder_path=path / which,
            allow_patterns=PATTERNS,
            commit_message="Trained with lyceum",
        )
    except RecipeError:
        raise
    except Exception as error:  # no network, no token, no right
        said = f"{repo}: the hub refused it or cannot be reached: {describe(error)}"
        raise RunError(f"{said}; to log in: hf auth login") from error
    return str(made)


def _is_name(repo: str) -> bool:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError:
        return False
    return repo.count("/") == 1
