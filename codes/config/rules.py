"""What the options must fulfil together, and which of those given have no effect."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from ..names import FOLDER_NAME, TASKS, is_folder_name
from .dataset_options import DatasetOptions, DegradationOptions, PairingRule
from .errors import Keys, show
from .kinds import ForTraining, Ignored
from .schema import Kind, LatentNetworkOptions, Options

MOST_SOLVERS = 10_000  # of one run
# Width of the embeddings of the CLIP models that DA-CLIP was published for.
CLIP_WIDTHS = {"ViT-B-32": 512, "ViT-L-14": 768}

_TRAINING = "only training uses it"
_TESTS = ("compile", "tile", "batch_size", "workers", "contact_sheet", "metrics")


def problems(options: Options, kind: Kind, file: Path | None = None) -> Iterator[tuple[Keys, str]]:
    """Contradictions and omissions, as (key, text); `file` gives the run its name where the options do not."""
    for section, names in (("datasets", options.datasets), ("variants", options.sampler.variants)):
        for name in names:
            if not is_folder_name(name):
                yield (
                    (section, name) if section == "datasets" else ("sampler", section, name),
                    f"expected {FOLDER_NAME}",
                )
    if file is not None and options.name is None and not is_folder_name(file.stem):
        yield ("name",), f"missing, and the file's own name {show(file.stem)} is not {FOLDER_NAME}"
    count = options.count_solvers()
    if count > MOST_SOLVERS:
        yield ("sampler",), f"its lists give {count:,} solvers, at most {MOST_SOLVERS:,} can run in one go"
    yield from _networks(options)
    if kind == "restore":
        return
    if not options.datasets:
        yield ("datasets",), "names no dataset"
    elif kind == "test" and not options.test_sets:
        yield ("datasets",), "has only 'train', and nothing to test on"
    elif kind == "train" and "train" not in options.datasets:
        yield ("datasets",), "has no 'train' to train on"
    for name, dataset in options.datasets.items():
        if kind == "train" or name != "train":
            yield from _dataset(options, name, dataset, kind)
    if kind == "train" and options.train.lr_scheme == "MultiStepLR" and not options.train.lr_steps:
        yield ("train", "lr_steps"), "missing, lr_scheme MultiStepLR needs the steps where the learning rate falls"
    if kind == "train" and options.variant == "denoising":
        yield from _denoising_training(options)
    if kind == "train" and not options.train.weight and not options.train.recognition_weight:
        yield ("train", "weight"), "0 trains only the recognition of degradations, and recognition_weight is 0 as well"
    if kind == "train" and options.train.prior_share + options.train.own_share > 1:
        text = f"{options.train.own_share} and prior_share {options.train.prior_share} are more than all samples"
        yield ("train", "own_share"), text


def wrong_settings(options: Options) -> Iterator[tuple[Keys, str]]:
    """What is wrong with the settings of the networks; this loads torch."""
    from ..networks import problems as found_in

    network, latent = options.network_G, options.network_L
    for section, name, setting, variant in (
        ("network_G", network.which_model_G, network.setting, options.variant),
        ("network_L", latent.which_model, latent.setting, None),
    ):
        if name is not None and (section == "network_G" or setting):  # of network_L the weights say it, too
            for keys, text in found_in(name, setting, variant):
                yield (section, *keys), text


def _denoising_training(options: Options) -> Iterator[tuple[Keys, str]]:
    """What a training of the denoising process lacks: it has no prior, and its network sees no degraded image."""
    train = options.train
    if train.target == "velocity":
        yield ("train", "target"), "velocity is undefined for the denoising process: expected published, noise or data"
    for key in ("prior_share", "own_share", "distill"):
        if getattr(train, key):
            yield ("train", key), "the denoising process has no prior to begin with"


def _networks(options: Options) -> Iterator[tuple[Keys, str]]:
    network, path = options.network_G, options.path
    if network.which_model_G is None and path.pretrain_model_G is None:
        yield ("network_G", "which_model_G"), "missing, and path.pretrain_model_G names no weights to tell it from"
    if options.takes_contexts:
        if path.daclip is None:
            yield (
                ("path", "daclip"),
                "missing, this ConditionalUNet takes DA-CLIP's contexts (use_degra_context, use_image_context)",
            )
        width = network.setting.get("context_dim", 512)
        for clip, expected in CLIP_WIDTHS.items():
            if path.daclip is not None and clip in path.daclip and width != expected:
                yield (
                    ("network_G", "setting", "context_dim"),
                    f"{width} contradicts path.daclip: {clip} has embeddings of width {expected}",
                )
    if options.model == "latent" and network.which_model_G not in (None, "UNet"):
        text = f"model latent encodes and decodes images, which only UNet does, not {network.which_model_G}"
        yield ("network_G", "which_model_G"), text
    elif options.model != "latent" and network.which_model_G == "UNet":
        yield ("network_G", "which_model_G"), "UNet restores nothing by itself: it belongs to model latent"
    if options.model == "latent_denoising" and options.network_L.which_model is None:
        yield ("network_L", "which_model"), "missing, model latent_denoising needs the latent network"
    elif options.model == "latent_denoising" and path.pretrain_model_L is None:
        yield ("path", "pretrain_model_L"), "missing, model latent_denoising needs the weights of network_L"


def _dataset(options: Options, name: str, dataset: DatasetOptions, kind: Kind) -> Iterator[tuple[Keys, str]]:
    at: Keys = ("datasets", name)
    mode = dataset.mode
    folders = [key for key in ("root", "dataroot", "dataroot_LQ", "dataroot_GT") if getattr(dataset, key) is not None]

    def needs(*keys: str) -> Iterator[tuple[Keys, str]]:
        for key in keys:
            if key not in folders:
                yield (*at, key), f"missing, mode {mode} needs it"

    if dataset.root is not None and len(folders) > 1:
        yield (*at, folders[1]), "contradicts root, which has both degraded and clean images: keep one of them"
    elif mode in ("LQGT", "LQ") and dataset.root is None:
        yield from needs("dataroot_LQ", "dataroot_GT") if mode == "LQGT" else needs("dataroot_LQ")
    elif mode == "MD" and dataset.task_root is None:
        yield (*at, "root"), "missing, mode MD needs it"
    elif mode == "MDGT":
        if kind == "test":
            yield (*at, "mode"), "MDGT degrades at random, which is for training: use GT with a degradation"
        elif not {"root", "dataroot", "dataroot_GT"} & set(folders):
            yield from needs("dataroot_GT")
    elif mode == "GT":
        yield from needs("dataroot_GT")
        if not options.degradations_of(name):
            yield (*at, "degradation"), "missing, mode GT needs to know how to degrade the images"
    if dataset.tasks is not None and dataset.task_root is None:
        yield (*at, "tasks"), "only root has tasks"
    if isinstance(dataset.pairing, PairingRule):
        for key, pattern in (("lq", dataset.pairing.lq), ("gt", dataset.pairing.gt)):
            if pattern.count("{}") != 1 or pattern.count("{") + pattern.count("}") != 2:
                yield (*at, "pairing", key), f"expected {{}} once, for what the names share, got {pattern!r}"


def without_effect(options: Options, kind: Kind) -> Iterator[tuple[Keys, str]]:
    """Options that were given and do nothing, as (key, reason)."""
    if kind == "restore":
        return
    yield from _marked(options, (), kind)
    sets = options.test_sets if kind == "test" else options.datasets
    for name, dataset in sets.items():
        if dataset.mode == "GT" and dataset.dataroot_LQ is not None:
            yield ("datasets", name, "dataroot_LQ"), "mode GT makes the degraded images from the clean ones"
        if dataset.mode == "LQ" and dataset.dataroot_GT is not None:
            yield ("datasets", name, "dataroot_GT"), "mode LQ has no clean images"
        if dataset.mode != "GT" and dataset.degradation not in (None, "super-resolution"):
            yield ("datasets", name, "degradation"), "only mode GT degrades images"
        if dataset.mode in ("LQ", "GT", "MDGT") and dataset.pairing != "name":
            yield ("datasets", name, "pairing"), "only modes LQGT and MD have pairs of images"
        if kind == "train" and name == "train":
            yield from _without_effect_in_training(options, dataset)
        if dataset.dataroot is not None and dataset.task_root != dataset.dataroot:
            yield ("datasets", name, "dataroot"), "only mode MD uses it"
    used = options.variant == "denoising" or any(
        set_.mode in ("GT", "MDGT") or options.enlargement_of(name) > 1 for name, set_ in sets.items()
    )
    if options.variant == "denoising":
        for key in ("eps", "convention"):
            if key in options.sde.model_fields_set:
                yield ("sde", key), "the denoising process has its own"
    if not used and options.degradation != DegradationOptions():
        hint = "; to leave out a border as the published metrics do: metrics.crop_border" if kind == "test" else ""
        yield ("degradation",), "no dataset is degraded on the fly" + hint
    elif used:
        yield from _unused_numbers(options, sets)
    if options.path.pretrain_model_L is None and options.network_L != LatentNetworkOptions():
        yield ("network_L",), "path.pretrain_model_L names no weights"
    if options.model == "latent":
        for key in ("sde", "sampler"):
            if key in options.model_fields_set:
                yield (key,), "model latent samples nothing"
    if kind == "train":
        for key in _TESTS:
            if getattr(options, key) != Options.model_fields[key].get_default(call_default_factory=True):
                yield (key,), "only tests use it"
    if options.sde.sample_T is not None and "num_sample_steps" in options.sampler.model_fields_set:
        yield ("sde", "sample_T"), "sampler.num_sample_steps is given"
    if isinstance(options.distortion, tuple) and not any(set_.task_root for set_ in sets.values()):
        yield ("distortion",), "the datasets name their folders themselves"


def _unused_numbers(options: Options, sets: Mapping[str, DatasetOptions]) -> Iterator[tuple[Keys, str]]:
    """The numbers of degradations that no dataset has; a dataset that names its tasks makes them in its own way."""
    varied = {name for name, dataset in sets.items() if name == "train" and dataset.varied}
    plain = {name: dataset for name, dataset in sets.items() if name not in varied}
    kinds = {name: options.degradations_of(name) or (TASKS if plain[name].mode == "MDGT" else ()) for name in plain}
    named = {kind for name, found in kinds.items() for kind in found if plain[name].degradation is None}
    degradation = options.degradation
    if degradation.sigma != 50 and "noisy" not in named and options.variant != "denoising":
        yield ("degradation", "sigma"), "only distortion: denoising uses it"
    if degradation.mask_root is not None and "uncompleted" not in named:
        yield ("degradation", "mask_root"), "only distortion: inpainting uses it"
    if degradation.scale != 4 and not any("super-resolution" in found for found in kinds.values()):
        yield ("degradation", "scale"), "only super-resolution uses it"


def _without_effect_in_training(options: Options, dataset: DatasetOptions) -> Iterator[tuple[Keys, str]]:
    degrades = dataset.mode in ("GT", "MDGT")
    for key in ("varied", "min_scale"):
        if key in dataset.model_fields_set and not degrades:
            yield ("datasets", "train", key), "only modes GT and MDGT degrade images"
    for key in ("clean_share", "mixed_share"):
        if key in dataset.model_fields_set and not (dataset.varied and degrades):
            yield ("datasets", "train", key), "only varied degradations have it"
    if dataset.GT_size and dataset.patch_size and dataset.patch_size != dataset.GT_size:
        yield ("datasets", "train", "patch_size"), "'GT_size' is given"
    train = options.train
    for key, scheme in (("lr_steps", "MultiStepLR"), ("decay_iter", "ConstantLinearLR")):
        if getattr(train, key) and train.lr_scheme != scheme:
            yield ("train", key), f"only lr_scheme {scheme} uses it"
    for key, default in (("time_weighting", "none"), ("mean_weight", 1)):
        if getattr(train, key) != default and train.target == "published":
            yield ("train", key), "train.target is published"
    if dataset.use_swap and dataset.mode != "LQGT":
        yield ("datasets", "train", "use_swap"), "only mode LQGT has pairs to exchange"
    if options.train.recognition_weight and not (dataset.varied and degrades):
        yield ("train", "recognition_weight"), "only datasets.train.varied knows the degradations of a sample"


def _marked(section: BaseModel, at: Keys, kind: Kind) -> Iterator[tuple[Keys, str]]:
    """The keys that were given and are marked in the schema as without effect; of a section, not those inside."""
    for key, field in type(section).model_fields.items():
        if key not in section.model_fields_set:
            continue
        value = getattr(section, key)
        reason = next((item.reason for item in field.metadata if isinstance(item, Ignored)), None)
        if reason is None and kind == "test" and any(isinstance(item, ForTraining) for item in field.metadata):
            reason = _TRAINING
        if reason is not None:
            yield (*at, key), reason
        elif isinstance(value, BaseModel):
            yield from _marked(value, (*at, key), kind)
        elif key == "datasets":
            for name, dataset in value.items():
                if kind == "test" and name == "train":
                    yield (*at, key, name), _TRAINING
                else:
                    yield from _marked(dataset, (*at, key, name), kind)
