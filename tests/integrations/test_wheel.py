"""The wheel, installed into a new environment outside the repository, with the dependencies of the running one."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
import zipfile
from pathlib import Path

import pytest

import codes

ROOT = Path(__file__).parent.parent.parent
FILES = ("pyproject.toml", "README.md", "LICENSE")
# What `sample` may import besides the standard library: torch and numpy, and what these import themselves.
CORE = {"mr_sampler", "torch", "torchgen", "functorch", "numpy", "typing_extensions", "sympy", "mpmath"}
# Packages of other extras than `restore`.
OTHERS = ("accelerate", "diffusers", "gradio", "lpips", "matplotlib", "onnx", "scipy", "spandrel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "codes", source / "codes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "options", source / "options")
    (source / "pretrained").mkdir()
    for path in [*ROOT.glob("pretrained/mr-*.safetensors"), *(ROOT / name for name in FILES)]:
        shutil.copy(path, source / path.relative_to(ROOT))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", source / "dist", source], check=True)
    (path,) = (source / "dist").iterdir()
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """The folder of the new environment's programs."""
    folder = tmp_path_factory.mktemp("new") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    options = ["--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, wheel], check=True)
    # Only the packages: a folder that a .pth file adds has its own .pth files left alone, so that the editable
    # installation of the running environment does not count.
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.fixture
def start(environment, tmp_path):
    """Runs a program of the environment in an empty folder, where some packages cannot be imported."""
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(
        "import os, sys\n"
        "from importlib.machinery import PathFinder\n"
        "only, never = (set(filter(None, os.environ.get(name, '').split())) for name in ('ONLY', 'NEVER'))\n"
        "class Guard(PathFinder):\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        top = name.partition('.')[0]\n"
        "        absent = top in never or (only and top not in only | sys.stdlib_module_names)\n"
        "        return None if absent else super().find_spec(name, path, target)\n"
        "sys.meta_path[:] = [Guard if finder is PathFinder else finder for finder in sys.meta_path]\n"
    )
    folder = tmp_path / "elsewhere"
    folder.mkdir()

    def start(program, *arguments, only=(), never=(), run=subprocess.run, **options):
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))}
        variables |= {"PYTHONPATH": str(guard), "ONLY": " ".join(only), "NEVER": " ".join(never), "HF_HUB_OFFLINE": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": folder, "env": variables}
        return run([environment / program, *map(str, arguments)], **pipes | options)

    start.folder = folder
    return start


def test_every_package_and_data_file_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "codes").rglob("*.py"):
        assert f"mr_sampler/{path.relative_to(ROOT / 'codes')}" in names
    for folder, pattern in (("options", "*.yml"), ("options/demo/GT", "*.png"), ("pretrained", "mr-*.safetensors")):
        files = [path.relative_to(ROOT) for path in (ROOT / folder).rglob(pattern)]
        assert files and {f"mr_sampler/{file}" for file in files} <= names
    assert {"mr_sampler/py.typed", "mr_sampler/app/page.css"} <= names
    assert {name.split("/")[0] for name in names} == {"mr_sampler", f"mr_sampler-{codes.__version__}.dist-info"}
    assert wheel.stat().st_size < 25e6


def test_dependencies_have_lower_bounds_only():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    for line in wanted:
        assert re.fullmatch(r"[\w-]+(\[[\w,]+\])?(>=[\d.]+)?", line), line
    pins = (ROOT / "requirements.txt").read_text() + (ROOT / ".ci" / "constraints.txt").read_text()
    pinned = {line.partition("==")[0].lower() for line in pins.splitlines() if "==" in line}
    assert {re.split(r"[\[>]", line)[0].lower() for line in wanted} - {"mr-sampler", "setuptools"} <= pinned


def test_restore_works_from_any_folder_without_options(start):
    shutil.copy(ROOT / "options" / "demo" / "GT" / "rocket.png", start.folder / "photo.png")
    done = start("mr-sampler", "restore", "photo.png", never=OTHERS)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (start.folder / "restored").iterdir()) == ["photo.png", "restored.jsonl"]


def test_evaluation_is_planned_with_the_files_of_the_package(start):
    done = start("mr-sampler", "test", "-opt", "options/test.yml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "images to restore into results/test" in done.stdout and list(start.folder.iterdir()) == []


def test_sample_needs_torch_and_numpy_alone(start):
    code = (
        "import torch\n"
        "from mr_sampler import MeanRevertingSDE, Solver, __version__, sample\n"
        "rng, mu = torch.Generator().manual_seed(0), torch.full((1, 3, 8, 8), 0.5)\n"
        "for name in ('mrsampler', 'mrsampler-pc', 'posterior'):\n"
        "    out = sample(lambda x, mu, t: mu + 0.25, MeanRevertingSDE(), mu, Solver(name, 8), fit_target='data',\n"
        "                 generator=rng)\n"
        "    print(out.nfe, float((out.sample - 0.75).abs().max()) < 0.02)\n"
        "print(__version__)\n"
    )
    done = start("python", "-c", code, only=CORE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["8 True"] * 3 + [codes.__version__, ""]


def test_scheduler_needs_diffusers_besides(start):
    code = (
        "import torch\n"
        "from mr_sampler.scheduler import MRSamplerScheduler\n"
        "scheduler = MRSamplerScheduler(algorithm='posterior', fit_target='data')\n"
        "scheduler.set_timesteps(4)\n"
        "mu, rng = torch.full((1, 3, 8, 8), 0.5), torch.Generator().manual_seed(0)\n"
        "x = scheduler.start(mu, rng)\n"
        "for t in scheduler.timesteps:\n"
        "    x = scheduler.step(mu + 0.25, t, x, mu, generator=rng).prev_sample\n"
        "print(float((x - 0.75).abs().max()) < 0.02)\n"
    )
    done = start("python", "-c", code, never={*OTHERS, "cv2", "open_clip", "pydantic"} - {"accelerate", "diffusers"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n"


def test_the_scheduler_needs_no_torchvision(start):
    code = "from mr_sampler.scheduler import MRSamplerScheduler as Scheduler; print(Scheduler().config['fit_target'])"
    done = start("python", "-c", code, never={"torchvision", "cv2", "open_clip", "pydantic", "platformdirs"})
    assert (done.returncode, done.stdout) == (0, "noise\n"), done.stderr


def test_the_extra_for_diffusers_is_enough_for_the_pipeline():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "mr-sampler[restore]" in extras["diffusers"]  # networks, checkpoints and images


def test_help_is_there_without_the_extra_of_a_command(start):
    never = set(OTHERS) | {"openvino", "onnxruntime", "fastapi", "uvicorn"}
    for command in ("test", "train", "tune", "export", "app"):
        done = start("mr-sampler", command, "--help", never=never)
        assert done.returncode == 0 and done.stdout.startswith(f"usage: mr-sampler {command} "), done.stderr


def test_a_missing_extra_is_named(start):
    done = start("mr-sampler", "tune", "-opt", "options/test.yml", never=["matplotlib"])
    assert done.returncode == 2
    assert re.fullmatch(
        r"mr-sampler tune: \S+ lacks matplotlib: run `pip install 'mr-sampler\[figures\]'`\n", done.stderr
    )


def test_the_page_starts(start):
    never = ("diffusers", "matplotlib", "onnx", "spandrel")
    page = start("mr-sampler", "app", "--port", "0", never=never, run=subprocess.Popen)
    try:
        line = page.stdout.readline()
        address = re.search(r"http://[\d.:]+", line)
        assert address, line + page.stderr.read()
        assert "MR Sampler" in urllib.request.urlopen(address[0]).read().decode()
        page.send_signal(signal.SIGINT)
        assert page.wait(20) == 0
    finally:
        page.kill()
        page.communicate()


def test_help_and_version_import_nothing_heavy(start):
    for argument in ("--help", "--version"):
        assert start("mr-sampler", argument, only={"mr_sampler"}).returncode == 0
    for command in ("restore", "test"):
        code = f"from mr_sampler.commands.main import main; import sys; sys.exit(main(['{command}', '--help']))"
        trace = f"import atexit, sys; atexit.register(lambda: print('torch' in sys.modules))\n{code}"
        assert start("python", "-c", trace).stdout.endswith("False\n")
