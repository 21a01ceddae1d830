"""Put the screen of scenarios/first_answer.yaml into README.md, below `make demo`: `python -m tests.cli.demo`."""

from __future__ import annotations

import os
import re

from tests.cli.commands import ROOT, llmqsim

PLACE = re.compile(r"(runs \[`scenarios/first_answer\.yaml`\].*?\n```\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)


def main() -> None:
    """Run it as a reader would, from the root of the checkout, and replace the block."""
    os.chdir(ROOT)
    said = llmqsim("run", "scenarios/first_answer.yaml")
    assert said.code == 0, said.err
    readme = ROOT / "README.md"
    text, found = PLACE.subn(lambda m: m[1] + said.out + m[3], readme.read_text(encoding="utf-8"))
    assert found == 1, "README.md has no block after `make demo`"
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
