"""Pictures from outside: what is read, and one clear line for what is not."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from lyceum.models.see import LEAST_SIDE, data_uri, read_picture
from lyceum.utils.errors import RecipeError


def saved(image, format="PNG", **more) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=format, **more)
    return buffer.getvalue()


def uri(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def noise(width=8, height=6, channels=3):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels)).astype(np.uint8)


def png_of_size(width: int, height: int) -> bytes:
    """A valid PNG of one colour, a few kilobytes long whatever its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)  # one bit of grey
    rows = zlib.compress(bytes(1 + (width + 7) // 8) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_file_and_its_uri_have_the_same_pixels(tmp_path):
    pixels = noise()
    (tmp_path / "a.png").write_bytes(saved(Image.fromarray(pixels)))
    np.testing.assert_array_equal(read_picture(str(tmp_path / "a.png")), pixels)
    np.testing.assert_array_equal(read_picture(data_uri(pixels)), pixels)


def test_what_is_transparent_is_white():
    pixels = noise(channels=4)
    pixels[..., 3] = 0
    pixels[0, 0] = 10, 20, 30, 255
    got = read_picture(uri(saved(Image.fromarray(pixels, "RGBA"))))
    assert got[0, 0].tolist() == [10, 20, 30]
    assert (got[1:] == 255).all()
    palette = Image.new("P", (8, 6), 0)
    palette.putpalette([255, 0, 0] * 256)
    assert (read_picture(uri(saved(palette, transparency=0))) == 255).all()


def test_of_an_animation_the_first_frame_is_read():
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "blue")]
    for format in ("GIF", "PNG", "WEBP"):
        exact = {"lossless": True} if format == "WEBP" else {}
        data = saved(frames[0], format, save_all=True, append_images=frames[1:], **exact)
        got = read_picture(uri(data))
        assert got.shape == (6, 8, 3), format
        assert got[0, 0].tolist() == [255, 0, 0], format


def test_sixteen_bits_of_grey_are_not_clipped():
    grey = np.full((6, 8), 0x8000, np.uint16)
    assert read_picture(uri(saved(Image.fromarray(grey)))).tolist() == np.full((6, 8, 3), 0x80).tolist()


WHOLE = saved(Image.fromarray(noise(64, 64)))
BAD = {
    "missing": ("nowhere/a.png", "no such file"),
    "a folder": (".", "no such file"),
    "an address": ("https://example.org/a.png", "nothing is fetched"),
    "a number": (7, "got 7"),
    "text": (uri(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "no picture that can be read"),
    "empty": (uri(b""), "no picture that can be read"),
    "truncated": (uri(WHOLE[: len(WHOLE) // 2]), "is broken"),
    "flipped": (uri(WHOLE[:60] + bytes(9) + WHOLE[69:]), "is broken"),
    "not base64": ("data:image/png;base64,@@@", "base64 cannot be decoded"),
    "no base64": ("data:image/svg+xml,<svg/>", "no data URI that can be read"),
    "1 x 1": (uri(saved(Image.new("RGB", (1, 1)))), f"1 x 1 pixels; allowed: {LEAST_SIDE} or more each way"),
    "20,000 x 20,000": (uri(png_of_size(20_000, 20_000)), "pixels"),
    "8,000 x 8,000": (uri(png_of_size(8_000, 8_000)), "8000 x 8000 pixels; allowed: at most"),
    "a thread": (uri(png_of_size(4, 2_000)), "4 x 2000 pixels; allowed: a longer side of at most"),
}


@pytest.mark.parametrize("source", BAD)
def test_what_cannot_be_read_is_one_clear_line(source):
    given, said = BAD[source]
    with pytest.raises(RecipeError) as error:
        read_picture(given)
    [line] = error.value.lines
    assert said in line
    assert "picture" in line
    assert len(line) < 400
