"""MR Sampler for diffusers: a scheduler, and a pipeline that saves and loads it with its network.

    from codes.scheduler import MeanRevertingPipeline

    pipeline = MeanRevertingPipeline.from_checkpoint("model.safetensors")
    restored = pipeline(image, num_inference_steps=8, generator=torch.Generator().manual_seed(0)).images[0]
    pipeline.save_pretrained("my-model")  # and MeanRevertingPipeline.from_pretrained("my-model"), or

    pipeline = diffusers.DiffusionPipeline.from_pretrained("my-model", trust_remote_code=True)

Needs diffusers (`pip install 'mr-sampler[diffusers]'`). The scheduler makes the steps of the same plan with the same
function as `sample(...)`, one evaluation per entry of `timesteps`: both give the same bits. It needs torch, numpy and
diffusers alone, so what the networks and images need is imported where it is used.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import defaults
from .names import OptionValueError, check_choice
from .prediction import convert
from .runtime.torchvision_compat import ensure_torchvision
from .sde import MeanRevertingSDE
from .solvers import GRIDS, Plan, Solver, make_plan
from .solvers.options import OPTIONS
from .solvers.sampling import State, advance, noise_source

ensure_torchvision()  # which diffusers imports
try:
    from diffusers import ConfigMixin, DiffusionPipeline, ModelMixin, SchedulerMixin
    from diffusers.configuration_utils import register_to_config
    from diffusers.pipelines.pipeline_utils import ImagePipelineOutput
    from diffusers.utils import BaseOutput
except ImportError as error:
    raise ImportError("this module needs diffusers: pip install 'mr-sampler[diffusers]'") from error

Generators = torch.Generator | Sequence[torch.Generator]
# The configuration's solver options with their defaults; `set_timesteps` chooses the number of evaluations.
_SOLVER_OPTIONS = {name: option.default for name, option in OPTIONS.items() if name != "num_sample_steps"} | {
    "algorithm": None,  # the project's default solver
    "fit_target": "noise",
}


def _with_solver_options(init: Callable[..., None]) -> Callable[..., None]:
    """Write the options of `Solver` into the signature in place of **solver: diffusers reads there what to save."""
    signature, types = inspect.signature(init), {field.name: field.type for field in fields(Solver)}
    parameters = [known for known in signature.parameters.values() if known.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in _SOLVER_OPTIONS.items()
    ]
    init.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return init


@dataclass
class MRSamplerOutput(BaseOutput):  # type: ignore[misc]
    """What `step` returns: the next state, and the clean image predicted at this step."""

    prev_sample: Tensor
    pred_original_sample: Tensor | None = None


class MRSamplerScheduler(SchedulerMixin, ConfigMixin):  # type: ignore[misc]
    """All solvers of this project as a diffusers scheduler.

    The arguments are those of `MeanRevertingSDE` (T has diffusers' name, `num_train_timesteps`) and, by keyword, those
    of `Solver`; without an algorithm it is the project's default solver. `timesteps` has an entry for each network
    evaluation; as in diffusers' own Heun scheduler, times repeat where a method evaluates twice.

    `lower_order_final` is diffusers' name for `last_order`: True makes the last step one of first order, False like the
    others. It applies to multistep algorithms, as there.

    >>> scheduler = MRSamplerScheduler(algorithm="posterior", fit_target="data")
    >>> scheduler.set_timesteps(4)
    >>> mu = torch.zeros(1, 3, 8, 8)  # the degraded image
    >>> x = scheduler.start(mu, torch.Generator().manual_seed(0))
    >>> for t in scheduler.timesteps:
    ...     prediction = mu + 0.25  # a network that always answers a grey image
    ...     x = scheduler.step(prediction, t, x, mu, generator=torch.Generator().manual_seed(1)).prev_sample
    >>> bool((x - 0.25).abs().max() < 0.1)
    True
    """

    order = 1

    @register_to_config  # type: ignore[untyped-decorator]
    @_with_solver_options
    def __init__(
        self,
        num_train_timesteps: int = 100,
        max_sigma: float = 50.0,
        schedule: str = "cosine",
        eps: float = 0.005,
        convention: str = "daclip",
        thetas: Sequence[float] | None = None,
        lower_order_final: bool | None = None,
        **solver: Any,
    ) -> None:
        for name in solver:
            check_choice("option", name, _SOLVER_OPTIONS)
        self.set_timesteps()

    @property
    def sde(self) -> MeanRevertingSDE:
        """The schedule of the configuration."""
        config = self.config
        try:
            return MeanRevertingSDE(
                max_sigma=config.max_sigma,
                T=config.num_train_timesteps,
                schedule=config.schedule,
                eps=config.eps,
                convention=config.convention,
                thetas=None if config.thetas is None else tuple(config.thetas),
            )
        except OptionValueError as error:
            if error.option != "T":
                raise
            name = "num_train_timesteps"  # as diffusers calls it
            raise OptionValueError(name, str(error).replace("T:", f"{name}:", 1)) from None

    def solver_for(self, nfe: int) -> Solver:
        """The solver of the configuration with a number of evaluations."""
        given = {name: self.config[name] for name in _SOLVER_OPTIONS}
        if given["algorithm"] is None:
            changed = {name: value for name, value in given.items() if value != OPTIONS[name].default}
            given = {**defaults.SOLVER, **changed, "algorithm": defaults.SOLVER["algorithm"]}
        if self.config.lower_order_final is not None:
            if given.get("last_order") is not None:
                raise ValueError("lower_order_final and last_order are one option: give one of them")
            given["last_order"] = int(self.config.lower_order_final)
        return Solver(num_sample_steps=nfe, **given)

    # ---- diffusers' interface

    def set_timesteps(self, num_inference_steps: int | None = None, device: str | torch.device | None = None) -> None:
        """Plan `num_inference_steps` network evaluations; by default as many as the configured times take, else 8.

        `timesteps` are in float64, so that the network sees the times that `sample(...)` gives it.
        """
        if num_inference_steps is None:
            num_inference_steps = self._default_nfe()
        self.plan: Plan = make_plan(self.sde, self.solver_for(num_inference_steps))
        self.num_inference_steps = self.plan.nfe
        exact = torch.float32 if device is not None and torch.device(device).type == "mps" else torch.float64
        self.timesteps = torch.tensor(self.plan.times, dtype=exact, device=device)
        self._step_index: int | None = None
        self._begin_index: int | None = None
        self._state: State | None = None

    @property
    def init_noise_sigma(self) -> float:
        """Standard deviation of the start state around mu."""
        return self.plan.start_sigma

    @property
    def step_index(self) -> int | None:
        """Index of the next evaluation; None before the first."""
        return self._step_index

    @property
    def begin_index(self) -> int | None:
        """Index of the first step, if it was set."""
        return self._begin_index

    def set_begin_index(self, begin_index: int = 0) -> None:
        """Start at this entry of `timesteps`."""
        self._begin_index = begin_index

    def scale_model_input(self, sample: Tensor, timestep: float | Tensor | None = None) -> Tensor:
        """The state as the network takes it: unchanged."""
        return sample

    def start(self, mu: Tensor, generator: Generators | None = None) -> Tensor:
        """The state to start from: mu plus noise, in float32 or better."""
        mean = mu.to(torch.promote_types(mu.dtype, torch.float32))
        return mean + self.plan.start_sigma * _noise(mean, generator)()

    def step(
        self,
        model_output: Tensor,
        timestep: float | Tensor,
        sample: Tensor,
        mu: Tensor,
        generator: Generators | None = None,
        return_dict: bool = True,
    ) -> MRSamplerOutput | tuple[Tensor, ...]:
        """One step from the state `sample`, given the network's prediction there.

        mu          the degraded images
        generator   one for the batch, or one per image; torch's global one by default

        The next state is in float32 or better, even if the network is in half precision.
        """
        if self._step_index is None:
            self._step_index = self._first_index(timestep)
        index = self._step_index
        if index >= len(self.plan.steps):
            raise ValueError(f"all {len(self.plan.steps)} steps are made: call set_timesteps before the next run")
        dtype = torch.promote_types(sample.dtype, torch.float32)
        x, mean, y = (tensor.to(dtype) for tensor in (sample, mu, model_output))
        remembered = self._state or State(x, before=x)
        state = State(x, remembered.history, remembered.before, remembered.z)
        self._state = advance(self.plan, index, state, y, mean, self.config.fit_target, _noise(mean, generator))
        self._step_index = index + 1
        if not return_dict:
            return (self._state.x,)
        plan = self.plan
        clean = convert(
            self._state.history[0],
            x,
            mean,
            plan.steps[index].point,
            source=plan.parameterization,
            target="data",
            sigma_inf=plan.sde.sigma_inf,
        )
        return MRSamplerOutput(prev_sample=self._state.x, pred_original_sample=clean)

    def add_noise(self, original_samples: Tensor, noise: Tensor, timesteps: Tensor, mu: Tensor) -> Tensor:
        """The forward process: noisy states of clean images at given times, on the way to the degraded images mu."""
        times = timesteps.reshape(-1).expand(len(original_samples))
        return self.sde.marginal(original_samples, mu, times, noise)

    def __len__(self) -> int:
        return int(self.config.num_train_timesteps)

    # ---- inside

    def _default_nfe(self) -> int:
        times = self.config.time_schedule
        if times is not None and not isinstance(times, str):
            return len(times) - 1
        sizes = GRIDS[times].sizes if times in GRIDS else ()
        return min(defaults.NFE, max(sizes)) if sizes else defaults.NFE

    def _first_index(self, timestep: float | Tensor) -> int:
        if self._begin_index is not None:
            index = self._begin_index
        else:
            gaps = (self.timesteps.cpu().double() - float(timestep)).abs()
            # A time that repeats is where one step of Heun's ends and the next begins: the run starts with the latter.
            index = len(gaps) - 1 - int(gaps.flip(0).argmin())
            if gaps[index] > 1e-3:
                raise ValueError(f"timestep {float(timestep):g} is none of {[round(t, 3) for t in self.plan.times]}")
        for later, step in enumerate(self.plan.steps[index:], 1):
            rows = [row for row in (step.advance, step.correct) if row is not None]
            if index and (max(len(row.c) for row in rows) > later or (step.correct is not None and later == 1)):
                raise ValueError(
                    f"this solver remembers earlier steps, a run cannot start at timestep {self.plan.times[index]:g}; "
                    "use lambda_min to start later, or a first-order algorithm"
                )
        return index


def _noise(like: Tensor, generator: Generators | None) -> Callable[[], Tensor]:
    if generator is None:
        return lambda: torch.randn(like.shape, dtype=like.dtype, device=like.device)
    return noise_source(like, generator, None)


class RestorationNetwork(ModelMixin, ConfigMixin):  # type: ignore[misc]
    """A network of this project as a diffusers model: chosen as in option files, saved with its configuration."""

    @register_to_config  # type: ignore[untyped-decorator]
    def __init__(self, which_model_G: str, setting: dict[str, Any], variant: str | None = None) -> None:
        super().__init__()
        from .networks import architecture, build

        self.network = build(architecture(which_model_G, setting, variant))

    @classmethod
    def from_pretrained(cls, *arguments: Any, **options: Any) -> Any:
        """Load what `save_pretrained` wrote; all arguments are diffusers'."""
        loaded = super().from_pretrained(*arguments, **options)
        if not isinstance(loaded, cls):
            return loaded
        # diffusers replaces our tensors by the file's, which lack their faster memory layout; copy the values instead.
        config = {name: value for name, value in loaded.config.items() if not name.startswith("_")}
        network = cls(**config)
        network.network.to(loaded.device, loaded.dtype)  # the module within, because diffusers' own `to` warns
        network.load_state_dict(loaded.state_dict())
        return network.eval()

    def forward(self, x: Tensor, mu: Tensor, t: float | Tensor, **contexts: Tensor | None) -> Tensor:
        """The prediction for the states x with the degraded images mu at the time t."""
        from .networks.predictor import predictor

        return predictor(self.network, **contexts)(x, mu, t)  # type: ignore[arg-type]


_MODULE = "mr_sampler.scheduler"
_LOADER = "mr_sampler_pipeline"
_LOADER_TEXT = f'''"""Needs the package: pip install 'mr-sampler[diffusers]'."""

from {_MODULE} import MeanRevertingPipeline

__all__ = ["MeanRevertingPipeline"]
'''


class MeanRevertingPipeline(DiffusionPipeline):  # type: ignore[misc]
    """Restores images with a network and a scheduler; `save_pretrained` and `from_pretrained` keep both."""

    def __init__(self, network: RestorationNetwork, scheduler: MRSamplerScheduler) -> None:
        super().__init__()
        self.register_modules(network=network, scheduler=scheduler)

    def save_config(self, save_directory: str | Path, push_to_hub: bool = False, **options: Any) -> None:
        """Write model_index.json, and a file of Python with which diffusers finds this class by itself.

        Both name the installed package, also where this is written from a clone of the project.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{_LOADER}.py").write_text(_LOADER_TEXT)
        super().save_config(save_directory, push_to_hub=push_to_hub, **options)

    def to_json_string(self) -> str:
        """The content of model_index.json."""
        index = json.loads(super().to_json_string())
        index["_class_name"] = [_LOADER, type(self).__name__]
        for name in ("network", "scheduler"):
            index[name][0] = _MODULE
        return json.dumps(index, indent=2) + "\n"

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> MeanRevertingPipeline:
        """Load what `save_pretrained` wrote, and run none of its files; `options` are those of diffusers' models."""
        shared = ("cache_dir", "force_download", "local_files_only", "revision", "token")
        path, options = pretrained_model_name_or_path, {"low_cpu_mem_usage": False, **options}
        scheduler = options.pop("scheduler", None) or MRSamplerScheduler.from_pretrained(
            path, subfolder="scheduler", **{key: value for key, value in options.items() if key in shared}
        )
        network = options.pop("network", None) or RestorationNetwork.from_pretrained(
            path, subfolder="network", **options
        )
        return cls(network, scheduler)

    @classmethod
    def from_checkpoint(cls, path: str | Path, **scheduler_options: Any) -> MeanRevertingPipeline:
        """A pipeline from a self-describing checkpoint; explicit scheduler options override its metadata."""
        from .networks.checkpoints import load_network, published_sde

        loaded, metadata = load_network(path)
        choice = metadata.architecture
        if choice.variant == "denoising":
            text = "networks of denoising-sde take no degraded image, and the scheduler has no such process"
            raise ValueError(f"{path}: {text}; use codes.load_restorer")
        network = RestorationNetwork(choice.which_model_G, dict(choice.setting), choice.variant)
        network.network.load_state_dict(loaded.state_dict())
        recorded: dict[str, Any] = {"fit_target": metadata.fit_target or "noise"}
        sde = metadata.sde or published_sde(choice)
        if sde is not None:
            names = ("max_sigma", "schedule", "eps", "convention")
            recorded |= {"num_train_timesteps": sde.T} | {name: getattr(sde, name) for name in names}
        return cls(network.eval(), MRSamplerScheduler(**(recorded | scheduler_options)))

    @torch.no_grad()
    def __call__(
        self,
        image: Any,
        num_inference_steps: int = defaults.NFE,
        generator: Generators | None = None,
        text_context: Tensor | None = None,
        image_context: Tensor | None = None,
        output_type: str = "pil",
        return_dict: bool = True,
        callback_on_step_end: Callable[[MeanRevertingPipeline, int, Tensor, dict[str, Tensor]], Any] | None = None,
    ) -> ImagePipelineOutput | tuple[Any]:
        """Restore a degraded image, or several of one size.

        image          a tensor (3, H, W) or (B, 3, H, W) in [0, 1], an array, a PIL image, or a list of them
        generator      one for the batch, or one per image: then a batch gives the same images as one by one
        text_context, image_context   (B, context_dim), for networks that take DA-CLIP's features
        output_type    'pil', 'np' (B, H, W, 3) in [0, 1], or 'pt' (B, 3, H, W)
        callback_on_step_end   called with (pipeline, step, timestep, {"x": state}) after each evaluation
        """
        from .networks.predictor import predictor

        mu = _batch(image).to(self.network.device, self.network.dtype)
        predict = predictor(self.network.network, text_context=text_context, image_context=image_context)
        self.scheduler.set_timesteps(num_inference_steps, self.network.device)
        x = self.scheduler.start(mu, generator)
        for i, t in enumerate(self.progress_bar(self.scheduler.timesteps)):
            y = predict(x.to(mu.dtype), mu, float(t))
            (x,) = self.scheduler.step(y, t, x, mu, generator, return_dict=False)
            if callback_on_step_end is not None:
                callback_on_step_end(self, i, t, {"x": x})
        images = _as_type(x.clamp(0, 1), output_type)
        return ImagePipelineOutput(images=images) if return_dict else (images,)


def _batch(image: Any) -> Tensor:
    if isinstance(image, Tensor) and image.ndim == 4:
        return image
    from .data.images import as_image

    return torch.stack([as_image(one) for one in (image if isinstance(image, list | tuple) else [image])])


def _as_type(images: Tensor, output_type: str) -> Any:
    if output_type == "pt":
        return images
    if output_type == "np":
        return np.ascontiguousarray(images.cpu().float().permute(0, 2, 3, 1).numpy())
    if output_type != "pil":
        raise ValueError(f"output_type: expected pil, np or pt, got {output_type!r}")
    from PIL import Image

    from .data.images import to_uint8

    return [Image.fromarray(to_uint8(one)) for one in images]
