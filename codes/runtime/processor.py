"""The processor: its name, its vector instructions, and answers about it that are costly to find."""

import functools
import json
import logging
import os
import platform
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from platformdirs import user_cache_path

from .files import read_json, write_json
from .problems import FileError

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", str, float)

FILE = user_cache_path("mr-sampler", appauthor=False) / "answers.json"
_MOST_ANSWERS = 200
_VECTORS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
# With these a user limits the instructions that torch and oneDNN, its library, use.
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_WITHOUT_BF16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI")


@functools.cache
def _cpuinfo(path: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """The fields of one core; empty where the system does not tell them."""
    try:
        text = path.read_text().split("\n\n")[0]
    except OSError:
        return {}
    lines = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in lines}


def vector_instructions() -> tuple[str, ...]:
    """Those that matter for speed, as the system names them."""
    flags = _cpuinfo().get("flags", "").split()
    return tuple(flag for flag in _VECTORS if flag in flags)


def described() -> str:
    """Name and vector instructions, for the caption of a table."""
    name = _cpuinfo().get("model name") or platform.processor() or "unknown processor"
    limits = [f"{key}={os.environ[key]}" for key in (*_LIMITS, "ATEN_CPU_CAPABILITY") if key in os.environ]
    return f"{name} ({', '.join([*vector_instructions(), *limits]) or 'no AVX2'})"


def has_bf16() -> bool:
    """Whether the processor says that it computes in bf16, and the user has not forbidden it; not yet that it works."""
    forbidden = any(os.environ.get(key, "").upper() in _WITHOUT_BF16 for key in _LIMITS)
    return not forbidden and bool({"avx512_bf16", "amx_bf16"} & set(vector_instructions()))


def remembered(question: str, answer: Callable[[], Answer], file: Path | None = None) -> Answer:
    """The answer to a question about this machine, kept for other processes until the machine starts anew."""
    file = file or FILE
    key = sha256(json.dumps([question, _machine()]).encode()).hexdigest()[:16]
    try:
        known = read_json(file) or {}
    except (OSError, FileError):
        known = {}
    found = known.get(key) if isinstance(known, dict) else None
    value = found if isinstance(found, str | float) else answer()
    if found is None:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            entries = list(known.items())[1 - _MOST_ANSWERS :] if isinstance(known, dict) else []
            write_json(file, {**dict(entries), key: value})
        except (OSError, FileError) as error:
            log.debug("%s: not written: %s", file, error)
    return value  # type: ignore[return-value]


def _machine() -> list[str]:
    """Everything that an answer may depend on."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    info = _cpuinfo()
    return [
        boot.read_text() if boot.is_file() else platform.node(),
        info.get("model name", platform.processor()),
        info.get("flags", ""),
        version("torch"),
        *(os.environ.get(key, "") for key in (*_LIMITS, "ATEN_CPU_CAPABILITY")),
    ]
