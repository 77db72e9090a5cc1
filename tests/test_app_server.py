"""The running web page without a browser: hostile requests, two users at once, cancelling."""

import re
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from codes.app import service
from codes.data.images import decode_picture, encode_image, read_image, to_uint8
from codes.restoration.loading import load_restorer

from .app_server import ROOT, Client, in_gallery, photo, png, running
from .documents import blocks
from .hostile_uploads import HOSTILE

pytest.importorskip("gradio", reason="the web page needs the `app` extra")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with running(folder) as found:
        yield found
    assert not list(folder.glob("mr-sampler-*"))  # uploads and results are removed when the page is closed


@pytest.fixture
def client(server, request):
    return Client(server, re.sub(r"\W", "", request.node.name)[:40])


def test_hostile_uploads_get_a_message_and_the_server_survives(server, client, tmp_path):
    names = []
    for name, (content, expected) in HOSTILE.items():
        sent = client.upload(name, content)
        if sent.status_code != 200:
            assert sent.status_code in (400, 413) and sent.text, name
            continue
        (path,) = sent.json()
        folder = Path(path).parent
        assert folder.parent.name.startswith("mr-sampler-"), name  # in the page's own folder, whatever the file's name
        image, problem = client.check({"path": path, "meta": {"_type": "gradio.FileData"}})
        assert image == [] and re.search(expected, problem) and 'class="note error"' in problem, (name, problem)
        assert "<img" not in problem and "/tmp" not in problem
        names.append(name)
    assert len(names) >= 25
    refused = client.upload("large.png", bytes(1_000_001))
    assert refused.status_code == 413 and "maximum allowed size" in refused.text
    assert client.upload("huge.png", bytes(21_000_000)).status_code == 413
    # The button checks the file again.
    shown = client.result("run", client.settings(client.chosen("bomb.png", HOSTILE["bomb.png"][0])))
    assert "144.0 megapixels" in shown["status"]
    assert server.alive


def test_no_other_file_or_url_can_be_read_through_the_server(server, client):
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
        assert client.call("image", "upload", [in_gallery(value)]).status_code == 400
        joined = client.http.post(
            "/gradio_api/queue/join", json=client.body(client.function("run", "click"), client.settings(value))
        )
        assert joined.status_code == 400 and "not a file that was uploaded" in joined.text
    for path in ("/gradio_api/vibe-edit", "/gradio_api/component_server", "/gradio_api/call/x", "/login"):
        assert client.http.post(path, json={}).status_code == 404
    assert client.http.get("/", headers={"host": "evil.example"}).status_code == 421
    # Jobs start only through the queue.
    direct = client.http.post(
        "/gradio_api/run/predict", json=client.body(client.function("run", "click"), client.settings())
    )
    assert direct.status_code == 404
    assert server.alive


def test_the_server_survives_broken_requests(server, client):
    post = client.http.post
    assert post("/gradio_api/queue/join", content=b"{").status_code == 400
    assert post("/gradio_api/queue/join", content=b"x" * 2_000_000).status_code == 413
    assert post("/gradio_api/upload", content=b"no form").status_code in (400, 422)
    assert post("/gradio_api/run/predict", json={"data": [], "fn_index": 10**6}).status_code >= 400
    image = client.chosen()
    for nfe in (10**9, "8", None, [1], {"a": 1}):
        assert "evaluations (NFE)" in client.result("run", client.settings(image, nfe=nfe))["status"]
    assert "seed: expected from 0" in client.result("run", client.settings(image, seed=10**400))["status"]
    assert server.alive


def test_the_page_loads_nothing_from_other_servers(server, client):
    response = client.http.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy and "http" not in policy
    assert not re.findall(
        r'(?:<script[^>]*src|<link[^>]*rel="(?:stylesheet|preload|preconnect)"[^>]*href)="https?://(?!127)[^"]*',
        response.text,
    )
    assert client.config["analytics_enabled"] is False and not client.config.get("is_space")
    assert "fonts.googleapis" not in response.text + client.http.get("/theme.css").text


def test_two_simultaneous_users_each_get_their_own_image(server):
    results = {}

    def use(seed):
        client = Client(server, f"user{seed}")
        image = client.chosen(f"user{seed}.png", png(seed=seed))
        shown = client.result("run", client.settings(image, nfe=6))
        results[seed] = shown, client.downloads(shown["results"])

    threads = [threading.Thread(target=use, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    restorer = load_restorer(server.weights, device="cpu")
    for seed in (1, 2):
        shown, ((name, content),) = results[seed]
        expected = restorer(photo(seed=seed), nfe=6, seed=0, algorithm="mrsampler-pc")
        assert "Done" in shown["status"]
        assert np.array_equal(to_uint8(decode_picture(content, "").rgb), to_uint8(expected))
        assert name == f"user{seed}.png"


def test_cancelling_a_running_job_lets_the_next_user_in(server):
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


def test_a_busy_port_and_missing_weights_are_reported(server, tmp_path, capsys):
    from codes.commands.app import main

    port = httpx.URL(server.url).port
    assert main(["--port", str(port)]) == 2
    assert f"--port {port}: cannot listen there" in capsys.readouterr().err
    assert main(["--opt", str(tmp_path / "none.safetensors"), "--port", "0"]) == 2
    assert "none.safetensors" in capsys.readouterr().err


def test_the_api_for_gradio_client_restores_a_photo_and_reports_problems(server, tmp_path):
    from gradio_client import Client as GradioClient
    from gradio_client import handle_file

    (tmp_path / "rainy day.jpg").write_bytes(encode_image(photo(seed=4), ".jpg"))
    (tmp_path / "text.jpg").write_bytes(b"no image")
    client = GradioClient(server.url, download_files=tmp_path / "got", verbose=False)
    assert list(client.view_api(return_format="dict", print_info=False)["named_endpoints"]) == ["/restore"]
    file, report = client.predict(
        handle_file(tmp_path / "rainy day.jpg"), nfe=3, solver="posterior", seed=7, api_name="/restore"
    )
    assert Path(file).name == "rainy day.jpg" and report["nfe"] == 3 and report["size"] == [64, 48]
    restorer = load_restorer(server.weights, device="cpu")
    restored = restorer(read_image(tmp_path / "rainy day.jpg"), nfe=3, seed=7, algorithm="posterior")
    expected = encode_image(to_uint8(restored), ".jpg")
    assert np.array_equal(to_uint8(read_image(file)), to_uint8(decode_picture(expected, "").rgb))
    for name, arguments, reason in (("text.jpg", {}, "not an image"), ("rainy day.jpg", {"nfe": 0}, "from 1 to 100")):
        with pytest.raises(Exception, match=reason):
            client.predict(handle_file(tmp_path / name), **arguments, api_name="/restore")
    client.close()
    assert server.alive and "Traceback" not in "".join(server.lines)


def test_the_example_of_the_api_runs_as_documented(server, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    (tmp_path / "rainy.jpg").write_bytes(encode_image(photo(), ".jpg"))
    (example,) = [block.text for block in blocks(ROOT / "docs" / "app.md") if block.language == "python"]
    names: dict = {}
    exec(example.replace("http://127.0.0.1:7860", server.url), names)
    names["client"].close()
    assert Path(names["file"]).name == "rainy.jpg" and names["report"]["nfe"] == 8
    assert capsys.readouterr().out.endswith("rainy.jpg 1.0 None\n")
