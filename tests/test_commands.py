"""The commands: one entry point, thin launchers, threads set up before torch, one line where packages are missing."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import codes
from codes.commands.main import COMMANDS, launch, main
from codes.runtime import startup

ROOT = Path(__file__).parent.parent
ROOT_LAUNCHERS = {"app", "restore", "test", "train"}
CONSOLE_ONLY = {"completion", "describe", "export"}  # started as `mr-sampler COMMAND`
LAUNCHERS = {
    name: ROOT / ("" if name in ROOT_LAUNCHERS else "scripts") / f"{name.replace('-', '_')}.py"
    for name in COMMANDS
    if name not in CONSOLE_ONLY
}
TOOLS = [ROOT / "scripts" / f"{name}.py" for name in ("app_screenshots", "benchmark", "gallery", "parity", "peers")]


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python, with the project on its path."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=variables, cwd=ROOT)


# ---- launchers


def test_every_command_has_a_module_and_a_launcher():
    modules = {
        path.stem for path in (ROOT / "codes" / "commands").glob("*.py") if "def build_parser(" in path.read_text()
    }
    assert modules == {name.replace("-", "_") for name in COMMANDS}
    scripts = {path for path in (ROOT / "scripts").glob("*.py") if path.name != "launcher.py"}
    assert scripts == {path for path in LAUNCHERS.values() if path.parent.name == "scripts"} | set(TOOLS)
    assert set(ROOT.glob("*.py")) == {path for path in LAUNCHERS.values() if path.parent == ROOT}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launchers_only_start_their_command(name):
    text = LAUNCHERS[name].read_text()
    assert len(text.splitlines()) == 8
    assert text.endswith(f'if __name__ == "__main__":\n    sys.exit(launch("{name}"))\n')


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_under_the_name_it_was_started_by(name, capsys):
    for start, shown in (
        (lambda: launch(name, ["--help"]), f"{name.replace('-', '_')}.py"),
        (lambda: main([name, "--help"]), f"mr-sampler {name}"),
    ):
        with pytest.raises(SystemExit) as stopped:
            start()
        printed = capsys.readouterr().out
        assert stopped.value.code == 0 and printed.startswith(f"usage: {shown} ")
        assert max(map(len, printed.splitlines())) <= 120


# ---- one entry point


def test_overview_lists_every_command_and_fits_a_screen(capsys):
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines if re.match(r"  [a-z]", line)] == list(COMMANDS)


def test_version_is_that_of_the_project(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mr-sampler {codes.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+", codes.__version__)


def test_unknown_and_missing_commands_end_with_2(capsys):
    assert main(["fetch_weights"]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "did you mean 'fetch-weights'?" in captured.err
    assert main([]) == 2


def test_exit_code_and_arguments_pass_through(tmp_path, capsys):
    assert main(["test", "-opt", str(tmp_path / "no.yml")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'no.yml'}: no such file\n"


def test_entry_point_imports_the_standard_library_only():
    code = (
        "import sys; before = set(sys.modules)\n"
        "import codes.commands.main\n"
        "print({name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    result = python("-c", code)
    assert (result.stdout, result.stderr) == ("{'codes'}\n", "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [("a: [", "line 1: "), ("- a", "expected a mapping of options (key: value), got ['a']"), ("", "the file is empty")],
)
def test_convert_names_an_option_file_it_cannot_read(weights, tmp_path, capsys, content, reason):
    (tmp_path / "bad.yml").write_text(content)
    arguments = ["convert", str(weights), str(tmp_path / "out.safetensors"), "--opt", str(tmp_path / "bad.yml")]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"convert: {tmp_path / 'bad.yml'}: ") and reason in line


# ---- where packages are missing


@pytest.mark.parametrize("path", [*LAUNCHERS.values(), *TOOLS], ids=lambda path: path.name)
@pytest.mark.parametrize("inside", [True, False], ids=["project", "elsewhere"])
def test_without_packages_one_line_says_how_to_install_them(path, inside, tmp_path):
    """In a Python without site-packages, started in the project's folder and in another one."""
    folder = ROOT if inside else tmp_path
    result = subprocess.run([sys.executable, "-S", str(path), "--help"], capture_output=True, text=True, cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{path.name}: {sys.executable} lacks torch, torchvision, ")
    install, requirements = ("install", "") if inside else (f"-C {ROOT} install", f"{ROOT}/")
    assert f"run `make {install}` and use {requirements}.venv/bin/python" in line
    more = {"app_screenshots": r" playwright==\S+"}.get(path.stem, "")
    assert re.search(rf"or run `pip install -r {re.escape(requirements)}requirements\.txt{more}`$", line)


@pytest.mark.parametrize("script", ["make_lq", "parity"])
def test_scripts_find_the_package_beside_them_without_installation(script, tmp_path):
    """With the packages of requirements.txt alone: -S keeps Python from finding what is installed by reference."""
    packages = str(Path(pytest.__file__).parent.parent)
    result = subprocess.run(
        [sys.executable, "-S", str(ROOT / "scripts" / f"{script}.py"), "--help"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": packages},
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "") and result.stdout.startswith(f"usage: {script}.py ")


def test_old_python_is_named(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 14))
    problem = startup.missing_packages()
    assert problem is not None and problem.startswith(f"needs Python 3.11 or newer, {sys.executable} is ")


def test_single_missing_packages_are_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert launch("test", []) == 2
    assert re.search(r"^test\.py: \S+ lacks pyyaml: run `make install`", capsys.readouterr().err)


def test_packages_of_one_command_are_asked_of_that_command_only(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert launch("app", []) == 2
    captured = capsys.readouterr().err
    assert captured.startswith("app.py: ") and re.search(r"or run `pip install gradio==[\d.]+`\n$", captured)
    assert launch("test", ["-opt", str(tmp_path / "no.yml")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_every_requirement_is_looked_for_by_its_module():
    found = startup.requirements()
    assert {"torch": "torch", "opencv-python": "cv2", "pyyaml": "yaml"}.items() <= found.items()
    assert startup.missing_packages() is None


# ---- threads and memory


@pytest.mark.parametrize("own", [None, "ACTIVE"])
def test_threads_are_set_up_before_torch_and_own_settings_win(own):
    code = (
        "import os, sys\n"
        "class Watch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch.version': print(os.environ.get('OMP_WAIT_POLICY'))\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from codes.commands.main import launch\n"
        "launch('convert', ['--help'])"
    )
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment |= {} if own is None else {"OMP_WAIT_POLICY": own}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert result.stdout.splitlines()[0] == (own or "PASSIVE"), result.stderr


class Library:
    """A C library that notes the settings of its memory."""

    def __init__(self) -> None:
        self.settings: dict[int, int] = {}

    def mallopt(self, parameter: int, value: int) -> None:
        self.settings[parameter] = value


@pytest.fixture
def library(monkeypatch):
    fake = Library()
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: fake)
    monkeypatch.setattr(sys, "platform", "linux")
    return fake


def test_training_alone_keeps_freed_memory(library, tmp_path):
    for name in ("test", "tune"):
        assert launch(name, ["-opt", str(tmp_path / "no.yml")]) == 2
    assert not library.settings
    assert launch("train", ["-opt", str(tmp_path / "no.yml")]) == 2
    assert library.settings == {-1: 2**31 - 1, -4: 0}


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "1000", {-4: 0}),
        ("MALLOC_MMAP_MAX_", "9", {-1: 2**31 - 1}),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=9", {}),
    ],
)
def test_own_settings_of_memory_win(library, monkeypatch, name, value, left):
    monkeypatch.setenv(name, value)
    startup.keep_memory()
    assert library.settings == left
