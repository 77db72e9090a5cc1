"""Images are found and paired, and those without a partner are named."""

import numpy as np
import pytest

from codes.data.images import save_image
from codes.data.pairs import DataError, Pattern, find_images, find_tasks, pair


@pytest.fixture
def folder(tmp_path):
    def make(name, images):
        for image in images:
            save_image(np.zeros((4, 4, 3), np.uint8), tmp_path / name / image)
        return tmp_path / name

    return make


def test_images_are_found_recursively_in_name_order(folder):
    root = folder("a", ["b.png", "a.jpg", "sub/c.PNG".lower(), "10.png", "2.webp"])
    (root / "notes.txt").write_text("no image")
    (root / ".hidden.png").write_text("temporary")
    assert list(find_images(root)) == ["10", "2", "a", "b", "sub/c"]


def test_pairing_by_name_ignores_the_suffix_and_reports_unpaired_images(folder):
    items, problems = pair(folder("LQ", ["1.jpg", "2.png", "4.png"]), folder("GT", ["1.png", "2.png", "3.png"]))
    assert [(item.name, item.lq.name, item.gt.name) for item in items] == [
        ("1", "1.jpg", "1.png"),
        ("2", "2.png", "2.png"),
    ]
    assert len(problems) == 2
    assert "4.png: no clean image '4' in" in problems[0] and "3.png: no degraded image for it" in problems[1]


def test_pairing_by_pattern(folder):
    lq, gt = folder("LQ", ["rain-001.png", "rain-002.png"]), folder("GT", ["norain-002.png", "norain-001.png"])
    items, problems = pair(lq, gt, Pattern("rain-{}", "norain-{}"))
    assert [(item.lq.name, item.gt.name) for item in items] == [
        ("rain-001.png", "norain-001.png"),
        ("rain-002.png", "norain-002.png"),
    ]
    assert not problems
    with pytest.raises(DataError, match=r"no names in common .*'rain-001', 'norain-001'.*set pairing"):
        pair(lq, gt)
    with pytest.raises(DataError, match=r"'rain' must contain \{\} exactly once"):
        Pattern("rain", "norain-{}")


def test_pairing_by_order_needs_equal_numbers(folder):
    lq, gt = folder("LQ", ["a.png", "b.png"]), folder("GT", ["x.png", "y.png"])
    assert [(item.name, item.gt.name) for item in pair(lq, gt, "order")[0]] == [("a", "x.png"), ("b", "y.png")]
    with pytest.raises(DataError, match="has 2 images, .* has 3"):
        pair(lq, folder("GT", ["z.png"]), "order")


def test_unusable_folders_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match="nowhere: no such folder"):
        find_images(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no images"):
        find_images(tmp_path / "empty")
    with pytest.raises(DataError, match="two images with the same name"):
        find_images(folder("twice", ["a.png", "a.jpg"]))


def test_published_layout(folder, tmp_path):
    for task in ("rainy", "hazy"):
        folder(f"root/{task}/LQ", ["1.png"])
        folder(f"root/{task}/GT", ["1.png"])
    assert list(find_tasks(tmp_path / "root")) == ["hazy", "rainy"]  # in the published order
    assert list(find_tasks(tmp_path / "root", ["rainy"])) == ["rainy"]
    with pytest.raises(DataError, match=r"no folder for snowy; expected .*root/snowy/LQ and GT"):
        find_tasks(tmp_path / "root", ["rainy", "snowy"])
    with pytest.raises(DataError, match="no folder for motion-blurry"):
        find_tasks(tmp_path)
