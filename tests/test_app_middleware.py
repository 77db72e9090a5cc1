"""The middleware of the web page: which files, routes, hosts and origins it refuses."""

import pytest

from codes.app import middleware


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
    with pytest.raises(middleware.Refused):
        middleware.check_file(path.replace("{folder}", str(folder)), folder)
    for twice_encoded in (f"{folder}/%2e%2e/other/secret", f"{folder}%2f..%2fother"):
        with pytest.raises(middleware.Refused):
            middleware.check_route("GET", f"/gradio_api/file={twice_encoded}", folder)
    middleware.check_route("GET", f"/gradio_api/file={folder}/photo 1.png", folder)


def test_requests_that_name_other_files_are_refused(tmp_path):
    inside = str(tmp_path / "photo.png")
    middleware.check_json(b'{"data": [{"path": "%s"}, 8, null]}' % inside.encode(), tmp_path)
    for body in (
        b'{"data": [{"path": "http://example.org/a.png"}]}',
        b'[[{"a": {"path": "/etc/passwd"}}]]',
        b"{",
        b"[" * 10**5,
    ):
        with pytest.raises(middleware.Refused):
            middleware.check_json(body, tmp_path)


def test_requests_from_other_origins_are_refused():
    middleware.check_origin("", "127.0.0.1:7860")
    middleware.check_origin("http://127.0.0.1:7860", "127.0.0.1:7860")
    for origin in ("http://evil.example", "null", "http://127.0.0.1:8000"):
        with pytest.raises(middleware.Refused):
            middleware.check_origin(origin, "127.0.0.1:7860")


def test_requests_to_other_host_names_are_refused():
    for host in ("127.0.0.1:7860", "localhost", "[::1]:7860"):
        middleware.check_host(host, ("127.0.0.1", "localhost", "::1"))
    for host in ("evil.example:7860", "", "127.0.0.1.evil.example"):
        with pytest.raises(middleware.Refused):
            middleware.check_host(host, ("127.0.0.1", "localhost", "::1"))


def test_uploads_are_limited_in_rate_and_in_sum():
    quota = middleware.Quota(minute=10, hour=25)
    quota.take(10, now=0)
    with pytest.raises(middleware.Refused, match="try again in a minute"):
        quota.take(1, now=30)
    quota.take(9, now=70)
    with pytest.raises(middleware.Refused, match="try again in an hour"):
        quota.take(6, now=140)
    with pytest.raises(middleware.Refused, match="in an hour"):
        quota.take(0, now=2000)  # refused before a byte is sent
    quota.take(4, now=3700)
    for now in (3700.1, 3700.2, 3700.3):
        quota.take(1, now=now)
    assert len(quota.taken) == 3  # those of one second together, and none that is over an hour old
