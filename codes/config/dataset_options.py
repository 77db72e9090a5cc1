"""Options of images: the sections `datasets.<name>` and `degradation`."""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Le, Lt, MinLen
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from .kinds import (
    LARGEST_SIDE,
    Count,
    Expected,
    FolderName,
    ForTraining,
    Ignored,
    Integer,
    Number,
    Positive,
    Share,
    Side,
    Text,
    Unset,
    Weight,
    Workers,
)
from .section import Section
from .words import Degraded, TaskName


class DegradationOptions(Section):
    sigma: Weight = Field(50.0, description="standard deviation of noise, in 8-bit units, for `distortion: denoising`")
    noise_type: Literal["G"] = Field("G", description="kind of noise; `G`: Gaussian")
    scale: Annotated[Integer, Ge(1), Le(32)] = Field(
        4, description="factor of super-resolution: how much smaller degraded images are"
    )
    mask_root: Text | None = Field(None, description="folder of masks (black is missing), for `distortion: inpainting`")


class PairingRule(Section):
    lq: Text = Field(description="name of a degraded image, `{}` standing for what the names share")
    gt: Text = Field(description="name of the clean image that belongs to it")


_BOKEH = "(bokeh) needs lens data for each image and a network that takes them"
_STEREO = "(stereo) needs two views of each image and a network that takes both"
_REFUSED = {"BokehLQGT": _BOKEH, "BokehLQ": _BOKEH, "SteLQGT": _STEREO, "SteLQ": _STEREO}


def _refuse(mode: Any) -> Any:
    if isinstance(mode, str) and mode in _REFUSED:
        text = f"mode {mode!r} {_REFUSED[mode]}, which are not supported"
        raise PydanticCustomError("refused", "{text}", {"text": text})
    return mode


class DatasetOptions(Section):
    name: Annotated[FolderName | None, Unset("the key")] = Field(None, description="name in tables and folders")
    mode: Annotated[
        Literal["LQGT", "LQ", "GT", "MD", "MDGT"], BeforeValidator(_refuse), Unset("what the folders given suggest")
    ] = Field(
        description="`LQGT`: degraded and clean images; `LQ`: degraded ones alone; `GT`: clean ones, "
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
        description="mode GT: what is done to the clean images; a list, or `all` "
        "for the ten tasks, makes a set of each, and in training draws one for each sample (`train.task_weights`); "
        "`super-resolution` in the other modes: degraded images are smaller by `degradation.scale`",
    )
    color: Literal["RGB"] = Field("RGB", description="colour of the images; grey ones become RGB")
    batch_size: Annotated[Annotated[Integer, Ge(1), Le(LARGEST_SIDE)], ForTraining()] = Field(
        4, description="samples in a training step, over all processes"
    )
    n_workers: Annotated[Workers, ForTraining()] = Field(
        4,
        description="processes that read, crop and degrade training images, for each training process; 0: the training "
        "process does it. The number does not change the result",
    )
    cache: Annotated[Count, ForTraining()] = Field(
        1024, description="megabytes of decoded training images that each reading process keeps in memory"
    )
    GT_size: Annotated[Side | None, ForTraining(), Unset("`patch_size`")] = Field(
        None, description="side of the training patches in pixels"
    )
    patch_size: Annotated[Side | None, ForTraining(), Unset("`GT_size`, else 256")] = Field(
        None, description="side of the training patches in pixels; the same as `GT_size`"
    )
    patch_sizes: Annotated[tuple[Annotated[tuple[Positive, Side], Expected("[step, side]")], ...], ForTraining()] = (
        Field(
            (),
            description="other sides of the training patches from some steps on, as pairs: `[[5000, 96]]` is 96 pixels "
            "after 5000 steps",
        )
    )
    LR_size: Annotated[Side | None, Ignored("it follows from GT_size and degradation.scale")] = Field(
        None, description="side of the degraded training patches"
    )
    use_flip: Annotated[bool, ForTraining()] = Field(
        True, description="mirror training patches left-right with probability 1/2"
    )
    use_rot: Annotated[bool, ForTraining()] = Field(
        True, description="mirror training patches top-bottom and along the diagonal, each with probability 1/2"
    )
    min_scale: Annotated[Share, ForTraining()] = Field(
        1.0,
        description="clean images are shrunk by a random factor between this and 1 before they are degraded (mode GT)",
    )
    varied: Annotated[bool, ForTraining()] = Field(
        False,
        description="make each degradation of mode GT in several ways and strengths, weak ones included "
        "(codes/data/varied), instead of only as in test sets",
    )
    clean_share: Annotated[Annotated[Number, Ge(0), Lt(1)], ForTraining()] = Field(
        0.0,
        description="with `varied`: share of samples that are not degraded, from which the network learns to keep "
        "clean images unchanged",
    )
    mixed_share: Annotated[Share, ForTraining()] = Field(
        0.0, description="with `varied`: share of degraded samples that get noise or compression as well"
    )
    use_shuffle: Annotated[bool, ForTraining()] = Field(
        True, description="take the training images in another random order in each epoch"
    )
    use_swap: Annotated[bool, ForTraining()] = Field(
        False, description="mode LQGT: exchange the degraded and the clean image of a pair with probability 1/2"
    )
    optimizer: Annotated[Text | None, Ignored("the optimiser is train.optimizer")] = Field(
        None, description="name of an optimiser, misplaced in a published file"
    )
    dataroot_meta: Annotated[Text | None, Ignored("only the bokeh modes have lens data")] = Field(
        None, description="folder of lens data"
    )
    dataroot_alpha: Annotated[Text | None, Ignored("only the bokeh modes have alpha masks")] = Field(
        None, description="folder of alpha masks"
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
