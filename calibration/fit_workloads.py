"""Rebuild the workload presets from the public traces: `python calibration/fit_workloads.py [--traces FOLDER]`.

The traces (see the README beside them) are the first two thirds, in time, of their sources. Each preset carries its
source, licence and fit error; this script writes nothing else.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from llmqsim.errors import UserError  # noqa: E402 after the path is set, so that it runs without an install
from llmqsim.workload.fit import fit_file  # noqa: E402

AZURE = {
    "licence": "CC-BY 4.0",
    "attribution": 'Patel et al., "Splitwise", ISCA 2024; changed here: fitted to a length table',
    "tokens_counted_by": "tokenizers of unnamed models",
}
PRESETS = {
    "azure-conversation": (
        "azure2023_conv.csv.gz",
        {
            "source": "Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_conv.csv, commit b469a113",
            **AZURE,
            "period": "November 2023, one day: first 2,334 s of 3,502 s (13,828 of 19,366 rows)",
            "pitfalls": "pile-up of prompts near 4,100 tokens; strong drift within the hour, see fit.last_third",
        },
    ),
    "azure-code": (
        "azure2023_code.csv.gz",
        {
            "source": "Azure/AzurePublicDataset, data/AzureLLMInferenceTrace_code.csv, commit b469a113",
            **AZURE,
            "period": "November 2023, one day: first 2,291 s of 3,436 s (7,148 of 8,819 rows)",
            "pitfalls": "prompts are cut at 7,437 tokens; real arrivals come in bursts (CV 12.7), not Poisson",
        },
    ),
    "mooncake-conversation": (
        "mooncake_conversation.csv.gz",
        {
            "source": "kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl, commit 3b5a5941",
            "licence": "Apache-2.0",
            "attribution": "Qin et al., FAST 2025; changed here: fitted to a length table",
            "tokens_counted_by": "tokenizer of an unnamed model",
            "period": "date not published: first 2,358 s of 3,537 s (7,689 of 12,031 rows)",
            "pitfalls": "35 % of all prompt blocks repeat earlier ones; the table has no shared prefixes",
        },
    ),
}
HEAD = "# Written by calibration/fit_workloads.py; don't edit. weight: rows; low..high: tokens, both included.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, default=ROOT / "../shared/data/traces", help="folder of the traces")
    parser.add_argument("--out", type=Path, default=ROOT / "llmqsim/presets/workloads", help="folder of the presets")
    arguments = parser.parse_args()
    try:
        for name, (file, about) in PRESETS.items():
            report = fit_file(arguments.traces / file, arguments.out / f"{name}.yaml", about, HEAD)
            print(report.replace(f"{arguments.out}/", ""), end="\n\n")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
