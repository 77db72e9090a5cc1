"""Every command that the README and the documentation show is run, page by page, or listed here with the reason."""

import re
from fnmatch import fnmatchcase

import pytest

from .documented import furnish, launched, run
from .documents import PAGES, ROOT, Command, commands

# Commands that are not run here; a star stands for anything.
NOT_RUN = {
    "it is what runs this test": ["make test", "make test-integrations", "make fuzz", "python -m pytest *"],
    "it changes the environment, the sources or the hooks": ["make install", "make format", "pre-commit install"],
    "it downloads": [
        "pip install pre-commit",
        "python scripts/prepare_photos.py",
        "python scripts/fetch_weights.py --only *",
        "python scripts/peers.py *",
    ],
    "it needs a server that is not there": ["docker build -t mr-sampler ."],
    "it needs a GPU": ["python app.py --set device=cuda precision=bf16 --shrink-above 12"],
    "it needs the published weights": [
        "cp DOWNLOADS/*",
        "python restore.py photos/ -o restored/ --opt options/mrsampler.yml",
        "python test.py -opt options/mrsampler.yml --set datasets.test1.dataroot=DATA",
        "python test.py -opt options/irsde.yml --set path.pretrain_model_G=pretrained/ir-sde-derainH100.pth",
        "python scripts/reproduce.py --table all --model daclip --data testsets",
    ],
    "it needs the photographs of the training": ["python scripts/prepare_photos.py --folder FOLDER_WITH_JPEGS"],
    "it needs the whole history": ["git show 6fbcfb4:pretrained/mr-tiny*"],
    "it takes minutes": ["python scripts/benchmark.py *"],
    "it needs results that take hours": ["python scripts/reproduce.py --render-only *"],
}
# Commands that tests of their own run.
ELSEWHERE = {
    "make docs": "test_pages_and_nothing_else_are_published",
    "make notebook": "test_notebook_runs_from_any_folder_and_prints_what_is_stored",
    "make exact-demo": "test_tables_show_what_the_text_says",
    "python scripts/exact_demo.py -o results/exact-demo": "test_tables_show_what_the_text_says",
    "python scripts/parity.py --reference tests/golden": "test_reference_data_is_reproduced",
}
OWN_PAGES = {
    "make": "docs/index.md",
    "reproduce": "docs/reproduce.md",
    "study": "docs/figures.md",
    "tune": "docs/figures.md",
}


def excused(shown: Command) -> bool:
    """Whether a command is in one of the lists."""
    patterns = [pattern for lines in NOT_RUN.values() for pattern in lines]
    return shown.text in ELSEWHERE or any(fnmatchcase(shown.text, pattern) for pattern in patterns)


def heavy(shown: Command) -> bool:
    """Whether a command needs a library that `make test-integrations` installs."""
    pip = shown.words[0] == "pip" and re.search(r"export|spandrel", shown.text)
    return bool(pip) or shown.words[1].startswith("run_") or (launched(shown) or [""])[0] == "export"


def own_page(shown: Command) -> bool:
    """Whether to run a command for this page: one that takes long is run for the page about it, if that shows it."""
    page = OWN_PAGES.get((launched(shown) or shown.words)[0], shown.page)
    return shown.page == page or shown.text not in [one.text for one in commands(ROOT / page)]


SHOWN = {page: [one for one in commands(page) if not excused(one) and own_page(one)] for page in PAGES}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if SHOWN[page]], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_run_one_after_the_other(folder, page):
    """Those that need a library of `make test-integrations` run there: tests/integrations/test_docs.py."""
    if any(" mine.safetensors --half" in shown.text for shown in SHOWN[page]):
        (folder / "mine.safetensors").unlink()  # to be written
    for shown in SHOWN[page]:
        if not heavy(shown):
            run(shown, folder)


def test_what_is_not_run_is_shown_somewhere():
    """A list that nobody shortens would hide new commands."""
    texts = [shown.text for page in PAGES for shown in commands(page)]
    for pattern in [*ELSEWHERE, *(pattern for lines in NOT_RUN.values() for pattern in lines)]:
        assert any(fnmatchcase(text, pattern) for text in texts), pattern


def test_what_is_run_elsewhere_has_its_test():
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    for name in ELSEWHERE.values():
        assert f"def {name}(" in sources
