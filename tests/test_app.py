"""The web page without a browser: limits, hostile uploads, closed doors, two users at once, cancelling."""

import io
import os
import re
import struct
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch

from codes.app import jobs as work
from codes.app import middleware as gate
from codes.app import render, service
from codes.app.examples import make_examples
from codes.app.uploads import Limits, decode_upload, preview
from codes.data.images import ImageError, decode_picture, encode_image, to_uint8
from codes.metrics import Scorer
from codes.names import TASKS
from codes.restoration.loading import load_restorer
from codes.solvers import PlannedSolver, Solver, make_plan

from .app_server import Client, photo, png, running

pytest.importorskip("gradio", reason="the web page needs the `app` extra")

SCORER = Scorer(("psnr",))


# ---- files that are no good


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(width: int, height: int, pixels: bytes, bits: int = 1, colour: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def bomb(side: int) -> bytes:
    """A small file that becomes side x side pixels."""
    return png_of(side, side, zlib.compress(bytes(side * (side // 8 + 1)), 9))


def damaged_png() -> bytes:
    content = bytearray(png())
    content[60:200] = bytes(140)
    return bytes(content)


def float_tiff() -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.zeros((32, 32), np.float32)).save(buffer, "TIFF")
    return buffer.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><script>alert(1)</script></svg>'
XML = b"\xef\xbb\xbf<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"
BMP = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 90, 0, 0, 54, 40, 90000, -90000, 1, 24, 0, 0, 0, 0, 0, 0)
JPEG = encode_image(photo(), ".jpg")
HOSTILE = {
    "empty.png": (b"", "empty"),
    "text.png": (b"hello, this is no image at all", "not an image"),
    "truncated.png": (png()[:150], "damaged"),
    "damaged.png": (damaged_png(), "damaged|decoded"),
    "headless.png": (b"\x89PNG\r\n\x1a\n", "damaged"),
    "checksum.png": (png()[:29] + b"\0\0\0\0" + png()[33:], "damaged|decoded"),
    "bomb.png": (bomb(12000), "144.0 megapixels"),
    "claims.png": (png_of(60000, 60000, zlib.compress(b"")), "too many pixels|megapixels"),
    "largest.png": (png_of(2**31 - 1, 2**31 - 1, zlib.compress(b"")), "too many pixels|megapixels|damaged"),
    "nothing.png": (png_of(0, 0, zlib.compress(b"")), "damaged|at least 16"),
    "thin.png": (png_of(5000, 2, zlib.compress(bytes(2 * 626))), "at least 16"),
    "truncated.jpg": (JPEG[: len(JPEG) // 8], "damaged"),
    "claims.jpg": (JPEG.replace(struct.pack(">HH", 48, 64), struct.pack(">HH", 65000, 65000), 1), "too many pixels"),
    "truncated.webp": (encode_image(photo(), ".webp")[:40], "damaged"),
    "directory.tif": (b"II*\x00\xff\xff\xff\x7f" + bytes(20), "damaged"),
    "float.tif": (float_tiff(), "not supported|decoded"),
    "claims.bmp": (BMP, "pixels|damaged"),
    "claims.ppm": (b"P6 99999 99999 255\n" + bytes(100), "too many pixels|megapixels"),
    "drawing.svg": (SVG, "SVG"),
    "drawing.png": (XML + SVG, "SVG"),
    "page.jpg": (b"<html><script>alert(1)</script></html>", "not an image"),
    "animation.gif": (b"GIF89a" + bytes(40), "not an image"),
    "paper.pdf": (b"%PDF-1.7\n" + bytes(40), "not an image"),
    "archive.zip": (b"PK\x03\x04" + bytes(40), "not an image"),
    "code.pkl": (b"\x80\x04\x95" + bytes(40), "not an image"),
    "../../../etc/passwd.png": (b"root:x:0:0", "passwd.png: not an image"),
    "/etc/cron.d/job.png": (b"* * * * * root true", "job.png: not an image"),
    "..\\..\\windows\\system.png": (b"MZ", "not an image"),
    "<img src=x onerror=alert(1)>.png": (b"no image", "not an image"),
    f"{'long' * 500}.png": (b"no image", "not an image"),
    "new\nline\x00.png": (b"no image", "not an image"),
}  # fmt: skip


# ---- what is computed


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_files_are_refused_with_a_reason(name):
    content, expected = HOSTILE[name]
    with pytest.raises(ImageError, match=expected):
        decode_upload(content, Path(name).name, Limits())


def test_dimensions_are_read_before_anything_is_decoded(monkeypatch):
    from codes.app import uploads

    def decode(content, name):
        raise AssertionError("decoded")

    monkeypatch.setattr(uploads, "decode_picture", decode)
    with pytest.raises(ImageError, match="144.0 megapixels, at most 4 are accepted"):
        decode_upload(bomb(12000), "bomb.png", Limits())
    with pytest.raises(AssertionError):
        decode_upload(png(), "photo.png", Limits())


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp", ".ppm"])
def test_all_formats_come_through_unchanged_and_browsers_get_one_they_show(suffix):
    content = encode_image(photo(), suffix)
    picture = decode_upload(content, f"photo{suffix}", Limits())
    assert torch.equal(picture.rgb, decode_picture(content, "").rgb)
    shown = preview(f"photo{suffix}", picture)
    if suffix in (".tif", ".ppm"):
        assert np.array_equal(to_uint8(decode_picture(shown, "").rgb), photo())
    else:
        assert shown is None


def test_examples_are_one_of_each_task_and_always_the_same(tmp_path):
    first, second = (make_examples(tmp_path / name) for name in "ab")
    assert [example.task for example in first] == list(TASKS)
    for one, other in zip(first, second):
        assert one.degraded.read_bytes() == other.degraded.read_bytes() != one.clean.read_bytes()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("mrsampler-pc", 10**9), "from 1 to 100"),
        (("mrsampler-pc", 0), "from 1 to 100"),
        (("mrsampler-pc", 2.5), "whole number"),
        (("mrsampler-pc", float("nan")), "whole number"),
        (("mrsampler-pc", float("inf")), "whole number"),
        (("mrsampler-pc", True), "whole number"),
        (("mrsampler-pc", "8"), "whole number"),
        (("mrsampler-pc", {"path": "/etc/passwd"}), "whole number"),
        (("mrsampler-pc", 8, -1), "seed: from 0"),
        (("mrsampler-pc", 8, None), "seed: a whole number"),
        (("mrsampler-pc", 8, 0, 10000), "samples: from 1 to 16"),
        (("../../secret", 8), "unknown solver"),
        (([], 8), "unknown solver"),
    ],
)
def test_values_from_outside_are_checked(values, expected):
    with pytest.raises(work.WorkError, match=expected):
        work.Choice(*values)


@pytest.fixture(scope="module")
def restorer(weights):
    return load_restorer(weights, device="cpu")


@pytest.fixture
def made(restorer, tmp_path):
    with ThreadPoolExecutor(1) as worker:
        yield service.Service(restorer, SCORER, tmp_path, worker)


def stored(made, name="photo.png", **size):
    return {"path": str(made.keep(name, png(**size)))}


def test_restoration_is_the_api_s_and_counts_every_step(made, restorer):
    reference = stored(made, seed=1)
    views = list(made.restoring(stored(made), reference, "mrsampler", 3, 5, 2, "me"))
    expected = restorer.sample(decode_picture(png(), "").rgb, 2, nfe=3, seed=5, algorithm="mrsampler")
    *running, last = views
    assert [re.search(r"<span>(.*?)</span>", view.status).group(1) for view in running[1:]] == [
        f"sample {sample} of 2, step {step} of 3" for sample in (1, 2) for step in (1, 2, 3)
    ]
    read = {
        name: to_uint8(decode_picture(getattr(last, name).read_bytes(), "").rgb) for name in ("mean", "uncertainty")
    }
    assert np.array_equal(to_uint8(decode_picture(last.pair[1].read_bytes(), "").rgb), to_uint8(expected.sample))
    assert np.array_equal(to_uint8(decode_picture(last.pair[0].read_bytes(), "").rgb), photo())
    assert np.array_equal(read["mean"], to_uint8(expected.mean))
    assert np.array_equal(read["uncertainty"], render.uncertainty(expected.std.numpy())[0])
    compared = {"degraded": photo(), "restored": to_uint8(expected.sample), "mean of 2": read["mean"]}
    for name, image in compared.items():
        value = SCORER(image, photo(seed=1))["psnr"]
        assert re.search(rf"<th>{name}</th><td[^>]*>{value:.2f}</td>", last.summary)
    assert last.strip.count("<img") == 4  # the degraded image, and three steps of the first sample


def test_downloads_keep_transparency_and_the_name(made):
    alpha = np.tile(np.arange(64, dtype=np.uint8), (48, 1))
    image = {"path": str(made.keep("my photo.png", encode_image(photo(), ".png", alpha)))}
    *_, last = made.restoring(image, None, "posterior", 1, 0, 1, "me")
    assert last.pair[1].name == "my photo-restored.png"
    assert np.array_equal(decode_picture(last.pair[1].read_bytes(), "").alpha, alpha)


def test_uncertainty_is_bright_where_samples_differ():
    std = np.full((3, 64, 64), 0.01, np.float32)
    std[:, 16:32, 16:32] = 0.1
    colours, brightest = render.uncertainty(std)
    assert brightest == pytest.approx(25.5, rel=1e-3)
    assert colours[20, 20].sum() > colours[0, 0].sum()


def test_comparison_has_a_cell_for_each_solver_and_number(made, restorer):
    solver = Solver("mrsampler", 8, order=2)
    planned = PlannedSolver("mrsampler", solver, make_plan(restorer.sde, solver))
    made = replace(made, restorer=replace(restorer, solvers=(planned,)))
    *running, last = made.comparing(stored(made), stored(made, seed=1), ["posterior", "mrsampler"], [2, 1], 3, "me")
    assert last.grid.count("<td><img") == 3 and 'class="best"' in last.grid
    assert "order 2 needs num_sample_steps of at least 2" in last.grid  # one that cannot leaves the others
    assert last.grid.index("mrsampler") < last.grid.index("posterior")  # in the order of the list
    assert sum(view.grid is not None for view in running) == 5  # one when empty, one after each cell
    picture = decode_picture(png(), "")
    done = work.compare(restorer, picture, None, ["heun", "ode"], [1, 2], 3, SCORER, lambda state: None)
    expected = restorer(picture.rgb, nfe=2, seed=3, algorithm="ode")
    assert np.array_equal(done.cells["ode", 2].image, to_uint8(expected))
    alone = restorer(picture.rgb, nfe=2, seed=3, algorithm=work.chosen_solver(restorer, work.Choice(work.ODE, 2)))
    assert not torch.equal(alone, restorer(picture.rgb, nfe=2, seed=3, algorithm="mrsampler"))


@pytest.mark.parametrize(
    ("solvers", "nfes", "expected"),
    [([], [2], "choose at least"), (["ode"], [], "choose at least"), (list(work.CHOICES), [1, 2, 4, 6], "too many")],
)
def test_comparisons_of_nothing_or_too_much_are_refused(made, solvers, nfes, expected):
    (view,) = made.comparing(stored(made), None, solvers, nfes, 0, "me")
    assert expected in view.status and not view.running


def test_references_of_another_size_and_missing_images_are_told(made):
    (view,) = made.restoring(stored(made), stored(made, width=65), "ode", 1, 0, 1, "me")
    assert "reference has 65x48 pixels, the image 64x48" in view.status
    (view,) = made.restoring(None, None, "ode", 1, 0, 1, "me")
    assert "Choose an image first" in view.status


def test_cancelling_stops_the_sampling_at_its_next_step_and_frees_the_place(made):
    views = made.restoring(stored(made), None, "posterior", 100, 0, 16, "me")
    for _ in range(3):
        assert next(views).running
    assert made.jobs.stop("somebody else") == 0
    assert made.jobs.stop("me") == 1
    assert made.jobs.was_stopped("me") and not made.jobs.was_stopped("me")
    *_, last = views
    assert service.CANCELLED in last.status and not last.running
    # One thread does all the work: this comes after what was cancelled, which had 1600 steps to go.
    *_, last = made.restoring(stored(made), None, "posterior", 1, 0, 1, "me")
    assert last.finished and made.jobs.stop() == 0


def test_closed_pages_stop_their_work(made):
    steps = []
    started, go_on = threading.Event(), threading.Event()

    def long(report):
        for i in range(1000):
            steps.append(i)
            report(i)
            started.set()
            go_on.wait(60)
        return -1

    views = work.stepwise(made.worker, long, threading.Event())
    assert next(views) == 0
    started.wait(60)
    views.close()
    go_on.set()
    made.worker.submit(int).result(60)  # the only thread is free again
    assert steps == [0, 1]


def test_failures_are_told_and_the_next_job_runs(made, monkeypatch):
    def fail(*args):
        raise RuntimeError("secret of the server")

    with monkeypatch.context() as patch:
        patch.setattr(service, "restore", fail)
        *_, last = made.restoring(stored(made), None, "ode", 1, 0, 1, "me")
    assert service.FAILED in last.status.replace("&#x27;", "'") and "secret" not in last.status
    *_, last = made.restoring(stored(made), None, "ode", 1, 0, 1, "me")
    assert last.finished


def test_old_files_go_and_examples_stay(made, tmp_path, monkeypatch):
    examples = make_examples(tmp_path / "examples")
    made = replace(made, examples=examples)
    old, new = made.keep("old.png", b"1"), made.keep("new.png", b"22")
    for path in (old, examples[0].degraded):
        os.utime(path, (0, 0))
    made.sweep()
    assert not old.exists() and new.exists() and examples[0].degraded.exists()
    monkeypatch.setattr(service, "MAX_KEPT", 1)
    made.sweep()
    assert not new.exists() and examples[0].clean.exists()


def test_text_from_outside_is_escaped():
    assert "<script>" not in render.message("<script>alert(1)</script>")
    assert "<b>" not in render.progress(1, 2, "<b>") and "<b>" not in render.strip([("<b>", photo())])


# ---- the gate


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../../etc/passwd",
        "app.py",
        "%2Fetc%2Fpasswd",
        "http://example.org/x.png",
        "https:/example.org/x.png",
        "file:///etc/passwd",
        "{folder}/../other/secret",
        "{folder}/../../etc/passwd",
        "{folder}/link",
        "{folder}/nul\0l",
        "{folder}-other/secret",
        "C:\\secret",
        "\\\\host\\share",
    ],
)
def test_files_outside_the_folder_are_refused(tmp_path, path):
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(gate.Refused):
        gate.check_file(path.replace("{folder}", str(folder)), folder)
    for twice_encoded in (f"{folder}/%2e%2e/other/secret", f"{folder}%2f..%2fother"):
        with pytest.raises(gate.Refused):
            gate.check_route("GET", f"/gradio_api/file={twice_encoded}", folder)
    gate.check_route("GET", f"/gradio_api/file={folder}/photo 1.png", folder)


def test_requests_that_name_other_files_are_refused(tmp_path):
    inside = str(tmp_path / "photo.png")
    gate.check_json(b'{"data": [{"path": "%s"}, 8, null]}' % inside.encode(), tmp_path)
    for body in (
        b'{"data": [{"path": "http://example.org/a.png"}]}',
        b'[[{"a": {"path": "/etc/passwd"}}]]',
        b"{",
        b"[" * 10**5,
    ):
        with pytest.raises(gate.Refused):
            gate.check_json(body, tmp_path)


def test_pages_of_other_servers_are_not_answered():
    gate.check_origin("", "127.0.0.1:7860")
    gate.check_origin("http://127.0.0.1:7860", "127.0.0.1:7860")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:8000"):
        with pytest.raises(gate.Refused):
            gate.check_origin(origin, "127.0.0.1:7860")


def test_only_own_names_are_answered_to():
    for host in ("127.0.0.1:7860", "localhost", "[::1]:7860"):
        gate.check_host(host, ("127.0.0.1", "localhost", "::1"))
    for host in ("evil.example:7860", "", "127.0.0.1.evil.example"):
        with pytest.raises(gate.Refused):
            gate.check_host(host, ("127.0.0.1", "localhost", "::1"))


# ---- the server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with running(folder) as found:
        yield found
    assert not list(folder.glob("mr-sampler-*"))  # uploads and results go with the page


@pytest.fixture
def client(server, request):
    return Client(server, re.sub(r"\W", "", request.node.name)[:40])


def test_hostile_uploads_get_a_message_and_the_server_lives(server, client, tmp_path):
    names = []
    for name, (content, expected) in HOSTILE.items():
        sent = client.upload(name, content)
        if sent.status_code != 200:
            assert sent.status_code in (400, 413) and sent.text, name
            continue
        (path,) = sent.json()
        folder = Path(path).parent
        assert folder.parent.name.startswith("mr-sampler-"), name  # in the page's own folder, whatever the name
        image, problem = client.check({"path": path, "meta": {"_type": "gradio.FileData"}})
        assert image is None and re.search(expected, problem) and 'class="note error"' in problem, (name, problem)
        assert "<img" not in problem and "/tmp" not in problem
        names.append(name)
    assert len(names) >= 25
    refused = client.upload("large.png", bytes(1_000_001))
    assert refused.status_code == 413 and "maximum allowed size" in refused.text
    assert client.upload("huge.png", bytes(9_000_000)).status_code == 413
    # The button does not trust what the upload's check said.
    shown = client.result("run", client.settings(client.chosen("bomb.png", HOSTILE["bomb.png"][0])))
    assert "144.0 megapixels" in shown["status"]
    assert server.alive


def test_no_file_of_the_server_and_no_other_address_can_be_read(server, client):
    own = client.chosen()["path"]
    assert client.http.get(f"/gradio_api/file={own}").content == png()
    secrets = [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=app.py",
        f"/gradio_api/file={server.weights}",
        f"/gradio_api/file={own}/../../../tiny.safetensors",
        f"/gradio_api/file={Path(own).parent}%2f..%2f..%2f..%2ftiny.safetensors",
        "/gradio_api/file=http://127.0.0.1:1/x",
        "/gradio_api/file/etc/passwd",
        "/file=/etc/passwd",
        "/gradio_api/proxy=http://127.0.0.1:1/x",
        "/static/../../../../etc/passwd",
        "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2frequirements.txt",
        "/svelte/../../../etc/passwd",
        "/gradio_api/custom_component/1/client/component/x.py",
        "/gradio_api/vibe-code",
        "/gradio_api/runs",
        "/gradio_api/info",
        "/monitoring",
        "/monitoring/summary",
        "/docs",
        "/openapi.json",
        "/gradio_api/deep_link?session_hash=x",
        "/gradio_api/stream/a/b/1/playlist.m3u8",
    ]
    for path in secrets:
        request = client.http.build_request("GET", server.url)
        request.url = request.url.copy_with(raw_path=path.encode())
        response = client.http.send(request)
        assert response.status_code in (403, 404), (path, response.status_code)
        assert b"root:" not in response.content
    for path in ("/etc/passwd", str(server.weights), "http://127.0.0.1:1/x.png", "app.py"):
        value = {"path": path, "meta": {"_type": "gradio.FileData"}}
        assert client.call("image", "upload", [value]).status_code == 400
        joined = client.http.post("/gradio_api/queue/join", json=client.body(client.function("run", "click"), [value]))
        assert joined.status_code == 400 and "not a file that was uploaded" in joined.text
    for path in ("/gradio_api/vibe-edit", "/gradio_api/component_server", "/gradio_api/call/x", "/login"):
        assert client.http.post(path, json={}).status_code == 404
    assert client.http.get("/", headers={"host": "evil.example"}).status_code == 421
    # The work goes through the queue only.
    direct = client.http.post(
        "/gradio_api/run/predict", json=client.body(client.function("run", "click"), client.settings(None))
    )
    assert direct.status_code == 404
    assert server.alive


def test_broken_requests_leave_a_living_server(server, client):
    post = client.http.post
    assert post("/gradio_api/queue/join", content=b"{").status_code == 400
    assert post("/gradio_api/queue/join", content=b"x" * 2_000_000).status_code == 413
    assert post("/gradio_api/upload", content=b"no form").status_code in (400, 422)
    assert post("/gradio_api/run/predict", json={"data": [], "fn_index": 10**6}).status_code >= 400
    for nfe in (10**9, "8", None, [1], {"a": 1}):
        values = client.settings(client.chosen())
        values[3] = nfe
        assert "evaluations (NFE)" in client.result("run", values)["status"]
    assert server.alive


def test_the_page_asks_for_nothing_from_elsewhere(server, client):
    response = client.http.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "http" not in policy
    assert not re.findall(
        r'(?:<script[^>]*src|<link[^>]*rel="(?:stylesheet|preload|preconnect)"[^>]*href)="https?://(?!127)[^"]*',
        response.text,
    )
    assert client.config["analytics_enabled"] is False and not client.config.get("is_space")
    assert "fonts.googleapis" not in response.text + client.http.get("/theme.css").text


def test_two_users_at_once_both_get_their_own_image(server):
    results = {}

    def use(seed):
        client = Client(server, f"user{seed}")
        image = client.chosen(f"user{seed}.png", png(seed=seed))
        shown = client.result("run", client.settings(image, nfe=6))
        results[seed] = shown, client.http.get(f"/gradio_api/file={shown['slider'][1]['path']}").content

    threads = [threading.Thread(target=use, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    restorer = load_restorer(server.weights, device="cpu")
    for seed in (1, 2):
        shown, content = results[seed]
        expected = restorer(photo(seed=seed), nfe=6, seed=0, algorithm="mrsampler-pc")
        assert "Done" in shown["status"]
        assert np.array_equal(to_uint8(decode_picture(content, "").rgb), to_uint8(expected))
        assert shown["download"]["value"]["path"].endswith(f"user{seed}-restored.png")


def test_cancel_ends_a_running_job_and_the_next_user_is_served(server):
    first, second = Client(server, "cancels"), Client(server, "waits")
    image = first.chosen("large.png", png(height=400, width=400))
    messages = first.run("run", first.settings(image, nfe=100, samples=16))
    for message in messages:
        if message["msg"] == "process_generating":
            break
    waiting: dict = {}
    thread = threading.Thread(
        target=lambda: waiting.update(second.result("run", second.settings(second.chosen(), nfe=1)))
    )
    thread.start()
    time.sleep(1)
    assert not waiting  # one at a time
    answer = first.call("cancel-run", "click", [])
    assert answer.status_code == 200 and service.CANCELLED in answer.text
    *_, last = messages
    assert last["msg"] == "process_completed"
    thread.join(60)
    assert "Done" in waiting["status"]


def test_a_port_that_is_taken_and_weights_that_are_missing_are_told(server, tmp_path, capsys):
    from codes.commands.app import main

    port = httpx.URL(server.url).port
    assert main(["--port", str(port)]) == 2
    assert f"--port {port}: cannot listen there" in capsys.readouterr().err
    assert main(["--opt", str(tmp_path / "none.safetensors"), "--port", "0"]) == 2
    assert "none.safetensors" in capsys.readouterr().err
