"""Option files: the published ones, those in options/, and the ones that runs write."""

import json
import re
from typing import Any

import pytest
import yaml

from codes.config import build_sde, build_solvers, difference, load_options, resolved, schema_markdown
from codes.config.dataset_options import DatasetOptions
from codes.config.kinds import ForTraining, Ignored
from codes.config.schema import Options
from codes.solvers import Solver

from .option_files import BASE, PUBLISHED, ROOT, message

FILES = sorted((ROOT / "options").glob("*.yml"))
WRITTEN = [*FILES, *sorted(PUBLISHED.glob("t*.yml"))]


def published_values(pattern: str) -> dict[str, list[Any]]:
    """Every key of files in tests/data/published with its values; sets other than train are <set>."""
    found: dict[str, list[Any]] = {}

    def visit(value, path):
        if isinstance(value, dict):
            for key, item in value.items():
                visit(item, (*path, "<set>" if path == ("datasets",) and key != "train" else key))
        else:
            # PyYAML reads a bare 2e-4 as text.
            found.setdefault(".".join(path), []).append(float(value) if str(value)[:3] in ("2e-", "1e-") else value)

    for file in PUBLISHED.glob(pattern):
        visit(yaml.safe_load(file.read_text()), ())
    return found


def test_published_style_files_have_every_published_key_and_value():
    """Those that load have all, except the modes that are refused."""
    accepted, refused = published_values("t*.yml"), published_values("refused*.yml")
    missing = []
    for key, values in json.loads((PUBLISHED / "keys.json").read_text()).items():
        for value in values:
            stereo_or_bokeh = key.endswith(".mode") and value.startswith(("Ste", "Bokeh"))
            candidates = (refused if stereo_or_bokeh else accepted).get(key, [])
            if not any(type(other) is str if value == "<path>" else other == value for other in candidates):
                missing.append((key, value))
    assert missing == []


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("t*.yml")), ids=lambda file: file.stem)
def test_published_style_files_load_and_give_solvers(file):
    kind = "train" if file.stem.startswith("train") else "test"
    options = load_options(file, kind=kind)
    raw = yaml.safe_load(file.read_text())
    sde = build_sde(options)
    eps = 0.04 if raw["distortion"] == "denoising" else raw["sde"]["eps"]  # denoising-sde does not read it
    assert (sde.max_sigma, sde.T, sde.eps) == (raw["sde"]["max_sigma"], raw["sde"]["T"], eps)
    assert sde.convention == ("daclip" if "context_dim" in raw["network_G"]["setting"] else "irsde")
    [(label, solver, _)] = build_solvers(options, sde)
    if raw["model"] == "latent":
        assert label == "encode-decode"
        return
    algorithm = raw["sde"].get("algorithm") or raw["sde"]["sampling_mode"]
    steps = raw.get("sampler", {}).get("num_sample_steps") or raw["sde"].get("sample_T") or raw["sde"]["T"]
    assert (solver.algorithm, solver.num_sample_steps) == (algorithm, steps)
    if algorithm == "mrsampler":
        assert solver == Solver(algorithm, **raw["sampler"])
    assert list(options.network_G.setting) == list(raw["network_G"]["setting"])
    assert "gpu_ids: ignored, choose a device with 'device'" in options.ignored


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("refused*.yml")), ids=lambda file: file.stem)
def test_stereo_and_bokeh_files_are_refused_with_a_sentence(file):
    told = message(load_options, file, kind=file.stem.split("-")[-1]).splitlines()
    lines = [line for line in told if ".mode: " in line]  # whatever else they lack
    datasets = yaml.safe_load(file.read_text())["datasets"]
    needs = {"Bok": "lens data for each image", "Ste": "two views of each image"}
    assert len(lines) == len(datasets)
    for line, (name, dataset) in zip(lines, datasets.items(), strict=True):
        assert line.startswith(f"{file}: datasets.{name}.mode: mode '{dataset['mode']}' ")
        assert needs[dataset["mode"][:3]] in line


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_written_options_load_as_the_same(file, tmp_path):
    kind = "train" if file.stem.startswith("train") else "test"
    options = load_options(file, kind=kind)
    written = resolved(options)
    copy = tmp_path / "options.yml"
    copy.write_text(yaml.safe_dump(written, sort_keys=False))
    again = load_options(copy, kind=kind)
    assert resolved(again) == written
    assert again.solvers() == options.solvers()
    assert build_sde(again) == build_sde(options)


def test_written_options_are_plain_complete_and_keep_variants(load, tmp_path):
    options = load(
        BASE + "sde: {algorithm: mrsampler}\n"
        "sampler: {order: 1, clamp: [true, [0, 1]], variants: {a: {order: ~}, b: {tau: 0.5}}}"
    )
    written = resolved(options)
    assert written["name"] == "run"
    assert written["metrics"] == {"names": ["psnr", "ssim", "lpips", "fid"], "crop_border": 0}
    assert written["sampler"]["clamp"] == [True, [0.0, 1.0]]
    assert written["sampler"]["variants"] == {"a": {"order": None}, "b": {"tau": 0.5}}
    assert load(yaml.safe_dump(written)).solvers() == options.solvers()


def test_difference_names_what_changed(load):
    a = resolved(load(BASE + "sampler: {order: 1, num_sample_steps: [5, 10]}"))
    b = resolved(load(BASE + "sampler: {order: 2, num_sample_steps: 5}\nsde: {T: 100}\ngpu_ids: [3]", ["seed=4"]))
    assert sorted(difference(a, b)) == [
        "sampler.num_sample_steps: [5, 10] -> 5",
        "sampler.order: 1 -> 2",
        "sde.T: not given -> 100",
        "seed: 0 -> 4",
    ]
    assert difference(a, a) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_option_files_load_and_build(file):
    options = load_options(file, kind="train" if file.stem.startswith("train") else "test")
    assert options.ignored == []
    labels = {
        "train": ["mrsampler-nfe2"],
        "train-daclip": ["mrsampler-pc-nfe8"],
        "test": ["mrsampler-nfe8"],
        "demo": [f"{name}-nfe{n}" for name in ("best", "mr-sampler-1", "mr-sampler-2", "posterior") for n in (5, 10)],
        "study": ["mrsampler-nfe8"],
        "validation": ["mrsampler-nfe1", "mrsampler-nfe2", "mrsampler-nfe8"],
        "posterior": ["posterior-official-nfe100"],
        "euler": ["sde-official-nfe100"],
        "heun": ["heun-official-nfe100"],
        "mrsampler": ["mrsampler-official-nfe20"],
        "irsde": ["posterior-nfe100"],
        "refusion": ["posterior-nfe100"],
    }
    assert [label for label, _, _ in build_solvers(options, build_sde(options))] == labels[file.stem]
    official = any(solver.compat for _, solver, _ in build_solvers(options, build_sde(options)))
    assert options.metrics.crop_border == (4 if official and file.stem != "demo" else 0)
    assert build_sde(options).convention == ("irsde" if file.stem in ("irsde", "refusion") else "daclip")


# What the paper compares: the same networks, data and metrics with four solvers.
PAPER = {
    "name": "mrsampler",
    "results": "results",
    "seed": 0,
    "device": "auto",
    "precision": "auto",
    "compile": False,
    "tile": "auto",
    "batch_size": "auto",
    "workers": "auto",
    "contact_sheet": 4,
    "model": "denoising",
    "distortion": [
        "motion-blurry",
        "hazy",
        "jpeg-compressed",
        "low-light",
        "noisy",
        "raindrop",
        "rainy",
        "shadowed",
        "snowy",
        "uncompleted",
    ],
    "sde": {
        "algorithm": "mrsampler",
        "max_sigma": 50.0,
        "T": 100,
        "schedule": "cosine",
        "eps": 0.005,
        "convention": "auto",
    },
    "sampler": {
        "num_sample_steps": 20,
        "solver_type": "sde",
        "parameterization": "data",
        "order": 2,
        "fit_target": "noise",
        "lambda_min": -5.0,
        "time_schedule": "linear-lambda",
        "timestep_offset": 0.0,
        "rho": 7.0,
        "thresholding": False,
        "threshold_ratio": 0.995,
        "threshold_max": 1.5,
        "denoise_last": False,
        "mode": "sample",
        "compat": "official",
        "variants": {},
    },
    "datasets": {
        "test1": {"name": "Test", "mode": "MD", "dataroot": "datasets/universal/val", "pairing": "name", "color": "RGB"}
    },
    "degradation": {"sigma": 50.0, "noise_type": "G", "scale": 4},
    "network_G": {
        "which_model_G": "ConditionalUNet",
        "setting": {
            "in_nc": 3,
            "out_nc": 3,
            "nf": 64,
            "ch_mult": [1, 2, 4, 8],
            "context_dim": 512,
            "use_degra_context": True,
            "use_image_context": True,
        },
    },
    "network_L": {"setting": {}},
    "path": {"pretrain_model_G": "pretrained/universal-ir.pth", "daclip": "pretrained/daclip_ViT-B-32.pt"},
    "metrics": {"names": ["psnr", "ssim", "lpips", "fid"], "crop_border": 4},
}


@pytest.mark.parametrize(
    ("name", "algorithm", "sampler"),
    [
        ("mrsampler", "mrsampler", {}),
        ("posterior", "posterior", {"num_sample_steps": 100, "time_schedule": "linspace"}),
        ("euler", "sde", {"num_sample_steps": 100, "time_schedule": "linspace"}),
        ("heun", "heun", {"num_sample_steps": 100, "time_schedule": "linspace", "solver_type": "ode"}),
    ],
)
def test_the_papers_solvers_differ_in_these_values_alone(name, algorithm, sampler):
    changed = {"name": name, "sde": PAPER["sde"] | {"algorithm": algorithm}, "sampler": PAPER["sampler"] | sampler}
    assert resolved(load_options(ROOT / "options" / f"{name}.yml")) == PAPER | changed


def test_the_file_to_edit_mentions_every_option_of_a_test():
    words = set((ROOT / "options" / "test.yml").read_text().replace("{", " ").replace("#", " ").split())

    def check(section):
        for key, field in section.model_fields.items():
            if not any(isinstance(item, Ignored | ForTraining) for item in field.metadata):
                assert f"{key}:" in words, key

    check(Options)
    for key in ("sde", "sampler", "degradation", "network_G", "network_L", "path", "metrics"):
        check(Options.model_fields[key].annotation)
    check(DatasetOptions)


TEST_FILE = ROOT / "options" / "test.yml"


@pytest.mark.parametrize(
    ("edits", "labels", "notes"),
    [
        (["sampler.num_sample_steps=3"], ["mrsampler-nfe3"], []),
        (["sampler.order=3"], ["mrsampler-nfe8"], []),
        (["sde.algorithm=[posterior, mrsampler-pc]"], ["posterior-nfe8", "mrsampler-pc-nfe8"], ["order"]),
        (["sde.algorithm=heun"], ["heun-nfe8"], ["order", "clamp"]),
        (["sde.algorithm=sde"], ["sde-nfe8"], ["order", "clamp"]),
        (["sampler.order=[1, 2]"], ["mrsampler-order1-nfe8", "mrsampler-order2-nfe8"], []),
        (["sampler.compat=official", "sampler.clamp=null"], ["mrsampler-official-nfe8"], []),
    ],
)
def test_what_is_edited_in_the_file_to_edit_acts_or_is_told(edits, labels, notes):
    options = load_options(TEST_FILE, edits)
    assert [line.split(":")[0] for line in options.ignored] == [f"sampler.{key}" for key in notes]
    planned, before = (build_solvers(given, build_sde(given)) for given in (options, load_options(TEST_FILE)))
    assert [label for label, _, _ in planned] == labels
    assert all(plan != before[0].plan for _, _, plan in planned[1:] or planned)


def test_every_line_of_the_file_to_edit_that_is_commented_out_is_valid():
    lines = re.findall(r"^  # (\w+): (.+?)(?: +#.*)?$", TEST_FILE.read_text().split("\nsampler:")[1], re.MULTILINE)
    assert len(lines) > 12
    for key, value in lines:
        edits = [f"sampler.{key}={value}", *(["sampler.clamp=null"] if key == "compat" else [])]
        options = load_options(TEST_FILE, edits)
        build_solvers(options, build_sde(options))


def test_the_training_file_mentions_every_option_of_a_training():
    words = set((ROOT / "options" / "train.yml").read_text().replace("{", " ").replace("#", " ").split())
    sections = (Options.model_fields["train"].annotation, Options.model_fields["logger"].annotation, DatasetOptions)
    for section in sections:
        for key, field in section.model_fields.items():
            marked = any(isinstance(item, ForTraining) for item in field.metadata) or section is not DatasetOptions
            if marked and not any(isinstance(item, Ignored) for item in field.metadata):
                assert f"{key}:" in words, key


def test_reference_is_up_to_date():
    text = (ROOT / "options" / "README.md").read_text()
    assert text == schema_markdown(), "run python -m codes.config > options/README.md"
