"""The Python blocks of the documentation run as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {path.name: BLOCK.findall(path.read_text()) for path in sorted(DOCS.glob("*.md"))}


@pytest.mark.parametrize("page", [name for name, blocks in PAGES.items() if blocks])
def test_the_blocks_of_a_page_run_in_order(page):
    names: dict = {"__name__": "__main__"}
    for block in PAGES[page]:
        exec(compile(block, page, "exec"), names)  # noqa: S102  (our own pages)
    assert names


def test_a_policy_of_ones_own_takes_under_thirty_lines():
    block, *_ = PAGES["add_a_policy.md"]
    policy = block[block.index("@register") : block.index("check_policy(")]
    assert len([line for line in policy.splitlines() if line.strip()]) < 30
