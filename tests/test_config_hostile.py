"""Hostile option files: every one is used or refused, with a line for each problem, at once.

Names from a file are never paths (E1, E2), aliases do not multiply (H1), numbers have limits (H2), and what crashed
before has a test of its own (C9). The last tests mutate valid files at random; `make fuzz` draws many more.
"""

import copy
import json
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from codes.commands.test import main as run_test
from codes.config import OptionsError, load_options, load_stages
from codes.config.kinds import describe
from codes.config.reference import schema_markdown
from codes.config.schema import Options
from codes.runtime.paths import PROJECT, looked

from .evaluation import write_images, write_weights
from .option_files import BASE, NETWORK, PUBLISHED, ROOT, message

SECONDS = 2.0  # of the processor, for one file

# ---- names are not paths


@pytest.mark.parametrize("name", ["../../../X", "/abs/X", "a/b", ".", "..", "", "x" * 300, "a\nb", "a\\b", "-x"])
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("datasets.t.name", "datasets: {t: {root: d, name: NAME}}\n" + NETWORK),
        ("datasets.", "datasets: {NAME: {root: d}}\n" + NETWORK),
        ("name", BASE + "name: NAME"),
        ("sampler.variants.", BASE + "sampler: {variants: {NAME: {order: 1}}}"),
    ],
    ids=["name of a dataset", "dataset", "run", "variant"],
)
def test_names_are_single_components(name, key, text, load, tmp_path):
    found = message(load, text.replace("NAME", json.dumps(name)))
    assert found.startswith(f"{tmp_path}/run.yml: {key}") and len(found.splitlines()) == 1
    assert "expected a name of letters, digits" in found


@pytest.mark.parametrize("name", ["../x", "/abs", "..", "a/b"])
def test_names_of_staged_runs_are_single_components(name, tmp_path):
    """They become a part of `results`, which may be any path."""
    file = tmp_path / "run.yml"
    file.write_text(BASE + json.dumps({"name": name, "stages": {"a": {"train.niter": 1}}})[1:-1].replace(', "', '\n"'))
    assert "name: expected a name of letters" in message(load_stages, file)
    file.write_text(BASE + json.dumps({"stages": {name: {"train.niter": 1}}})[1:-1])
    assert f"stages.{name}: expected a name of letters" in message(load_stages, file)


def test_a_file_called_dots_names_no_folder(tmp_path):
    """Its stem is '..', the parent of the results folder."""
    file = tmp_path / "...yml"
    file.write_text(BASE)
    assert message(load_options, file).startswith(f"{file}: name: missing, and the file's own name '..' is not a name")
    assert load_options(file, ["name=run"]).run_name == "run"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\0b", "expected a path without control characters, got 'a\\x00b'"),
        ("a\nb", "expected a path without control characters, got 'a\\nb'"),
        ("x" * 300, "a part of the path is 300 bytes long, at most 255 are possible"),
        ("x/" * 3000, "expected a path of at most 3000 bytes"),
    ],
)
@pytest.mark.parametrize("key", ["results", "datasets.t.root", "path.pretrain_model_G", "degradation.mask_root"])
def test_paths_that_cannot_be_are_told(value, text, key, tmp_path):
    options: dict[str, Any] = {"datasets": {"t": {"root": "d"}}, "network_G": {"which_model_G": "ConditionalNAFNet"}}
    *sections, last = key.split(".")
    place = options
    for section in sections:
        place = place.setdefault(section, {})
    place[last] = value
    file = tmp_path / "run.yml"
    file.write_text(json.dumps(options))
    assert message(load_options, file).startswith(f"{file}: {key}: {text}")


# ---- aliases

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)
MERGES = "m0: &m0 {a: 1}\n" + "".join(f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}\n" for i in range(1, 12))


@pytest.mark.parametrize("text", [LAUGHS, MERGES], ids=["aliases", "merges"])
def test_aliases_do_not_multiply(text, load, tmp_path):
    started = time.process_time()
    assert message(load, BASE + text) == (
        f"{tmp_path}/run.yml: has more than 100,000 values, aliases (*name) and merges counted"
    )
    assert time.process_time() - started < SECONDS


def test_aliases_and_merges_of_a_usual_size_are_read(load):
    options = load(
        "x: &x {root: d, max_images: 3}\n".replace("x: ", "datasets: {a: ") + "  , b: {<<: *x, root: e}}\n" + NETWORK
    )
    assert (options.datasets["b"].root, options.datasets["b"].max_images) == ("e", 3)


# ---- files


def test_files_that_are_no_option_files_are_refused(tmp_path):
    large = tmp_path / "large.yml"
    large.write_text(BASE + "#" * 200_000)
    assert message(load_options, large) == f"{large}: is larger than 100,000 bytes, which no option file is"
    assert message(load_options, Path("/dev/zero")) == "/dev/zero: is no regular file"
    assert message(load_options, tmp_path) == f"{tmp_path}: is a directory"
    based = tmp_path / "run.yml"
    based.write_text(BASE + "based_on: /dev/zero")
    assert "based_on: /dev/zero: no such file" in message(load_options, based)


# ---- what crashed

CRASHED = [
    ("sampler: {clamp: []}", "sampler.clamp: expected true or false or [low, high], got []"),
    ("sampler: {clamp: [[]]}", "sampler.clamp[0]: expected true or false or [low, high], got []"),
    ("sampler: {clamp: [1]}", "sampler.clamp: expected true or false or [low, high], got [1]"),
    ("x: !!timestamp abc", "not YAML: a value does not fit its tag (!!...)"),
    ("x: !!bool abc", "not YAML: a value does not fit its tag (!!...)"),
    ("sampler: {threshold_max: 1.0e+308}", "sampler.threshold_max: expected a number from 1 to 1000, got 1e+308"),
    ("sampler: {rho: 1.0e-300, time_schedule: karras-n}", ""),
    ("sde: {algorithm: mrsampler, max_sigma: 5.0e-324}\nsampler: {time_schedule: karras-n}", ""),
    ("sde: {algorithm: [sde, null]}", "sde.algorithm[1]: expected one of "),
    ("sampler: {variants: {a: {algorithm: [null]}}}", "sampler.variants.a.algorithm[0]: expected one of "),
    ("batch_size: 10000000000000000000000000", "batch_size: expected auto or an integer from 1 to 10,000, got 1000000"),
    ("sde: {T: 1.0e+308}", "sde.T: expected an integer from 1 to 100,000, got 1e+308"),
    ("sde: {T: 1000000000}", "sde.T: expected an integer from 1 to 100,000, got 1000000000"),
    ("sde: {sample_T: 1000000000}", "sde.sample_T: expected -1 or an integer from 1 to 10,000, got 1000000000"),
    ("sampler: {num_sample_steps: 1000000}", "sampler.num_sample_steps: expected an integer from 1 to 10,000, got 100"),
    ("seed: 0x" + "f" * 5000, "seed: expected an integer from 0 to 9,223,372,036,854,775,807, got a number of 20000"),
    ("seed: " + "1" * 5000, "not YAML: Exceeds the limit"),
    ("distortion: sr\ndegradation: {scale: 10000}", "degradation.scale: expected an integer from 1 to 32, got 10000"),
    ('"a\\nb": 1', "'a\\nb': unknown option"),
    ('"": 1', "'': unknown option"),
    ("? [a]\n: 1", "?: a key must be a word"),
    ("x: " + "[" * 5000, "nested too deeply"),
    (
        f"sampler: {{order: [1, 2], num_sample_steps: {list(range(2, 102))}, rho: {list(range(1, 101))}}}",
        "sampler: its lists give 20,000 solvers, at most 10,000 can run in one go",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CRASHED, ids=lambda value: str(value)[:30])
def test_what_crashed_is_one_line(text, expected, load, tmp_path):
    from codes.config import build_sde, build_solvers

    started = time.process_time()
    if expected:
        found = message(load, BASE + text)
        assert found.startswith(f"{tmp_path}/run.yml: {expected}")
    else:
        options = load(BASE + text)
        found = message(build_solvers, options, build_sde(options))
        assert "sampler: cannot be computed with such large or small numbers" in found
    assert len(found.splitlines()) == 1 and len(found) < 500
    assert time.process_time() - started < SECONDS


def test_chains_of_files_and_sections_end(load, tmp_path):
    for i in range(1000):
        (tmp_path / f"{i}.yml").write_text(f"based_on: {i + 1}.yml")
    (tmp_path / "1000.yml").write_text(BASE)
    assert message(load_options, tmp_path / "0.yml").endswith(
        "20.yml: based_on: more than 20 files are based on each other"
    )
    assert load_options(tmp_path / "980.yml").seed == 0
    (tmp_path / "run.yml").write_text(BASE)
    with pytest.raises(OptionsError, match="names more than 20 sections within each other"):
        load_options(tmp_path / "run.yml", ["x." * 5000 + "a=1"])


def test_thousands_of_problems_are_counted(load, tmp_path):
    lines = message(load, BASE + "\n".join(f"k{i}: 1" for i in range(5000))).splitlines()
    assert lines[-1] == f"{tmp_path}/run.yml: and 4,900 problems more"


@pytest.mark.parametrize("name", ["x" * 5000, "/a" * 5000, "loop.yml"])
def test_names_of_option_files_that_cannot_be_are_told(name, tmp_path, monkeypatch, capsys):
    from codes.commands.restore import main as restore
    from codes.commands.test import main as evaluate

    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.yml").symlink_to("loop.yml")
    assert evaluate(["-opt", name]) == 2 and restore(["a.png", "--opt", name]) == 2
    assert all(line.startswith(f"{name}: ") for line in capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("key", ["lq", "gt"])
@pytest.mark.parametrize("pattern", ["{}{", "{}}", "{0}{}", "{", "{}{}"])
def test_patterns_with_other_braces_are_refused(key, pattern, load):
    rule = {"lq": "{}", "gt": "{}", key: pattern}
    options = {"datasets": {"t": {"dataroot_LQ": "d", "dataroot_GT": "e", "pairing": rule}}}
    found = message(load, yaml.safe_dump(options) + NETWORK)
    assert f"datasets.t.pairing.{key}: expected {{}} once, for what the names share, got {pattern!r}" in found


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"enc_blk_nums": [10**9, 1]}, "enc_blk_nums: expected numbers up to 100,000, got [1000000000, 1]"),
        ({"enc_blk_nums": [900, 200]}, "enc_blk_nums: expected a list whose numbers add up to at most 1,000, got"),
        ({"width": 10**6}, "width: expected numbers up to 100,000, got 1000000"),
        ({"width": {"a": 1}}, "width: expected text, a number, true, false or a list of these, got {a: 1}"),
    ],
)
def test_settings_of_networks_have_limits(setting, text, load):
    options = {
        "datasets": {"t": {"root": "d"}},
        "network_G": {"which_model_G": "ConditionalNAFNet", "setting": setting},
    }
    assert f"network_G.setting.{text}" in message(load, json.dumps(options))


def test_every_number_has_an_upper_limit_in_the_reference():
    """`options/README.md` shows both ends of every range."""
    words = ("an integer |", " a number |", "of at least")
    lines = [line for line in schema_markdown().splitlines() if any(word in line.split(" | `")[0] for word in words)]
    unlimited = [line for line in lines if "and below" not in line]
    assert unlimited == []
    assert describe(Options.model_fields["seed"].annotation, tuple(Options.model_fields["seed"].metadata)).endswith(
        "807"
    )


def test_all_problems_are_told_in_one_go(tmp_path, monkeypatch, capsys):
    """Mistakes in the file, contradictions, and what is missing on the disk."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.yml"
    file.write_text(
        "tile: 3\n"
        "datasets:\n"
        "  a: {mode: LQGT, dataroot_LQ: nowhere}\n"
        "  b: {mode: LQ, dataroot_LQ: absent}\n"
        "network_G: {which_model_G: ConditionalNAFNet, setting: {width: x, colour: red}}\n"
        "network_L: {which_model: UNet, setting: {in_ch: 3, out_ch: 3, ch: -8, ch_mult: [1], embed_dim: 8}}\n"
        "sampler: {order: 9, colour: red}\n"
        "path: {pretrain_model_G: none.pth}\n"
    )
    assert run_test(["-opt", str(file)]) == 2
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == [
        "tile",
        "datasets.a.dataroot_GT",
        "datasets.a.dataroot_LQ",
        "datasets.b.dataroot_LQ",
        "network_G.setting.width",
        "network_G.setting.colour",
        "network_L.setting.ch",
        "sampler.order",
        "sampler.colour",
        "path.pretrain_model_G",
    ]


def test_problems_of_data_weights_and_solvers_are_told_in_one_go(tmp_path, monkeypatch, capsys):
    """Of a file without mistakes: what only looking at the disk and planning the solvers shows."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "run.yml"
    for kind in ("rainy", "snowy"):
        (tmp_path / "tasks" / kind).mkdir(parents=True)
    file.write_text(
        "datasets:\n"
        "  a: {mode: LQGT, dataroot_LQ: absent, dataroot_GT: lost}\n"
        "  b: {mode: GT, dataroot_GT: gone}\n"
        "  c: {mode: MD, root: tasks, tasks: [rainy, snowy]}\n"
        "distortion: inpainting\n"
        "degradation: {mask_root: nowhere}\n"
        "network_G: {which_model_G: ConditionalNAFNet, setting: {width: x, colour: red}}\n"
        "path: {pretrain_model_G: none.pth, daclip: none.pt}\n"
        "sde: {algorithm: posterior}\n"
        "sampler: {compat: official, clamp: true}\n"
    )
    assert run_test(["-opt", str(file)]) == 2
    printed = capsys.readouterr().err
    assert [line.split(": ")[1:3] for line in printed.replace(str(tmp_path) + "/", "").splitlines()] == [
        ["datasets.a", "absent"],
        ["datasets.a", "lost"],
        ["datasets.b", "gone"],
        ["datasets.b", "nowhere"],
        ["datasets.c", "tasks/rainy/LQ"],
        ["datasets.c", "tasks/rainy/GT"],
        ["datasets.c", "tasks/snowy/LQ"],
        ["datasets.c", "tasks/snowy/GT"],
        ["network_G.setting.width", "expected a positive whole number, got 'x'"],
        ["network_G.setting.colour", mock.ANY],
        ["path.pretrain_model_G", "none.pth"],
        ["path.daclip", "none.pt"],
        ["sampler.clamp", mock.ANY],
    ]


def test_a_folder_is_looked_for_once_where_both_places_are_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(PROJECT)
    assert looked("absent", "") == f"; looked in {PROJECT}"
    monkeypatch.chdir(tmp_path)
    assert looked("absent", "") == f"; looked in {tmp_path} and in {PROJECT}"


# ---- mutations

HOSTILE: list[Any] = [
    None, True, False, -1, 0, 1, 3, 10**25, -(10**25), 1e308, 5e-324, 0.5, "", "x", "..", "../x", "/dev/zero", "a\0b",
    "~nobody/x", "x" * 300, "{}{", "5e-3", "1e999", "official", "all", [], [[]], [None], ["x", 3], [1, [2, [3]]], {},
    {"a": {}}, [0] * 50,
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in nested mappings and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in items for path in ((*at, key), *places(item, (*at, key)))]


@st.composite
def mutated(draw: Any, files: list[dict[str, Any]]) -> dict[str, Any]:
    """A file with some values replaced, removed, moved or added."""
    options = copy.deepcopy(draw(st.sampled_from(files)))
    for _ in range(draw(st.integers(1, 3))):
        everywhere = places(options)
        *sections, last = draw(st.sampled_from(everywhere))
        place = options
        for section in sections:
            place = place[section]
        kind = draw(st.sampled_from(["replace", "replace", "remove", "add", "move", "wrap"]))
        hostile = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
        if kind == "remove":
            del place[last]
        elif kind == "wrap":
            place[last] = [place[last], hostile]
        elif kind == "move":
            *others, other = draw(st.sampled_from(everywhere))
            source: Any = options
            for key in (*others, other):
                source = source[key] if _has(source, key) else hostile
            place[last] = copy.deepcopy(source)
        elif kind == "add" and isinstance(place, dict):
            place[draw(st.text(max_size=5))] = hostile
        else:
            place[last] = hostile
    return options


def _has(value: Any, key: Any) -> bool:
    return (
        key in value
        if isinstance(value, dict)
        else isinstance(value, list) and isinstance(key, int) and key < len(value)
    )


PIECES = ["\t", "&a ", "*a", "<<: ", "!!int ", "!!timestamp ", "{", "]", "\0", "- ", ": ", "'"]
VALID = [yaml.safe_load(file.read_text()) for file in sorted(PUBLISHED.glob("t*.yml"))] + [
    yaml.safe_load((ROOT / "options" / f"{name}.yml").read_text()) for name in ("test", "mrsampler", "train", "demo")
]


def outcome(file: Path, call: Any, *arguments: Any, **keywords: Any) -> str:
    """What a call says about a file: '' or lines that begin with its name; anything else is an error of the program."""
    started = time.process_time()
    try:
        call(*arguments, **keywords)
        said = ""
    except OptionsError as error:
        said = str(error)
    assert time.process_time() - started < SECONDS
    for line in said.splitlines():
        assert line.startswith(str(file)) or str(file.parent) in line, said
        assert len(line) < 1000
    return said


@given(mutated(VALID), st.sampled_from(["test", "train", "restore"]))
def test_mutated_files_are_used_or_refused(tmp_path, options, kind):
    file = tmp_path / "run.yml"
    file.write_text(yaml.safe_dump(options, sort_keys=False, allow_unicode=True))
    if kind == "train":
        outcome(file, load_stages, file, on_disk=True)
    else:
        outcome(file, load_options, file, kind=kind, on_disk=True)


@given(st.sampled_from(VALID), st.data())
def test_mutated_text_is_used_or_refused(tmp_path, options, data):
    """Characters and pieces of YAML put somewhere into a file."""
    text = yaml.safe_dump(options, sort_keys=False)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(
            st.sampled_from(["\t", "&a ", "*a", "<<: ", "!!int ", "!!timestamp ", "{", "]", "\0", "- ", ": ", "'"])
        )
        text = text[:at] + (piece if data.draw(st.booleans()) else data.draw(st.text(max_size=4))) + text[at:]
    file = tmp_path / "run.yml"
    file.write_bytes(text.encode(errors="surrogatepass"))
    outcome(file, load_options, file)


# Sets its limit, and then reads option files as the commands do before torch: prints for each what is wrong with it.
# `OptionsError` is exit code 2 of every command.
LIMITED = """
import json, resource, sys, time
from pathlib import Path
from codes.config import OptionsError, load_options
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 2**30,) * 2)
for name in sys.stdin.read().split():
    start, said = time.process_time(), ""
    try:
        load_options(Path(name))
    except OptionsError as error:
        said = str(error)
    print(json.dumps([name, said, time.process_time() - start]))
assert "torch" not in sys.modules
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_hostile_files_take_no_gigabyte(tmp_path):
    """In a process that gets 1 GB more than it has when it starts: each file is refused in time, by name."""
    texts = [BASE + text for text in (LAUGHS, MERGES, *(text for text, expected in CRASHED if expected))]
    texts += [BASE + "x: " + "a" * 90_000, BASE + json.dumps({"x": HOSTILE})[1:-1], "{" * 90_000, "&a [*a, *a]" * 8_000]
    for i, hostile in enumerate(HOSTILE):  # a valid file in which everything is one hostile value
        broken = {key: hostile for key in RUNNABLE if key not in ("name", "device")}
        texts.append(yaml.safe_dump(RUNNABLE | broken | {f"key{i}": hostile}))
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.yml").write_text(text)
    names = [str(tmp_path / f"{i}.yml") for i in range(len(texts))]
    done = subprocess.run([sys.executable, "-c", LIMITED], input="\n".join(names), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, *_ in found] == names
    for name, said, seconds in found:
        assert said and all(line.startswith(name) for line in said.splitlines()), (name, said)
        assert seconds < SECONDS, (name, seconds)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Weights and images that a valid file runs with."""
    folder = tmp_path_factory.mktemp("hostile")
    write_weights(folder / "tiny.safetensors")
    write_images(folder / "data", ("rainy",), images=1)
    return folder


RUNNABLE: dict[str, Any] = {
    "name": "run",
    "device": "cpu",
    "datasets": {"val": {"name": "v", "mode": "MD", "root": "data", "tasks": ["rainy"], "max_images": 1}},
    "path": {"pretrain_model_G": "tiny.safetensors"},
    "sde": {"algorithm": ["posterior", "mrsampler"], "T": 100, "max_sigma": 50, "schedule": "cosine", "eps": 0.005},
    "sampler": {"num_sample_steps": [2, 3], "order": 1, "rho": 7, "time_schedule": "karras-n", "lambda_min": -5.0,
                "clamp": [0, 1], "variants": {"a": {"tau": 0.5, "algorithm": "mrsampler-pc"}}},
    "metrics": {"names": ["psnr"], "crop_border": 0},
    "degradation": {"sigma": 25, "scale": 4},
    "contact_sheet": 0,
}  # fmt: skip


@given(mutated([RUNNABLE]))
def test_mutated_runs_plan_or_refuse(world, options):
    """Through the command, with data, weights and solvers looked at: exit code 0 or 2, and what it says."""
    file = world / "run.yml"
    file.write_text(yaml.safe_dump(options, sort_keys=False, allow_unicode=True))
    started = time.process_time()
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_test(["-opt", str(file), "--dry-run"])
    assert time.process_time() - started < SECONDS
    said = err.getvalue()
    assert code in (0, 2) and "Traceback" not in said
    assert bool(said.strip()) == (code == 2), said
