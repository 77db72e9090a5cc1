"""completion: print a script that completes commands and options in a shell."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from .arguments import new_parser

_ABOUT = """\
Print a script that lets bash or zsh complete the commands and options of mr-sampler:
  eval "$(mr-sampler completion bash)"      # in ~/.bashrc; in ~/.zshrc with zsh"""

# Files are completed wherever no option is being typed.
_SCRIPT = """\
_mr_sampler() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} options=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{commands} --help --version" -- "$current"))
        return
    fi
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    case "$current" in
        -*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
        *) COMPREPLY=($(compgen -f -- "$current")) ;;
    esac
}}
complete -o filenames -F _mr_sampler mr-sampler"""
_ZSH = "autoload -U +X compinit && compinit -u\nautoload -U +X bashcompinit && bashcompinit\n"


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    parser.add_argument("shell", choices=["bash", "zsh"])
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "mr-sampler completion") -> int:
    """`mr-sampler completion SHELL`: print the script."""
    from .main import COMMANDS

    shell = build_parser(prog).parse_args(argv).shell
    cases = "\n".join(f'        {name}) options="{" ".join(_options(name))}" ;;' for name in COMMANDS)
    sys.stdout.write((_ZSH if shell == "zsh" else "") + _SCRIPT.format(commands=" ".join(COMMANDS), cases=cases) + "\n")
    return 0


def _options(name: str) -> list[str]:
    """The options of a command as its own parser has them."""
    try:
        module = import_module(f".{name.replace('-', '_')}", __package__)
    except ImportError:  # an extra that is not installed
        return ["--help"]
    parser: argparse.ArgumentParser = module.build_parser(name)
    return sorted(word for action in parser._actions for word in action.option_strings if word.startswith("--"))
