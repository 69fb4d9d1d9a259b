"""Pictures in a dataset's rows: where they are found, and where they stand in the prompt."""

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tiny_sight import noise

from lyceum.models.see import read_picture
from lyceum.tasks.dataset import Dataset
from lyceum.utils.errors import RecipeError

URI = noise(0)
PNG = base64.b64decode(URI.partition(",")[2])


def source(folder, *rows, **settings):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Dataset(path=str(path), heldout_share=0, **settings).build("train", 0)


def content(task, message=0):
    return task.messages[message]["content"]


def shown(uri_or_path):
    return {"type": "image", "image": uri_or_path}


def text(words):
    return {"type": "text", "text": words}


def test_paths_are_looked_for_beside_the_file(tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    rows = [{"prompt": "how many?", "answer": "3", "image": "a.png"}, {"prompt": "and?", "answer": "3", "image": None}]
    tasks = source(tmp_path, *rows)
    assert content(tasks[0]) == [shown(str(tmp_path / "a.png")), text("how many?")]
    np.testing.assert_array_equal(read_picture(content(tasks[0])[0]["image"]), read_picture(URI))
    assert content(tasks[1]) == "and?"
    assert "image" not in tasks[0].columns


def test_marks_in_a_text_are_where_pictures_stand(tmp_path):
    row = {"prompt": "<image>A<image> or B?", "answer": "A", "images": [URI, {"url": "data:x"}]}
    assert content(source(tmp_path, row)[0]) == [shown(URI), text("A"), shown("data:x"), text(" or B?")]


def test_parts_without_a_picture_take_the_rows(tmp_path):
    parts = [{"type": "image"}, text("A"), {"type": "image_url", "image_url": {"url": URI}}, {"type": "image"}]
    row = {"messages": [{"role": "user", "content": parts}], "answer": "A", "pics": ["data:1", "data:2"]}
    task = source(tmp_path, row, columns={"images": "pics"})[0]
    assert content(task) == [shown("data:1"), text("A"), shown(URI), shown("data:2")]


def test_bytes_of_a_table_are_read(tmp_path):
    table = pa.table({"prompt": ["x?"], "answer": ["3"], "image": [{"bytes": PNG, "path": "a.png"}]})
    pq.write_table(table, tmp_path / "rows.parquet")
    task = Dataset(path=str(tmp_path / "rows.parquet"), heldout_share=0).build("train", 0)[0]
    np.testing.assert_array_equal(read_picture(content(task)[0]["image"]), read_picture(URI))


def test_a_saved_dataset_with_a_column_of_images_is_read(tmp_path):
    from datasets import Dataset as Rows
    from datasets import Features, Value
    from datasets import Image as Feature

    picture = Image.fromarray(read_picture(URI))
    features = Features({"prompt": Value("string"), "answer": Value("string"), "images": [Feature()]})
    Rows.from_dict({"prompt": ["x?"], "answer": ["3"], "images": [[picture]]}, features=features).save_to_disk(
        tmp_path / "saved"
    )
    task = Dataset(path=str(tmp_path / "saved"), heldout_share=0).build("train", 0)[0]
    np.testing.assert_array_equal(read_picture(content(task)[0]["image"]), read_picture(URI))


def test_one_question_under_two_pictures_is_two_problems(tmp_path):
    rows = [{"prompt": "how many?", "answer": "3", "image": picture} for picture in (URI, noise(1), URI)]
    hashes = source(tmp_path, *rows).prompt_hashes()
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"image": "https://example.org/a.png"}, "an address as a picture"),
        ({"image": 5}, "a number as a picture"),
        ({"images": [""]}, "as a picture"),
        ({"prompt": "<image> <image>", "images": [URI]}, "2 places for pictures and 1 pictures"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "1 places for pictures and 0 pictures"),
    ],
)
def test_pictures_that_cannot_be_used_are_refused_by_row(tmp_path, row, said):
    with pytest.raises(RecipeError) as error:
        source(tmp_path, {"prompt": "x", "answer": "1"} | row)
    [line] = error.value.lines
    assert "line 1 of 'rows.jsonl'" in line
    assert said in line
    assert line.startswith("tasks.columns.images")


def test_a_cut_prompt_keeps_its_pictures(tmp_path):
    class Reader:
        limit = 10

        def tokens(self, task):
            return sum(len(part.get("text", "")) for part in content(task))

        def check(self, task):
            raise NotImplementedError

    row = {"prompt": "0123456789" * 400, "answer": "3", "image": URI}
    task = source(tmp_path, row, bad_rows="cut").fitted(Reader())[0]
    picture, kept = content(task)
    assert picture == shown(URI)
    assert ("0123456789" * 400).endswith(kept["text"])
    assert 0 < len(kept["text"]) < 10
