"""The web page in a real browser: upload, run, slider, download, bad uploads, two users, no foreign requests."""

import io
import math
import os
import re
import shutil
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from codes.data.images import decode_picture, encode_image, read_image, to_uint8
from codes.restoration.loading import load_restorer

from .app_server import photo, png, running

pytest.importorskip("gradio", reason="the web page needs the `app` extra")
sync_api = pytest.importorskip("playwright.sync_api", reason="the tests in a browser need playwright")

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = ("no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync")
PATIENCE = 60_000  # milliseconds until a wait gives up

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
    upload_all(page, {name: content}, widget)


def upload_all(page, files, widget="image"):
    kinds = {"svg": "image/svg+xml", "txt": "text/plain", "jpg": "image/jpeg"}
    page.locator(f"#{widget} input[type=file]").first.set_input_files(
        [
            {"name": name, "mimeType": kinds.get(name.rsplit(".", 1)[-1], "image/png"), "buffer": content}
            for name, content in files.items()
        ]
    )


def set_number(page, widget, value):
    field = page.locator(f"#{widget} input[type=number]")
    field.fill(str(value))
    field.press("Tab")


def restore(page, nfe=3):
    set_number(page, "nfe", nfe)
    page.locator("#run").click()


def finished(page, text="Done"):
    page.wait_for_selector(f"#status .note.info:has-text('{text}')")
    page.wait_for_selector(".viewer img >> visible=true")
    page.wait_for_function("[...document.querySelectorAll('.first .viewer img')].every(i => i.complete)")


def downloaded(page, link=".photo .download.file >> visible=true"):
    with page.expect_download() as waiting:
        page.locator(link).first.click()
    return waiting.value


def boxes(page, *selectors):
    return [page.locator(selector).first.bounding_box() for selector in selectors]


def test_upload_restore_slide_and_download_in_the_photos_own_format_and_name(server, opened):
    page = opened()
    content = encode_image(photo(seed=3), ".jpg")
    upload(page, content, "my photo.jpg")
    page.wait_for_selector("#image img")
    restore(page)
    finished(page)
    assert page.locator(".strip figure img").count() == 4
    file = downloaded(page)
    assert file.suggested_filename == "my photo.jpg"
    restored = load_restorer(server.weights, device="cpu")(decode_picture(content, "").rgb, nfe=3, seed=0)
    assert Path(file.path()).read_bytes() == encode_image(to_uint8(restored), ".jpg")
    box, grip = boxes(page, ".viewer", ".divider")
    before = page.screenshot(clip=box)
    page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
    page.mouse.down()
    page.mouse.move(grip["x"] + grip["width"] / 2 - box["width"] / 4, grip["y"] + grip["height"] / 2, steps=5)
    page.mouse.up()
    (moved,) = boxes(page, ".divider")
    assert moved["x"] == pytest.approx(grip["x"] - box["width"] / 4, abs=2)
    assert page.locator(".divider").get_attribute("aria-valuenow") == "25"
    assert page.screenshot(clip=box) != before
    page.locator(".divider").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".divider").get_attribute("aria-valuenow") == "27"


def test_zoom_moves_both_halves_together(opened):
    page = opened()
    upload(page, png(height=200, width=300))
    page.wait_for_selector("#image img")
    restore(page, 1)
    finished(page)

    def halves():
        one, other = boxes(page, ".before img", ".after img")
        assert one == other
        return one

    viewer, start = boxes(page, ".viewer", ".before img")
    assert start["width"] == pytest.approx(viewer["width"], abs=1)
    for button, factor in (("in", 1.5), ("in", 2.25), ("out", 1.5)):
        page.locator(f"[data-zoom={button}]").click()
        assert halves()["width"] == pytest.approx(factor * start["width"], abs=2)
    place = viewer["x"] + 0.25 * viewer["width"], viewer["y"] + 0.5 * viewer["height"]
    page.mouse.move(*place)  # beside the divider: drags the photo, not the divider
    before, (divider,) = halves(), boxes(page, ".divider")
    page.mouse.down()
    page.mouse.move(place[0] + 30, place[1] + 20, steps=4)
    page.mouse.up()
    after = halves()
    assert after["x"] == pytest.approx(before["x"] + 30, abs=1) and after["y"] == pytest.approx(before["y"] + 20, abs=1)
    assert boxes(page, ".divider") == [divider]
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("getComputedStyle(document.documentElement).getPropertyValue('--zoom') > 2")
    assert halves()["width"] == pytest.approx(1.5 * math.exp(0.5) * start["width"], abs=2)
    page.locator("[data-zoom=fit]").click()
    assert halves() == start


def test_a_photo_of_12_megapixels_is_shrunk_with_a_note_or_restored_in_full(opened):
    page = opened()
    buffer = io.BytesIO()
    Image.fromarray(photo(30, 40)).resize((4000, 3000)).save(buffer, "JPEG", quality=50)
    upload(page, buffer.getvalue(), "phone.jpg")
    page.wait_for_selector("#image img")
    restore(page, 1)
    finished(page)
    assert "Shrunk from 4000x3000 to 365x273 pixels" in page.locator(".photo .note").inner_text()
    assert read_image(downloaded(page).path()).shape == (3, 273, 365)
    page.locator("#image [aria-label=Clear]").click()
    upload(page, png(height=320, width=480), "large.png")
    page.wait_for_selector("#image img[alt='large.png']")
    page.locator("#full input").check()
    restore(page, 50)
    page.wait_for_selector("#status .bar:has-text(' left')")  # the time left, after a second
    finished(page)
    assert page.locator(".photo .note").count() == 0
    assert read_image(downloaded(page).path()).shape == (3, 320, 480)


def test_several_photos_wait_in_a_queue_and_come_back_in_one_zip(opened):
    page = opened()
    upload(page, png(seed=1), "a.png")
    page.wait_for_selector("#image img[alt='a.png']")
    upload_all(page, {"bad.png": png()[:150], "b.jpg": encode_image(photo(seed=2), ".jpg")})  # added to the first
    page.wait_for_selector("#image img[alt='b.jpg']")
    assert page.locator("#image .caption-label").all_inner_texts() == ["a.png", "b.jpg"]
    page.wait_for_selector("#problem .note.error:has-text('bad.png')")
    restore(page)
    finished(page, "Done: 2 of 2 photos")
    assert page.locator(".photos button").all_inner_texts() == ["a.png\ndone", "b.jpg\ndone"]
    assert downloaded(page).suggested_filename == "a.png"
    page.locator(".photos button").nth(1).click()
    assert downloaded(page).suggested_filename == "b.jpg"
    archive = downloaded(page, ".download.zip")
    assert archive.suggested_filename == "restored.zip"
    with zipfile.ZipFile(archive.path()) as found:
        assert found.namelist() == ["a.png", "b.jpg"] and found.testzip() is None


def test_strength_and_advanced_options_act_and_are_folded_away(opened):
    page = opened()
    upload(page, png())
    page.wait_for_selector("#image img")
    hidden = ["#strength", "#solver", "#seed", "#order", "#tau", "#grid-name", "#clamp", "#compat"]
    assert [page.locator(name).is_visible() for name in hidden] == [False] * len(hidden)
    page.locator("#automatic input").uncheck()
    page.wait_for_selector("#strength")
    set_number(page, "strength", 0)
    restore(page)
    finished(page)
    assert np.array_equal(to_uint8(read_image(downloaded(page).path())), photo())
    page.locator("#advanced > button").click()
    page.wait_for_selector("#order")
    assert page.locator("#solver input").input_value() == "mrsampler: MR Sampler, order 1, clipped"
    assert "the paper's" not in page.content()
    page.locator("#order input").click()
    page.get_by_role("option", name="2").click()
    page.locator("#run").click()
    page.wait_for_selector(".photo .facts:has-text('mrsampler, order 2, clipped ·')")  # the others stay as they were
    page.locator("#tau input, #tau textarea").fill("0.5")
    page.locator("#run").click()
    page.wait_for_selector(".photo .facts:has-text('mrsampler, order 2, tau 0.5, clipped')")


def test_each_tab_has_only_its_own_controls_and_results(opened):
    page = opened()
    own = {"Restore": ["#run", "#nfe", "#samples", "#automatic", "#full", "#advanced", "#results"]}
    own["Compare solvers"] = ["#compare", "#solvers", "#nfes", "#compare-seed", "#grid"]
    for tab in ("Compare solvers", "Restore"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_selector(own[tab][0])
        for name, widgets in own.items():
            assert [page.locator(widget).is_visible() for widget in widgets] == [name == tab] * len(widgets)


def test_examples_have_a_reference_and_several_samples_an_uncertainty_map(opened):
    page = opened()
    page.locator("#examples button").nth(4).click()
    page.wait_for_selector("#image img")
    set_number(page, "samples", 2)
    restore(page, 1)
    finished(page)
    text = page.locator(".scores").inner_text()
    assert re.search(r"PSNR.*input\s+\d+\.\d\d.*restored\s+\d+\.\d\d.*mean of 2\s+\d+\.\d\d", text, re.DOTALL)
    page.wait_for_selector("figure.heat img")
    assert page.locator("figure.mean img").count() == 1


def test_comparison_fills_its_grid(opened):
    page = opened()
    upload(page, png())
    page.wait_for_selector("#image img")
    page.get_by_role("tab", name="Compare solvers").click()
    page.locator("#compare").click()
    page.wait_for_selector("#compare-status .note.info:has-text('Done: 9 restorations')")
    assert page.locator("#grid td img").count() == 9
    assert downloaded(page, "#grid .download").suggested_filename == "comparison.png"


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
    page.wait_for_selector("#status .note.error:has-text('Choose a photo first')")
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
    assert first.locator(".viewer").count() == 0


BLOCKS = ["#title", "#image", "#examples", "#tabs button[role=tab]", "#run", "#cancel-run", "#status", "#automatic",
          "#full", "#nfe", "#samples", "#advanced", "#reference-panel", ".viewer", ".photo > .download",
          ".photo > .facts", ".strip", "#grid", "#solvers", "#nfes", "#compare"]  # fmt: skip


def overlapping(page, selectors):
    """Pairs of visible elements that share some area."""
    found = [(name, element.bounding_box()) for name in selectors for element in page.locator(name).all()]
    found = [(name, box) for name, box in found if box is not None and box["width"] and box["height"]]
    assert len(found) > len(selectors) / 4

    def shared(side, extent, one, other):
        return min(one[side] + one[extent], other[side] + other[extent]) - max(one[side], other[side])

    return [
        (name, other_name)
        for i, (name, box) in enumerate(found)
        for other_name, other in found[:i]
        if shared("x", "width", box, other) > 1 and shared("y", "height", box, other) > 1
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_the_button_is_on_the_first_screen_and_nothing_overlaps(opened, scheme):
    page = opened(viewport={"width": 390, "height": 844}, color_scheme=scheme)

    def button_in_sight():
        (box,) = boxes(page, "#run")
        return box["y"] + box["height"] <= 844 and box["x"] + box["width"] <= 390

    assert button_in_sight()
    upload_all(page, {f"holiday {i}.png": png(seed=i) for i in range(5)})
    page.wait_for_selector("#image img[alt='holiday 4.png']")
    assert button_in_sight()
    inside = ["#image label", "#image .icon-button-wrapper", "#image .gallery-item"]
    assert not overlapping(page, inside)
    page.locator("#image [aria-label=Clear]").click()
    upload(page, png())
    page.wait_for_selector("#image img")
    restore(page, 12)
    finished(page)
    page.wait_for_function("document.querySelector('.viewer').getBoundingClientRect().bottom <= innerHeight")
    assert not overlapping(page, BLOCKS)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("tab", name="Compare solvers").click()
    page.wait_for_selector("#compare")
    assert not overlapping(page, BLOCKS)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
    assert (brightness < 80) == (scheme == "dark")


def test_in_the_dark_on_a_phone_menus_end_before_their_arrows_and_empty_boxes_are_seen(opened):
    page = opened(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.locator("#advanced > button").click()
    page.wait_for_selector("#tau")
    ends = page.evaluate(
        "[...document.querySelectorAll('#advanced .secondary-wrap')].map(menu => {"
        " const input = menu.querySelector('input'), box = input.getBoundingClientRect();"
        " return [box.right - parseFloat(getComputedStyle(input).paddingRight),"
        "         menu.querySelector('.icon-wrap').getBoundingClientRect().left] })"
    )
    assert len(ends) == 5 and all(text <= arrow for text, arrow in ends)
    colours = page.locator("#full input").evaluate(
        "box => [getComputedStyle(box).borderColor, getComputedStyle(box).backgroundColor]"
        ".map(colour => colour.match(/\\d+/g).slice(0, 3).map(Number))"
    )
    assert abs(np.mean(colours[0]) - np.mean(colours[1])) > 60


def test_an_example_is_marked_only_as_long_as_it_is_shown(opened):
    page = opened()
    page.locator("#examples button").nth(2).click()
    page.wait_for_selector("#examples .thumbnail-item.selected")
    upload(page, png())
    page.wait_for_selector("#examples .thumbnail-item.selected", state="detached")
    page.locator("#examples button").nth(2).click()  # and it can be chosen again
    page.wait_for_selector("#examples .thumbnail-item.selected")
    page.wait_for_selector("#image img[alt='jpeg-compressed']")
