"""Files that a run trusts later: absent, whole or damaged, and nothing else; claims, leftovers, messages, terminals."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from codes.commands.arguments import run
from codes.runtime import files
from codes.runtime.environment import write_environment
from codes.runtime.files import (
    JsonLines,
    check_archive,
    digest,
    mend_lines,
    read_arrays,
    read_json,
    read_json_lines,
    read_lines,
    read_text,
    remove_leftovers,
    set_aside,
    write_arrays,
    write_atomically,
    write_json,
    write_json_lines,
    write_text,
    write_whole,
)
from codes.runtime.locks import claim, lock_file
from codes.runtime.output import accept_any_text
from codes.runtime.problems import Busy, Damaged, FileError, check_regular, explain

LINES = [{"name": "a", "value": 0.1}, {"name": "ä→", "list": [1, None, float("inf")]}, {"name": "\udcff.png"}]


def outcome(read, path):
    """What a reader says: absent, damaged, or the content."""
    try:
        found = read(path)
    except Damaged as error:
        assert str(error).startswith(f"{path}: damaged") and "\n" not in str(error)
        return "damaged"
    return "absent" if found is None else found


def lines_of(path):
    found = read_lines(path)
    return None if found is None else found.values


def arrays_of(path):
    found = read_arrays(path)
    return None if found is None else {key: value.tolist() for key, value in found.items()}


KINDS = {
    "text": (write_text, read_text, "a: 1\nb: ä\n"),
    "object": (write_json, read_json, {"a": 1, "b": [0.5, {"c": None}]}),
    "list": (write_json, read_json, [{"a": 1}, {"b": "ä"}]),
    "arrays": (lambda p, v: write_arrays(p, {k: np.array(x) for k, x in v.items()}), arrays_of, {"a": [1.0, 2.0]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_absent_whole_or_damaged(kind, tmp_path):
    """Cut off at every length, and with every byte changed: damaged, or the same as before; never something else."""
    write, read, value = KINDS[kind]
    path = tmp_path / "file"
    assert outcome(read, path) == "absent"
    write(path, value)
    content = path.read_bytes()
    assert outcome(read, path) == value
    for length in range(len(content)):
        path.write_bytes(content[:length])
        # What only lacks the last line break of JSON lacks nothing.
        assert outcome(read, path) == "damaged" or (length == len(content) - 1 and outcome(read, path) == value), length
    unsealed = 0
    for place in range(len(content)):
        for mask in (0x01, 0x20, 0x80):
            path.write_bytes(content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :])
            found = outcome(read, path)
            if found not in ("damaged", value):
                # The name of the checksum itself was hit: the content is unharmed.
                assert kind in ("object", "list") and "check" not in json.dumps(found)
                unsealed += 1
    assert unsealed <= 2 * 3 * len("check")


def test_files_of_earlier_versions_are_read_as_before(tmp_path):
    path = tmp_path / "file"
    path.write_text("a: 1\n")
    assert read_text(path) == "a: 1\n"
    path.write_text('[{"a": 1}]')
    assert read_json(path) == [{"a": 1}]
    path.write_text('{"a": 1}\n{"a": 2}\n')
    assert list(read_json_lines(path)) == [{"a": 1}, {"a": 2}]
    lines = JsonLines(path)
    lines.append({"a": 3})
    lines.close()
    assert list(read_json_lines(path)) == [{"a": 1}, {"a": 2}, {"a": 3}]
    np.savez(tmp_path / "a.npz", a=np.arange(3))
    assert arrays_of(tmp_path / "a.npz") == {"a": [0, 1, 2]}


def test_lines_carry_their_own_checksums(tmp_path):
    path = tmp_path / "lines"
    assert read_lines(path) is None
    lines = JsonLines(path)
    for value in LINES:
        lines.append(value)
    lines.close()
    assert lines_of(path) == LINES
    assert all(len(json.loads(line)["check"]) == 16 for line in path.read_text().splitlines())
    content = path.read_bytes()
    write_json_lines(path, LINES)
    assert path.read_bytes() == content
    for length in range(
        len(content)
    ):  # as a kill leaves it: whole lines, and an unfinished one that counts for nothing
        path.write_bytes(content[:length])
        found = read_lines(path)
        assert found.values == LINES[: len(found.values)] and not found.damaged
        assert len(found.values) >= content[:length].count(b"\n")
    ends = [i for i, byte in enumerate(content) if byte == 10]
    for place in range(len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        found = read_lines(path)
        hit = sum(place > end for end in ends)
        others = [value for i, value in enumerate(LINES) if i != hit]
        if place in ends:  # two lines became one
            assert found.values == [value for i, value in enumerate(LINES) if i not in (hit, hit + 1)]
        elif hit == 0 and len(found.values) == 3:  # the word "check" of the first line: taken for an older one
            assert found.values[0] | LINES[0] == found.values[0]
        else:
            assert found.values == others and (found.damaged == [hit + 1] or hit == 2)


def test_an_unfinished_line_is_removed_and_a_damaged_one_set_aside(tmp_path):
    path = tmp_path / "lines"
    write_json_lines(path, LINES)
    content = path.read_bytes()
    path.write_bytes(content + b'{"name": "half')
    JsonLines(path).close()
    assert path.read_bytes() == content
    path.write_bytes(content + b"\x00\x00\xff")  # no beginning of a line: kept, and damaged
    lines = JsonLines(path)
    lines.append({"name": "next"})
    lines.close()
    assert read_lines(path).damaged == [4] and lines_of(path) == [*LINES, {"name": "next"}]
    before = path.read_bytes()
    assert mend_lines(path) == [4] and mend_lines(path) == []
    assert lines_of(path) == [*LINES, {"name": "next"}] and not read_lines(path).damaged
    assert (tmp_path / "lines.damaged").read_bytes() == before
    assert set_aside(path).name == "lines.damaged-2"


def test_a_full_disk_leaves_no_half_line(tmp_path, monkeypatch):
    path = tmp_path / "lines"
    lines = JsonLines(path)
    lines.append(LINES[0])
    content = path.read_bytes()

    def half(file, line):
        io.FileIO.write(file, line[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_all", half)
    with pytest.raises(OSError, match="No space left on device: .*lines"):
        lines.append(LINES[1])
    assert path.read_bytes() == content
    monkeypatch.undo()
    lines.append(LINES[1])
    lines.close()
    assert lines_of(path) == LINES[:2]


def test_threads_and_processes_append_to_one_file(tmp_path):
    path = tmp_path / "lines"

    def add(who):
        lines = JsonLines(path)
        for number in range(20):
            lines.append({"who": who, "number": number, "filler": "x" * 2000})
        lines.close()

    others = [threading.Thread(target=add, args=[who]) for who in range(4)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert not read_lines(path).damaged
    assert sorted((line["who"], line["number"]) for line in lines_of(path)) == [
        (w, n) for w in range(4) for n in range(20)
    ]


@pytest.mark.parametrize("at", [1, 2, 5, 9])
def test_an_error_of_the_disk_is_told_as_such(at, tmp_path, monkeypatch):
    """torch has an error of its own for it, which names nothing."""
    calls, write = [], files.write_all

    def full(file, content):
        calls.append(content)
        if len(calls) >= at:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content)

    monkeypatch.setattr(files, "write_all", full)
    with pytest.raises(OSError) as caught:
        write_whole(tmp_path / "a.pth", lambda part: torch.save({"a": torch.zeros(9)}, part))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "a.pth"))
    assert list(tmp_path.iterdir()) == []


def test_archives_are_checked_by_their_own_sums(tmp_path):
    path = tmp_path / "a.pth"
    with pytest.raises(FileNotFoundError):
        check_archive(path)
    write_whole(path, lambda part: torch.save({"a": torch.ones(9)}, part))
    check_archive(path)
    content = path.read_bytes()
    place = content.index(torch.ones(9).numpy().tobytes())
    path.write_bytes(content[: place + 5] + bytes([content[place + 5] ^ 1]) + content[place + 6 :])
    with pytest.raises(Damaged, match="a.pth: damaged.*archive/data/0"):
        check_archive(path)
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="it is empty"):
        check_archive(path)
    np.savez_compressed(tmp_path / "bomb.npz", a=np.zeros(10**6))
    with pytest.raises(Damaged, match="compressed parts"):
        check_archive(tmp_path / "bomb.npz")


def test_a_damaged_environment_is_set_aside(tmp_path, caplog):
    path = tmp_path / "environment.json"
    write_environment(tmp_path, torch.device("cpu"), 1, "fp32")
    write_environment(tmp_path, torch.device("cpu"), 2, "fp32")
    assert [start["processes"] for start in read_json(path)] == [1, 2]
    for content in (
        b"",
        path.read_bytes()[:100],
        b"{}",
        path.read_bytes().replace(b'"processes": 2', b'"processes": 3'),
    ):
        path.write_bytes(content)
        caplog.clear()
        write_environment(tmp_path, torch.device("cpu"), 4, "fp32")
        assert [start["processes"] for start in read_json(path)] == [4]
        assert "environment.json: damaged" in caplog.text and "environment.json.damaged" in caplog.text
    assert len(list(tmp_path.glob("environment.json.damaged*"))) == 4


# ---- claims and leftovers

HOLDER = """
import sys, time
from pathlib import Path
from codes.runtime.locks import claim
from codes.runtime.files import write_whole
def write(part):
    part.write(b"half"); print("held", flush=True); time.sleep(60)
with claim(Path(sys.argv[1])):
    write_whole(Path(sys.argv[1]) / "result", write)
"""


def test_a_claim_ends_with_kill_9_and_so_do_leftovers(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    with (
        pytest.raises(Busy, match=rf"in use by process {holder.pid} \(-c .*, since \d\d:\d\d:\d\d\); wait"),
        claim(tmp_path),
    ):
        raise AssertionError
    assert remove_leftovers(tmp_path) == []  # their owner lives
    heard = []
    killer = threading.Timer(0.3, holder.send_signal, [signal.SIGKILL])
    killer.start()
    with claim(tmp_path, wait=None, say=heard.append):
        assert heard == [f"{tmp_path}: waiting for process {holder.pid} " + heard[0].split(" ", 5)[-1]]
        assert [path.suffix for path in remove_leftovers(tmp_path)] == [".part"]
    holder.wait()
    assert list(tmp_path.iterdir()) == []


def test_claims_exclude_share_and_wait(tmp_path):
    result = tmp_path / ("n" * 250 + ".png")
    with claim(result):
        assert lock_file(result).is_file()
        with pytest.raises(Busy, match=f"in use by process {os.getpid()}"), claim(result, wait=0.05):
            raise AssertionError
        with claim(tmp_path / "other.png"), claim(tmp_path):
            pass
    with claim(result, shared=True), claim(result, shared=True), pytest.raises(Busy), claim(result):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []
    inside, together = [], []

    def work():
        with claim(result, wait=None, say=lambda text: None):
            inside.append(1)
            together.append(len(inside))
            time.sleep(0.002)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [1] * 8 and list(tmp_path.iterdir()) == []


def test_without_locks_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("codes.runtime.locks.lock", lambda handle, shared=False: None)
    heard = []
    with claim(tmp_path, say=heard.append):
        assert heard == [f"{tmp_path}: this file system has no locks; start one process at a time here"]


def test_leftovers_are_ours_and_dead(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in (".mr-abc.part", "deep/.mr-def.part", ".mr-folder.lock", ".photo.part", "mr-x.part", ".mr-notes"):
        (tmp_path / name).write_text("")
    assert [path.name for path in remove_leftovers(tmp_path, deep=False)] == [".mr-abc.part", ".mr-folder.lock"]
    assert [path.name for path in remove_leftovers(tmp_path)] == [".mr-def.part"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mr-notes", ".photo.part", "deep", "mr-x.part"]


def test_a_link_planted_in_a_folder_leads_nothing_out_of_it(tmp_path):
    """Folders come from other people too: whatever a command keeps open and writes into is never a link."""
    place, victim = tmp_path / "place", tmp_path / "victim"
    place.mkdir()
    for target in (victim, tmp_path / "new", tmp_path):
        victim.write_text("precious")
        for link in (place / ".mr-folder.lock", place / "records.jsonl", place / ".mr-x.part"):
            link.symlink_to(target)
        for write in (lambda: claim(place).__enter__(), lambda: JsonLines(place / "records.jsonl")):
            with pytest.raises(FileError, match=rf"{place}/\S+: a symbolic link, which could lead anywhere; remove it"):
                write()
        assert remove_leftovers(place) == []
        assert victim.read_text() == "precious" and sorted(tmp_path.iterdir()) == [place, victim]
        for link in list(place.iterdir()):
            link.unlink()


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_in_place_of_a_lock_is_named(make, tmp_path):
    make(tmp_path / ".mr-folder.lock")
    with pytest.raises(FileError, match=r"\.mr-folder\.lock: a (named pipe|folder); expected a file"), claim(tmp_path):
        raise AssertionError


def test_a_checksum_of_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="pipe: a named pipe; expected a file"):
        digest(tmp_path / "pipe")


def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path):
    path = tmp_path / ("n" * 251 + ".png")
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"
    with pytest.raises(OSError, match="File name too long") as caught:
        write_atomically(tmp_path / ("n" * 300), b"x")
    assert explain(caught.value).endswith("File name too long; choose a shorter name")
    assert list(tmp_path.iterdir()) == [path]


# ---- messages


def test_devices_pipes_and_folders_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((Path("/dev/zero"), "a device"), (tmp_path / "pipe", "a named pipe"), (tmp_path, "a folder")):
        for read in (read_text, read_json, read_lines, read_arrays, check_archive):
            with pytest.raises(FileError, match=f"{path}: {kind}; expected a file"):
                read(path)
    with pytest.raises(FileError, match="null"):
        check_regular("a\0b")


def test_an_unreadable_file_is_neither_absent_nor_damaged(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_text(path, "a: 1\n")

    def refused(self):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(FileError, match="file: cannot be read: Permission denied; give yourself permission") as caught:
        read_text(path)
    assert not isinstance(caught.value, Damaged)


def test_a_command_tells_an_error_of_the_system_in_one_line(capsys):
    def full(arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "a.png")

    assert run(full, None) == 1
    assert capsys.readouterr().err == (
        "a.png: cannot be used: No space left on device; free some space on that disk and start again: everything "
        "finished before is kept\n"
    )


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [("ascii", b"PSNR -> 5 x a \\u65e5 \\udcff\n"), ("latin-1", b"PSNR -> 5 \xd7 \xe4 \\u65e5 \\udcff\n")],
)
def test_any_terminal_can_print_any_text(encoding, printed, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    accept_any_text()
    print("PSNR → 5 × ä 日 \udcff", flush=True)
    assert stream.buffer.getvalue() == printed
