"""From a YAML file and `a.b=value` overrides to plain values that remember where they were written."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..names import OptionsError
from ..runtime.paths import locate, looked, path_problem
from .errors import Keys, dotted, error_at, join, line, show

# The published files use two names for some things. Old place -> new place.
MOVED: dict[Keys, Keys] = {
    ("sde", "sampling_mode"): ("sde", "algorithm"),
    ("network_G", "which_model"): ("network_G", "which_model_G"),
    ("network_L", "which_model_G"): ("network_L", "which_model"),
    ("path", "results_root"): ("results",),
    ("train", "manual_seed"): ("seed",),
}

BASED_ON = "based_on"  # the key that names the file to lay this one over

# No option file comes near these; they keep a file from taking all time and memory.
LARGEST_FILE = 100_000  # bytes
MOST_VALUES = 100_000  # of a file, aliases (*name) counted as often as they occur
MOST_BASES = 20  # files that are based on each other
DEEPEST = 20  # sections within each other that --set may name

_OVERRIDE = re.compile(r"([\w-]+(?:\.[\w-]+)*)\s*=(.*)", re.DOTALL)


@dataclass(kw_only=True)
class Source:
    """What was written, where. Lists are tuples, so that the options made of them cannot change."""

    file: Path
    values: dict[str, Any]
    lines: dict[Keys, tuple[int, int]]
    overridden: list[Keys] = field(default_factory=list)
    renamed: dict[Keys, Keys] = field(default_factory=dict)
    inherited: dict[Keys, Path] = field(default_factory=dict)  # the keys of `lines` that another file wrote
    ignored: list[tuple[Keys, str]] = field(default_factory=list)

    def position(self, keys: Keys) -> tuple[int, int, int]:
        """For sorting: lines of `based_on` files, lines of the file, overrides in their order.

        What is missing is where its parent is.
        """
        for i, path in enumerate(self.overridden):
            if keys[: len(path)] == path:
                return (2, i, 0)
        keys = self._nearest(keys)
        return (0 if keys in self.inherited else 1, *self.lines.get(keys, (0, 0)))

    def file_of(self, keys: Keys) -> Path:
        """The file that wrote a key; for one that is missing, its parent."""
        return self.inherited.get(self._nearest(keys), self.file)

    def _nearest(self, keys: Keys) -> Keys:
        """The key itself, else the nearest section around it that a file has."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return keys

    def written(self, keys: Keys) -> Keys:
        """The name under which the user wrote a key."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.renamed:
                return self.renamed[keys[:length]] + keys[length:]
        return keys

    def message(self, keys: Keys, text: str) -> str:
        """The line about a key, under the name that the user wrote."""
        name = self.written(keys)
        if any(keys[: len(path)] == path for path in self.overridden):
            return f"--set {dotted(name)}: {text}"
        return line(self.file_of(keys), name, text)


def read(path: Path, overrides: Sequence[str]) -> Source:
    """Read a file with those it is based on and apply overrides; raise OptionsError for what is no mapping of words."""
    source = _with_base(path, ())
    override(source, overrides)
    return source


def override(source: Source, overrides: Sequence[str]) -> None:
    """Apply `a.b=value` overrides."""
    for text in overrides:
        _override(source, text)


def _with_base(path: Path, readers: tuple[Path, ...]) -> Source:
    """A file laid over the one that its key `based_on` names; `readers` are the files that led here."""
    source = _parse_file(path)
    for old, new in MOVED.items():
        _move(source, old, new)
    if BASED_ON not in source.values:
        return source
    name = source.values.pop(BASED_ON)
    if not isinstance(name, str) or not name:
        raise error_at(path, (BASED_ON,), f"expected the path of an option file, got {show(name)}")
    if path_problem(name):
        raise error_at(path, (BASED_ON,), f"{path_problem(name)}, got {show(name)}")
    base, readers = path.parent / name, (*readers, path)
    if len(readers) > MOST_BASES:
        raise error_at(path, (BASED_ON,), f"more than {MOST_BASES} files are based on each other")
    if not base.is_file():
        base = locate(name) if locate(name).is_file() else base
    if not base.is_file():
        raise error_at(path, (BASED_ON,), f"{base}: no such file{looked(name)}")
    if base.resolve() in [reader.resolve() for reader in readers]:
        raise error_at(path, (BASED_ON,), f"{base} is itself based on this file")
    return _laid_over(source, _with_base(base, readers))


def _laid_over(source: Source, base: Source) -> Source:
    """The keys of `source` on those of `base`: sections key by key, any other value in place of the base's."""
    replaced: set[Keys] = set()

    def merged(below: dict[str, Any], above: dict[str, Any], at: Keys) -> dict[str, Any]:
        values = dict(below)
        for key, value in above.items():
            old, keys = below.get(key), (*at, key)
            if isinstance(old, dict) and isinstance(value, dict):
                values[key] = merged(old, value, keys)
                continue
            replaced.add(keys)
            values[key] = value
            if isinstance(old, dict) and value is None:
                del values[key]
        return values

    def kept(keys: Keys) -> bool:
        return not any(keys[:length] in replaced for length in range(1, len(keys) + 1))

    values = merged(base.values, source.values, ())
    inherited = {keys: base.file_of(keys) for keys in base.lines if kept(keys) and keys not in source.lines}
    renamed = {keys: old for keys, old in base.renamed.items() if kept(keys)}
    return Source(
        file=source.file,
        values=values,
        lines={**{keys: base.lines[keys] for keys in inherited}, **source.lines},
        renamed=renamed | source.renamed,
        inherited=inherited,
        ignored=[(old, why) for old, why in base.ignored if kept(MOVED[old])] + source.ignored,
    )


def _parse_file(path: Path) -> Source:
    try:
        if path.exists() and not path.is_file():
            raise error_at(path, (), "is a directory" if path.is_dir() else "is no regular file")
        with path.open("rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise error_at(path, (), f"is larger than {LARGEST_FILE:,} bytes, which no option file is")
        text = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise error_at(path, (), f"no such file{looked(path, beside='')}") from None
    except UnicodeDecodeError as error:
        raise error_at(path, (), f"not a text file in UTF-8 (byte {error.start})") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL byte
        raise error_at(path, (), (getattr(error, "strerror", "") or "cannot be read").lower()) from None
    values, lines = _parse(str(path), text)
    if values is None:
        raise error_at(path, (), "the file is empty")
    if not isinstance(values, dict):
        raise error_at(path, (), f"expected a mapping of options (key: value), got {show(values)}")
    return Source(file=path, values=values, lines=lines)


def _parse(origin: str, text: str) -> tuple[Any, dict[Keys, tuple[int, int]]]:
    """The values of a YAML text, which cannot be changed, and the lines of its keys."""
    values, lines = parse(origin, text)
    return _frozen(values), lines


def parse(origin: str, text: str) -> tuple[Any, dict[Keys, tuple[int, int]]]:
    """The values of a YAML text and the lines of its keys; raises OptionsError, which begins with `origin`."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        _check_size(origin, node)
        lines, problems = _survey(node)
        if problems:
            raise join(line(origin, keys, text) for keys, text in problems)
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        what = " ".join((error.problem or error.context or "not YAML").split())
        if what.startswith("but ") and error.context:
            what = f"{error.context}, {what}"
        hint = ", indent with spaces instead of tabs" if "'\\t'" in what else ""
        raise OptionsError(f"{origin}: {where}{what}{hint}") from None
    except yaml.reader.ReaderError as error:
        number = text.count("\n", 0, error.position) + 1
        raise OptionsError(f"{origin}: line {number}: character {error.character:#04x} is not allowed") from None
    except (ValueError, AttributeError, KeyError, TypeError, OverflowError) as error:
        # PyYAML's own, e.g. for the date 2024-13-45 or !!timestamp abc.
        reason = str(error) if isinstance(error, ValueError) else "a value does not fit its tag (!!...)"
        raise OptionsError(f"{origin}: not YAML: {' '.join(reason.split())}") from None
    except RecursionError:
        raise OptionsError(f"{origin}: nested too deeply") from None


def _check_size(origin: str, root: yaml.Node) -> None:
    """Raise for aliases that lead to themselves or multiply: nine of nine of nine ... is a small file and much data."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        known = sizes.get(id(node))
        if known == 0:
            line_number = node.start_mark.line + 1
            raise OptionsError(f"{origin}: line {line_number}: contains itself through an alias (*name)")
        if known is not None:
            return known
        sizes[id(node)] = 0  # until it is known
        total = 1
        if isinstance(node, yaml.SequenceNode):
            total += sum(size(item) for item in node.value)
        elif isinstance(node, yaml.MappingNode):
            total += sum(size(key) + size(item) for key, item in node.value)
        if total > MOST_VALUES:
            raise OptionsError(f"{origin}: has more than {MOST_VALUES:,} values, aliases (*name) and merges counted")
        sizes[id(node)] = total
        return total

    size(root)


def _survey(root: yaml.Node) -> tuple[dict[Keys, tuple[int, int]], list[tuple[Keys, str]]]:
    """The position of every key, and what PyYAML lets pass: keys that are given twice or are not words."""
    lines: dict[Keys, tuple[int, int]] = {}
    problems: list[tuple[Keys, str]] = []
    seen: set[int] = set()  # an alias (*name) leads to the same node again, and may lead to itself

    def children(node: yaml.Node, keys: Keys) -> Iterator[tuple[Keys, yaml.Node]]:
        if isinstance(node, yaml.SequenceNode):
            for i, item in enumerate(node.value):
                lines[(*keys, i)] = (item.start_mark.line + 1, item.start_mark.column)
                yield (*keys, i), item
        elif isinstance(node, yaml.MappingNode):
            for key, item in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                path: Keys = (*keys, str(key.value) if isinstance(key, yaml.ScalarNode) else "?")
                if key.tag != "tag:yaml.org,2002:str":
                    problems.append((path, f"a key must be a word, put it in quotes (line {key.start_mark.line + 1})"))
                elif path in lines:
                    first, second = lines[path][0], key.start_mark.line + 1
                    where = f"in line {first}" if first == second else f"in lines {first} and {second}"
                    problems.append((path, f"given twice, {where}"))
                else:
                    lines[path] = (key.start_mark.line + 1, key.start_mark.column)
                    yield path, item

    def visit(node: yaml.Node, keys: Keys) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            for path, child in children(node, keys):
                visit(child, path)

    visit(root, ())
    return lines, problems


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(item) for key, item in value.items()}
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return value


def _move(source: Source, old: Keys, new: Keys) -> None:
    """Take a value to the place where the schema has it; what is at both places is ignored at the old one."""
    section, key = str(old[0]), str(old[1])
    parent = source.values.get(section)
    if not isinstance(parent, dict) or key not in parent:
        return
    value = parent.pop(key)
    target = parent if new[0] == section else source.values
    if not parent and target is not parent:
        del source.values[section]
    if value is None:
        return
    if target.get(str(new[-1])) is not None:
        source.ignored.append((old, f"'{new[-1]}' is given"))
        return
    target[str(new[-1])] = value
    source.renamed[new] = old
    for keys, place in list(source.lines.items()):
        if keys[: len(old)] == old:
            source.lines[new + keys[len(old) :]] = place


def _override(source: Source, text: str) -> None:
    match = _OVERRIDE.fullmatch(text.strip())
    if match is None:
        raise OptionsError(f"--set {text}: expected KEY=VALUE, for example sampler.order=2")
    written = tuple(match[1].split("."))
    if len(written) > DEEPEST:
        raise OptionsError(f"--set {match[1][:40]}...: names more than {DEEPEST} sections within each other")
    if written == (BASED_ON,):
        raise OptionsError(f"--set {BASED_ON}: is a key of option files alone")
    value, _ = _parse(f"--set {match[1]}", match[2])
    source.overridden += put(source, written, value, f"--set {match[1]}")


def put(source: Source, written: Keys, value: Any, origin: str) -> list[Keys]:
    """Set a value as if it stood in the file; `origin` is named in errors.

    Returns the keys of the sections made for it and, last, of the value itself.
    """
    made: list[Keys] = []
    keys = MOVED.get(written, written)
    target = source.values
    for i, key in enumerate(keys[:-1]):
        if target.get(str(key)) is None:
            target[str(key)] = {}
            made.append(keys[: i + 1])
        target = target[str(key)]
        if not isinstance(target, dict):
            raise OptionsError(f"{origin}: {show('.'.join(map(str, written[: i + 1])))} is not a section")
    target[str(keys[-1])] = value
    source.inherited = {place: file for place, file in source.inherited.items() if place[: len(keys)] != keys}
    source.renamed.pop(keys, None)
    source.ignored = [(old, why) for old, why in source.ignored if MOVED[old] != keys]
    if keys != written:
        source.renamed[keys] = written
    return [*made, keys]
