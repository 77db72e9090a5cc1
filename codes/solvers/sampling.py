"""The one sampling loop."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..names import PREDICTIONS, check_choice
from ..prediction import convert
from ..sde import MeanRevertingSDE
from .options import Solver, Threshold
from .plan import Plan
from .registry import make_plan

# network(x, mu, t): the prediction for the states x, with the degraded images mu, at the time t; see `sample` for t.
Network = Callable[[Tensor, Tensor, Any], Tensor]
Noise = Sequence[Tensor] | Tensor

MU_RANGE = (-0.5, 1.5)  # images are in [0, 1]; resizing and noise overshoot a little


class NonFiniteError(ArithmeticError):
    """The state became NaN or infinite; `step` counts from 1, `images` are positions in the batch."""

    def __init__(self, step: int, steps: int, t: float, images: tuple[int, ...]) -> None:
        self.step, self.t, self.images = step, t, images
        which = ", ".join(map(str, images))
        super().__init__(
            f"the state is not finite after step {step} of {steps} (network evaluated at t = {t:g}), "
            f"image {which} of the batch"
        )


@dataclass(frozen=True, kw_only=True)
class StepInfo:
    """What a callback receives after each step."""

    step: int  # from 1
    steps: int
    t: float  # where the network was evaluated
    x: Tensor  # the state after the step
    prediction: Tensor  # the newest prediction, in the plan's parameterization


@dataclass(frozen=True, kw_only=True)
class SampleOutput:
    """A restored batch and how it was computed."""

    sample: Tensor
    nfe: int  # network calls, counted
    times: tuple[float, ...]  # of the network calls
    states: tuple[Tensor, ...] = ()  # with return_trajectory: the start and the state after each step
    predictions: tuple[Tensor, ...] = ()  # with return_trajectory: in the plan's parameterization


@torch.no_grad()
def sample(
    network: Network,
    sde: MeanRevertingSDE,
    mu: Tensor,
    solver: Solver | Plan,
    *,
    fit_target: str | None = None,
    generator: torch.Generator | Sequence[torch.Generator] | None = None,
    noise: Noise | None = None,
    x_init: Tensor | None = None,
    callback: Callable[[StepInfo], None] | None = None,
    return_trajectory: bool = False,
    mu_range: tuple[float, float] | None = MU_RANGE,
) -> SampleOutput:
    """Restore the images `mu` (B, ...) by running the reverse process with any network.

    network      any callable (x, mu, t) -> prediction of the kind `fit_target`, such as a torch module. x and mu are
                 (B, ...) in mu's dtype; t is the time in [0, T], the same for all images, as a tensor (B,) of mu's
                 dtype and device. A network with an attribute `takes_scalar_time = True` gets t as one Python float,
                 in full precision whatever mu's dtype.
    mu           degraded images in [0, 1]
    solver       a `Solver`, or a plan made from one by `make_plan`
    fit_target   'noise', 'data', 'velocity' or 'score'; by default the solver's
    generator    one for the batch, or one per image: then a batch gives the same images as one by one
    noise        recorded noise instead: the k-th tensor is the k-th draw (the first is the start, if x_init is None)
    x_init       the start state, by default mu + sigma_inf z (of a `DenoisingSDE`: mu, the noisy image)
    callback     called after each step
    mu_range     least and greatest value that mu may have; None for latents and other data without a range

    dtype and device are those of mu. States and conversions are in float32 or better, even if mu and the network are in
    half precision: near t = T a prediction is divided by alpha = 0.005. The sample is not clipped.

    A network that knows the clean image leads there, up to the noise of 0.002 that DA-CLIP's process keeps at t = 0:

    >>> def network(x, mu, t):
    ...     return mu + 0.25
    >>> mu, rng = torch.full((1, 3, 8, 8), 0.5), torch.Generator().manual_seed(0)
    >>> out = sample(network, MeanRevertingSDE(), mu, Solver("posterior", 4), fit_target="data", generator=rng)
    >>> out.nfe, bool((out.sample - 0.75).abs().max() < 0.02)
    (4, True)
    """
    plan = solver if isinstance(solver, Plan) else make_plan(sde, solver)
    if plan.sde is not sde and replace(plan.sde, interpolation=sde.interpolation) != sde:
        raise ValueError(f"the plan was made for another schedule: {plan.sde}, not {sde}")
    target = fit_target or (solver.fit_target if isinstance(solver, Solver) else None)
    if target is None:
        raise ValueError(f"fit_target is missing: say what the network predicts (choices: {', '.join(PREDICTIONS)})")
    check_choice("fit_target", target, PREDICTIONS)
    if target == "velocity" and not sde.reverts:
        raise ValueError("fit_target 'velocity' needs a process with mean reversion: it is undefined for denoising")
    _check_mu(mu, mu_range)
    dtype = torch.promote_types(mu.dtype, torch.float32)
    mean = mu.to(dtype)
    draw = noise_source(mean, generator, noise)

    if x_init is None:
        x = mean + plan.start_sigma * draw() if plan.start_sigma else mean
    else:
        _check_like("x_init", x_init, mu)
        x = x_init.to(dtype)
    states, predictions = [x], []
    nfe, state = 0, State(x, before=x)
    scalar_time = getattr(network, "takes_scalar_time", False)
    for i, step in enumerate(plan.steps, start=1):
        t = step.point.t if scalar_time else mu.new_full((len(mu),), step.point.t)
        y = network(state.x.to(mu.dtype), mu, t)
        nfe += 1
        _check_like("the network's prediction", y, mu)
        state = advance(plan, i - 1, state, y.to(dtype), mean, target, draw)
        if return_trajectory:
            states.append(state.x)
            predictions.append(state.history[0])
        if callback is not None:
            callback(StepInfo(step=i, steps=plan.nfe, t=step.point.t, x=state.x, prediction=state.history[0]))
    return SampleOutput(
        sample=state.x.to(mu.dtype),
        nfe=nfe,
        times=plan.times,
        states=tuple(states) if return_trajectory else (),
        predictions=tuple(predictions) if return_trajectory else (),
    )


@dataclass(frozen=True)
class State:
    """The state x of a run, and what the next steps need of earlier ones."""

    x: Tensor
    history: tuple[Tensor, ...] = ()  # predictions in the plan's parameterization, the newest first
    before: Tensor | None = None  # x one step earlier
    z: Tensor | None = None  # the noise of that step


def advance(
    plan: Plan, index: int, state: State, y: Tensor, mu: Tensor, target: str, draw: Callable[[], Tensor]
) -> State:
    """The step of a plan that follows the network's prediction y, of kind `target`, for state.x."""
    step, x, z = plan.steps[index], state.x, state.z
    m = convert(y, x, mu, step.point, source=target, target=plan.parameterization, sigma_inf=plan.sde.sigma_inf)
    if plan.threshold is not None:
        m = _threshold(m, plan.threshold)
    if plan.clamp is not None:
        m = m.clamp(*plan.clamp)
    history = (m, *state.history)[: plan.depth]
    before = state.before
    if step.correct is not None:
        assert before is not None
        fresh = draw() if step.correct.d else None
        x = step.correct(before, mu, history, fresh, z)
    if step.advance is not None:
        before = x
        z_prev, z = z, draw() if step.advance.d else None
        x = step.advance(x, mu, history, z, z_prev)
    if not torch.isfinite(x.sum()):
        _raise_if_not_finite(x, index + 1, plan.nfe, step.point.t)
    return State(x, history, before, z)


def noise_source(
    like: Tensor, generator: torch.Generator | Sequence[torch.Generator] | None, noise: Noise | None
) -> Callable[[], Tensor]:
    """A function that gives the next standard normal tensor shaped like `like`."""
    if noise is not None:
        if generator is not None:
            raise ValueError("give generator or noise, not both")
        recorded: Iterator[Tensor] = iter(noise)

        def replay() -> Tensor:
            z = next(recorded, None)
            if z is None:
                raise ValueError(f"the recorded noise has {len(noise)} draws, the run needs more")
            _check_like("recorded noise", z, like)
            return z.to(like.dtype)

        return replay
    if generator is None:

        def refuse() -> Tensor:
            raise ValueError("this run draws noise: give a generator (or one per image), or recorded noise")

        return refuse
    # The noise is drawn where the generator lives, so that a CPU generator gives the same images on every device.
    if isinstance(generator, torch.Generator):
        single = generator
        return lambda: torch.randn(like.shape, generator=single, device=single.device, dtype=like.dtype).to(like.device)
    generators = list(generator)
    if len(generators) != len(like):
        raise ValueError(f"one generator per image: expected {len(like)}, got {len(generators)}")
    return lambda: torch.stack(
        [torch.randn(like.shape[1:], generator=g, device=g.device, dtype=like.dtype) for g in generators]
    ).to(like.device)


def _check_mu(mu: Tensor, mu_range: tuple[float, float] | None) -> None:
    if not mu.is_floating_point():
        raise ValueError(f"mu must be a floating-point image in [0, 1], got dtype {mu.dtype}")
    if not mu.numel():
        raise ValueError(f"mu must be a batch of images, got an empty tensor of shape {tuple(mu.shape)}")
    low, high = (float(end) for end in mu.aminmax())
    least, greatest = mu_range or (-math.inf, math.inf)
    if not (least <= low and high <= greatest):  # NaN fails too
        expected, hint = ("images in [0, 1]", " (mu_range=None allows any)") if mu_range else ("free of NaN", "")
        raise ValueError(f"mu must be {expected}, got values from {low:g} to {high:g}{hint}")


def _check_like(name: str, tensor: Tensor, like: Tensor) -> None:
    if tensor.shape != like.shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, mu has {tuple(like.shape)}")
    if tensor.device != like.device:
        raise ValueError(f"{name} is on {tensor.device}, mu is on {like.device}")


def _raise_if_not_finite(x: Tensor, step: int, steps: int, t: float) -> None:
    bad = ~torch.isfinite(x).flatten(1).all(dim=1)
    if bad.any():  # otherwise only the sum overflowed
        raise NonFiniteError(step, steps, t, tuple(bad.nonzero().flatten().tolist()))


def _threshold(m: Tensor, threshold: Threshold) -> Tensor:
    """Dynamic thresholding (Saharia et al. 2022): clip to the quantile of the magnitude and scale back to the range."""
    u = m if threshold.published else 2 * m - 1
    size = u.abs().flatten(1)
    # torch.quantile refuses more than 16 million elements.
    position = threshold.ratio * (size.shape[1] - 1)
    low = int(position)
    quantile = size.kthvalue(low + 1, dim=1).values
    if low + 1 < size.shape[1]:
        quantile = torch.lerp(quantile, size.kthvalue(low + 2, dim=1).values, position - low)
    bound = quantile.clamp(1, threshold.maximum).view(-1, *[1] * (m.ndim - 1))
    u = u.clamp(-bound, bound) / bound
    return u if threshold.published else (u + 1) / 2
