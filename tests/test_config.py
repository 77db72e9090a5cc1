"""Option files: what is accepted, what is refused in which words, and what comes out."""

import json
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import ValidationError

from codes.config import (
    OptionsError,
    build_sde,
    build_solvers,
    check_against_checkpoint,
    check_context_dim,
    difference,
    load_options,
    resolved,
    schema_markdown,
)
from codes.config.kinds import ForTraining, Ignored, choices
from codes.config.schema import DatasetOptions, Options
from codes.config.solver_options import Algorithm, SolverOptions, Variant
from codes.solvers import GRIDS, SOLVERS, Solver

ROOT = Path(__file__).parent.parent
PUBLISHED = Path(__file__).parent / "data" / "published"
NETWORK = "network_G: {which_model_G: ConditionalNAFNet}\n"
BASE = "datasets: {t: {root: d}}\n" + NETWORK
DACLIP = (
    "datasets: {t: {root: d}}\n"
    "network_G: {which_model_G: ConditionalUNet, setting: {context_dim: 512, use_degra_context: true}}\n"
)
METADATA = {
    "which_model_G": "ConditionalNAFNet",
    "variant": "refusion",
    "setting": {"width": 64, "enc_blk_nums": [1, 1, 1, 28]},
    "fit_target": "noise",
    "sde": {"max_sigma": 50, "T": 100, "schedule": "cosine", "eps": 0.005, "convention": "irsde"},
}


@pytest.fixture
def load(tmp_path):
    def load(text, overrides=(), kind="test"):
        file = tmp_path / "run.yml"
        file.write_text(text)
        return load_options(file, overrides, kind)

    return load


def message(load, *arguments, **keywords) -> str:
    with pytest.raises(OptionsError) as caught:
        load(*arguments, **keywords)
    return str(caught.value)


# ---- what is refused

CHOICES = "one of mrsampler, mrsampler-pc, posterior, sde, ode, heun"
TASK_CHOICES = "motion-blurry, hazy, jpeg-compressed, low-light, noisy, raindrop, rainy, shadowed, snowy, uncompleted"
NAME = "a name of letters, digits, '.', '_', '-' that starts with a letter or digit"

BAD = [
    # unknown keys
    ("sampler: {ordr: 2}", "sampler.ordr: unknown option, did you mean 'order'?"),
    ("smapler: {order: 2}", "smapler: unknown option, did you mean 'sampler'?"),
    ("order: 2", "order: unknown option, did you mean 'sampler.order'?"),
    ("sde: {sampling_mod: ode}", "sde.sampling_mod: unknown option, did you mean 'sampling_mode'?"),
    ("zzz: ~", "zzz: unknown option"),
    ("sampler: {variants: {a: {taau: 0.3}}}", "sampler.variants.a.taau: unknown option, did you mean 'tau'?"),
    # types
    ("sampler: {order: two}", "sampler.order: expected an integer from 1 to 3, got 'two'"),
    ("sampler: {order: 2.5}", "sampler.order: expected an integer from 1 to 3, got 2.5"),
    ("sampler: {order: true}", "sampler.order: expected an integer from 1 to 3, got true"),
    ("sampler: {order: '2'}", "sampler.order: expected an integer from 1 to 3, got '2'"),
    ("sampler: {tau: '0.5'}", "sampler.tau: expected a number from 0 to 1, got '0.5'"),
    ("sampler: {tau: false}", "sampler.tau: expected a number from 0 to 1, got false"),
    ("sampler: {thresholding: 1}", "sampler.thresholding: expected true or false, got 1"),
    ("sampler: 5", "sampler: expected a mapping, got 5"),
    ("metrics: [psnr]", "metrics: expected a mapping, got ['psnr']"),
    ("name: 3", f"name: expected {NAME}, got 3"),
    ("path: {daclip: [1, 2]}", "path.daclip: expected text, got [1, 2]"),
    ("sampler: {rho: {a: 1}}", "sampler.rho: expected a number above 0, got {a: 1}"),
    # ranges
    ("sampler: {order: 4}", "sampler.order: expected an integer from 1 to 3, got 4"),
    ("sampler: {tau: 1.5}", "sampler.tau: expected a number from 0 to 1, got 1.5"),
    ("sampler: {lambda_min: .nan}", "sampler.lambda_min: expected a number, got nan"),
    ("sde: {T: 0}", "sde.T: expected an integer of at least 1, got 0"),
    ("sde: {eps: 1}", "sde.eps: expected a number between 0 and 1, got 1"),
    ("tile: 32", "tile: expected auto, off or an integer of at least 64, got 32"),
    ("seed: -1", "seed: expected an integer of at least 0, got -1"),
    # choices
    (
        "sde: {schedule: cosin}",
        "sde.schedule: expected one of cosine, linear, constant, got 'cosin', did you mean 'cosine'?",
    ),
    ("sde: {algorithm: magic}", f"sde.algorithm: expected {CHOICES}, got 'magic'"),
    (
        "sde: {sampling_mode: postrior}",
        f"sde.sampling_mode: expected {CHOICES}, got 'postrior', did you mean 'posterior'?",
    ),
    ("batch_size: many", "batch_size: expected auto or an integer of at least 1, got 'many'"),
    ("device: gpu", "device: expected one of auto, cpu, cuda, cuda:N, got 'gpu'"),
    ("name: ../x", f"name: expected {NAME}, got '../x'"),
    # lists
    ("sampler: {order: [1, two]}", "sampler.order[1]: expected an integer from 1 to 3, got 'two'"),
    ("sampler: {order: []}", "sampler.order: expected an integer from 1 to 3, got []"),
    (
        "sampler: {time_schedule: [linspac, sinh]}",
        "sampler.time_schedule[0]: expected auto, linear-lambda, linspace, leading, trailing, karras-n, karras-t, "
        "sinh, optimised or the list of N + 1 descending times, got 'linspac', did you mean 'linspace'?",
    ),
    ("sampler: {time_schedule: [5, -1]}", "sampler.time_schedule[1]: expected a number of at least 0, got -1"),
    ("sampler: {clamp: [0, 1, 2]}", "sampler.clamp: expected true or false or [low, high], got [0, 1, 2]"),
    (
        "metrics: {names: [lipps]}",
        "metrics.names[0]: expected one of psnr, ssim, psnr_y, ssim_y, lpips, fid, kid, got 'lipps', "
        "did you mean 'lpips'?",
    ),
    # YAML
    ("sampler: {order: 1}\nseed: 1\nsampler: {}", "sampler: given twice, in lines 3 and 5"),
    ("sampler: {order: 1, order: 1}", "sampler.order: given twice, in line 3"),
    (
        "sampler:\n\torder: 1",
        "line 4: found character '\\t' that cannot start any token, indent with spaces instead of tabs",
    ),
    ("sampler: {order: 1", "line 3: expected ',' or '}', but got '<stream end>'"),
    ("a: 1\n b: 2", "line 4: mapping values are not allowed here"),
    ("---\na: 1", "line 3: expected a single document in the stream, but found another document"),
    ("x: *y", "line 3: found undefined alias 'y'"),
    (
        "x: !!python/name:os.system",
        "line 3: could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'",
    ),
    ("x: &x [*x]", "nested too deeply"),
    ("x: 2024-13-45", "not YAML: month must be in 1..12"),
    ("x: \x07", "line 3: character 0x07 is not allowed"),
    ("1: 2", "1: a key must be a word, put it in quotes (line 3)"),
    ("sampler: {off: 2}", "sampler.off: a key must be a word, put it in quotes (line 3)"),
    # what does not fit together
    ("model: latent_denoising", "network_L.which_model: missing, model latent_denoising needs the latent network"),
    ("sampler: {variants: {a/b: {}}}", f"sampler.variants.a/b: expected {NAME}"),
]


@pytest.mark.parametrize(("text", "expected"), BAD, ids=[expected[:40] for _, expected in BAD])
def test_bad_options_are_told_in_one_line(load, tmp_path, text, expected):
    assert message(load, BASE + text) == f"{tmp_path}/run.yml: {expected}"


BAD_DATASETS = [
    ("t: d", "t: expected a mapping, got 'd'"),
    ("t: {}", "t.mode: missing, expected one of LQGT, LQ, GT, MD, MDGT"),
    ("t: {mode: LQTG, root: d}", "t.mode: expected one of LQGT, LQ, GT, MD, MDGT, got 'LQTG', did you mean 'LQGT'?"),
    ("t: {mode: LQGT, dataroot_LQ: d}", "t.dataroot_GT: missing, mode LQGT needs it"),
    ("t: {mode: LQ, dataroot_GT: d}", "t.dataroot_LQ: missing, mode LQ needs it"),
    ("t: {mode: GT, degradation: noisy}", "t.dataroot_GT: missing, mode GT needs it"),
    ("t: {mode: GT, dataroot_GT: d}", "t.degradation: missing, mode GT needs to know how to degrade the images"),
    (
        "t: {mode: GT, dataroot_GT: d, degradation: noisyy}",
        f"t.degradation: expected {TASK_CHOICES}, super-resolution, all or a list of tasks, got 'noisyy', "
        "did you mean 'noisy'?",
    ),
    ("t: {mode: MD}", "t.root: missing, mode MD needs it"),
    (
        "t: {mode: MDGT, dataroot_GT: d}",
        "t.mode: MDGT degrades at random, which is for training: use GT with a degradation",
    ),
    (
        "t: {root: d, dataroot_LQ: e}",
        "t.dataroot_LQ: contradicts root, which has both degraded and clean images: keep one of them",
    ),
    ("t: {root: d, tasks: [rany]}", f"t.tasks[0]: expected one of {TASK_CHOICES}, got 'rany', did you mean 'rainy'?"),
    ("t: {dataroot_LQ: d, tasks: [rainy]}", "t.tasks: only root has tasks"),
    ("t: {root: d, max_images: 0}", "t.max_images: expected an integer of at least 1, got 0"),
    ("t: {root: d, pairing: nam}", "t.pairing: expected name, order or a mapping, got 'nam', did you mean 'name'?"),
    ("t: {root: d, pairing: {lq: 'a-{}'}}", "t.pairing.gt: missing, expected text"),
    ("t: {root: d, pairing: {lq: a, gt: '{}'}}", "t.pairing.lq: expected {} once, for what the names share, got 'a'"),
    (
        "t: {mode: SteLQ, dataroot_LQ: d}",
        "t.mode: mode 'SteLQ' (stereo) needs two views of each image and a network that takes both, which are not "
        "supported",
    ),
    ("a b/c: {root: d}", f"a b/c: expected {NAME}"),
]


@pytest.mark.parametrize(("text", "expected"), BAD_DATASETS, ids=[expected[:40] for _, expected in BAD_DATASETS])
def test_bad_datasets_are_told_in_one_line(load, tmp_path, text, expected):
    assert message(load, f"datasets:\n  {text}\n{NETWORK}") == f"{tmp_path}/run.yml: datasets.{expected}"


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


def test_all_problems_are_listed_in_the_order_of_the_file(load, tmp_path):
    text = BASE + "tile: 1\nsampler:\n  ordr: 1\n  tau: 2\nsde: {T: x}"
    assert [line.split(": ")[1] for line in message(load, text, ["seed=x"]).splitlines()] == [
        "tile",
        "sampler.ordr",
        "sampler.tau",
        "sde.T",
        "expected an integer of at least 0, got 'x'",
    ]


BAD_OVERRIDES = [
    ("sampler.ordr=2", "sampler.ordr: unknown option, did you mean 'order'?"),
    ("smapler.order=2", "smapler: unknown option, did you mean 'sampler'?"),
    ("sampler.order=two", "sampler.order: expected an integer from 1 to 3, got 'two'"),
    ("sampler.order", "sampler.order: expected KEY=VALUE, for example sampler.order=2"),
    ("=2", "=2: expected KEY=VALUE, for example sampler.order=2"),
    ("sampler..order=2", "sampler..order=2: expected KEY=VALUE, for example sampler.order=2"),
    ("sampler.order={a: ", "sampler.order: line 1: expected the node content, but found '<stream end>'"),
    ("seed.x=2", "seed.x: 'seed' is not a section"),
    ("sde.sampling_mode=magic", f"sde.sampling_mode: expected {CHOICES}, got 'magic'"),
]


@pytest.mark.parametrize(("override", "expected"), BAD_OVERRIDES, ids=[override for override, _ in BAD_OVERRIDES])
def test_bad_overrides_are_told_in_one_line(load, override, expected):
    assert message(load, BASE + "seed: 1", [override]) == f"--set {expected}"


def test_training_needs_a_set_to_train_on_and_steps(load):
    assert message(load, BASE, kind="train").endswith("datasets: has no 'train' to train on")
    text = "datasets: {train: {root: d}}\ntrain: {lr_scheme: MultiStepLR}\n" + NETWORK
    assert message(load, text, kind="train").endswith(
        "train.lr_steps: missing, lr_scheme MultiStepLR needs the steps where the learning rate falls"
    )
    text = "datasets: {train: {root: d}}\ntrain: {prior_share: 0.7, own_share: 0.5}\n" + NETWORK
    assert message(load, text, kind="train").endswith(
        "train.own_share: 0.5 and prior_share 0.7 are more than all samples"
    )


# ---- what is accepted


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


def test_options_cannot_be_changed(load):
    with pytest.raises(ValidationError):
        load(BASE).seed = 2
    with pytest.raises(ValidationError):
        load(BASE).sampler.order = 2


def test_merge_keys_and_aliases_work(load):
    options = load(BASE + "sampler:\n  variants:\n    a: &a {tau: 0.5, order: 1}\n    b: {<<: *a, tau: 0.25}")
    assert options.sampler.variants["b"].model_dump(exclude_unset=True) == {"tau": 0.25, "order": 1}


@pytest.mark.parametrize(
    ("keys", "mode"),
    [
        ("root: d", "LQGT"),
        ("dataroot: d", "MD"),
        ("dataroot_LQ: d, dataroot_GT: e", "LQGT"),
        ("dataroot_LQ: d", "LQ"),
        ("dataroot_GT: d, degradation: noisy", "GT"),
    ],
)
def test_mode_follows_from_the_folders(load, keys, mode):
    assert load(f"datasets: {{t: {{{keys}}}}}\n" + NETWORK).datasets["t"].mode == mode


@pytest.mark.parametrize(
    ("text", "mode", "degradation", "enlargement"),
    [
        ("distortion: denoising", "GT", "noisy", 1),
        ("distortion: inpainting", "GT", "uncompleted", 1),
        ("distortion: sr\ndegradation: {scale: 3}", "GT", "super-resolution", 1),
        ("distortion: sr\ndegradation: {scale: 3}", "LQGT", "super-resolution", 3),
        ("distortion: derain", "LQGT", None, 1),
    ],
)
def test_distortion_names_the_degradation(load, text, mode, degradation, enlargement):
    options = load(f"{text}\ndatasets: {{t: {{mode: {mode}, dataroot_GT: d, dataroot_LQ: d}}}}\n" + NETWORK)
    assert options.degradation_of("t") == degradation
    assert options.enlargement_of("t") == enlargement


def test_tasks_come_from_the_dataset_then_from_distortion_then_all(load):
    tasks = list(get_args(get_args(get_args(DatasetOptions.model_fields["tasks"].annotation)[0])[0]))
    assert list(load(BASE).tasks_of("t")) == tasks
    assert load(BASE + "distortion: [snowy, rainy]").tasks_of("t") == ("snowy", "rainy")
    text = "distortion: [snowy, rainy]\ndatasets: {t: {root: d, tasks: [hazy]}}\n" + NETWORK
    assert load(text).tasks_of("t") == ("hazy",)


def test_keys_without_effect_are_reported_and_not_written(load):
    text = """
gpu_ids: [0]
suffix: _x
use_tb_logger: true
sde: {algorithm: heun, sampling_mode: posterior, sample_T: 50}
sampler: {num_sample_steps: 10}
degradation: {sigma: 25}
datasets:
  train: {mode: MDGT, dataroot_GT: d, GT_size: 128}
  t: {mode: LQ, dataroot_LQ: d, dataroot_GT: e, GT_size: 128, dataroot_meta: m}
train: {niter: 5}
"""
    options = load(text + NETWORK)
    assert options.ignored == [
        "gpu_ids: ignored, choose a device with 'device'",
        "suffix: ignored, restored images keep the names of the degraded ones",
        "use_tb_logger: ignored, only training uses it",
        "sde.sampling_mode: ignored, 'algorithm' is given",
        "sde.sample_T: ignored, sampler.num_sample_steps is given",
        "degradation: ignored, no dataset is degraded on the fly; to leave out a border as the published metrics do: "
        "metrics.crop_border",
        "datasets.train: ignored, only training uses it",
        "datasets.t.dataroot_GT: ignored, mode LQ has no clean images",
        "datasets.t.GT_size: ignored, only training uses it",
        "datasets.t.dataroot_meta: ignored, only the bokeh modes have lens data",
        "train: ignored, only training uses it",
    ]
    written = resolved(options)
    assert not {"gpu_ids", "suffix", "use_tb_logger", "train", "logger"} & set(written)
    assert set(written["datasets"]) == {"t"}
    assert load(BASE).ignored == []


def test_training_uses_more_keys(load):
    text = "datasets: {train: {root: d, GT_size: 128, LR_size: 32, optimizer: Lion}}\ntrain: {is_weighted: false}\n"
    assert load(text + "use_tb_logger: true\n" + NETWORK, kind="train").ignored == [
        "datasets.train.LR_size: ignored, it follows from GT_size and degradation.scale",
        "datasets.train.optimizer: ignored, the optimiser is train.optimizer",
        "train.is_weighted: ignored, it has no effect in the published code either",
    ]


# ---- the published files


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
    assert (sde.max_sigma, sde.T, sde.eps) == (raw["sde"]["max_sigma"], raw["sde"]["T"], raw["sde"]["eps"])
    assert sde.convention == ("daclip" if "context_dim" in raw["network_G"]["setting"] else "irsde")
    [(_, solver, _)] = build_solvers(options, sde)
    algorithm = raw["sde"].get("algorithm") or raw["sde"]["sampling_mode"]
    steps = raw.get("sampler", {}).get("num_sample_steps") or raw["sde"].get("sample_T") or raw["sde"]["T"]
    assert (solver.algorithm, solver.num_sample_steps) == (algorithm, steps)
    if algorithm == "mrsampler":
        assert solver == Solver(algorithm, **raw["sampler"])
    assert list(options.network_G.setting) == list(raw["network_G"]["setting"])
    assert "gpu_ids: ignored, choose a device with 'device'" in options.ignored


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("refused*.yml")), ids=lambda file: file.stem)
def test_stereo_and_bokeh_files_are_refused_with_a_sentence(file):
    lines = message(load_options, file, kind=file.stem.split("-")[-1]).splitlines()
    datasets = yaml.safe_load(file.read_text())["datasets"]
    needs = {"Bok": "lens data for each image", "Ste": "two views of each image"}
    assert len(lines) == len(datasets)
    for line, (name, dataset) in zip(lines, datasets.items(), strict=True):
        assert line.startswith(f"{file}: datasets.{name}.mode: mode '{dataset['mode']}' ")
        assert needs[dataset["mode"][:3]] in line


# ---- sweeps

SWEEPS = [
    ("", ["mrsampler-nfe8"]),
    ("sde: {algorithm: posterior}", ["posterior-nfe100"]),
    ("sde: {algorithm: posterior, T: 1000, sample_T: -1}", ["posterior-nfe1000"]),
    ("sde: {algorithm: [sde, mrsampler], sample_T: 25}", ["sde-nfe25", "mrsampler-nfe25"]),
    ("sde: {algorithm: posterior}\nsampler: {compat: official}", ["posterior-official-nfe100"]),
    ("sampler: {num_sample_steps: [5, 10, 5]}", ["mrsampler-nfe5", "mrsampler-nfe10"]),
    (
        "sde: {algorithm: [posterior, mrsampler]}\nsampler: {num_sample_steps: [5, 10]}",
        ["posterior-nfe5", "posterior-nfe10", "mrsampler-nfe5", "mrsampler-nfe10"],
    ),
    # order does nothing for posterior sampling
    (
        "sde: {algorithm: [posterior, mrsampler]}\nsampler: {num_sample_steps: 5, order: [1, 2]}",
        ["posterior-nfe5", "mrsampler-order1-nfe5", "mrsampler-order2-nfe5"],
    ),
    (
        "sampler: {tau: [0, 0.25], mode: [sample, mmse]}",
        [
            "mrsampler-tau0-mode-default-nfe8",
            "mrsampler-tau0-mmse-nfe8",
            "mrsampler-tau0.25-mode-default-nfe8",
            "mrsampler-tau0.25-mmse-nfe8",
        ],
    ),
    (
        "sampler: {clamp: [true, false, [-1, 2]]}",
        ["mrsampler-clamp-nfe8", "mrsampler-no-clamp-nfe8", "mrsampler-clamp-1to2-nfe8"],
    ),
    (
        "sde: {algorithm: mrsampler}\nsampler: {compat: [null, official], num_sample_steps: 5}",
        ["mrsampler-nfe5", "mrsampler-official-nfe5"],
    ),
    (
        "sampler: {num_sample_steps: 2, time_schedule: [[100, 50, 0], [100, 30, 0]]}",
        ["mrsampler-times-nfe2", "mrsampler-times-nfe2-2"],
    ),
    (
        "sampler: {variants: {pc: {algorithm: mrsampler-pc, tau: 0.3}, paper: {algorithm: mrsampler, order: 2, "
        "compat: official}}, num_sample_steps: [5, 10]}",
        ["pc-nfe5", "pc-nfe10", "paper-nfe5", "paper-nfe10"],
    ),
    (
        "sampler: {num_sample_steps: 5, variants: {a: {algorithm: [posterior, mrsampler-pc]}, A: {lambda_min: null}}}",
        ["a-posterior-nfe5", "a-mrsampler-pc-nfe5", "A-nfe5"],
    ),
    ("sampler: {variants: {a: {tau: 0.5}, A: {tau: 1}}}", ["a-nfe8", "A-nfe8-2"]),
    ("sampler: {variants: {a: {tau: 0.5}, b: {tau: 0.5}}}", ["a-nfe8"]),
]


@pytest.mark.parametrize(("text", "labels"), SWEEPS, ids=[labels[0] for _, labels in SWEEPS])
def test_sweeps_are_labelled_by_what_differs(load, text, labels):
    options = load(BASE + text)
    assert [label for label, _ in options.solvers()] == labels
    solvers = [str(sorted(arguments.items())) for _, arguments in options.solvers()]
    assert len(set(solvers)) == len(labels)


def test_variants_come_on_top_of_the_common_options(load):
    options = load(
        BASE + "sde: {algorithm: mrsampler}\n"
        "sampler: {order: 1, rho: 7, num_sample_steps: 5, variants: {a: {order: null}, b: {order: 3}, c: {}}}"
    )
    common = {"algorithm": "mrsampler", "num_sample_steps": 5}
    assert options.solvers() == [
        ("a-nfe5", common),
        ("b-nfe5", {**common, "order": 3}),
        ("c-nfe5", {**common, "order": 1}),
    ]
    assert [solver.order for _, solver, _ in build_solvers(options, build_sde(options))] == [None, 3, 1]


def test_every_solver_option_is_here_with_the_same_default():
    theirs = {field.name: field.default for field in fields(Solver) if field.default is not MISSING}
    ours = {key: field.default for key, field in SolverOptions.model_fields.items()}
    assert theirs | {"num_sample_steps": None} == ours
    assert get_args(Algorithm) == tuple(SOLVERS)
    assert set(choices(SolverOptions.model_fields["time_schedule"].annotation)) == set(GRIDS)
    assert set(Variant.model_fields) == {field.name for field in fields(Solver)}


@pytest.mark.parametrize("algorithm", [name for name, row in SOLVERS.items() if row.unused])
@pytest.mark.parametrize("compat", [None, "official"])
def test_options_left_out_for_an_algorithm_do_nothing_there(algorithm, compat):
    from codes import MeanRevertingSDE, make_plan

    values = {"order": 3, "solver_type": "ode", "parameterization": "noise"}
    given = {key: values[key] for key in SOLVERS[algorithm].unused}
    plain = make_plan(MeanRevertingSDE(), Solver(algorithm, 10, compat=compat))
    assert make_plan(MeanRevertingSDE(), Solver(algorithm, 10, compat=compat, **given)) == plain


# ---- what is made of options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "sde: {algorithm: mrsampler}\nsampler: {num_sample_steps: [1, 5]}",
            "sampler.order: order 2 needs num_sample_steps of at least 2, got 1 (mrsampler-nfe1)",
        ),
        (
            "sde: {algorithm: posterior}\nsampler: {compat: official, num_sample_steps: 200}",
            "sampler.num_sample_steps: num_sample_steps is at most T = 100 with compat 'official', got 200 "
            "(posterior-official-nfe200)",
        ),
        (
            "sde: {convention: daclip}\nsampler: {variants: {x: {algorithm: mrsampler, compat: official, tau: 1}}}",
            "sampler.variants.x.tau: option tau is not part of the published code: drop it or compat 'official' "
            "(x-nfe8)",
        ),
        (
            "sampler: {solver_type: ode, tau: 1, num_sample_steps: [5, 6]}",
            "sampler.solver_type: solver_type 'ode' means tau 0.0, got tau 1.0 (mrsampler-nfe5, mrsampler-nfe6)",
        ),
        (
            "sampler: {time_schedule: [100, 50, 0]}",
            "sampler.time_schedule: time_schedule: 8 steps need 9 times, got 3 (mrsampler-nfe8)",
        ),
    ],
)
def test_what_solvers_refuse_names_the_key(load, tmp_path, text, expected):
    options = load(BASE + text)
    assert message(build_solvers, options, build_sde(options)) == f"{tmp_path}/run.yml: {expected}"


def test_schedule_is_the_files_else_the_checkpoints_else_daclips(load):
    recorded = {"sde": {"max_sigma": 30, "T": 1000, "schedule": "linear", "eps": 0.01, "convention": "irsde"}}
    sde = build_sde(load(BASE + "sde: {T: 200, convention: daclip}"), recorded)
    assert (sde.max_sigma, sde.T, sde.schedule, sde.eps, sde.convention) == (30, 200, "linear", 0.01, "daclip")
    sde = build_sde(load(BASE))
    assert (sde.max_sigma, sde.T, sde.schedule, sde.eps, sde.convention) == (50, 100, "cosine", 0.005, "irsde")
    assert build_sde(load(DACLIP + "path: {daclip: d.pt}")).convention == "daclip"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sde: {T: 1000}", "sde.T: 1000 contradicts the checkpoint, which was trained with 100"),
        ("sde: {max_sigma: 10}", "sde.max_sigma: 10.0 contradicts the checkpoint, which was trained with 50"),
        (
            "sde: {schedule: linear}",
            "sde.schedule: 'linear' contradicts the checkpoint, which was trained with 'cosine'",
        ),
        ("sde: {eps: 0.01}", "sde.eps: 0.01 contradicts the checkpoint, which was trained with 0.005"),
        (
            "sde: {convention: daclip}",
            "sde.convention: 'daclip' contradicts the checkpoint, which was trained with 'irsde'",
        ),
        (
            "sampler: {fit_target: [noise, data]}",
            "sampler.fit_target: 'data' contradicts the checkpoint, which was trained with 'noise'",
        ),
        (
            "sampler: {variants: {a: {fit_target: data}}}",
            "sampler.variants.a.fit_target: 'data' contradicts the checkpoint, which was trained with 'noise'",
        ),
    ],
)
def test_contradictions_to_the_checkpoint_are_told(load, tmp_path, text, expected):
    options = load(BASE + text)
    assert message(check_against_checkpoint, options, METADATA) == f"{tmp_path}/run.yml: {expected}"
    check_against_checkpoint(options, {"which_model_G": "ConditionalNAFNet", "sde": None, "fit_target": None})


def test_network_contradictions_to_the_checkpoint_are_told(load, tmp_path):
    text = (
        "datasets: {t: {root: d}}\nnetwork_G: {which_model_G: UNet, setting: {width: 32, enc_blk_nums: [1, 1, 1, 28]}}"
    )
    assert message(check_against_checkpoint, load(text), METADATA).splitlines() == [
        f"{tmp_path}/run.yml: network_G.which_model_G: 'UNet' contradicts the checkpoint, which was trained with "
        "'ConditionalNAFNet'",
        f"{tmp_path}/run.yml: network_G.setting.width: 32 contradicts the checkpoint, which was trained with 64",
    ]


def test_agreement_with_the_checkpoint_is_silent(load):
    same = "sde: {T: 100, max_sigma: 0.19607843137, schedule: cosine, eps: 5e-3}\nsampler: {fit_target: noise}"
    check_against_checkpoint(load(BASE + same), METADATA)
    check_against_checkpoint(load(BASE), METADATA | {"sde": {"max_sigma": 10, "T": 1000}})


def test_width_of_daclip_must_be_that_of_the_network(load, tmp_path):
    options = load(DACLIP + "path: {daclip: my.pt}")
    check_context_dim(options, 512)
    assert message(check_context_dim, options, 768) == (
        f"{tmp_path}/run.yml: network_G.setting.context_dim: 512 contradicts my.pt: "
        "ViT-L-14 has embeddings of width 768"
    )


# ---- written options

FILES = sorted((ROOT / "options").glob("*.yml"))
WRITTEN = [*FILES, *sorted(PUBLISHED.glob("t*.yml"))]


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


# ---- the files in options/


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_option_files_load_and_build(file):
    options = load_options(file, kind="train" if file.stem.startswith("train") else "test")
    assert options.ignored == []
    labels = {
        "train": ["mrsampler-nfe8"],
        "train-daclip": ["mrsampler-pc-nfe8"],
        "test": [f"{name}-nfe{n}" for name in ("best", "mr-sampler-1", "mr-sampler-2", "posterior") for n in (5, 10)],
        "study": ["mrsampler-nfe8"],
        "validation": ["default-nfe8", "late-nfe8"],
        "posterior": ["posterior-official-nfe100"],
        "euler": ["sde-official-nfe100"],
        "heun": ["heun-official-nfe100"],
        "mrsampler": ["mrsampler-official-nfe20"],
        "irsde": ["posterior-nfe100"],
        "refusion": ["posterior-nfe100"],
    }
    assert [label for label, _, _ in build_solvers(options, build_sde(options))] == labels[file.stem]
    official = any(solver.compat for _, solver, _ in build_solvers(options, build_sde(options)))
    assert options.metrics.crop_border == (4 if official and file.stem != "test" else 0)
    assert build_sde(options).convention == ("irsde" if file.stem in ("irsde", "refusion") else "daclip")


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


def test_options_need_no_torch():
    code = (
        "import sys; from pathlib import Path; from codes.config import load_options, resolved\n"
        "options = load_options(Path('options/test.yml')); options.solvers(); resolved(options)\n"
        "print(sorted({'torch', 'numpy', 'scipy', 'cv2'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (result.stdout, result.stderr) == ("[]\n", "")
