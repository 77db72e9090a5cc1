"""The reference of all options, made from the schema and the rows of solvers and grids."""

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..solvers.registry import GRIDS, SOLVERS
from .dataset_options import PairingRule
from .errors import show
from .kinds import ForTraining, Ignored, Unset, describe, is_sweep, item_type, model_of
from .schema import Options
from .solver_options import Variant

_INTRODUCTION = """\
# Options

An option file defines a run: networks, weights, solvers, images, metrics. `test.yml` is the one to edit; the others
reproduce the published ones. The names are those of the published option files of MR Sampler, DA-CLIP, IR-SDE and
Refusion, which run unchanged. Options that are left out have the defaults below. This text is made from the schema by
`python -m codes.config > options/README.md`.

An unknown key or a value of the wrong kind is reported in one line before anything is loaded:

```
options/test.yml: sampler.ordr: unknown option, did you mean 'order'?
```

Published keys without a meaning here are accepted, and listed as ignored when a run starts.

## Several solvers in one run

Options marked *sweep* below also take a list of values; all combinations are run:

```yaml
sde: {algorithm: [posterior, mrsampler]}
sampler: {num_sample_steps: [5, 10], order: [1, 2]}
```

Named variants set the algorithm and override any key of `sampler`; null restores a key's default:

```yaml
sampler:
  num_sample_steps: [5, 10]
  variants:
    pc: {algorithm: mrsampler-pc, tau: 0.3}
    paper: {algorithm: mrsampler, order: 2, compat: official}
```

Each solver writes to a folder named after what distinguishes it: `pc-nfe5`, `paper-nfe10`, `mrsampler-order1-nfe5`.

Single options are set from the command line with `--set sampler.num_sample_steps=10`.

## A file based on another

`based_on` names another option file, relative to the one that it is written in. That file is read first, and the keys
of this one are laid over it: sections key by key, any other value in place of the other file's. Null takes back a value
or a whole section of the other file. `heun.yml` is `mrsampler.yml` with another solver:

```yaml
based_on: mrsampler.yml
name: heun
sde: {algorithm: heun}
sampler: {num_sample_steps: 100, solver_type: ode, time_schedule: linspace, compat: official}
```

Runs of one `name` share a folder and a table; they need the same weights, images and seed.
"""


def schema_markdown() -> str:
    """The complete reference, as in options/README.md."""
    parts = [_INTRODUCTION]
    top = {key: field for key, field in Options.model_fields.items() if _inner(field) is None}
    parts.append(_table("Top level", "The run as a whole.", top))
    for key, field in Options.model_fields.items():
        section = _inner(field)
        if section is None:
            continue
        title = f"`{key}.<name>`" if model_of(field.annotation) is None else f"`{key}`"
        parts.append(_table(title, _sentence(field), section.model_fields))
        for inner, part in section.model_fields.items():
            nested = model_of(part.annotation)
            if nested is not None and nested is not PairingRule:
                parts.append(_table(f"`{key}.{inner}`", _sentence(part), nested.model_fields))
        if key == "sampler":
            own = {"algorithm": Variant.model_fields["algorithm"]}
            parts.append(_table("`sampler.variants.<name>`", "Every key of `sampler`, and:", own))
            parts += [_algorithms(), _grids()]
    return "\n".join(parts)


def _algorithms() -> str:
    head = ["algorithm", "what it is", "evaluations", "grid", "options without meaning", "`compat: official`"]
    rows = [
        [
            f"`{name}`",
            row.title,
            "T" if row.steps is None else str(row.steps),
            f"`{row.grid}`",
            ", ".join(f"`{option}`" for option in (*row.refused, *row.unused)) or "none",
            "no" if row.published is None else "yes",
        ]
        for name, row in SOLVERS.items()
    ]
    text = "Values of `sde.algorithm`, with their default number of evaluations and grid."
    return _section("Solvers", text, head, rows)


def _grids() -> str:
    head = ["time schedule", "where the network is evaluated", "`compat: official`"]
    rows = [[f"`{name}`", row.title, "yes" if row.published else "no"] for name, row in GRIDS.items()]
    return _section("Grids", "Values of `sampler.time_schedule`.", head, rows)


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field is or has by name; a pairing rule is a value."""
    section = model_of(field.annotation) or model_of(item_type(field.annotation))
    return None if section is PairingRule else section


def _sentence(field: FieldInfo) -> str:
    text = f"{field.description}"
    return text[0].upper() + text[1:] + (" (training only)." if _marked(field, ForTraining) else ".")


def _table(title: str, text: str, fields: dict[str, FieldInfo]) -> str:
    rows = []
    for key, field in fields.items():
        values = describe(field.annotation, tuple(field.metadata), quote="`").removeprefix("one of ")
        sweep = "; *sweep*" if is_sweep(field.annotation) else ""
        rows.append([f"`{key}`", values + sweep, _default(field), _meaning(field)])
    return _section(title, text, ["key", "values", "default", "meaning"], rows)


def _section(title: str, text: str, head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join([f"## {title}", "", text, "", *lines]) + "\n"


def _default(field: FieldInfo) -> str:
    unset = next((item.text for item in field.metadata if isinstance(item, Unset)), None)
    if unset is not None:
        return unset
    if field.is_required():
        return "required"
    if field.default is None or field.default in ((), {}):
        return "none"
    return f"`{field.default}`" if isinstance(field.default, str) else f"`{show(field.default)}`".replace("'", "")


def _meaning(field: FieldInfo) -> str:
    ignored = next((item.reason for item in field.metadata if isinstance(item, Ignored)), None)
    if ignored is not None:
        return f"{field.description}; ignored: {ignored}"
    return f"{field.description}" + (" (training)" if _marked(field, ForTraining) else "")


def _marked(field: FieldInfo, mark: type) -> bool:
    return any(isinstance(item, mark) for item in field.metadata)
