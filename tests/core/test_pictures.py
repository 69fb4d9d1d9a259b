"""Names of pictures and of the places in them, as tokens."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.pictures import (
    FIRST,
    ID_BITS,
    MOST_PLACES,
    id_and_place,
    is_picture,
    picture_of,
    picture_token,
    pictures_in,
)
from lyceum.utils.messages import picture_parts

IDS = st.integers(0, 2**ID_BITS - 1)
PLACES = st.integers(0, MOST_PLACES - 1)


@given(IDS, PLACES)
def test_a_token_names_a_picture_and_a_place_and_fits_int64(id, place):
    token = picture_token(id, place)
    assert FIRST <= token < 2**63
    assert id_and_place(token) == (id, place)
    assert int(np.array([token])[0]) == token  # int64 and not a float, which would round it
    assert is_picture(token)
    assert not is_picture(2**32)  # beyond any vocabulary


def test_one_changed_value_or_another_shape_is_another_picture():
    pixels = np.zeros((6, 4, 3), np.uint8)
    changed = pixels.copy()
    changed[5, 3, 2] = 1
    assert picture_of(pixels) == picture_of(pixels.copy())
    assert len({picture_of(each).id for each in (pixels, changed, pixels.reshape(4, 6, 3))}) == 3
    assert (picture_of(pixels).width, picture_of(pixels).height) == (4, 6)
    # Not in C order, as a slice of a larger picture is.
    assert picture_of(np.zeros((6, 8, 3), np.uint8)[:, ::2]) == picture_of(pixels)


def test_pictures_are_counted_where_they_begin():
    tokens = [5, picture_token(7, 0), picture_token(7, 1), 6, picture_token(8, 0)]
    assert pictures_in(tokens) == 2
    assert pictures_in(tokens[2:]) == 1


def test_parts_of_messages_are_found_in_order():
    messages = [
        {"role": "system", "content": "x"},
        {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "image"}]},
        {"role": "user", "content": [{"type": "image", "image": "b.png"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "c.png"}}, {"type": "image"}]},
    ]
    assert list(picture_parts(messages)) == ["a.png", "b.png", "c.png", None]
