"""Checksums inside the files that people read too: JSON, lines of JSON, and YAML.

A JSON object has a last entry "check", a YAML file a comment as its first line. What has neither was written by hand
or by an earlier version, and is taken as it is.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

CHECK = "check"
_COMMENT = "# sha256 of what follows: "
_HEX = re.compile(r"[0-9a-f]{64}")


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with the checksum of all its entries.

    >>> sealed({"a": 1})
    {'a': 1, 'check': '015abd7f5cc57a2d'}
    """
    return {**value, CHECK: _check(value)}


def unsealed(value: dict[str, Any]) -> tuple[dict[str, Any], bool | None]:
    """A JSON object without its checksum, and whether that is right; None if it has none."""
    if CHECK not in value:
        return value, None
    content = {key: entry for key, entry in value.items() if key != CHECK}
    return content, value[CHECK] == _check(content)


def _check(value: Mapping[str, Any]) -> str:
    # As it will be read again: keys are text, tuples are lists.
    read = json.loads(json.dumps(value))
    return hashlib.sha256(json.dumps(read, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def sealed_text(text: str) -> str:
    """Lines of YAML with their checksum before them."""
    return f"{_COMMENT}{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


def unsealed_text(text: str) -> tuple[str, bool | None]:
    """The lines without their checksum, and whether that is right; None if they have none.

    Whatever looks like one at either end of the first line counts, so that a wrong letter in it does not unseal a file.
    """
    first, _, rest = text.partition("\n")
    if not first.startswith(_COMMENT) and not _HEX.fullmatch(first[-64:]):
        return text, None
    return rest, first == _COMMENT + hashlib.sha256(rest.encode()).hexdigest()
