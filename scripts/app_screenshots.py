"""Take the documentation's pictures of the web page, in Chromium:  python scripts/app_screenshots.py [--opt FILE].

Writes docs/images/app-restore.png and app-compare.png, each below 250 kB. With --all FOLDER it writes all states of the
page (start, error, running, finished, advanced options, several photos, zoomed, comparison) there instead, for desktop
and phone, light and dark, to be looked at after a change of its style.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher import start

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ("no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync")
LARGEST = 250_000
TIMEOUT = 600_000  # milliseconds: on a busy machine everything takes its time, and a state that never comes is an error
DESKTOP = {"viewport": {"width": 1180, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}}


def main() -> int:
    """Serve the page, drive it through its states and take pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--opt", default="pretrained/mr-universal.safetensors", help="option file or weights to restore with"
    )
    parser.add_argument("--example", type=int, default=6, help="which of the ten examples, from 0 (default: 6, rainy)")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="write pictures of all states there")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    arguments = parser.parse_args()
    if arguments.chromium is None:
        print("no Chromium found: name one with --chromium", file=sys.stderr)
        return 2
    from playwright.sync_api import sync_playwright

    with served(arguments.opt) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=arguments.chromium, args=[f"--{flag}" for flag in FLAGS], timeout=0
        )
        if arguments.all is None:
            page = opened(browser, url, arguments.example, **DESKTOP)
            restored(page)
            save(ROOT / "docs" / "images" / "app-restore.png", page.screenshot(full_page=True))
            compared(page)
            save(ROOT / "docs" / "images" / "app-compare.png", page.screenshot(full_page=True))
        else:
            arguments.all.mkdir(parents=True, exist_ok=True)
            for name, options in (
                ("light", DESKTOP),
                ("dark", DESKTOP | {"color_scheme": "dark"}),
                ("phone", PHONE),
                ("phone-dark", PHONE | {"color_scheme": "dark"}),
            ):
                all_states(browser, url, arguments.example, arguments.all, name, options)
        browser.close()
    return 0


@contextmanager
def served(opt: str) -> Iterator[str]:
    """The page's address while it runs."""
    command = [sys.executable, "app.py", "--opt", opt, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            raise SystemExit(process.wait())
        try:
            yield found.group()
        finally:
            process.terminate()


def opened(browser: Any, url: str, example: int, **options: Any) -> Any:
    """The page with an example chosen."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(TIMEOUT)
    page.goto(url)
    page.locator("#examples button").nth(example).click()
    page.wait_for_selector("#image img")
    return page


def restored(page: Any) -> None:
    """Press the button and wait for the result."""
    page.locator("#run").click()
    page.wait_for_selector("#status .note.info:has-text('Done')")
    page.wait_for_function(
        "[...document.querySelectorAll('.first .viewer img')].every(i => i.complete && i.naturalWidth)"
    )
    page.wait_for_timeout(1000)


def compared(page: Any) -> None:
    """Run the comparison and wait for it."""
    page.get_by_role("tab", name="Compare solvers").click()
    page.locator("#compare").click()
    page.wait_for_selector("#compare-status .note.info:has-text('Done')")
    page.wait_for_timeout(500)


def uploaded(page: Any, files: dict[str, bytes]) -> None:
    """Choose files."""
    page.locator("#image input[type=file]").first.set_input_files(
        [{"name": name, "mimeType": "image/png", "buffer": content} for name, content in files.items()]
    )


def all_states(browser: Any, url: str, example: int, folder: Path, name: str, options: dict[str, Any]) -> None:
    """Pictures of every state."""

    def shoot(state: str, full: bool = True) -> None:
        page.wait_for_timeout(300)
        page.screenshot(path=folder / f"{name}-{state}.png", full_page=full)

    page = opened(browser, url, example, **options)
    shoot("start", full=False)
    uploaded(page, {"broken.png": b"\x89PNG\r\n\x1a\n"})
    page.wait_for_selector("#problem .note.error")
    shoot("error")
    page.locator("#examples button").nth(example).click()
    page.wait_for_selector("#problem .note.error", state="detached")
    page.locator("#samples input[type=number]").fill("3")
    page.locator("#nfe input[type=number]").fill("4")  # what is recommended may be over after one step
    page.locator("#run").click()
    page.wait_for_function("document.querySelectorAll('#results .strip figure img').length > 2")
    shoot("running")
    page.wait_for_selector("figure.heat img")
    page.wait_for_timeout(700)
    shoot("finished")
    page.locator("#automatic input").uncheck()
    page.locator("#advanced > button").click()
    page.wait_for_selector("#tau")
    shoot("advanced")
    page.locator("#image [aria-label=Clear]").click()
    photos = sorted((ROOT / "options" / "demo" / "GT").glob("*.png"))[:5]
    uploaded(page, {photo.name: photo.read_bytes() for photo in photos})
    page.wait_for_selector(f"#image img[alt='{photos[-1].name}']")
    page.locator("#samples input[type=number]").fill("1")
    page.locator("#nfe input[type=number]").fill("1")
    page.locator("#run").click()
    page.wait_for_selector(".photos button[data-photo]")
    shoot("queue")
    page.wait_for_selector("#status .note.info:has-text('Done')")
    page.locator(".photos button[data-photo]").nth(2).click()
    for _ in range(2):
        page.locator(".viewer [data-zoom=in] >> visible=true").click()
    shoot("zoomed")
    compared(page)
    shoot("compared")
    page.context.close()


def save(path: Path, content: bytes) -> None:
    """The picture with as many colours as fit the size; shrunk where none do."""
    from PIL import Image

    full = Image.open(io.BytesIO(content)).convert("RGB")
    for scale, colours in ((scale, colours) for scale in (1, 0.85, 0.7, 0.6) for colours in (256, 160, 96)):
        image = full.resize((round(full.width * scale), round(full.height * scale)), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        if buffer.tell() < LARGEST:
            break
    path.write_bytes(buffer.getvalue())
    print(f"{path}: {buffer.tell() / 1000:.0f} kB, {image.width}x{image.height}, {colours} colours")


if __name__ == "__main__":
    sys.exit(start(main, "playwright"))
