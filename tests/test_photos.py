"""The photographs to train and validate on: their lists, and those of a folder."""

import cv2
import numpy as np
import pytest

from codes.commands.prepare_photos import main
from codes.data.images import encode_image, read_image, to_uint8
from codes.data.photos import SOURCES, FolderPhoto, PhotoError, add_folder, folder_photos


def photo(name: str, split: str) -> FolderPhoto:
    return FolderPhoto(name=name, split=split, repository="someone/photos", licence="CC0", original=f"{name}.jpg")


def test_packages_are_all_listed():
    counts = {split: [len(source.photos) for source in SOURCES if source.split == split] for split in ("train", "val")}
    assert counts == {"train": [13, 1, 11, 9, 47, 74], "val": [15, 4, 2]}
    names = [photo.name for source in SOURCES for photo in source.photos]
    assert len(set(names)) == len(names)
    rocket = next(photo for source in SOURCES for photo in source.photos if photo.name == "rocket")
    assert (rocket.path, rocket.box) == ("skimage/data/rocket.jpg", (150, 87, 340))


def test_folder_lists_repository_licence_and_split_of_each_photo():
    photos = folder_photos()
    assert [sum(photo.split == split for photo in photos) for split in ("train", "val")] == [490, 39]
    assert len({photo.name for photo in photos}) == len(photos)
    assert all(photo.repository.count("/") == 1 and photo.licence and photo.original for photo in photos)


def test_photos_of_a_folder_are_kept_for_training_and_cut_for_validation(tmp_path):
    rng = np.random.default_rng(0)
    folder, out = tmp_path / "folder", tmp_path / "out"
    folder.mkdir()
    smooth = cv2.resize(rng.integers(0, 255, (6, 8, 3)).astype(np.uint8), (520, 300))
    contents = {name: encode_image(smooth[:, :width], ".jpg") for name, width in (("a", 400), ("b", 520), ("c", 280))}
    for name, content in contents.items():
        (folder / f"{name}.jpg").write_bytes(content)
    (folder / "damaged.jpg").write_bytes(b"no image")
    photos = [photo("a", "train"), photo("b", "val"), photo("c", "val"), photo("no", "val"), photo("damaged", "train")]
    problems = add_folder(folder, out, photos)
    assert [line.rsplit("/", 1)[1].split(":")[0] for line in problems] == ["no.jpg", "damaged.jpg"]
    assert (out / "train" / "a.jpg").read_bytes() == contents["a"]
    for name, rows, columns in (("b", slice(None), slice(110, 410)), ("c", slice(10, 290), slice(None))):
        decoded = cv2.imdecode(np.frombuffer(contents[name], np.uint8), cv2.IMREAD_COLOR)[rows, columns, ::-1]
        expected = cv2.resize(np.ascontiguousarray(decoded), (256, 256), interpolation=cv2.INTER_AREA)
        assert np.array_equal(to_uint8(read_image(out / "val" / f"{name}.png")), expected)
    assert len(list(out.rglob("*.*"))) == 3
    (out / "train" / "a.jpg").write_bytes(b"mine")
    add_folder(folder, out, photos)
    assert (out / "train" / "a.jpg").read_bytes() == b"mine"


def test_command_adds_a_folder_and_reports_what_is_missing(tmp_path, capsys):
    folder = tmp_path / "folder"
    folder.mkdir()
    first = next(photo for photo in folder_photos() if photo.split == "val")
    (folder / f"{first.name}.jpg").write_bytes(encode_image(np.full((300, 320, 3), 90, np.uint8), ".jpg"))
    assert main([str(tmp_path / "out"), "--folder", str(folder)]) == 1
    printed = capsys.readouterr()
    assert "train: 0 of 490 photographs" in printed.out and "val: 1 of 39 photographs" in printed.out
    assert printed.err.count("cannot be read: No such file") == 528
    assert main([str(tmp_path / "out"), "--folder", str(tmp_path / "no")]) == 2
    assert "no: no such folder" in capsys.readouterr().err


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(PhotoError, match="nowhere: no such folder"):
        add_folder(tmp_path / "nowhere", tmp_path)
