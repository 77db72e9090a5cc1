"""The schema of option files: every option with its type, default and meaning.

`options/README.md` and the error messages are made from it. The names are those of the published option files; what
those do not have (`results` ... `metrics`) is ours. No option here is the torch object it leads to: importing torch
takes longer than finding a typing mistake.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from ..defaults import SOLVER
from ..names import TASKS
from ..networks.rows import ROWS
from ..rows import DEGRADATIONS, METRICS
from ..solvers.registry import SOLVERS
from .kinds import (
    Count,
    Expected,
    ForTraining,
    Ignored,
    Integer,
    Number,
    Positive,
    PositiveNumber,
    Scalar,
    Share,
    Sweep,
    Unset,
)
from .section import Section
from .solver_options import Algorithm, SamplerOptions, SolverOptions
from .sweep import expand

# What a file is read for. To restore images that are given otherwise, datasets do not matter.
Kind = Literal["test", "train", "restore"]
if TYPE_CHECKING:
    MetricName = str
    TaskName = str
    Degraded = str
    NetworkName = str
    NetworkVariant = str
    LatentNetworkName = str
else:
    MetricName = Literal[tuple(METRICS)]
    TaskName = Literal[tuple(DEGRADATIONS)]
    Degraded = Literal[(*DEGRADATIONS, "super-resolution")]
    NetworkName = Literal[tuple(dict.fromkeys(row.name for row in ROWS if row.role != "encoder"))]
    NetworkVariant = Literal[tuple(dict.fromkeys(row.variant for row in ROWS if row.role != "encoder"))]
    LatentNetworkName = Literal[tuple(dict.fromkeys(row.name for row in ROWS if row.role == "latent"))]
# What the published files call the degradations that they make on the fly.
_DISTORTIONS: dict[str, Degraded] = {
    "denoise": "noisy",
    "denoising": "noisy",
    "sr": "super-resolution",
    "sisr": "super-resolution",
    "inpaint": "uncompleted",
    "inpainting": "uncompleted",
    "super-resolution": "super-resolution",
    **{name: name for name in DEGRADATIONS},
}

FolderName = Annotated[
    str,
    StringConstraints(pattern=r"^\w[\w.+ -]*$"),
    Expected("a name of letters, digits, '.', '_', '-' that starts with a letter or digit"),
]
Text = Annotated[str, StringConstraints(min_length=1), Expected("text")]
Setting = dict[str, Scalar | tuple[Scalar | tuple[Scalar, ...], ...]]


_DEFAULT_SOLVER = ", ".join(f"`{key}: {str(value).lower()}`" for key, value in SOLVER.items())


class SDEOptions(Section):
    algorithm: Annotated[Sweep[Algorithm] | None, Unset(_DEFAULT_SOLVER)] = Field(
        None, description="the solver, see the table below; `sampling_mode` is another name for it"
    )
    max_sigma: Annotated[PositiveNumber | None, Unset("the checkpoint's, else 50")] = Field(
        None, description="stationary noise level; 1 or more is in 8-bit units (50 means 50/255)"
    )
    T: Annotated[Positive | None, Unset("the checkpoint's, else 100")] = Field(
        None, description="number of training steps"
    )
    sample_T: Annotated[Literal[-1] | Positive | None, Unset("T")] = Field(
        None,
        description="network evaluations where `sampler.num_sample_steps` is not given; -1 stands for T",
    )
    schedule: Annotated[Literal["cosine", "linear", "constant"] | None, Unset("the checkpoint's, else cosine")] = Field(
        None, description="the schedule of theta"
    )
    eps: Annotated[Annotated[Number, Gt(0), Lt(1)] | None, Unset("the checkpoint's, else 0.005")] = Field(
        None, description="alpha at t = T"
    )
    convention: Literal["auto", "daclip", "irsde"] = Field(
        "auto",
        description="whether Theta(0) is theta_0 (`daclip`: DA-CLIP, MR Sampler) or 0 (`irsde`: IR-SDE, Refusion); "
        "`auto` asks the checkpoint, else the network: `daclip` if it takes contexts",
    )


class DegradationOptions(Section):
    sigma: Annotated[Number, Ge(0)] = Field(50.0, description="standard deviation of noise, in 8-bit units")
    noise_type: Literal["G"] = Field("G", description="Gaussian noise")
    scale: Positive = Field(4, description="factor of super-resolution: how much smaller degraded images are")
    mask_root: Text | None = Field(None, description="folder of masks for inpainting (black is missing)")


class PairingRule(Section):
    lq: Text = Field(description="name of a degraded image, `{}` standing for what the names share")
    gt: Text = Field(description="name of the clean image that belongs to it")


_REFUSED = {
    "BokehLQGT": "mode 'BokehLQGT' (bokeh) needs lens data for each image and a network that takes them, "
    "which are not supported",
    "BokehLQ": "mode 'BokehLQ' (bokeh) needs lens data for each image and a network that takes them, "
    "which are not supported",
    "SteLQGT": "mode 'SteLQGT' (stereo) needs two views of each image and a network that takes both, "
    "which are not supported",
    "SteLQ": "mode 'SteLQ' (stereo) needs two views of each image and a network that takes both, "
    "which are not supported",
}


def _refuse(mode: Any) -> Any:
    if isinstance(mode, str) and mode in _REFUSED:
        raise PydanticCustomError("refused", "{text}", {"text": _REFUSED[mode]})
    return mode


class DatasetOptions(Section):
    name: Annotated[Text | None, Unset("the key")] = Field(None, description="name in tables and folders")
    mode: Annotated[
        Literal["LQGT", "LQ", "GT", "MD", "MDGT"], BeforeValidator(_refuse), Unset("what the folders given suggest")
    ] = Field(
        description="`LQGT`: degraded and clean images; `LQ`: degraded ones alone, no metrics; `GT`: clean ones, "
        "degraded on the fly; `MD`: one folder per task; `MDGT`: clean ones, randomly degraded (training)",
    )
    root: Text | None = Field(None, description="folder with `TASK/LQ` and `TASK/GT` for the ten published tasks")
    tasks: Annotated[tuple[TaskName, ...] | None, MinLen(1), Unset("`distortion`, else all that are there")] = Field(
        None, description="tasks to take from `root`"
    )
    dataroot: Text | None = Field(None, description="the same as `root`, for mode MD")
    dataroot_LQ: Text | None = Field(None, description="folder of degraded images")
    dataroot_GT: Text | None = Field(None, description="folder of clean images")
    max_images: Annotated[Positive | None, Unset("all")] = Field(
        None, description="take the first N in name order, of each task"
    )
    pairing: Literal["name", "order"] | PairingRule = Field(
        "name",
        description='how degraded and clean images belong together: by `name`, by `order`, or `{lq: "rain-{}", '
        'gt: "norain-{}"}`',
    )
    degradation: Annotated[
        Degraded | Literal["all"] | Annotated[tuple[TaskName, ...], MinLen(1), Expected("a list of tasks")] | None,
        Unset("what `distortion` names"),
    ] = Field(
        None,
        description="mode GT: what is done to the clean images, with the numbers in `degradation`; a list, or `all` "
        "for the ten tasks, makes a set of each, and in training draws one for each sample (`train.task_weights`); "
        "`super-resolution` in the other modes: degraded images are smaller by `degradation.scale`",
    )
    color: Literal["RGB"] = Field("RGB", description="grey images become RGB")
    batch_size: Annotated[Positive, ForTraining()] = Field(4, description="images in a training step")
    n_workers: Annotated[Count, ForTraining()] = Field(
        4,
        description="processes that read, cut and degrade images; 0: the training process does. Without influence "
        "on the result",
    )
    cache: Annotated[Count, ForTraining()] = Field(
        1024, description="megabytes of decoded images that each of them keeps"
    )
    GT_size: Annotated[Positive | None, ForTraining(), Unset("`patch_size`")] = Field(
        None, description="side of the training crops"
    )
    patch_size: Annotated[Positive | None, ForTraining(), Unset("`GT_size`, else 256")] = Field(
        None, description="the same as `GT_size`"
    )
    patch_sizes: Annotated[
        tuple[Annotated[tuple[Positive, Positive], Expected("[step, side]")], ...], ForTraining()
    ] = Field((), description="other sides from some steps on, as pairs: `[[5000, 96]]` is 96 after 5000 steps")
    LR_size: Annotated[Positive | None, Ignored("it follows from GT_size and degradation.scale")] = Field(
        None, description="side of the degraded crops"
    )
    use_flip: Annotated[bool, ForTraining()] = Field(True, description="flip crops at random")
    use_rot: Annotated[bool, ForTraining()] = Field(True, description="turn crops upside down and transpose them")
    min_scale: Annotated[Share, ForTraining()] = Field(
        1.0,
        description="clean images to be degraded are shrunk before, by a random factor between this and 1",
    )
    varied: Annotated[bool, ForTraining()] = Field(
        False,
        description="make each degradation of mode GT in several ways and strengths, weak ones included, as "
        "codes/data/varied does, and not only as test sets have it",
    )
    clean_share: Annotated[Share, ForTraining()] = Field(
        0.0, description="with `varied`: share of samples that are not degraded and are to stay as they are"
    )
    mixed_share: Annotated[Share, ForTraining()] = Field(
        0.0, description="with `varied`: share of degraded samples that suffer from noise or compression as well"
    )
    use_shuffle: Annotated[bool, ForTraining()] = Field(True, description="shuffle the images in each epoch")
    use_swap: Annotated[bool, Ignored("only the published training of latent networks uses it")] = Field(
        False, description="exchange degraded and clean crops at random"
    )
    optimizer: Annotated[Text | None, Ignored("the optimiser is train.optimizer")] = Field(
        None, description="misplaced in a published file"
    )
    dataroot_meta: Annotated[Text | None, Ignored("only the bokeh modes have lens data")] = Field(
        None, description="lens data"
    )
    dataroot_alpha: Annotated[Text | None, Ignored("only the bokeh modes have alpha masks")] = Field(
        None, description="alpha masks"
    )

    @model_validator(mode="before")
    @classmethod
    def _infer_mode(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("mode") is not None:
            return data
        given = {key for key, value in data.items() if value is not None}
        for keys, mode in (
            ({"root"}, "LQGT"),
            ({"dataroot"}, "MD"),
            ({"dataroot_LQ", "dataroot_GT"}, "LQGT"),
            ({"dataroot_LQ"}, "LQ"),
            ({"dataroot_GT"}, "GT"),
        ):
            if keys <= given:
                return {**data, "mode": mode}
        return data

    @property
    def task_root(self) -> str | None:
        """The folder that has a folder for each task; None where the folders are given one by one."""
        return self.root if self.root is not None else self.dataroot if self.mode in ("MD", "MDGT") else None


class NetworkOptions(Section):
    which_model_G: Annotated[NetworkName | None, Unset("the checkpoint's")] = Field(
        None, description="name of the network; `which_model` is another name for this option"
    )
    setting: Setting = Field({}, description="arguments of the network, which checks them itself")
    variant: Annotated[NetworkVariant | None, Unset("follows from `setting`")] = Field(
        None, description="which of the networks that share the name `which_model_G`"
    )


class LatentNetworkOptions(Section):
    which_model: Annotated[LatentNetworkName | None, Unset("none")] = Field(
        None, description="name of the network between images and latents"
    )
    setting: Setting = Field({}, description="arguments of the network between images and latents")


class PathOptions(Section):
    pretrain_model_G: Text | None = Field(None, description="weights of `network_G`")
    pretrain_model_L: Text | None = Field(None, description="weights of `network_L`")
    daclip: Text | None = Field(None, description="weights of DA-CLIP, for networks that take its contexts")
    strict_load: Annotated[bool, Ignored("weights are always loaded strictly")] = Field(
        True, description="refuse weights that do not fit the network exactly"
    )
    resume_state: Annotated[Text | None, ForTraining()] = Field(None, description="training state to go on from")


class MetricsOptions(Section):
    names: tuple[MetricName, ...] = Field(
        ("psnr", "ssim", "lpips", "fid"), description="what is computed where there are clean images"
    )
    crop_border: Count = Field(
        0, description="pixels left out at each side by PSNR and SSIM; the published code leaves out 4"
    )


class TrainOptions(Section):
    niter: Positive = Field(700000, description="training steps")
    optimizer: Literal["Adam", "AdamW", "Lion", "Muon"] = Field("AdamW", description="the optimiser")
    lr_G: PositiveNumber = Field(2e-4, description="learning rate")
    lr_scheme: Literal["TrueCosineAnnealingLR", "MultiStepLR", "ConstantLinearLR"] = Field(
        "TrueCosineAnnealingLR",
        description="how the learning rate falls; `ConstantLinearLR`: it stays until the last `decay_iter` steps and "
        "falls evenly there, so that a run can be made longer before them",
    )
    eta_min: Annotated[Number, Ge(0)] = Field(
        1e-6, description="its end, for TrueCosineAnnealingLR and ConstantLinearLR"
    )
    decay_iter: Annotated[Positive | None, Unset("a fifth of `niter`")] = Field(
        None, description="steps of falling learning rate, for ConstantLinearLR"
    )
    lr_steps: tuple[Positive, ...] = Field((), description="where it falls, for MultiStepLR")
    lr_gamma: Annotated[
        Annotated[Number, Gt(0), Le(1)], Ignored("the published code always halves the learning rate")
    ] = Field(0.5, description="by which factor")
    beta1: Annotated[Number, Ge(0), Lt(1)] = Field(0.9, description="of the optimiser")
    beta2: Annotated[Number, Ge(0), Lt(1)] = Field(0.99, description="of the optimiser")
    weight_decay_G: Annotated[Number, Ge(0)] = Field(0.0, description="weight decay")
    warmup_iter: Literal[-1] | Count = Field(-1, description="steps of rising learning rate; -1 is none")
    loss_type: Literal["l1", "l2", "rms"] = Field(
        "l1", description="the loss: mean absolute error, mean square, or the mean of the images' root mean squares"
    )
    weight: PositiveNumber = Field(1.0, description="factor of the loss")
    is_weighted: Annotated[bool | None, Ignored("it has no effect in the published code either")] = Field(
        None, description="weights of the loss"
    )
    target: Literal["published", "noise", "data", "velocity"] = Field(
        "published",
        description="what the network learns: `published` matches the best reverse step and makes a noise predictor; "
        "the others match the prediction itself. Recorded in the checkpoints",
    )
    time_weighting: Literal["none", "noise", "data", "velocity"] = Field(
        "none",
        description="as an error of what an error of the prediction counts, where the target is not `published`: "
        "another weight for each t (10 at the most); `none`: all times count the same",
    )
    mean_weight: Share = Field(
        1.0,
        description="how much the mean error of a patch counts, against 1 for the rest of its error, where the target "
        "is not `published`; below 1 a network of many tasks learns detail sooner",
    )
    perceptual_weight: Annotated[Number, Ge(0)] = Field(
        0.0,
        description="weight of LPIPS between the clean image that the prediction amounts to and the true one, which is "
        "added to the loss. Sharper than the mean of all that might be, which the rest of the loss leads to; and LPIPS "
        "is then no independent judge any more",
    )
    recognition_weight: Annotated[Number, Ge(0)] = Field(
        0.0,
        description="weight of naming the degradation (cross entropy), which is added to the loss; for networks that "
        "recognise it, such as CodedNAFNet, with `datasets.train.varied`",
    )
    time_distribution: Literal["uniform", "late", "lambda"] = Field(
        "uniform",
        description="how t is drawn from 1..T: `late`: more often the larger it is; `lambda`: evenly in the log "
        "signal-to-noise ratio",
    )
    prior_share: Share = Field(
        0.0,
        description="share of samples at t = T that start from exactly the prior, mu + sigma_inf z. alpha is not quite "
        "0 there, so that the mean of a training state betrays changes of the whole image (low light, haze, shadow); "
        "a small network reads them there instead of in mu, and restores nothing when it is to sample",
    )
    own_share: Share = Field(
        0.0,
        description="share of samples, at any t, whose state holds what a sampler's might, not the clean image: a "
        "quarter of them the degraded image, the others what the network finds from that at a later time. A network "
        "that has seen only states made of clean images takes its own errors for the truth",
    )
    task_weights: Annotated[dict[TaskName, PositiveNumber], Unset("1 each")] = Field(
        {}, description="how often tasks are drawn, relative to each other; those not named have 1"
    )
    clip_grad: Annotated[PositiveNumber | None, Unset("off")] = Field(None, description="largest norm of the gradient")
    accumulate: Positive = Field(
        1, description="parts that a batch is worked on in, one after the other, to save memory"
    )
    val_freq: Positive = Field(5000, description="steps between validations")


class LoggerOptions(Section):
    print_freq: Positive = Field(100, description="steps between lines of the log")
    save_checkpoint_freq: Positive = Field(10000, description="steps between checkpoints")


class Options(Section):
    """An option file, made by `load_options`. Paths are as given."""

    name: Annotated[FolderName | None, Unset("the file's name")] = Field(
        None, description="name of the run and of its folder"
    )
    results: Text = Field("results", description="folder of all runs; `path.results_root` is another name for it")
    seed: Count = Field(0, description="seed of all noise; `train.manual_seed` is another name for it")
    device: Annotated[
        str,
        StringConstraints(pattern=r"^(auto|cpu|cuda(:\d+)?)$"),
        Expected("one of auto, cpu, cuda, cuda:N"),
    ] = Field("auto", description="`auto`: a GPU if there is one")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="of the network's arithmetic; `auto`: chosen for the device"
    )
    compile: bool = Field(False, description="compile the network with torch.compile first")
    tile: Annotated[
        Literal["auto", "off"] | Annotated[Integer, Ge(64)],
        # YAML 1.1 reads a bare `off` as false.
        BeforeValidator(lambda value: "off" if value is False else value),
    ] = Field("auto", description="side of overlapping tiles; `auto`: tiles where memory does not allow whole images")
    batch_size: Literal["auto"] | Positive = Field("auto", description="images restored at once")
    workers: Literal["auto"] | Count = Field("auto", description="threads that read images ahead")
    contact_sheet: Count = Field(4, description="images per task on the contact sheet; 0 makes none")
    model: Literal["denoising", "latent_denoising", "latent"] = Field(
        "denoising", description="what is restored: images, latents of `network_L`; `latent` trains that network"
    )
    distortion: Text | tuple[Text, ...] | None = Field(
        None, description="what the images suffer from: the tasks of mode MD, the degradation of mode GT, else a label"
    )
    suffix: Annotated[Text | None, Ignored("restored images keep the names of the degraded ones")] = Field(
        None, description="end of file names"
    )
    gpu_ids: Annotated[
        tuple[Count, ...] | Count | None, Expected("a list of integers"), Ignored("choose a device with 'device'")
    ] = Field(None, description="GPUs")
    use_tb_logger: Annotated[bool, ForTraining()] = Field(False, description="write a TensorBoard log")
    sde: SDEOptions = Field(default_factory=SDEOptions, description="the schedule and the solver")
    sampler: SamplerOptions = Field(default_factory=SamplerOptions, description="options of the solver")
    datasets: dict[str, DatasetOptions] = Field(description="named sets of images; `train` is the one to train on")
    degradation: DegradationOptions = Field(
        default_factory=DegradationOptions, description="how mode GT degrades images"
    )
    network_G: NetworkOptions = Field(default_factory=NetworkOptions, description="the network")
    network_L: LatentNetworkOptions = Field(
        default_factory=LatentNetworkOptions, description="the latent network of Refusion"
    )
    path: PathOptions = Field(default_factory=PathOptions, description="files of weights")
    metrics: MetricsOptions = Field(default_factory=MetricsOptions, description="which metrics, and how")
    train: Annotated[TrainOptions, ForTraining()] = Field(default_factory=TrainOptions, description="how to train")
    logger: Annotated[LoggerOptions, ForTraining()] = Field(
        default_factory=LoggerOptions, description="what training writes"
    )

    _file: Path = PrivateAttr(Path())
    _kind: Kind = PrivateAttr("test")
    _ignored: tuple[str, ...] = PrivateAttr(())

    def remember(self, file: Path, kind: Kind, ignored: tuple[str, ...]) -> Self:
        """Attach where the options come from, which is not an option."""
        self._file, self._kind, self._ignored = file, kind, ignored
        return self

    @property
    def file(self) -> Path:
        """The file that was read."""
        return self._file

    @property
    def kind(self) -> Kind:
        """What the file was read for."""
        return self._kind

    @property
    def ignored(self) -> list[str]:
        """A line for each key that was given but has no effect."""
        return list(self._ignored)

    @property
    def run_name(self) -> str:
        """`name`, else the name of the file."""
        return self.name or self.file.stem

    @property
    def test_sets(self) -> dict[str, DatasetOptions]:
        """The datasets to test on: all but `train`."""
        return {name: dataset for name, dataset in self.datasets.items() if name != "train"}

    @property
    def takes_contexts(self) -> bool:
        """Whether the network is one of DA-CLIP's."""
        setting = self.network_G.setting
        return self.network_G.which_model_G == "ConditionalUNet" and any(
            setting.get(key) is True for key in ("use_degra_context", "use_image_context")
        )

    def tasks_of(self, dataset: str) -> tuple[str, ...]:
        """The tasks to look for in a dataset's `task_root`."""
        words = (self.distortion,) if isinstance(self.distortion, str) else self.distortion or ()
        return self.datasets[dataset].tasks or tuple(word for word in words if word in DEGRADATIONS) or TASKS

    def degradations_of(self, dataset: str) -> tuple[Degraded, ...]:
        """What a dataset suffers from: what its key `degradation` says, else `distortion` where that is one thing."""
        given = self.datasets[dataset].degradation
        if given == "all":
            return TASKS
        if isinstance(given, tuple):
            return given
        one = given or (_DISTORTIONS.get(self.distortion) if isinstance(self.distortion, str) else None)
        return () if one is None else (one,)

    def degradation_of(self, dataset: str) -> Degraded | None:
        """The same where it is one thing, else None."""
        found = self.degradations_of(dataset)
        return found[0] if len(found) == 1 else None

    def enlargement_of(self, dataset: str) -> int:
        """Factor by which degraded images are smaller than clean ones: they are enlarged before they are restored."""
        small = self.datasets[dataset].mode in ("LQGT", "LQ") and self.degradation_of(dataset) == "super-resolution"
        return self.degradation.scale if small else 1

    def solvers(self) -> list[tuple[str, dict[str, Any]]]:
        """The solvers to run: label and keyword arguments of `codes.Solver`, without those that are its defaults."""
        common = {key: value for key, value in _given(self.sampler).items() if key != "variants"}
        variants = {name: _given(variant) for name, variant in self.sampler.variants.items()}
        if self.sde.algorithm is None and not variants:
            common = {**SOLVER, **common}
        return expand(self.sde.algorithm or SOLVER["algorithm"], common, variants, self._steps)

    def _steps(self, algorithm: str) -> int:
        """Evaluations where no number is given: the published files of the baselines mean T by that."""
        if self.sde.sample_T is not None and self.sde.sample_T != -1:
            return self.sde.sample_T
        return SOLVERS[algorithm].steps or self.sde.T or 100


def _given(section: SolverOptions) -> dict[str, Any]:
    """The keys that a file sets; unlike `model_dump` it leaves values alone."""
    return {key: getattr(section, key) for key in type(section).model_fields if key in section.model_fields_set}
