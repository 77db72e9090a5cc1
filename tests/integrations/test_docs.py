"""Documented commands that need a library which `make test` does not install."""

import pytest

from ..documented import furnish, run
from ..documents import PAGES, ROOT
from ..test_docs_run import SHOWN, heavy

pytest.importorskip("onnx", reason="`make test-integrations` installs it")
pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(map(heavy, SHOWN[page]))], ids=lambda page: str(page.relative_to(ROOT))
)
def test_commands_with_other_libraries_run_one_after_the_other(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    for shown in filter(heavy, SHOWN[page]):
        run(shown, tmp_path)
