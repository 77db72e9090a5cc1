"""Option files: what is accepted, what is refused in which words."""

from typing import get_args

import pytest
from pydantic import ValidationError

from codes.config import resolved
from codes.config.dataset_options import DatasetOptions

from .option_files import ALGORITHMS, BASE, NETWORK, message

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
    ("sampler: {rho: {a: 1}}", "sampler.rho: expected a number above 0 and up to 1000, got {a: 1}"),
    # ranges
    ("sampler: {order: 4}", "sampler.order: expected an integer from 1 to 3, got 4"),
    ("sampler: {tau: 1.5}", "sampler.tau: expected a number from 0 to 1, got 1.5"),
    ("sampler: {lambda_min: .nan}", "sampler.lambda_min: expected a number from -100 to 100, got nan"),
    ("sde: {T: 0}", "sde.T: expected an integer from 1 to 100,000, got 0"),
    ("sde: {eps: 1}", "sde.eps: expected a number between 0 and 1, got 1"),
    ("tile: 32", "tile: expected auto, off or an integer from 64 to 100,000, got 32"),
    ("seed: -1", "seed: expected an integer from 0 to 9,223,372,036,854,775,807, got -1"),
    # choices
    (
        "sde: {schedule: cosin}",
        "sde.schedule: expected one of cosine, linear, constant, got 'cosin', did you mean 'cosine'?",
    ),
    ("sde: {algorithm: magic}", f"sde.algorithm: expected {ALGORITHMS}, got 'magic'"),
    (
        "sde: {sampling_mode: postrior}",
        f"sde.sampling_mode: expected {ALGORITHMS}, got 'postrior', did you mean 'posterior'?",
    ),
    ("batch_size: many", "batch_size: expected auto or an integer from 1 to 10,000, got 'many'"),
    ("device: gpu", "device: expected one of auto, cpu, cuda, cuda:N, got 'gpu'"),
    ("name: ../x", f"name: expected {NAME}, got '../x'"),
    # lists
    ("sampler: {order: [1, two]}", "sampler.order[1]: expected an integer from 1 to 3, got 'two'"),
    ("sampler: {order: []}", "sampler.order: expected an integer from 1 to 3, got []"),
    (
        "sampler: {time_schedule: [linspac, sinh]}",
        "sampler.time_schedule[0]: expected auto, linear-lambda, linspace, late, leading, trailing, karras-n, "
        "karras-t, sinh, optimised or the list of N + 1 descending times, got 'linspac', did you mean 'linspace'?",
    ),
    ("sampler: {time_schedule: [5, -1]}", "sampler.time_schedule[1]: expected a number from 0 to 100,000, got -1"),
    ("sampler: {clamp: [0, 1, 2]}", "sampler.clamp: expected true or false or [low, high], got [0, 1, 2]"),
    (
        "metrics: {names: [lipps]}",
        "metrics.names[0]: expected one of psnr, ssim, psnr_y, ssim_y, lpips, fid, kid, niqe, brisque, "
        "got 'lipps', "
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
    ("x: &x [*x]", "line 3: contains itself through an alias (*name)"),
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
    ("t: {root: d, max_images: 0}", "t.max_images: expected an integer from 1 to 1,000,000,000, got 0"),
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


def test_all_problems_are_listed_in_the_order_of_the_file(load, tmp_path):
    text = BASE + "tile: 1\nsampler:\n  ordr: 1\n  tau: 2\nsde: {T: x}"
    assert [line.split(": ")[1] for line in message(load, text, ["seed=x"]).splitlines()] == [
        "tile",
        "sampler.ordr",
        "sampler.tau",
        "sde.T",
        "expected an integer from 0 to 9,223,372,036,854,775,807, got 'x'",
    ]


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


def test_options_cannot_be_changed(load):
    with pytest.raises(ValidationError):
        load(BASE).seed = 2
    with pytest.raises(ValidationError):
        load(BASE).sampler.order = 2


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
