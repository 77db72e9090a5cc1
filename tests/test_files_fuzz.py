"""Files of records with any content and any damage: what is read was written, and nothing raises but Damaged."""

import json

from hypothesis import given
from hypothesis import strategies as st

from codes.evaluation.records import read_records
from codes.runtime.files import (
    JsonLines,
    mend_lines,
    read_arrays,
    read_json,
    read_lines,
    read_text,
    write_json,
    write_json_lines,
    write_text,
)
from codes.runtime.problems import Damaged

TEXT = st.text(max_size=8) | st.sampled_from(["check", "\udcff", "\n", "→"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(TEXT.filter(lambda key: key != "check"), VALUES, max_size=4)
# Places as shares of the length, and what each byte there becomes; None cuts the file off.
DAMAGE = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=3) | st.none()), min_size=1, max_size=3
)


def damage(content: bytes, changes) -> bytes:
    for place, new in changes:
        at = int(place * len(content))
        content = content[:at] if new is None else content[:at] + new + content[at + 1 :]
    return content


def was_written(found, written) -> bool:
    """Whether an object is one of those written, perhaps with a checksum that is none any more: its name was hit."""
    return found in written or any(each.items() <= found.items() and len(found) == len(each) + 1 for each in written)


@given(values=st.lists(OBJECTS, max_size=5), changes=DAMAGE)
def test_lines(values, changes, tmp_path):
    path = tmp_path / "lines"
    write_json_lines(path, values)
    assert read_lines(path).values == values and not read_lines(path).damaged
    path.write_bytes(damage(path.read_bytes(), changes))
    found = read_lines(path).values
    assert all(was_written(each, values) for each in found)
    mend_lines(path)
    lines = JsonLines(path)
    lines.append({"next": 1})
    lines.close()
    assert read_lines(path).values[-1] == {"next": 1}
    assert all(each in read_lines(path).values for each in found if each in values)


@given(value=OBJECTS | st.lists(OBJECTS, max_size=3), changes=DAMAGE)
def test_json(value, changes, tmp_path):
    path = tmp_path / "file.json"
    write_json(path, value)
    assert read_json(path) == value
    path.write_bytes(damage(path.read_bytes(), changes))
    try:
        found = read_json(path)
    except Damaged:
        return
    if isinstance(value, dict):
        # Not an object any more: one number or word is left, which its reader refuses by its kind.
        assert not isinstance(found, dict) or was_written(found, [value])
    elif isinstance(found, list):
        assert all(was_written(each, value) for each in found if isinstance(each, dict))


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(lambda text: text + "\n"), changes=DAMAGE
)
def test_text(text, changes, tmp_path):
    path = tmp_path / "file.yml"
    write_text(path, text)
    assert read_text(path) == text
    path.write_bytes(damage(path.read_bytes(), changes))
    try:
        found = read_text(path)
    except Damaged:
        return
    # Unless its first line is gone altogether, as in a file of an earlier version.
    assert found == text or not path.read_bytes().startswith(b"# sha256 of what follows: ")


@given(content=st.binary(max_size=300))
def test_any_bytes(content, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(content)
    for read in (read_text, read_json, read_lines, read_arrays):
        try:
            read(path)
        except Damaged as error:
            assert str(error).startswith(f"{path}: damaged") and "\n" not in str(error)


KEYS = ["task", "solver", "name", "nfe", "seed", "seconds", "tile", "metrics"]


@given(line=st.dictionaries(st.sampled_from(KEYS) | TEXT, VALUES, max_size=9))
def test_records_with_any_values_are_read_or_left_out(line, tmp_path):
    """C6: a record line with wrong types."""
    whole = {"task": "t", "solver": "s", "name": "n", "nfe": 1, "seed": 0, "seconds": 0.1, "tile": None, "metrics": {}}
    (tmp_path / "records.0.jsonl").write_text(json.dumps({**whole, "name": "other"}) + "\n" + json.dumps(line) + "\n")
    found = read_records(tmp_path)
    assert ("t", "s", "other") in found and len(found) <= 2
