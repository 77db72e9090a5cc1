"""The page's private folder. It is set up before Gradio is imported, which reads the environment then."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..runtime.locks import claim
from ..runtime.problems import Busy

PREFIX = "mr-sampler-"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user can enter, for uploads and results; it is removed with the page.

    Gradio also reads settings from the environment. None of them may weaken what the page promises.
    """
    for name in [name for name in os.environ if name.startswith("GRADIO_")]:
        del os.environ[name]
    remove_orphans(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        found = Path(folder).resolve()
        os.environ |= {
            "GRADIO_ANALYTICS_ENABLED": "False",
            "GRADIO_TEMP_DIR": str(found),
            "GRADIO_EXAMPLES_CACHE": str(found / "cached"),
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        with claim(found):
            yield found


def remove_orphans(parent: Path, seconds: float = 60.0) -> None:
    """Remove private folders whose owner is gone: those that this user can claim, older than a moment."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            status = folder.lstat()
            mine = folder.is_dir() and not folder.is_symlink() and status.st_uid == os.getuid()
            if mine and time.time() - status.st_mtime > seconds:  # a new one may not be claimed yet
                with claim(folder):
                    shutil.rmtree(folder, ignore_errors=True)
        except (OSError, Busy):
            continue
