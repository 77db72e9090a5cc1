"""The web page in a real browser: upload, run, slider, download, bad uploads, two users, no foreign requests."""

import os
import re
import shutil
from urllib.parse import urlsplit

import numpy as np
import pytest

from codes.data.images import read_image, to_uint8
from codes.restoration.loading import load_restorer

from .app_server import photo, png, running

pytest.importorskip("gradio", reason="the web page needs the `app` extra")
sync_api = pytest.importorskip("playwright.sync_api", reason="the tests in a browser need playwright")

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = ("no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync")
PATIENCE = 120_000  # milliseconds until a wait gives up

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=[f"--{flag}" for flag in FLAGS])
        yield found
        found.close()


@pytest.fixture
def opened(server, browser):
    """Open pages as different users; in the end, none may have contacted another server or had a script error."""
    contexts, requested, errors = [], [], []

    def open_page(**options):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requested.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.goto(server.url)
        page.wait_for_selector("#run")
        return page

    yield open_page
    for context in contexts:
        context.close()
    own = urlsplit(server.url).netloc
    foreign = {url[:200] for url in requested if urlsplit(url).netloc != own and not url.startswith(("data:", "blob:"))}
    assert requested and not foreign
    assert not errors


def upload(page, content, name="photo.png", widget="image"):
    kind = {"svg": "image/svg+xml", "txt": "text/plain"}.get(name.rsplit(".", 1)[-1], "image/png")
    page.locator(f"#{widget} input[type=file]").set_input_files({"name": name, "mimeType": kind, "buffer": content})


def set_number(page, widget, value):
    field = page.locator(f"#{widget} input[type=number]")
    field.fill(str(value))
    field.press("Tab")


def restore(page, nfe=3):
    set_number(page, "nfe", nfe)
    page.locator("#run").click()


def finished(page):
    page.wait_for_selector("#status .note.info:has-text('Done')")
    page.wait_for_selector("#slider img")


def downloaded(page, button="download"):
    with page.expect_download() as waiting:
        page.locator(f"#{button}").click()
    return waiting.value


def test_upload_restore_slide_and_download(server, opened):
    page = opened()
    upload(page, png(seed=3), "my photo.png")
    page.wait_for_selector("#image img")
    restore(page)
    finished(page)
    assert page.locator("#strip figure img").count() == 4
    file = downloaded(page)
    assert file.suggested_filename == "my photo-restored.png"
    expected = load_restorer(server.weights, device="cpu")(photo(seed=3), nfe=3, seed=0)
    assert np.array_equal(to_uint8(read_image(file.path())), to_uint8(expected))
    box = page.locator("#slider").bounding_box()
    before = page.screenshot(clip=box)
    handle = page.locator("#slider [role=slider], #slider .outer, #slider .inner").first
    grip = handle.bounding_box()
    page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
    page.mouse.down()
    page.mouse.move(grip["x"] + grip["width"] / 2 - box["width"] / 4, grip["y"] + grip["height"] / 2, steps=5)
    page.mouse.up()
    moved = handle.bounding_box()
    assert moved["x"] < grip["x"] - box["width"] / 8
    assert page.screenshot(clip=box) != before


def test_examples_have_a_reference_and_several_samples_an_uncertainty_map(opened):
    page = opened()
    page.locator("#examples button").nth(4).click()
    page.wait_for_selector("#image img")
    set_number(page, "samples", 2)
    restore(page, 1)
    finished(page)
    text = page.locator("#summary").inner_text()
    assert re.search(r"PSNR.*degraded\s+\d+\.\d\d.*restored\s+\d+\.\d\d.*mean of 2\s+\d+\.\d\d", text, re.DOTALL)
    page.wait_for_selector("#heat img")
    assert page.locator("#mean img").count() == 1


def test_comparison_fills_its_grid(opened):
    page = opened()
    upload(page, png())
    page.wait_for_selector("#image img")
    page.get_by_role("tab", name="Compare solvers").click()
    page.locator("#compare").click()
    page.wait_for_selector("#compare-status .note.info:has-text('Done: 9 restorations')")
    assert page.locator("#grid td img").count() == 9
    assert downloaded(page, "download-sheet").suggested_filename == "comparison.png"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("truncated.png", png()[:150], "damaged"),
        ("drawing.svg", b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>', "SVG"),
    ],
)
def test_a_good_upload_works_after_a_bad_one_got_a_message(opened, name, content, expected):
    page = opened()
    upload(page, content, name)
    page.wait_for_selector(f"#problem .note.error:has-text('{expected}')")
    assert page.locator("#image img").count() == 0
    upload(page, png())
    page.wait_for_selector("#image img")
    page.wait_for_selector("#problem .note", state="detached")
    restore(page, 1)
    finished(page)


def test_restore_without_an_image_says_what_to_do(opened):
    page = opened()
    page.locator("#run").click()
    page.wait_for_selector("#status .note.error:has-text('Choose an image first')")
    assert page.locator("#run").is_enabled()


def test_two_users_at_once_and_one_cancels(opened):
    first, second, third = opened(), opened(), opened()
    for i, page in enumerate((first, second, third)):
        upload(page, png(seed=i, **({"height": 600, "width": 600} if page is first else {})))
        page.wait_for_selector("#image img")
    set_number(first, "samples", 16)  # enough work that it does not finish before it is cancelled
    restore(first, 100)
    first.wait_for_selector("#status .bar:has-text('step')")
    restore(second)
    restore(third)
    first.locator("#cancel-run").click()
    first.wait_for_selector("#status .note.info:has-text('Cancelled')")
    for page in (second, third):
        finished(page)
    assert first.locator("#run").is_enabled() and first.locator("#cancel-run").is_disabled()
    assert first.locator("#slider img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_horizontal_scrolling_on_a_phone(opened, scheme):
    page = opened(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    upload(page, png())
    page.wait_for_selector("#image img")
    restore(page, 12)
    finished(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
    assert (brightness < 80) == (scheme == "dark")
