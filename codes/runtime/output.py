"""Output that no terminal can make fail."""

import codecs
import os
import sys
import unicodedata

_READABLE = "mr-sampler-readable"
_CONTROLS = ("Cc", "Zl", "Zp")  # Unicode's categories of control characters and separators of lines and paragraphs
_PLAIN = {
    "→": "->",
    "←": "<-",
    "↑": "^",
    "↓": "v",
    "×": "x",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "µ": "u",
    "≤": "<=",
    "≥": ">=",
}


def accept_any_text() -> None:
    """Let standard output and error print what their encoding lacks in its nearest plain form.

    An arrow becomes ->, an ä becomes a, anything else \\u.... The bytes of a file name that is no text become \\udc...
    """
    codecs.register_error(_READABLE, _readable)
    for stream in (sys.stdout, sys.stderr):
        # Streams that a test or a notebook has put in place take any text; without a console there are none.
        if hasattr(stream, "reconfigure") and stream.errors != _READABLE:
            stream.reconfigure(errors=_READABLE)


def open_closed_streams() -> None:
    """Let what is printed go nowhere where standard error is closed (`2>&-`), instead of failing.

    The numbers of closed streams are taken, so that no other file gets one: libraries would print into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def reader_gone() -> int:
    """The exit code where the reader of the output, such as `head`, has seen enough; nothing more is written to it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes
    return 1


def plain(text: str, encoding: str = "ascii") -> str:
    """The text in what an encoding has.

    >>> plain("5 → 10 dB, ä")
    '5 -> 10 dB, a'
    """
    codecs.register_error(_READABLE, _readable)
    return text.encode(encoding, _READABLE).decode(encoding)


def one_line(text: str) -> str:
    """The text with its control characters spelt out: a file's name may hold line breaks and commands for terminals.

    >>> print(one_line("a\\n\\x1b[2J.png"))
    a\\n\\x1b[2J.png
    """
    return "".join(
        character.encode("unicode_escape").decode() if unicodedata.category(character) in _CONTROLS else character
        for character in text
    )


def _readable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(_spelt(character) for character in wrong), error.end


def _spelt(character: str) -> str:
    if character in _PLAIN:
        return _PLAIN[character]
    base = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return base or character.encode("ascii", "backslashreplace").decode()
