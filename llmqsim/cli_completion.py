"""`llmqsim completion`: what a shell needs to complete commands, options and their choices; files are the shell's own."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

SHELLS = ("bash", "zsh", "fish")
HOW = {
    "bash": 'source <(llmqsim completion bash)        # or put it into ~/.bashrc',
    "zsh": 'source <(llmqsim completion zsh)         # or put it into ~/.zshrc',
    "fish": 'llmqsim completion fish | source         # or > ~/.config/fish/completions/llmqsim.fish',
}


def add_commands(commands: Any) -> None:
    """Add it to the parser's commands."""
    parser = commands.add_parser("completion", help="print what your shell needs to complete commands and options")
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}: {HOW['bash'].split('#')[0].strip()}")
    parser.set_defaults(command=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    from llmqsim.cli import _parser

    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](list(words(_parser()))), end="")
    return 0


def words(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, dict[str, tuple[str, list[str]]], dict[str, str]]]:
    """(path, options, commands) of every command: "" is llmqsim itself, "calibrate fit" one below another.

    options : name -> (help, choices); commands : name -> help.
    """
    options: dict[str, tuple[str, list[str]]] = {}
    commands: dict[str, str] = {}
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            commands = {one.dest: one.help or "" for one in action._choices_actions}
            continue
        for name in action.option_strings:
            if name.startswith("--"):
                options[name] = ((action.help or "").replace("%%", "%"), [str(one) for one in action.choices or ()])
        if not action.option_strings and action.choices:
            commands = {**commands, **{str(one): "" for one in action.choices}}
    yield path, options, commands
    for name, one in below.items():
        yield from words(one, f"{path} {name}".strip())


def bash(found: list[tuple[str, dict[str, tuple[str, list[str]]], dict[str, str]]]) -> str:
    """A completion function for bash."""
    offered = "\n".join(f"        '{path}') offered='{' '.join([*commands, *options])}' ;;" for path, options, commands in found)
    choices = "\n".join(
        f"        '{path} {name}') offered='{' '.join(values)}' ;;"
        for path, options, _ in found
        for name, (_, values) in options.items()
        if values
    )
    deeper = "|".join(f"'{path}'" for path, _, _ in found if path)
    return f"""_llmqsim() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path='' offered='' i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{path:+$path }}${{COMP_WORDS[i]}}" in
            {deeper}) path="${{path:+$path }}${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$path $before" in
{choices}
    esac
    if [[ -z $offered && ( $word == -* || -z $path || $COMP_CWORD -eq 2 ) ]]; then
        case "$path" in
{offered}
        esac
        [[ $word == -* || -z $path ]] || offered="${{offered%% --*}}"
        [[ $offered == --* && $word != -* ]] && offered=''
    fi
    COMPREPLY=($(compgen -W "$offered" -- "$word"))
}}
complete -o default -F _llmqsim llmqsim
"""


def zsh(found: list[tuple[str, dict[str, tuple[str, list[str]]], dict[str, str]]]) -> str:
    """The same for zsh, which can run bash's."""
    return f"autoload -Uz bashcompinit && bashcompinit\n{bash(found)}"


def fish(found: list[tuple[str, dict[str, tuple[str, list[str]]], dict[str, str]]]) -> str:
    """Lines for fish."""
    lines = []
    for path, options, commands in found:
        seen = " ".join(f"__fish_seen_subcommand_from {part};" + " and" for part in path.split())
        when = f"{seen.removesuffix('; and')}" if path else "__fish_use_subcommand"
        for name, text in commands.items():
            nested = when if not path else f"{when}; and not __fish_seen_subcommand_from {' '.join(commands)}"
            lines.append(f"complete -c llmqsim -n '{nested}' -f -a '{name}' -d '{_quiet(text)}'")
        for name, (text, values) in options.items():
            given = f" -x -a '{' '.join(values)}'" if values else ""
            lines.append(f"complete -c llmqsim -n '{when}' -l {name[2:]} -d '{_quiet(text)}'{given}")
    return "\n".join(lines) + "\n"


def _quiet(text: str) -> str:
    return text.replace("\\", "").replace("'", "’").replace("\n", " ")
