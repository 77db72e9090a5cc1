"""Options of a training: the sections `train`, `train.distill` and `logger`."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import Field

from ..defaults import MOST_EVALUATIONS
from .kinds import Count, Ignored, Integer, Number, Positive, PositiveNumber, Share, Text, Unset, Weight
from .section import Section
from .words import TaskName


class DistillOptions(Section):
    teacher: Annotated[
        Text | None,
        Unset("the weights that the training begins with, `path.pretrain_model_G`"),
    ] = Field(None, description="weights of the frozen network whose restorations are imitated")
    teacher_steps: Annotated[tuple[Annotated[Integer, Ge(1), Le(MOST_EVALUATIONS)], ...], MinLen(1)] = Field(
        (8, 16),
        description="network evaluations of the teacher per restoration; each sample draws one of these numbers",
    )
    tau: Share = Field(0.0, description="stochasticity of the teacher's solver (first order), from 0 (ODE) to 1 (SDE)")
    student_steps: Annotated[tuple[Annotated[Integer, Ge(1), Le(MOST_EVALUATIONS)], ...], MinLen(1)] = Field(
        (1, 2),
        description="numbers of network evaluations in which the trained network learns to restore as the teacher "
        "does; gradients flow through the last evaluation of each",
    )
    weight: Weight = Field(
        1.0,
        description="weight of the distance between the trained network's and the teacher's restorations in the loss",
    )
    share: Share = Field(
        0.5, description="share of samples that the teacher restores; the others have the usual loss only"
    )


class TrainOptions(Section):
    niter: Positive = Field(700000, description="number of training steps")
    optimizer: Literal["Adam", "AdamW", "Lion", "Muon"] = Field("AdamW", description="the optimiser")
    lr_G: PositiveNumber = Field(2e-4, description="learning rate")
    lr_scheme: Literal["TrueCosineAnnealingLR", "MultiStepLR", "ConstantLinearLR"] = Field(
        "TrueCosineAnnealingLR",
        description="how the learning rate falls: along a cosine to `eta_min`; by half at each of `lr_steps`; or, with "
        "`ConstantLinearLR`, linearly to `eta_min` in the last `decay_iter` steps",
    )
    eta_min: Weight = Field(1e-6, description="final learning rate of TrueCosineAnnealingLR and ConstantLinearLR")
    decay_iter: Annotated[Positive | None, Unset("a fifth of `niter`")] = Field(
        None,
        description="number of steps in which ConstantLinearLR lowers the learning rate, at the end of the training",
    )
    lr_steps: tuple[Positive, ...] = Field((), description="steps after which MultiStepLR halves the learning rate")
    lr_gamma: Annotated[
        Annotated[Number, Gt(0), Le(1)], Ignored("the published code always halves the learning rate")
    ] = Field(0.5, description="factor by which MultiStepLR lowers the learning rate")
    beta1: Annotated[Number, Ge(0), Lt(1)] = Field(
        0.9, description="decay of the optimiser's running mean of gradients (Muon: for weights that are not matrices)"
    )
    beta2: Annotated[Number, Ge(0), Lt(1)] = Field(
        0.99, description="decay of the optimiser's running mean of squared gradients (Lion: of its momentum)"
    )
    weight_decay_G: Weight = Field(0.0, description="weight decay of the optimiser")
    warmup_iter: Literal[-1] | Count = Field(
        -1, description="number of first steps in which the learning rate rises from 0; -1: none"
    )
    loss_type: Literal["l1", "l2", "rms"] = Field(
        "l1",
        description="the loss: mean absolute error, mean square error, or the root mean square error of each image, "
        "averaged over the images",
    )
    weight: Weight = Field(
        1.0, description="factor of the loss of restoring; 0 trains nothing but the recognition of degradations"
    )
    is_weighted: Annotated[bool | None, Ignored("it has no effect in the published code either")] = Field(
        None, description="whether the loss is weighted"
    )
    target: Literal["published", "noise", "data", "velocity"] = Field(
        "published",
        description="what the network learns to predict; `published` matches the optimal reverse step, which makes a "
        "noise predictor, the others match the prediction itself. Recorded in the checkpoints",
    )
    time_weighting: Literal["none", "noise", "data", "velocity"] = Field(
        "none",
        description="weight the loss over t as if errors were measured in this prediction (weights of at most 10), for "
        "targets other than `published`; `none`: all times count the same",
    )
    mean_weight: Share = Field(
        1.0,
        description="weight of the mean error of a patch, against 1 for the rest of its error, for targets other than "
        "`published`; below 1 a network for many tasks learns detail sooner",
    )
    perceptual_weight: Weight = Field(
        0.0,
        description="weight of LPIPS between the predicted and the true clean image in the loss. It makes results "
        "sharper than the posterior mean that the rest of the loss leads to; LPIPS is then no independent metric any "
        "more",
    )
    recognition_weight: Weight = Field(
        0.0,
        description="weight of recognising the degradation (cross entropy) in the loss, for networks that do, such as "
        "CodedNAFNet; needs `datasets.train.varied`",
    )
    time_distribution: Literal["uniform", "late", "lambda"] = Field(
        "uniform",
        description="how training times t are drawn from 1..T: `late`: in proportion to t; `lambda`: uniformly in the "
        "log signal-to-noise ratio",
    )
    prior_share: Share = Field(
        0.0,
        description="share of samples at t = T whose state is exactly the prior, mu + sigma_inf z. Other states at T "
        "hold 0.5% of the clean image, enough to reveal changes of the whole image (low light, haze, shadow); a small "
        "network reads them there instead of in mu, and then fails when it samples",
    )
    own_share: Share = Field(
        0.0,
        description="share of training states built from the model's own estimate at a later time (nine tenths) or "
        "from the degraded image (a tenth) instead of the clean image, against exposure bias: a network that has "
        "seen states of clean images only takes its own errors for the truth",
    )
    task_weights: Annotated[dict[TaskName, PositiveNumber], Unset("1 each")] = Field(
        {}, description="how often tasks are drawn, relative to each other; tasks that are not named have weight 1"
    )
    clip_grad: Annotated[PositiveNumber | None, Unset("off")] = Field(
        None, description="largest norm of the gradient; longer gradients are scaled down"
    )
    accumulate: Positive = Field(
        1, description="number of parts in which a batch is processed one after the other, to save memory"
    )
    val_freq: Positive = Field(5000, description="steps between validations")
    distill: Annotated[DistillOptions | None, Unset("off")] = Field(
        None,
        description="distillation: part of the samples are restored from the prior by a frozen teacher in many network "
        "evaluations, and the trained network learns to restore the same image in one or two",
    )


class LoggerOptions(Section):
    print_freq: Positive = Field(100, description="training steps between lines of log.jsonl")
    save_checkpoint_freq: Positive = Field(10000, description="training steps between checkpoints")
