"""The schema of option files: every option with its type, default and meaning.

`options/README.md` and the error messages are made from it. The names are those of the published option files; what
those do not have (`results` ... `metrics`) is ours. No option here is the torch object it leads to: importing torch
takes longer than finding a typing mistake.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Lt
from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints

from ..defaults import SOLVER
from ..names import TASKS, OptionsError
from ..rows import DEGRADATIONS
from ..solvers.registry import SOLVERS
from .dataset_options import DatasetOptions, DegradationOptions, Text
from .errors import Keys, error_at
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
    Sweep,
    Unset,
)
from .section import Section
from .solver_options import Algorithm, SamplerOptions, SolverOptions
from .sweep import expand
from .train_options import LoggerOptions, TrainOptions
from .words import Degraded, LatentNetworkName, MetricName, NetworkName, NetworkVariant

# What a file is read for. To restore images that are given otherwise, datasets do not matter.
Kind = Literal["test", "train", "restore"]
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
    resume_state: Annotated[Text | None, ForTraining()] = Field(
        None, description="training state of another run (`training_state/N.state`) to continue from"
    )


class MetricsOptions(Section):
    names: tuple[MetricName, ...] = Field(
        ("psnr", "ssim", "lpips", "fid"), description="what is computed where there are clean images"
    )
    crop_border: Count = Field(
        0, description="pixels left out at each side by PSNR and SSIM; the published code leaves out 4"
    )


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
        default_factory=LoggerOptions, description="how often a training logs and saves"
    )
    stages: Annotated[dict[str, dict[str, Any] | None] | None, ForTraining()] = Field(
        None,
        description="stages of a training, run one after the other in `results/<name>/<stage>/`: for each a name and "
        "the options that differ, in dotted keys (`sharp: {train.niter: 4000}`). Each stage begins with the averaged "
        "weights of the one before",
    )

    _file: Path = PrivateAttr(Path())
    _kind: Kind = PrivateAttr("test")
    _ignored: tuple[str, ...] = PrivateAttr(())
    _files: dict[Keys, Path] = PrivateAttr({})

    def remember(self, file: Path, kind: Kind, ignored: tuple[str, ...], files: dict[Keys, Path]) -> Self:
        """Attach where the options come from, which is not an option; `files` says which file wrote which key."""
        self._file, self._kind, self._ignored, self._files = file, kind, ignored, files
        return self

    def error(self, keys: Keys, text: str) -> OptionsError:
        """The error for one key, naming the file that wrote it."""
        return error_at(self.file_of(keys), keys, text)

    def file_of(self, keys: Keys) -> Path:
        """The file that wrote a key: the one that was read, or one that it is based on."""
        while keys and keys not in self._files:
            keys = keys[:-1]
        return self._files.get(keys, self._file)

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
