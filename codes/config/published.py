"""What the published code runs where a published option file names no sampler.

There the sampler belongs to the code of a task's folder, not to its file: Euler-Maruyama on the reverse SDE with all T
steps; for denoising the probability-flow ODE of the denoising process. DA-CLIP's and MR Sampler's files name theirs.
"""

from .schema import Options

_PUBLISHED_NETWORKS = ("ConditionalUNet", "ConditionalNAFNet")


def as_published(options: Options) -> tuple[Options, tuple[str, ...]]:
    """The options with the published sampler where they name none, and a line that says so."""
    if not _silent(options):
        return options, ()
    denoising = options.variant == "denoising"
    sampler = options.sampler
    if denoising and sampler.num_sample_steps is None:
        sampler = sampler.model_copy(update={"compat": "official"})
    sde = options.sde.model_copy(update={"algorithm": "ode" if denoising else "sde"})
    options = options.model_copy(update={"sde": sde, "sampler": sampler})
    [(_, chosen), *_] = options.solvers()
    note = f"sde.algorithm: not given, taking what the published code runs: {chosen['algorithm']}"
    return options, (f"{note}, {chosen['num_sample_steps']} evaluations",)


def _silent(options: Options) -> bool:
    """Whether this is a published file without a sampler; all of those give `model` and `network_G`."""
    return (
        "model" in options.model_fields_set
        and options.model != "latent"
        and options.network_G.which_model_G in _PUBLISHED_NETWORKS
        and not options.takes_contexts
        and options.sde.algorithm is None
        and options.sampler.model_fields_set <= {"num_sample_steps", "fit_target"}
    )
