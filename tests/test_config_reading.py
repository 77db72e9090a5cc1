"""Option files: from YAML and overrides to values."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codes.config import build_sde, build_solvers, load_options, load_stages

from .option_files import ALGORITHMS, BASE, DACLIP, NETWORK, ROOT, message

BAD_FILES = [
    (b"", "the file is empty"),
    (b"# nothing\n", "the file is empty"),
    (b"text", "expected a mapping of options (key: value), got 'text'"),
    (b"- 1\n- 2", "expected a mapping of options (key: value), got [1, 2]"),
    (b"\xff\xfe\x00", "not a text file in UTF-8 (byte 0)"),
    (NETWORK.encode(), "datasets: missing, expected a mapping"),
    (b"datasets: {}\n" + NETWORK.encode(), "datasets: names no dataset"),
    (b"datasets: {train: {root: d}}\n" + NETWORK.encode(), "datasets: has only 'train', and nothing to test on"),
    (
        b"datasets: {t: {root: d}}",
        "network_G.which_model_G: missing, and path.pretrain_model_G names no weights to tell it from",
    ),
    (
        DACLIP.encode(),
        "path.daclip: missing, this ConditionalUNet takes DA-CLIP's contexts (use_degra_context, use_image_context)",
    ),
    (
        DACLIP.encode() + b"path: {daclip: wild-daclip_ViT-L-14.pt}",
        "network_G.setting.context_dim: 512 contradicts path.daclip: ViT-L-14 has embeddings of width 768",
    ),
    (
        b"datasets: {t: {root: d}}\nnetwork_G: {which_model: ConditionalUNt}",
        "network_G.which_model: expected one of ConditionalUNet, ConditionalNAFNet, CodedNAFNet, UNet, got "
        "'ConditionalUNt', did you mean 'ConditionalUNet'?",
    ),
    (
        b"datasets: {t: {root: d}}\nnetwork_G: {which_model: UNet, setting: [1]}",
        "network_G.setting: expected a mapping, got [1]",
    ),
]


@pytest.mark.parametrize(("content", "expected"), BAD_FILES, ids=[expected[:40] for _, expected in BAD_FILES])
def test_bad_files_are_told_in_one_line(tmp_path, content, expected):
    file = tmp_path / "run.yml"
    file.write_bytes(content)
    assert message(load_options, file) == f"{file}: {expected}"


def test_files_that_cannot_be_read(tmp_path):
    assert message(load_options, tmp_path / "no.yml") == f"{tmp_path}/no.yml: no such file"
    assert message(load_options, tmp_path) == f"{tmp_path}: is a directory"


BAD_OVERRIDES = [
    ("sampler.ordr=2", "sampler.ordr: unknown option, did you mean 'order'?"),
    ("smapler.order=2", "smapler: unknown option, did you mean 'sampler'?"),
    ("sampler.order=two", "sampler.order: expected an integer from 1 to 3, got 'two'"),
    ("sampler.order", "sampler.order: expected KEY=VALUE, for example sampler.order=2"),
    ("=2", "=2: expected KEY=VALUE, for example sampler.order=2"),
    ("sampler..order=2", "sampler..order=2: expected KEY=VALUE, for example sampler.order=2"),
    ("sampler.order={a: ", "sampler.order: line 1: expected the node content, but found '<stream end>'"),
    ("seed.x=2", "seed.x: 'seed' is not a section"),
    ("sde.sampling_mode=magic", f"sde.sampling_mode: expected {ALGORITHMS}, got 'magic'"),
]


@pytest.mark.parametrize(("override", "expected"), BAD_OVERRIDES, ids=[override for override, _ in BAD_OVERRIDES])
def test_bad_overrides_are_told_in_one_line(load, override, expected):
    assert message(load, BASE + "seed: 1", [override]) == f"--set {expected}"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("sde: {eps: 5e-3}", "sde.eps", 0.005),
        ("sde: {eps: !!float 5e-3}", "sde.eps", 0.005),
        ("sde: {T: 1e2}", "sde.T", 100),
        ("sde: {T: !!float 1e2}", "sde.T", 100),
        ("sampler: {tau: 1}", "sampler.tau", 1.0),
        ("sampler: {tau: [0, 5e-1]}", "sampler.tau", (0.0, 0.5)),
        ("sampler: {clamp: [0, 1]}", "sampler.clamp", (0.0, 1.0)),
        ("sampler: {clamp: [true, [0, 1]]}", "sampler.clamp", (True, (0.0, 1.0))),
        ("sampler: {time_schedule: [100, 1e1, 0]}", "sampler.time_schedule", (100.0, 10.0, 0.0)),
        ("tile: off", "tile", "off"),
        ("tile: 'off'", "tile", "off"),
        ("seed: ~", "seed", 0),
        ("sampler:", "sampler.rho", 7.0),
        ("train: {manual_seed: 7}", "seed", 7),
        ("path: {results_root: out}", "results", "out"),
        ("sde: {sampling_mode: heun}", "sde.algorithm", "heun"),
        ("device: cuda:1", "device", "cuda:1"),
    ],
)
def test_values_as_people_write_them(load, text, path, value):
    found: Any = load(BASE + text)
    for key in path.split("."):
        found = getattr(found, key)
    assert found == value
    assert type(found) is type(value)


def test_overrides_win_over_the_file_under_either_name(load):
    text = BASE + "sde: {algorithm: heun}\nsampler: {order: 1}"
    assert load(text, ["sde.sampling_mode=ode"]).sde.algorithm == "ode"
    assert load(text, ["sampler.num_sample_steps=[5, 10]"]).sampler.num_sample_steps == (5, 10)
    assert load(text, ["datasets.t.max_images=3"]).datasets["t"].max_images == 3
    assert load(text, ["sampler.order="]).sampler.order is None
    assert load(BASE, ["network_G.setting.width=32"]).network_G.setting == {"width": 32}


def test_merge_keys_and_aliases_work(load):
    options = load(BASE + "sampler:\n  variants:\n    a: &a {tau: 0.5, order: 1}\n    b: {<<: *a, tau: 0.25}")
    assert options.sampler.variants["b"].model_dump(exclude_unset=True) == {"tau": 0.25, "order": 1}


def test_options_need_no_torch():
    code = (
        "import sys; from pathlib import Path; from codes.config import load_options, resolved\n"
        "options = load_options(Path('options/test.yml')); options.solvers(); resolved(options)\n"
        "print(sorted({'torch', 'numpy', 'scipy', 'cv2'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (result.stdout, result.stderr) == ("[]\n", "")


# ---- a file based on another


@pytest.fixture
def write(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yml").write_text(text)
        return tmp_path

    return write


def test_a_file_is_laid_over_the_one_it_is_based_on(write):
    folder = write(
        base=BASE + "name: base\nsde: {sampling_mode: heun, T: 50}\nsampler: {order: 1, tau: 0.5, clamp: [0, 1]}\n"
        "metrics: {names: [psnr]}\n",
        child="based_on: base.yml\nseed: 3\nsde: {algorithm: ode}\n"
        "sampler: {order: 2, tau: ~, clamp: true}\ndatasets: {t: ~, u: {root: e}}\nmetrics:\n",
        grandchild="based_on: child.yml\nname: third\nsampler: {rho: 5}\n",
    )
    options = load_options(folder / "child.yml")
    assert (options.name, options.seed, options.file) == ("base", 3, folder / "child.yml")
    assert (options.sde.algorithm, options.sde.T) == ("ode", 50)
    assert (options.sampler.order, options.sampler.tau, options.sampler.clamp) == (2, None, True)
    assert list(options.datasets) == ["u"] and options.metrics.names == ("psnr", "ssim", "lpips", "fid")
    third = load_options(folder / "grandchild.yml", ["sampler.order=3"])
    assert (third.name, third.seed, third.sampler.rho, third.sampler.order) == ("third", 3, 5.0, 3)


def test_the_path_of_a_base_is_relative_to_the_file_that_names_it(write, monkeypatch):
    folder = write(base=BASE)
    (folder / "inner").mkdir()
    (folder / "inner" / "child.yml").write_text("based_on: ../base.yml\n")
    monkeypatch.chdir(folder / "inner")
    assert load_options(Path("child.yml")).run_name == "child"
    assert load_options(folder / "inner" / "child.yml").datasets["t"].root == "d"


def test_errors_name_the_file_that_wrote_the_key(write):
    folder = write(
        base=BASE + "sde: {sampling_mode: magic, T: 0}\nsampler: {order: 4, tau: 2}\n",
        child="based_on: base.yml\nsampler: {order: 5, ordr: 1}\nsde: {T: 10}\n",
    )
    lines = message(load_options, folder / "child.yml", ["sampler.tau=3"]).splitlines()
    assert lines == [
        f"{folder}/base.yml: sde.sampling_mode: expected {ALGORITHMS}, got 'magic'",
        f"{folder}/child.yml: sampler.order: expected an integer from 1 to 3, got 5",
        f"{folder}/child.yml: sampler.ordr: unknown option, did you mean 'order'?",
        "--set sampler.tau: expected a number from 0 to 1, got 3",
    ]
    write(base=BASE + "sampler: {num_sample_steps: 1, order: 2}", child="based_on: base.yml\nseed: 1")
    options = load_options(folder / "child.yml")
    assert message(build_solvers, options, build_sde(options)).startswith(f"{folder}/base.yml: sampler.order: ")
    options = load_options(folder / "child.yml", ["sampler.order=3"])
    assert message(build_solvers, options, build_sde(options)).startswith(f"{folder}/child.yml: sampler.order: ")


BAD_BASES = [
    (
        "based_on: no.yml",
        "child.yml: based_on: {folder}/no.yml: no such file; looked beside the option file, in {here} and in {root}",
    ),
    ("based_on: [a.yml]", "child.yml: based_on: expected the path of an option file, got ['a.yml']"),
    ("based_on:", "child.yml: based_on: expected the path of an option file, got null"),
    ("based_on: child.yml", "child.yml: based_on: {folder}/child.yml is itself based on this file"),
    ("based_on: circle.yml", "circle.yml: based_on: {folder}/child.yml is itself based on this file"),
    ("based_on: empty.yml", "empty.yml: the file is empty"),
    ("based_on: broken.yml", "broken.yml: line 1: expected ',' or '}}', but got '<stream end>'"),
    ("basedon: base.yml", "child.yml: basedon: unknown option, did you mean 'based_on'?"),
]


@pytest.mark.parametrize(("text", "expected"), BAD_BASES, ids=[text for text, _ in BAD_BASES])
def test_bad_bases_are_reported_in_one_line(write, tmp_path_factory, monkeypatch, text, expected):
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    more = "" if text.startswith("based_on") else BASE
    folder = write(child=f"{more}{text}\n", circle="based_on: child.yml", empty="", broken="a: {b: 1")
    assert message(load_options, folder / "child.yml") == f"{folder}/" + expected.format(
        folder=folder, here=here, root=ROOT
    )


def test_the_command_line_cannot_name_a_base(load):
    assert message(load, BASE, ["based_on=x.yml"]) == "--set based_on: is a key of option files alone"


def test_stages_of_a_base(write):
    folder = write(
        base="datasets: {train: {root: d}}\nstages: {a: {train.niter: 5}, b: {train.nitr: 6}}\n" + NETWORK,
        child="based_on: base.yml\nstages: {b: {train.nitr: ~, train.niter: 7}}\n",
        fixed="based_on: base.yml\nstages: {b: ~, c: {train.niter: 7}}\n",
        common="based_on: base.yml\nstages: {a: {based_on: x.yml}}\n",
    )
    assert [stage.train.niter for stage in load_stages(folder / "fixed.yml")] == [5, 7]
    assert message(load_stages, folder / "base.yml").startswith(f"{folder}/base.yml: stages.b.train.nitr: unknown")
    assert (
        message(load_stages, folder / "common.yml")
        == f"{folder}/common.yml: stages.a.based_on: is common to all stages"
    )
