"""Pictures from outside, read with limits: a path on this machine or a ``data:`` URI. No address is ever fetched.

What is read is what every model gets: the first frame, in RGB, on white where it is transparent, as its pixels lie in
the file (a camera's note of how it was held is not followed).
"""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from lyceum.utils.errors import RecipeError
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MOST_BYTES, MOST_PIXELS = 1 << 26, 1 << 25
"""Of a file (64 MiB), and of a picture (33.5 million)."""
LEAST_SIDE, MOST_ASPECT = 4, 100
"""Pixels of the shorter side; how many times as long the longer one may be."""
_ALLOWED = f"allowed: a file in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, or its data: URI"

Pixels = UInt8[np.ndarray, "height width 3"]


def read_picture(source: Any) -> Pixels:
    """The pixels of a picture.

    Args:
        source: a path, or ``data:image/png;base64,...``.
    Raises:
        RecipeError: there is none, or it is beyond the limits; one line, without the file's contents.
    """
    if not isinstance(source, str) or not source:
        raise RecipeError(f"picture: got {quoted(source)}; {_ALLOWED}")
    name = f"picture {quoted(source[:100])}"
    return decoded(_bytes_of(source, name), name)


def decoded(data: bytes, name: str) -> Pixels:
    """The pixels of a picture file's contents.

    Args:
        name: what errors call it.
    """
    from PIL import Image, ImageFile, UnidentifiedImageError

    if ImageFile.LOAD_TRUNCATED_IMAGES:  # another library may have set it, for the whole process
        raise RecipeError(f"{name}: PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that broken files are not noticed")
    if len(data) > MOST_BYTES:
        raise RecipeError(f"{name} has {len(data)} bytes; allowed: at most {MOST_BYTES}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes, which are checked here
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check_size(name, *image.size)
                rgb = _on_white(image)
    except UnidentifiedImageError:
        raise RecipeError(f"{name} is no picture that can be read; {_ALLOWED}") from None
    except Image.DecompressionBombError:
        raise RecipeError(f"{name} has too many pixels; allowed: at most {MOST_PIXELS}") from None
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, ArithmeticError, AttributeError) as error:
        # What Pillow's decoders raise on broken files, and of more kinds than it documents.
        raise RecipeError(f"{name} is broken: {str(error)[:200] or type(error).__name__}") from None
    return np.asarray(rgb, dtype=np.uint8)


def _check_size(name: str, width: int, height: int) -> None:
    size = f"{name} has {width} x {height} pixels"
    if min(width, height) < LEAST_SIDE:
        raise RecipeError(f"{size}; allowed: {LEAST_SIDE} or more each way")
    if width * height > MOST_PIXELS:
        raise RecipeError(f"{size}; allowed: at most {MOST_PIXELS} in all")
    if max(width, height) > MOST_ASPECT * min(width, height):
        raise RecipeError(f"{size}; allowed: a longer side of at most {MOST_ASPECT} times the shorter one")


def _on_white(image: Any) -> Any:
    """The first frame in RGB, what is transparent in it on white."""
    from PIL import Image

    image.seek(0)
    image.load()
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    if image.mode.startswith("I"):  # 16 bits of grey, which conversion would clip
        return Image.fromarray((np.asarray(image, np.int64) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _bytes_of(source: str, name: str) -> bytes:
    if source.startswith("data:"):
        head, comma, body = source.partition(",")
        if not comma or not head.endswith(";base64"):
            raise RecipeError(f"{name} is no data URI that can be read; allowed: data:image/png;base64,...")
        if len(body) > MOST_BYTES * 4 // 3 + 4:
            raise RecipeError(f"{name} has {len(body) * 3 // 4} bytes; allowed: at most {MOST_BYTES}")
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError):
            raise RecipeError(f"{name} is broken: its base64 cannot be decoded") from None
    if "://" in source:
        raise RecipeError(f"{name} is an address, and nothing is fetched; {_ALLOWED}")
    place = local_path(source)
    try:
        if not place.is_file():
            raise RecipeError(f"{name}: no such file; {_ALLOWED}")
        if (size := place.stat().st_size) > MOST_BYTES:
            raise RecipeError(f"{name} has {size} bytes; allowed: at most {MOST_BYTES}")
        return Path(place).read_bytes()
    except (OSError, ValueError) as error:
        raise RecipeError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def data_uri(pixels: Pixels) -> str:
    """Pixels as a PNG in a ``data:`` URI, to stand in a message."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
