"""docs/claims.md: the answer of `llmqsim claims` as a page, claim by claim."""

from __future__ import annotations

from typing import Any

from llmqsim.report.claims_screen import answer, row

INTRODUCTION = """\
# Claims

Written by `llmqsim claims --markdown docs/claims.md`. Figures that the field quotes, each simulated where its assumptions
hold: what was published, what comes out here, the band within which that counts as reproduced (`bands.yaml` beside the
scenarios; without one a figure is told, not judged), and what the simulated figure rests on. In brackets: the 95 % interval
of the mean over seeds. All of it must lie in the band; where an end of the band lies in it, the check is undecided. A figure
outside its band stands there with the reason: neither the engine nor a cost is bent to make a claim hold. Each is a scenario
with variants in `llmqsim/claims/scenarios/`, which comes with the package, run by a module of its name in `llmqsim/claims/`,
whose docstring says how to add one; in CI they run at reduced size (`--reduced`). The exit code is 0 whether or not all hold.
`--json` writes the same as data: a mapping for each check with `id`, `check`, `published` (null where nobody published a
figure), `simulated` (the mean where several seeds or cases were run), `low`, `high` and `holds` (null without a band, or
undecided), `assumption`, `interval` (null without seeds), `undecided`, and `reason` where it does not hold.
"""
PICTURES = {
    "C05": (
        "figures/swap_or_recompute.png",
        "Where computing KV again beats swapping it, and where not",
        "docs/swap_or_recompute.py",
    )
}
"""claim to figure, what it shows, and the script that draws it"""


def page(told: dict[str, Any]) -> str:
    """Markdown of claims.run.claims()."""
    size = " at reduced size" if told["reduced"] else ""
    head = f"{answer(told)}. llmqsim {told['version']}, seed {told['seed']}{size}."
    parts = [INTRODUCTION, " ".join([head, *told["notes"]]), ""]
    for name, about in told["about"].items():
        parts += _section(name, about, [line for line in told["claims"] if line["id"] == name])
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(name: str, about: str, lines: list[dict[str, Any]]) -> list[str]:
    marks = _marks(lines)
    table = ["| check | published | simulated | band | | rests on |", "| --- | ---: | ---: | ---: | --- | --- |"]
    for line in lines:
        _, check, published, simulated, band, verdict = row(line)
        verdict = verdict.replace("DOES NOT HOLD", "**does not hold**")
        table.append(f"| {check} | {published} | {simulated} | {band} | {verdict} | {marks[line['assumption']]} |")
    parts = [f"## {name}", "", about, "", *table, "", *(f"- {mark}: {text}." for text, mark in marks.items()), ""]
    for line in lines:
        if line["holds"] is False or line["undecided"]:
            said = "is undecided" if line["undecided"] else "does not hold"
            parts += [f"**{line['check']}** {said}: {line['reason']}.", ""]
    if name in PICTURES:
        path, shown, script = PICTURES[name]
        parts += [f"![{shown}]({path})", "", f"{shown}: `python {script}`.", ""]
    return parts


def _marks(lines: list[dict[str, Any]]) -> dict[str, str]:
    """What figures rest on -> a letter for it, in order; aa after z."""
    texts = list(dict.fromkeys(line["assumption"] for line in lines))
    letters = "abcdefghijklmnopqrstuvwxyz"
    return {text: letters[i] if i < len(letters) else "a" + letters[i - len(letters)] for i, text in enumerate(texts)}
