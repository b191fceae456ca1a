"""`completion`: a script that completes commands and options in bash, zsh or fish.

The script holds all words, so that a key press starts no Python.
"""

import argparse
from collections.abc import Iterator

from proxy.cli import build_parser
from proxy.cli.options import add_command

PROGRAM = "compaction-proxy"

_BASH = """\
_compaction_proxy() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} path="" word words=""
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$path $word" in
      {paths}) path="$path $word" ;;
    esac
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ ${{#COMPREPLY[@]}} -gt 0 || $current == -* ]] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -F _compaction_proxy compaction-proxy
"""
_ZSH = """\
#compdef compaction-proxy
_compaction_proxy() {{
  local current=$words[CURRENT] path_="" word found=""
  for word in ${{words[2,CURRENT-1]}}; do
    case "$path_ $word" in
      {paths}) path_="$path_ $word" ;;
    esac
  done
  case "$path_" in
{cases}
  esac
  compadd -- ${{=found}}
  [[ $current == -* ]] || _files
}}
if [ "$funcstack[1]" = "_compaction_proxy" ]; then
  _compaction_proxy "$@"
else
  compdef _compaction_proxy compaction-proxy
fi
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "completion",
        "print a script that completes commands and options in a shell",
        'completion bash >> ~/.bashrc    # or: eval "$(compaction-proxy completion bash)"',
        'completion zsh > "${fpath[1]}/_compaction-proxy"',
        "completion fish > ~/.config/fish/completions/compaction-proxy.fish",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell that runs the script")
    parser.set_defaults(run=lambda args: print_script(args.shell))


def print_script(shell: str) -> int:
    """Print the script for a shell."""
    tree = dict(_walk(build_parser([])))
    if shell == "fish":
        print("\n".join(_fish_lines(tree)))  # noqa: T201
        return 0
    variable = "words" if shell == "bash" else "found"
    paths = "|".join(f'"{path}"' for path in tree if path)
    cases = "\n".join(f'    "{path}") {variable}="{" ".join(_words(parser))}" ;;' for path, parser in tree.items())
    template = _BASH if shell == "bash" else _ZSH
    print(template.format(paths=paths, cases=cases), end="")  # noqa: T201
    return 0


def _walk(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """All parsers, each with the words that lead to it."""
    yield path, parser
    for name, below in _find_commands(parser).items():
        yield from _walk(below, f"{path} {name}")


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a command in their long forms, and the words that it accepts as arguments."""
    words = list[str]()
    for action in parser._actions:  # noqa: SLF001 (argparse has no other list of them)
        words += [option for option in action.option_strings if option.startswith("--")]
        words += [] if action.option_strings else map(str, action.choices or ())
    return words


def _find_commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands below this one, by name."""
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001 (as above)
    return {name: below for group in groups for name, below in group.choices.items()}


def _fish_lines(tree: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    """One line for each word, with the words that must come before it."""
    for path, parser in tree.items():
        names = _find_commands(parser)
        seen = [f"__fish_seen_subcommand_from {name}" for name in path.split()]
        unseen = [f"not __fish_seen_subcommand_from {' '.join(names)}"] if names else []
        condition = "; and ".join([*seen, *unseen]) or "true"
        for word in _words(parser):
            option = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-a {word}"
            yield f"complete -c {PROGRAM} -n '{condition}' {option}"
