"""restore.py: every photo is restored or reported, nothing is overwritten, and a killed run resumes."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

from codes import load_restorer, read_image
from codes.commands.restore import main as restore
from codes.data.images import encode_image, read_picture, save_image, to_uint8
from codes.restoration import photos as restoring
from codes.restoration.photo_files import RECORDS
from codes.restoration.restorer import Restoration
from codes.runtime.locks import PREFIX
from codes.solvers import Solver

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with four photos below photos/."""
    rng = np.random.default_rng(0)
    for name in ("a.png", "b.png", "trip/a.png", "trip/.hidden.png"):
        save_image(rng.integers(0, 255, (16, 24, 3)).astype(np.uint8), tmp_path / "photos" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder, weights):
    """Run restore.py with a small network in this process; returns the exit code."""

    def start(*arguments: str, nfe: int = 2) -> int:
        return restore([*arguments, "--opt", str(weights), "--nfe", str(nfe), "--device", "cpu"])

    return start


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.*")) if path.is_file()}


def images(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(folder).items() if name != RECORDS}


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / RECORDS).read_text().splitlines()]


# ---- results


def test_folder_is_restored_under_the_same_names_as_by_the_python_api(run, folder, weights):
    before = files(folder / "photos")
    assert run("photos", "-o", "out", "--seed", "3") == 0
    assert sorted(images(folder / "out")) == ["a.png", "b.png", "trip/a.png"]
    restorer = load_restorer(weights, device="cpu")
    for name in images(folder / "out"):
        expected = to_uint8(restorer(read_image(folder / "photos" / name), nfe=2, seed=3))
        assert np.array_equal(to_uint8(read_image(folder / "out" / name)), expected)
    assert files(folder / "photos") == before


def test_files_and_patterns(run, folder, capsys):
    assert run("photos/b.png", "photos/trip", "-o", "one") == 0
    assert sorted(images(folder / "one")) == ["a.png", "b.png"]
    assert run("photos/**/a*.png", "-o", "two") == 0
    assert sorted(images(folder / "two")) == ["a.png", "trip/a.png"]
    (folder / "photos" / "b.png").rename(folder / "photos" / "b[1].png")  # a file, though it looks like a pattern
    assert run("photos/b[1].png", "-o", "three") == 0
    assert sorted(images(folder / "three")) == ["b[1].png"]


def test_samples_mean_uncertainty_and_comparison(run, folder, weights):
    assert run("photos/a.png", "-o", "out", "--uncertainty", "--compare", "--samples", "3", "--seed", "5") == 0
    several = load_restorer(weights, device="cpu").sample(read_image("photos/a.png"), 3, nfe=2, seed=5)
    shown = {name: to_uint8(read_image(folder / "out" / name)) for name in images(folder / "out")}
    for k, name in enumerate(("a.png", "a.sample-2.png", "a.sample-3.png")):
        assert np.array_equal(shown.pop(name), to_uint8(several.samples[k]))
    mean = to_uint8(several.mean)
    unsure = to_uint8((several.std.square().mean(0).sqrt() / 0.2).expand(3, -1, -1))
    assert np.array_equal(shown.pop("a.mean.png"), mean) and np.array_equal(shown.pop("a.uncertainty.png"), unsure)
    sheet = shown.pop("a.compare.png")
    for i, column in enumerate((to_uint8(read_image("photos/a.png")), to_uint8(several.sample), mean, unsure)):
        assert np.array_equal(sheet[:, 28 * i : 28 * i + 24], column)
    assert sheet.shape == (16, 4 * 28 - 4, 3) and not shown


def test_uncertainty_alone_draws_four_samples(run, folder):
    assert run("photos/a.png", "-o", "out", "--uncertainty") == 0
    assert "a.sample-4.png" in images(folder / "out")


def photo_with_everything(path: Path, **options) -> bytes:
    """Write a photo stored on its side, with EXIF and colour profile; returns the profile."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "Maker", 6
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path, exif=exif, icc_profile=profile, **options)
    return profile


@pytest.mark.parametrize("name", ["IMG 01.JPG", "x.png", "x.webp", "x.tif"])
def test_metadata_is_kept_and_the_orientation_is_applied_once(run, folder, name):
    profile = photo_with_everything(folder / name)
    assert run(name, "-o", "out") == 0
    with Image.open(folder / "out" / name) as result:
        assert result.format == Image.open(folder / name).format
        assert result.size == (16, 24)  # turned upright
        assert result.getexif()[0x010F] == "Maker" and result.getexif().get(0x0112, 1) == 1
        assert result.info["icc_profile"] == profile
    before, after = read_picture(name), read_picture(folder / "out" / name)
    assert before.rgb.shape == after.rgb.shape == (3, 24, 16)
    assert after.metadata.icc == profile


def test_xmp_is_kept_and_the_old_preview_is_not(run, folder):
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/">words</x:xmpmeta>'
    photo_with_everything(folder / "x.jpg", xmp=xmp)
    content = (folder / "x.jpg").read_bytes()
    # EXIF with a second directory, which cameras use for the preview.
    at = content.index(b"MM\x00*") + 8
    count = int.from_bytes(content[at : at + 2], "big")
    link = at + 2 + 12 * count
    (folder / "x.jpg").write_bytes(content[:link] + b"\x00\x00\x00\x08" + content[link + 4 :])
    assert run("x.jpg", "-o", "out") == 0
    with Image.open(folder / "out" / "x.jpg") as result:
        assert result.info["xmp"] == xmp
        assert result.info["exif"][6:][8 + 2 + 12 * count :][:4] == bytes(4)


def test_grey_photos_stay_grey_with_their_profile(run, folder):
    grey = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    grey[16:20] = b"GRAY"
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16)).astype(np.uint8)
    Image.fromarray(pixels).save(folder / "g.jpg", icc_profile=bytes(grey))
    Image.fromarray(pixels).convert("RGB").save(folder / "rgb.png")  # grey in colours
    Image.fromarray(pixels).save(folder / "g.webp", icc_profile=bytes(grey))  # this format has no grey
    assert run("g.jpg", "rgb.png", "g.webp", "-o", "out") == 0
    with Image.open(folder / "out" / "g.jpg") as result:
        assert result.mode == "L" and result.info["icc_profile"] == bytes(grey)
    with Image.open(folder / "out" / "g.webp") as result:
        assert "icc_profile" not in result.info
    red, green, blue = np.moveaxis(np.asarray(Image.open(folder / "out" / "rgb.png")), 2, 0)
    assert np.array_equal(red, green) and np.array_equal(green, blue) and not np.array_equal(red, pixels)


@pytest.mark.parametrize("suffix", [".png", ".webp"])
def test_transparency_is_kept_in_all_samples(run, folder, suffix):
    pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 4)).astype(np.uint8)
    save_image(pixels[..., :3].copy(), folder / f"t{suffix}", pixels[..., 3].copy())
    assert run(f"t{suffix}", "-o", "out", "--samples", "2") == 0
    for name in (f"t{suffix}", f"t.sample-2{suffix}", f"t.mean{suffix}"):
        assert np.array_equal(read_picture(folder / "out" / name).alpha, pixels[..., 3])


def test_pgm_results_stay_grey(run, folder):
    save_image(np.full((16, 16, 3), 90, np.uint8), folder / "g.pgm")
    assert run("g.pgm", "-o", "out") == 0
    assert (folder / "out" / "g.pgm").read_bytes().startswith(b"P5")


# ---- photos that cannot be restored


def test_each_bad_file_is_reported_and_the_others_are_restored(run, folder, capsys):
    photos = folder / "photos"
    (photos / "empty.png").write_bytes(b"")
    (photos / "text.jpg").write_text("hello")
    (photos / "half.png").write_bytes((photos / "a.png").read_bytes()[:500])
    alpha = np.full((16, 16), 7, np.uint8)
    content = encode_image(np.zeros((16, 16, 3), np.uint8), ".png", alpha)
    (photos / "really-png.jpg").write_bytes(content)
    (folder / "nothing").mkdir()
    assert run("photos", "missing.png", "*.gif", "nothing", "-o", "out") == 1
    printed = capsys.readouterr().err
    for line in (
        "left out: photos/empty.png: the file is empty",
        "left out: photos/text.jpg: not an image in a known format",
        "left out: photos/half.png: the PNG file is truncated or damaged",
        "left out: photos/really-png.jpg: .jpg: this format has no transparency",
        "missing.png: no such file or folder",
        "*.gif: no image matches this pattern",
        "nothing: no images in this folder",
        "3 restored, 7 left out, in out",
    ):
        assert line in printed, line
    assert sorted(images(folder / "out")) == ["a.png", "b.png", "trip/a.png"]


def test_colliding_result_names_and_results_in_place_are_refused(run, folder, capsys):
    assert run("photos/a.png", "photos/trip/a.png", "-o", "out") == 1
    assert "left out: photos/trip/a.png: its result a.png would have the same name as one of photos/a.png" in (
        capsys.readouterr().err
    )
    before = files(folder / "photos")
    assert run("photos", "-o", "photos", "--overwrite") == 1
    assert "left out: photos/a.png: its result would replace it" in capsys.readouterr().err
    assert files(folder / "photos") == before
    save_image(np.zeros((16, 16, 3), np.uint8), folder / "photos" / "b.mean.png")
    assert run("photos/b.png", "photos/b.mean.png", "-o", "more", "--samples", "2") == 1
    assert (
        "b.mean.png: its result b.mean.png would have the same name as one of photos/b.png" in capsys.readouterr().err
    )


def test_failure_on_one_photo_does_not_stop_the_others(run, folder, monkeypatch, capsys):
    original = restoring.restored

    def failing(restorer, picture, wishes, progress):
        if torch.equal(picture.rgb, read_image("photos/b.png")):
            raise RuntimeError("not enough memory")
        return original(restorer, picture, wishes, progress)

    monkeypatch.setattr(restoring, "restored", failing)
    assert run("photos", "-o", "out") == 1
    assert "left out: photos/b.png: not enough memory" in capsys.readouterr().err
    assert sorted(images(folder / "out")) == ["a.png", "trip/a.png"]


def test_full_disk_ends_the_run_with_one_line(run, folder, monkeypatch, capsys):
    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("codes.restoration.photo_files.write_atomically", full)
    assert run("photos", "-o", "out") == 1
    printed = capsys.readouterr().err
    assert printed.count("No space left") == 1 and "out/a.png: cannot be written" in printed and "3 left out" in printed


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["photos", "-o", "out", "--nfe", "0"], "--nfe: expected an integer of at least 1, got '0'"),
        (["photos", "-o", "out", "--nfe", "1000000000"], "expected an integer of at most 10,000, got '1000000000'"),
        (["photos", "-o", "out", "--samples", "1001"], "--samples: expected an integer of at most 1,000, got '1001'"),
        (["photos", "-o", "out", "--seed", "9" * 23], "--seed: expected an integer of at most"),
        (["photos", "-o", "out", "--seed", "9" * 5000], "--seed: expected an integer of at most"),
        (["photos", "-o", "out", "--samples", "\u00b2"], "--samples: expected an integer of at least 1, got"),
        (["", "-o", "out"], "PHOTO: the name is empty"),
        (["photos", "-o", ""], "-o/--output: the name is empty"),
        (["photos", "-o", "out", "--opt", ""], "-opt/--opt: the name is empty"),
        (["photos", "-o", "out", "--tile", "7"], "--tile: expected an integer of at least 64, got '7'"),
        (["photos", "-o", "out", "--uncertainty", "--samples", "1"], "give --samples 2 or more"),
        (["-", "photos"], "-: goes from stdin to stdout alone"),
        (["-", "--compare"], "without --compare"),
    ],
)
def test_wrong_arguments_are_reported_before_anything_is_loaded(arguments, reason, capsys):
    with pytest.raises(SystemExit) as stopped:
        restore(arguments)
    assert stopped.value.code == 2 and reason in capsys.readouterr().err


def test_without_a_folder_results_go_to_restored(run, folder, capsys):
    assert run("photos/a.png") == 0
    assert (folder / "restored" / "a.png").is_file()


def test_wrong_options_give_exit_code_2(run, folder, weights, capsys):
    assert restore(["photos", "-o", "out", "--opt", "nowhere.yml"]) == 2
    assert restore(["photos", "-o", "out", "--opt", str(weights), "--algorithm", "hein"]) == 2
    (folder / "file").write_text("")
    assert restore(["photos", "-o", "file", "--opt", str(weights)]) == 2
    printed = capsys.readouterr().err
    for line in ("nowhere.yml: no such file", "did you mean 'heun'?", "-o file: is a file, expected a folder"):
        assert line in printed
    assert not (folder / "out").exists()


# ---- existing results


def test_finished_photos_are_skipped_and_only_missing_results_are_made(run, folder, capsys):
    assert run("photos", "-o", "out") == 0
    before = {name: (folder / "out" / name).stat().st_mtime_ns for name in files(folder / "out")}
    assert run("photos", "-o", "out") == 0
    assert "0 restored, 3 already there" in capsys.readouterr().err
    assert {name: (folder / "out" / name).stat().st_mtime_ns for name in files(folder / "out")} == before
    (folder / "out" / "b.png").unlink()
    assert run("photos", "-o", "out") == 0
    assert "1 restored, 2 already there" in capsys.readouterr().err
    assert run("photos", "-o", "out", "--compare") == 0
    assert "3 restored" in capsys.readouterr().err and (folder / "out" / "trip" / "a.compare.png").is_file()


def test_results_inside_the_photo_folder_are_not_taken_for_photos(run, folder, capsys):
    assert run("photos", "-o", "photos/restored", "--samples", "2") == 0
    before = files(folder)
    assert run("photos", "-o", "photos/restored", "--samples", "2") == 0
    assert "0 restored, 3 already there" in capsys.readouterr().err and files(folder) == before
    assert run("photos/trip", "-o", ".") == 0  # other files in the results folder are photos
    assert "1 restored" in capsys.readouterr().err and (folder / "a.png").is_file()


def test_nothing_is_overwritten_without_overwrite(run, folder, capsys):
    (folder / "out").mkdir()
    (folder / "out" / "b.png").write_bytes(b"mine")
    assert run("photos", "-o", "out") == 1
    assert "out/b.png: exists but is not a result of restore.py; --overwrite replaces it" in capsys.readouterr().err
    assert (folder / "out" / "b.png").read_bytes() == b"mine" and (folder / "out" / "a.png").is_file()
    before = images(folder / "out")

    assert run("photos/a.png", "-o", "out", nfe=3) == 1  # other settings: neither skipped nor replaced
    assert (
        "out/a.png: was made with other settings (solver.num_sample_steps: 2 -> 3); --over" in capsys.readouterr().err
    )
    save_image(np.zeros((16, 16, 3), np.uint8), folder / "photos" / "a.png")
    assert run("photos/a.png", "-o", "out") == 1
    assert "out/a.png: was made from another photo with the same name" in capsys.readouterr().err
    assert images(folder / "out") == before

    assert run("photos", "-o", "out", "--overwrite") == 0
    assert images(folder / "out")["b.png"] != b"mine" and images(folder / "out")["a.png"] != before["a.png"]
    (folder / "out" / "b.png").write_bytes(b"edited")
    assert run("photos", "-o", "out") == 1
    assert "out/b.png: exists but was modified since restore.py wrote it" in capsys.readouterr().err
    assert (folder / "out" / "b.png").read_bytes() == b"edited"


# ---- killed


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", [1, 2, 4, 6, 9])
def test_a_run_that_ends_at_any_write_is_completed_by_the_next(run, folder, monkeypatch, at):
    """Three photos with three results each: the run ends just before the n-th of nine files is written."""
    from codes.restoration import photo_files

    assert run("photos", "-o", "whole", "--samples", "2") == 0
    written = []
    original = photo_files.write_atomically

    def dying(path, content):
        if len(written) == at - 1:
            raise Killed
        written.append(path.relative_to("out").as_posix())
        original(path, content)

    monkeypatch.setattr(photo_files, "write_atomically", dying)
    with pytest.raises(Killed):
        run("photos", "-o", "out", "--samples", "2")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    done = images(folder / "out")
    times = {name: (folder / "out" / name).stat().st_mtime_ns for name in done}
    assert len(done) == at - 1
    with (folder / "out" / RECORDS).open("ab") as file:
        file.write(b'{"name": "b.p')  # half a record
    assert run("photos", "-o", "out", "--samples", "2") == 0
    assert images(folder / "out") == images(folder / "whole")
    for name in written[: len(written) // 3 * 3]:  # photos with all their results were not written again
        assert (folder / "out" / name).stat().st_mtime_ns == times[name]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_killed_and_restarted_run_loses_and_repeats_nothing(folder, weights):
    rng = np.random.default_rng(1)
    for i in range(8):
        save_image(rng.integers(0, 255, (32, 32, 3)).astype(np.uint8), folder / "many" / f"{i}.png")
    arguments = ["many", "-o", "out", "--opt", str(weights), "--nfe", "30", "--device", "cpu"]
    command = [sys.executable, str(ROOT / "restore.py"), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and not (folder / "out" / "1.png").exists():
        time.sleep(0.002)
    process.kill()
    process.communicate()
    done = [name for name in images(folder / "out") if not name.startswith(PREFIX)]  # of what a kill leaves behind
    assert 2 <= len(done) < 8
    times = {name: (folder / "out" / name).stat().st_mtime_ns for name in done}
    assert restore(arguments) == 0
    assert {name: (folder / "out" / name).stat().st_mtime_ns for name in times} == times
    written = [record["name"] for record in records(folder / "out")]
    assert set(written) == {f"{i}.png" for i in range(8)} and all(written.count(name) == 1 for name in times)
    assert restore([*arguments[:2], "whole", *arguments[3:]]) == 0
    assert images(folder / "out") == images(folder / "whole")  # nothing is left behind either


def test_an_interrupted_run_stops_within_a_photo_and_keeps_what_is_finished(run, folder, monkeypatch, capsys):
    """Two evaluations of each photo: the signal comes during the first one of the second photo."""
    evaluations = []
    original = restoring.Meter.advance

    def interrupted(self, share):
        evaluations.append(share)
        if len(evaluations) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        original(self, share)

    monkeypatch.setattr(restoring.Meter, "advance", interrupted)
    assert run("photos", "-o", "out") == 130
    assert evaluations == [0.5, 1.0, 0.5] and sorted(images(folder / "out")) == ["a.png"]
    captured = capsys.readouterr()
    assert "1 restored (interrupted)" in captured.err
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("photos", "-o", "out") == 0
    assert "2 restored, 1 already there" in capsys.readouterr().err


# ---- stdin to stdout, and descriptions


def test_stdin_to_stdout(run, folder, weights):
    photo_with_everything(folder / "x.jpg")
    command = [sys.executable, str(ROOT / "restore.py"), "-", "--opt", str(weights), "--nfe", "2", "--device", "cpu"]
    piped = subprocess.run(command, input=(folder / "x.jpg").read_bytes(), capture_output=True)
    assert piped.returncode == 0, piped.stderr
    assert run("x.jpg", "-o", "out") == 0
    assert piped.stdout == (folder / "out" / "x.jpg").read_bytes()


def test_bad_stdin_gives_a_message_and_no_output(weights, monkeypatch, capsysbinary):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"no image")))
    assert restore(["-", "--opt", str(weights), "--device", "cpu"]) == 1
    captured = capsysbinary.readouterr()
    assert captured.out == b"" and b"stdin: not an image in a known format" in captured.err


@pytest.mark.parametrize(
    ("error", "free", "line"),
    [
        (ArithmeticError("the network returned NaN"), None, "stdin: the network returned NaN"),
        (MemoryError(), None, "stdin: MemoryError"),
        (None, 1e5, "stdin: restoring 0 megapixels takes 0.0 GB of memory, 0.0 GB are free"),
    ],
    ids=["not finite", "no memory", "too large"],
)
def test_a_failure_on_stdin_is_one_line(error, free, line, weights, monkeypatch, capsysbinary):
    def failing(*arguments):
        raise error

    if free:  # enough to read and decode it
        monkeypatch.setattr("codes.data.images.available_memory", lambda: free)
    else:
        monkeypatch.setattr(restoring, "restored", failing)
    content = encode_image(np.zeros((32, 32, 3), np.uint8), ".png")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert restore(["-", "--opt", str(weights), "--device", "cpu"]) == 1
    captured = capsysbinary.readouterr()
    assert captured.out == b"" and captured.err.decode().splitlines() == [line]


@pytest.mark.parametrize(
    ("closed", "said"), [("<&-", "-: standard input is closed"), (">&-", "-: standard output is closed"), ("2>&-", "")]
)
def test_closed_streams_are_one_line_or_do_no_harm(closed, said, weights, folder):
    content = (folder / "photos" / "a.png").read_bytes()
    command = '"$0" "$@" ' + closed
    arguments = [sys.executable, str(ROOT / "restore.py"), "-", "--opt", str(weights), "--nfe", "1", "--device", "cpu"]
    done = subprocess.run(["sh", "-c", command, *arguments], input=content, capture_output=True)
    assert done.stderr.decode().splitlines() == said.splitlines() and done.returncode == (2 if said else 0)
    assert done.stdout.startswith(b"\x89PNG") != bool(said)


class Recogniser:
    """A restorer that changes nothing and describes every photo in the same way."""

    recognises, careful, tile, precision, device = True, None, "auto", "auto", torch.device("cpu")

    def solver(self, algorithm, nfe):
        return Solver("posterior", nfe or 2)

    def recognise(self, image):
        return {"rainy": 0.93, "hazy": 0.066, "snowy": 0.004}

    def sample(self, image, n, **how):
        return Restoration(samples=image[None], seeds=(0,), nfe=2)


def test_describe_prints_degradations_even_of_finished_photos(folder, weights, capsys):
    settings = restoring.RestoreSettings(describe=True)
    for _ in range(2):
        report = restoring.run(Recogniser(), ["photos/a.png"], Path("out"), settings, weights)
        assert capsys.readouterr().out == "photos/a.png: rainy 93 %, hazy 7 %\n"
    assert report.skipped == 1 and report.exit_code == 0


def test_describe_without_an_encoder_says_so_and_still_restores(run, folder, capsys):
    assert run("photos/a.png", "-o", "out", "--describe") == 0
    assert "--describe: this network recognises no degradations" in capsys.readouterr().err
