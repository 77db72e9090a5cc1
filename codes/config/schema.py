"""The schema of option files: every option with its type, default and meaning.

`options/README.md` and the error messages are made from it. The names are those of the published option files; what
those do not have (`results` ... `metrics`) is ours. No option here is the torch object it leads to: importing torch
takes longer than finding a typing mistake.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints

from ..defaults import LARGEST_SEED, MOST_EVALUATIONS, SOLVER
from ..names import MOST_TIMES, TASKS, OptionsError
from ..networks.rows import CONTEXT_KEYS, NETWORKS
from ..rows import DEGRADATIONS
from ..solvers.registry import SOLVERS
from .dataset_options import DatasetOptions, DegradationOptions
from .errors import Keys, error_at
from .kinds import (
    LARGEST_SIDE,
    Argument,
    Expected,
    FolderName,
    ForTraining,
    Ignored,
    Integer,
    Number,
    PositiveNumber,
    SweepOfNames,
    Text,
    Unset,
    Workers,
)
from .section import Section
from .solver_options import Algorithm, SamplerOptions, SolverOptions
from .sweep import count, expand, without_effect
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

NO_SAMPLING = "encode-decode"  # the label of `model: latent`, which has no solver

Setting = dict[str, Argument]


_DEFAULT_SOLVER = ", ".join(f"`{key}: {str(value).lower()}`" for key, value in SOLVER.items())


class SDEOptions(Section):
    algorithm: Annotated[SweepOfNames[Algorithm] | None, Unset(_DEFAULT_SOLVER)] = Field(
        None, description="the solver, see the table below; `sampling_mode` is another name for it"
    )
    max_sigma: Annotated[PositiveNumber | None, Unset("the checkpoint's, else 50")] = Field(
        None, description="stationary noise level; 1 or more is in 8-bit units (50 means 50/255)"
    )
    T: Annotated[Annotated[Integer, Ge(1), Le(MOST_TIMES)] | None, Unset("the checkpoint's, else 100")] = Field(
        None, description="number of training steps"
    )
    sample_T: Annotated[Literal[-1] | Annotated[Integer, Ge(1), Le(MOST_EVALUATIONS)] | None, Unset("T")] = Field(
        None,
        description="network evaluations where `sampler.num_sample_steps` is not given; -1 stands for T",
    )
    schedule: Annotated[Literal["cosine", "linear", "constant"] | None, Unset("the checkpoint's, else cosine")] = Field(
        None, description="the schedule of theta"
    )
    eps: Annotated[Annotated[Number, Gt(0), Lt(1)] | None, Unset("the checkpoint's, else 0.005")] = Field(
        None, description="alpha, the weight of the clean image, at t = T"
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
    grow_from: Annotated[Text | None, ForTraining()] = Field(
        None, description="weights of a smaller NAFNet (one level less) that the training begins with"
    )
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
        ("psnr", "ssim", "lpips", "fid"),
        description="metrics to compute. Where there are no clean images, `niqe` and `brisque` are added, which need "
        "none; an empty list stays empty",
    )
    crop_border: Annotated[Integer, Ge(0), Le(LARGEST_SIDE)] = Field(
        0, description="pixels left out at each side by PSNR and SSIM; the published code leaves out 4"
    )


class Options(Section):
    """An option file, made by `load_options`. Paths are as given."""

    name: Annotated[FolderName | None, Unset("the file's name")] = Field(
        None, description="name of the run and of its folder"
    )
    results: Text = Field("results", description="folder of all runs; `path.results_root` is another name for it")
    seed: Annotated[Integer, Ge(0), Le(LARGEST_SEED)] = Field(
        0, description="seed of all noise; `train.manual_seed` is another name for it"
    )
    device: Annotated[
        str,
        StringConstraints(pattern=r"^(auto|cpu|cuda(:\d{1,3})?)$"),
        Expected("one of auto, cpu, cuda, cuda:N"),
    ] = Field("auto", description="device to compute on; `auto`: a GPU if there is one")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto",
        description="precision of the network's arithmetic; `auto`: bf16 on GPUs that have it, and on CPUs that have "
        "it where a check finds the results unchanged; training on a CPU takes fp32",
    )
    compile: bool = Field(
        False,
        description="compile the network with torch.compile; images are padded to a few sizes, for each of which it "
        "is compiled once",
    )
    tile: Annotated[
        Literal["auto", "off"] | Annotated[Integer, Ge(64), Le(LARGEST_SIDE)],
        # YAML 1.1 reads a bare `off` as false.
        BeforeValidator(lambda value: "off" if value is False else value),
    ] = Field("auto", description="side of overlapping tiles; `auto`: tiles where memory does not allow whole images")
    batch_size: Literal["auto"] | Annotated[Integer, Ge(1), Le(10_000)] = Field(
        "auto", description="images restored at once"
    )
    workers: Literal["auto"] | Workers = Field("auto", description="threads that read images ahead")
    contact_sheet: Annotated[Integer, Ge(0), Le(1_000)] = Field(
        4, description="images per task on the contact sheet; 0 makes none"
    )
    model: Literal["denoising", "latent_denoising", "latent"] = Field(
        "denoising",
        description="what is restored: images, or the latents of `network_L` (`latent_denoising`); `latent` samples "
        "nothing: it encodes and decodes images with a UNet as `network_G`",
    )
    distortion: Text | tuple[Text, ...] | None = Field(
        None, description="what the images suffer from: the tasks of mode MD, the degradation of mode GT, else a label"
    )
    suffix: Annotated[Text | None, Ignored("restored images keep the names of the degraded ones")] = Field(
        None, description="suffix of the names of restored images"
    )
    gpu_ids: Annotated[
        tuple[Workers, ...] | Workers | None, Expected("a list of integers"), Ignored("choose a device with 'device'")
    ] = Field(None, description="numbers of the GPUs to use")
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
    _notes: tuple[str, ...] = PrivateAttr(())

    def remember(
        self, file: Path, kind: Kind, ignored: tuple[str, ...], files: dict[Keys, Path], notes: tuple[str, ...] = ()
    ) -> Self:
        """Attach where the options come from, which is not an option; `files` says which file wrote which key."""
        self._file, self._kind, self._ignored, self._files, self._notes = file, kind, ignored, files, notes
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
    def notes(self) -> list[str]:
        """A line for each choice that the file left to the program and that is worth knowing."""
        return list(self._notes)

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

    @property
    def variant(self) -> NetworkVariant | None:
        """`network_G.variant`; else what the published file of a task means; None: what setting or weights say.

        Only denoising-sde denoises, with networks that take no degraded image.
        """
        network = self.network_G
        variants = NETWORKS.get(network.which_model_G or "", {})
        if network.variant is not None:
            return network.variant
        if self.model == "latent_denoising" and "latent" in variants:
            return "latent"
        denoising = self.distortion in ("denoise", "denoising") and "denoising" in variants
        return "denoising" if denoising and not CONTEXT_KEYS & set(network.setting) else None

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

    def solvers(self, usual: Mapping[str, Any] = SOLVER) -> list[tuple[str, dict[str, Any]]]:
        """The solvers to run: label and keyword arguments of `codes.Solver`, without those that are its defaults.

        usual   the solver where the file names no algorithm, as the weights recommend it
        """
        if self.model == "latent":
            return [(NO_SAMPLING, {})]
        common, variants = self._sampler()
        if self.sde.algorithm is None and not variants:
            common = {**usual, **common}
        return expand(self.sde.algorithm or usual["algorithm"], common, variants, self._steps)

    def count_solvers(self) -> int:
        """How many combinations `solvers` goes through."""
        return count(self.sde.algorithm, *self._sampler())

    def unused_by_solvers(self) -> Iterator[tuple[Keys, str]]:
        """Keys of the solver that some or all solvers of the run do not use, and why."""
        if self.model == "latent":
            return
        for key, reason in without_effect(self.sde.algorithm, *self._sampler(), self.solvers()):
            yield ("sde" if key == "algorithm" else "sampler", key), reason

    def _sampler(self) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """The keys of `sampler` that the file gives: the common ones, and those of each variant."""
        common = {key: value for key, value in _given(self.sampler).items() if key != "variants"}
        return common, {name: _given(variant) for name, variant in self.sampler.variants.items()}

    def _steps(self, algorithm: str) -> int:
        """Evaluations where no number is given: the published files of the baselines mean T by that."""
        if self.sampler.compat == "official" and self.variant == "denoising":
            return self._published_denoising_steps()
        if self.sde.sample_T is not None and self.sde.sample_T != -1:
            return self.sde.sample_T
        return SOLVERS[algorithm].steps or self.sde.T or 100

    def _published_denoising_steps(self) -> int:
        """All steps from the noise of the images. Imports torch, unlike the rest."""
        from ..sde import DenoisingSDE

        given = {key: getattr(self.sde, key) for key in ("max_sigma", "T", "schedule")}
        known = {key: value for key, value in given.items() if value is not None}
        try:
            return max(DenoisingSDE(**known, noise_level=self.degradation.sigma).published_start, 1)
        except ValueError:  # reported when the schedule is built
            return self.sde.T or 100


def _given(section: SolverOptions) -> dict[str, Any]:
    """The keys that a file sets; unlike `model_dump` it leaves values alone."""
    return {key: getattr(section, key) for key in type(section).model_fields if key in section.model_fields_set}
