"""Distillation: the trained network learns to restore in one or two evaluations as a frozen teacher does in many.

For a share of the samples the teacher runs a first-order solver from the prior. The trained network runs the ODE solver
of first order from the same prior in fewer evaluations, with gradients through the last of them, and the distance
between the two results is added to the loss.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..config import Options, OptionsError
from ..networks.checkpoints import CheckpointError, load_network
from ..restoration.loading import sde_settings
from ..runtime.paths import locate
from ..sde import MeanRevertingSDE
from ..solvers import NonFiniteError, Plan, Solver, make_plan
from ..solvers.sampling import State, advance
from .objective import Network
from .published import Loss, matching_loss


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """A frozen teacher, and how the trained network follows it.

    teacher_target, student_target   what each network predicts
    teacher_plans    the teacher's solvers, of which each sample draws one
    student_plans    the trained network's solvers, of fewer evaluations
    share, weight    of samples that are distilled, and of their distance to the teacher in the loss
    """

    teacher: nn.Module
    teacher_target: str
    student_target: str
    teacher_plans: tuple[Plan, ...]
    student_plans: tuple[Plan, ...]
    share: float
    weight: float
    loss: Loss

    def __call__(self, teacher: Network, student: Network, mu: Tensor, noise: Tensor, lots: Tensor) -> Tensor:
        """The distance to the teacher, averaged over all samples of the batch; 0 for those that are not distilled.

        Which samples are distilled, and by which plan, follows from their `lots` (B, 2), uniform in [0, 1).
        """
        rows = (lots[:, 0] < self.share).nonzero().flatten()
        if not len(rows):
            return mu.new_zeros(())
        drawn = (lots[:, 1] * len(self.teacher_plans)).long()
        wanted = torch.zeros_like(mu)
        try:
            for i, plan in enumerate(self.teacher_plans):
                part = rows[drawn[rows] == i]
                if len(part):
                    wanted[part] = restored(teacher, plan, self.teacher_target, mu, noise, rows=part)
            gaps = [
                matching_loss(
                    restored(student, plan, self.student_target, mu, noise, rows=rows, learn=True),
                    wanted[rows],
                    self.loss,
                )
                for plan in self.student_plans
            ]
        except NonFiniteError:
            return mu.new_full((), torch.nan)  # reported with the names of the images
        return self.weight * torch.stack(gaps).mean() * (len(rows) / len(mu))


def restored(
    network: Network, plan: Plan, target: str, mu: Tensor, noise: Tensor, *, rows: Tensor, learn: bool = False
) -> Tensor:
    """Restore some rows of a batch from the prior; with `learn`, gradients flow through the last evaluation."""
    mu, noise = mu[rows], noise[rows]
    draws = 0

    def draw() -> Tensor:  # for tau > 0: the sample's own noise, shifted, so that the result depends on nothing else
        nonlocal draws
        draws += 1
        return noise.roll((draws, draws), (-2, -1))

    start = mu + plan.start_sigma * noise
    state = State(start, before=start)
    for k, step in enumerate(plan.steps):
        learns = learn and k == plan.nfe - 1
        with torch.set_grad_enabled(learns):
            y = network(state.x, mu, torch.full((len(mu),), step.point.t, dtype=mu.dtype), rows)
            # Clipping would stop the gradient where a prediction leaves the range of images.
            used = replace(plan, clamp=None) if learns else plan
            state = advance(used, k, state, y=y.to(mu.dtype), mu=mu, target=target, draw=draw)
    return state.x


def make_distillation(
    options: Options, network: nn.Module, sde: MeanRevertingSDE, *, target: str, latent: bool
) -> Distillation:
    """Load the teacher and make the plans; raises OptionsError where the teacher does not fit."""
    distill, wanted = options.train.distill, options.network_G
    assert distill is not None
    own = (wanted.which_model_G, wanted.setting, wanted.variant) if distill.teacher is None else ()
    try:
        teacher, metadata = load_network(locate(distill.teacher or options.path.pretrain_model_G or ""), *own)
    except (CheckpointError, FileNotFoundError) as error:
        raise OptionsError(str(error)) from error
    problem = ""
    if _inputs(teacher) != _inputs(network):
        problem = f"{metadata.architecture} takes other inputs than the trained network"
    elif metadata.sde is not None and metadata.sde != sde_settings(sde):
        problem = f"trained with another schedule: {metadata.sde}, not {sde_settings(sde)}"
    if problem:
        raise options.error(("train", "distill", "teacher"), problem)

    def plans(counts: tuple[int, ...], tau: float) -> tuple[Plan, ...]:
        solvers = (Solver("mrsampler", n, order=1, tau=tau, clamp=not latent) for n in counts)
        return tuple(make_plan(sde, solver) for solver in solvers)

    return Distillation(
        teacher=teacher.to(next(network.parameters()).device).requires_grad_(False).eval(),
        teacher_target=metadata.fit_target or target,
        student_target=target,
        teacher_plans=plans(distill.teacher_steps, distill.tau),
        student_plans=plans(distill.student_steps, 0.0),
        share=distill.share,
        weight=distill.weight,
        loss=options.train.loss_type,
    )


def _inputs(network: nn.Module) -> tuple[bool, ...]:
    names = ("takes_mu", "takes_text_context", "takes_image_context")
    return tuple(bool(getattr(network, name, name == "takes_mu")) for name in names)
