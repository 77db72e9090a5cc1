"""Option files: sweeps, and the schedule and solvers that options stand for."""

from dataclasses import MISSING, fields
from typing import get_args

import pytest

from codes.config import build_sde, build_solvers, check_against_checkpoint, check_context_dim
from codes.config.kinds import choices
from codes.config.solver_options import Algorithm, SolverOptions, Variant
from codes.solvers import GRIDS, SOLVERS, Solver

from .option_files import BASE, DACLIP, message

METADATA = {
    "which_model_G": "ConditionalNAFNet",
    "variant": "refusion",
    "setting": {"width": 64, "enc_blk_nums": [1, 1, 1, 28]},
    "fit_target": "noise",
    "sde": {"max_sigma": 50, "T": 100, "schedule": "cosine", "eps": 0.005, "convention": "irsde"},
}


SWEEPS = [
    ("", ["mrsampler-nfe8"]),
    ("sde: {algorithm: posterior}", ["posterior-nfe100"]),
    ("sde: {algorithm: posterior, T: 1000, sample_T: -1}", ["posterior-nfe1000"]),
    ("sde: {algorithm: [sde, mrsampler], sample_T: 25}", ["sde-nfe25", "mrsampler-nfe25"]),
    ("sde: {algorithm: posterior}\nsampler: {compat: official}", ["posterior-official-nfe100"]),
    ("sampler: {num_sample_steps: [5, 10, 5]}", ["mrsampler-nfe5", "mrsampler-nfe10"]),
    (
        "sde: {algorithm: [posterior, mrsampler]}\nsampler: {num_sample_steps: [5, 10]}",
        ["posterior-nfe5", "posterior-nfe10", "mrsampler-nfe5", "mrsampler-nfe10"],
    ),
    # order does nothing for posterior sampling
    (
        "sde: {algorithm: [posterior, mrsampler]}\nsampler: {num_sample_steps: 5, order: [1, 2]}",
        ["posterior-nfe5", "mrsampler-order1-nfe5", "mrsampler-order2-nfe5"],
    ),
    (
        "sde: {algorithm: mrsampler-pc}\nsampler: {tau: [0, 0.25], mode: [sample, mmse]}",
        [
            "mrsampler-pc-tau0-mode-default-nfe8",
            "mrsampler-pc-tau0-mmse-nfe8",
            "mrsampler-pc-tau0.25-mode-default-nfe8",
            "mrsampler-pc-tau0.25-mmse-nfe8",
        ],
    ),
    (
        "sampler: {clamp: [true, false, [-1, 2]]}",
        ["mrsampler-clamp-nfe8", "mrsampler-no-clamp-nfe8", "mrsampler-clamp-1to2-nfe8"],
    ),
    (
        "sde: {algorithm: mrsampler}\nsampler: {compat: [null, official], num_sample_steps: 5}",
        ["mrsampler-nfe5", "mrsampler-official-nfe5"],
    ),
    (
        "sampler: {num_sample_steps: 2, time_schedule: [[100, 50, 0], [100, 30, 0]]}",
        ["mrsampler-times-nfe2", "mrsampler-times-nfe2-2"],
    ),
    (
        "sampler: {variants: {pc: {algorithm: mrsampler-pc, tau: 0.3}, paper: {algorithm: mrsampler, order: 2, "
        "compat: official}}, num_sample_steps: [5, 10]}",
        ["pc-nfe5", "pc-nfe10", "paper-nfe5", "paper-nfe10"],
    ),
    (
        "sampler: {num_sample_steps: 5, variants: {a: {algorithm: [posterior, mrsampler-pc]}, A: {lambda_min: null}}}",
        ["a-posterior-nfe5", "a-mrsampler-pc-nfe5", "A-nfe5"],
    ),
    ("sampler: {variants: {a: {tau: 0.5}, A: {tau: 1}}}", ["a-nfe8", "A-nfe8-2"]),
    ("sampler: {variants: {a: {tau: 0.5}, b: {tau: 0.5}}}", ["a-nfe8"]),
]


@pytest.mark.parametrize(("text", "labels"), SWEEPS, ids=[labels[0] for _, labels in SWEEPS])
def test_sweeps_are_labelled_by_what_differs(load, text, labels):
    options = load(BASE + text)
    assert [label for label, _ in options.solvers()] == labels
    solvers = [str(sorted(arguments.items())) for _, arguments in options.solvers()]
    assert len(set(solvers)) == len(labels)


def test_variants_come_on_top_of_the_common_options(load):
    options = load(
        BASE + "sde: {algorithm: mrsampler}\n"
        "sampler: {order: 1, rho: 7, num_sample_steps: 5, variants: {a: {order: null}, b: {order: 3}, c: {}}}"
    )
    common = {"algorithm": "mrsampler", "num_sample_steps": 5}
    assert options.solvers() == [
        ("a-nfe5", common),
        ("b-nfe5", {**common, "order": 3}),
        ("c-nfe5", {**common, "order": 1}),
    ]
    assert [solver.order for _, solver, _ in build_solvers(options, build_sde(options))] == [None, 3, 1]


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("sampler: {order: 1, clamp: true}", []),
        ("sde: {algorithm: posterior}\nsampler: {order: 3}", ["sampler.order: ignored, posterior does not use it"]),
        (
            "sde: {algorithm: [posterior, mrsampler-pc]}\nsampler: {order: 3}",
            ["sampler.order: ignored, posterior does not use it (mrsampler-pc does)"],
        ),
        (
            "sde: {algorithm: [sde, heun, posterior, mrsampler]}\nsampler: {clamp: true}",
            ["sampler.clamp: ignored, sde, heun do not use it (posterior, mrsampler do)"],
        ),
        (
            "sde: {algorithm: mrsampler}\nsampler: {order: 2, tau: 0.5, variants: {a: {algorithm: sde, order: 1}, "
            "b: {algorithm: mrsampler-pc, order: null}}}",
            [
                "sde.algorithm: ignored, every variant sets its own",
                "sampler.order: ignored, every variant sets its own",
                "sampler.tau: ignored, sde does not use it (mrsampler-pc does)",
            ],
        ),
        ("sampler: {rho: 5}", ["sampler.rho: ignored, only time_schedule karras-n, karras-t uses it"]),
        ("sampler: {rho: 5, time_schedule: [linspace, karras-t]}", []),
        ("sampler: {threshold_max: 2}", ["sampler.threshold_max: ignored, only thresholding true uses it"]),
        ("sampler: {timestep_offset: 1, time_schedule: leading}", []),
    ],
)
def test_keys_of_the_solver_without_effect_are_told_and_stop_nothing(load, text, notes):
    options = load(BASE + text)
    assert options.ignored == notes
    build_solvers(options, build_sde(options))


def test_what_a_variant_sets_itself_must_have_a_meaning(load, tmp_path):
    options = load(BASE + "sampler: {variants: {x: {algorithm: sde, clamp: true}}}")
    assert message(build_solvers, options, build_sde(options)) == (
        f"{tmp_path}/run.yml: sampler.variants.x.clamp: option clamp has no meaning for algorithm 'sde' (x-nfe100)"
    )


def test_every_solver_option_is_here_with_the_same_default():
    theirs = {field.name: field.default for field in fields(Solver) if field.default is not MISSING}
    ours = {key: field.default for key, field in SolverOptions.model_fields.items()}
    assert theirs | {"num_sample_steps": None} == ours
    assert get_args(Algorithm) == tuple(SOLVERS)
    assert set(choices(SolverOptions.model_fields["time_schedule"].annotation)) == set(GRIDS)
    assert set(Variant.model_fields) == {field.name for field in fields(Solver)}


@pytest.mark.parametrize("algorithm", [name for name, row in SOLVERS.items() if row.unused])
@pytest.mark.parametrize("compat", [None, "official"])
def test_options_left_out_for_an_algorithm_do_nothing_there(algorithm, compat):
    from codes import MeanRevertingSDE, make_plan

    values = {"order": 3, "solver_type": "ode", "parameterization": "noise"}
    given = {key: values[key] for key in SOLVERS[algorithm].unused}
    plain = make_plan(MeanRevertingSDE(), Solver(algorithm, 10, compat=compat))
    assert make_plan(MeanRevertingSDE(), Solver(algorithm, 10, compat=compat, **given)) == plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "sde: {algorithm: mrsampler}\nsampler: {num_sample_steps: [1, 5]}",
            "sampler.order: order 2 needs num_sample_steps of at least 2, got 1 (mrsampler-nfe1)",
        ),
        (
            "sde: {algorithm: posterior}\nsampler: {compat: official, num_sample_steps: 200}",
            "sampler.num_sample_steps: num_sample_steps is at most T = 100 with compat 'official', got 200 "
            "(posterior-official-nfe200)",
        ),
        (
            "sde: {convention: daclip}\nsampler: {variants: {x: {algorithm: mrsampler, compat: official, tau: 1}}}",
            "sampler.variants.x.tau: option tau is not part of the published code: drop it or compat 'official' "
            "(x-nfe8)",
        ),
        (
            "sampler: {solver_type: ode, tau: 1, num_sample_steps: [5, 6]}",
            "sampler.solver_type: solver_type 'ode' means tau 0.0, got tau 1.0 (mrsampler-nfe5, mrsampler-nfe6)",
        ),
        (
            "sampler: {time_schedule: [100, 50, 0]}",
            "sampler.time_schedule: time_schedule: 8 steps need 9 times, got 3 (mrsampler-nfe8)",
        ),
    ],
)
def test_what_solvers_refuse_names_the_key(load, tmp_path, text, expected):
    options = load(BASE + text)
    assert message(build_solvers, options, build_sde(options)) == f"{tmp_path}/run.yml: {expected}"


def test_schedule_is_the_files_else_the_checkpoints_else_daclips(load):
    recorded = {"sde": {"max_sigma": 30, "T": 1000, "schedule": "linear", "eps": 0.01, "convention": "irsde"}}
    sde = build_sde(load(BASE + "sde: {T: 200, convention: daclip}"), recorded)
    assert (sde.max_sigma, sde.T, sde.schedule, sde.eps, sde.convention) == (30, 200, "linear", 0.01, "daclip")
    sde = build_sde(load(BASE))
    assert (sde.max_sigma, sde.T, sde.schedule, sde.eps, sde.convention) == (50, 100, "cosine", 0.005, "irsde")
    assert build_sde(load(DACLIP + "path: {daclip: d.pt}")).convention == "daclip"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sde: {T: 1000}", "sde.T: 1000 contradicts the checkpoint, which was trained with 100"),
        ("sde: {max_sigma: 10}", "sde.max_sigma: 10.0 contradicts the checkpoint, which was trained with 50"),
        (
            "sde: {schedule: linear}",
            "sde.schedule: 'linear' contradicts the checkpoint, which was trained with 'cosine'",
        ),
        ("sde: {eps: 0.01}", "sde.eps: 0.01 contradicts the checkpoint, which was trained with 0.005"),
        (
            "sde: {convention: daclip}",
            "sde.convention: 'daclip' contradicts the checkpoint, which was trained with 'irsde'",
        ),
        (
            "sampler: {fit_target: [noise, data]}",
            "sampler.fit_target: 'data' contradicts the checkpoint, which was trained with 'noise'",
        ),
        (
            "sampler: {variants: {a: {fit_target: data}}}",
            "sampler.variants.a.fit_target: 'data' contradicts the checkpoint, which was trained with 'noise'",
        ),
    ],
)
def test_contradictions_to_the_checkpoint_are_told(load, tmp_path, text, expected):
    options = load(BASE + text)
    assert message(check_against_checkpoint, options, METADATA) == f"{tmp_path}/run.yml: {expected}"
    check_against_checkpoint(options, {"which_model_G": "ConditionalNAFNet", "sde": None, "fit_target": None})


def test_network_contradictions_to_the_checkpoint_are_told(load, tmp_path):
    setting = "{width: 32, enc_blk_nums: [1, 1, 1, 28]}"
    text = f"datasets: {{t: {{root: d}}}}\nnetwork_G: {{which_model_G: CodedNAFNet, setting: {setting}}}"
    assert message(check_against_checkpoint, load(text), METADATA).splitlines() == [
        f"{tmp_path}/run.yml: network_G.which_model_G: 'CodedNAFNet' contradicts the checkpoint, which was "
        "trained with 'ConditionalNAFNet'",
        f"{tmp_path}/run.yml: network_G.setting.width: 32 contradicts the checkpoint, which was trained with 64",
    ]


def test_agreement_with_the_checkpoint_is_silent(load):
    same = "sde: {T: 100, max_sigma: 0.19607843137, schedule: cosine, eps: 5e-3}\nsampler: {fit_target: noise}"
    check_against_checkpoint(load(BASE + same), METADATA)
    check_against_checkpoint(load(BASE), METADATA | {"sde": {"max_sigma": 10, "T": 1000}})


def test_width_of_daclip_must_be_that_of_the_network(load, tmp_path):
    options = load(DACLIP + "path: {daclip: my.pt}")
    check_context_dim(options, 512)
    assert message(check_context_dim, options, 768) == (
        f"{tmp_path}/run.yml: network_G.setting.context_dim: 512 contradicts my.pt: "
        "ViT-L-14 has embeddings of width 768"
    )
