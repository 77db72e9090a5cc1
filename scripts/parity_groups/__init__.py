"""Recomputes what the published code computes and compares: one file per group of reference data.

A group is a function `cases(reference: Path) -> Iterator[Case]`.
"""

from . import denoising, metrics, networks, schedules, timesteps, training, trajectories

GROUPS = {
    "schedules": schedules.cases,
    "timesteps": timesteps.cases,
    "trajectories": trajectories.cases,
    "denoising": denoising.cases,
    "training": training.cases,
    "metrics": metrics.cases,
    "networks": networks.cases,
}
