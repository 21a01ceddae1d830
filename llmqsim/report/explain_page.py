"""`explain` as a page for a terminal of 100 columns: sections with headings, sources as numbered notes at the end."""

from __future__ import annotations

import textwrap
from typing import Any

from llmqsim.report.explain_pool import layer_rows, pool_rows
from llmqsim.report.explain_show import shown
from llmqsim.report.show import NOTHING, count, duration, figures, warnings
from llmqsim.units import format_bytes, format_rate

WIDTH = 100
KEY, VALUE = 33, 22
"""columns of a row before its origin: indented key, value"""
ITEM = 68
"""columns of a line of the memory account before its formula"""
COLUMNS = {"mean": "mean", "cv": "CV", "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99", "max": "max"}
"""figures of lengths and how they are headed"""


class Notes:
    """Sources in the order in which the page meets them; each has one number."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, source: str | None) -> str:
        """" [3]", or nothing without a source."""
        if not source:
            return ""
        if source not in self.texts:
            self.texts.append(source)
        return f" [{self.texts.index(source) + 1}]"


def explain_text(told: dict[str, Any]) -> str:
    """The page for what `explain` returned, without a trailing newline."""
    notes = Notes()
    sections = [
        *([warnings(told["warnings"], WIDTH)] if told["warnings"] else []),
        _scenario(told),
        _workload(told["workload"]),
        *_servers(told, notes),
    ]
    if notes.texts:
        listed = [line for i, text in enumerate(notes.texts, 1) for line in _indented(f"[{i}] {text}", 6)]
        sections.append([*_heading("Sources"), *listed])
    return "\n\n".join("\n".join(section) for section in sections)


def _servers(told: dict[str, Any], notes: Notes) -> list[list[str]]:
    """Sections about engine, model, GPU, memory and steps; for each pool, where there are pools."""
    model = [_model(told, notes)] if told["model"] else []
    if not told.get("pools"):
        return [_engine(told, notes), *model, *_machine(told, notes)]
    sections = [*model, *([_handoff(told["handoff"], notes)] if told["handoff"] else [])]
    for name, pool in told["pools"].items():
        its = [_engine(pool, notes), *_machine(pool, notes)]
        sections += [[*_heading(f"Pool {name}: {lines[0]}"), *lines[2:]] for lines in its]
    return sections


def _machine(told: dict[str, Any], notes: Notes) -> list[list[str]]:
    return [
        *([_gpu(told["gpu"], notes)] if told["gpu"] else []),
        _kv(told["kv"]),
        _cost(told["cost"]),
        *(_step(step, told["cost"]["model"]) for step in told["steps"]),
    ]


def _handoff(told: dict[str, Any], notes: Notes) -> list[str]:
    lines = _heading("Hand-off")
    for key, entry in told["terms"].items():
        if entry["value"] is not None:
            lines += _row(key, shown(f"handoff.{key}", entry["value"]), entry["origin"] + notes.mark(entry["source"]))
    link = told["link"]
    said = f"{link['name']}, {link['bandwidth_bytes_per_s'] / 1e9:g} GB/s" + (", shared" if link["shared"] else "")
    lines += _row("link", said, link["origin"] + notes.mark(link["source"]))
    lines += _row("latency, per fragment", f"{duration(link['latency_s'])}, {duration(link['per_fragment_s'])}")
    for way, lane in told["ways"].items():
        each = f"{lane['lane_bytes']:,} bytes and {lane['fragments']:,} fragments on a link"
        lines += _row(f"{way}: a block", f"{lane['block_bytes']:,} bytes in all, {each}")
        said = f"{lane['bytes'] / 1e9:.3g} GB in {duration(lane['transfer_s'])}, bound by {lane['bound_by']}"
        lines += _row(f"{way}: {lane['tokens']:,} tokens", said)
    return lines


def _heading(title: str) -> list[str]:
    return [title, "-" * len(title)]


def _wrap(text: str, width: int, **indents: str) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False, **indents)


def _indented(text: str, hanging: int = 2) -> list[str]:
    return _wrap(text, WIDTH, initial_indent="  ", subsequent_indent=" " * hanging)


def _row(key: str, value: str, origin: str = "") -> list[str]:
    """Key, value, origin; a long value pushes the origin to a line of its own."""
    values = _wrap(value, VALUE - 2 if origin else WIDTH - KEY) or [NOTHING]
    if origin and len(values) > 1:
        values = _wrap(value, WIDTH - KEY)
        lines = [*values, *_wrap(f"from {origin}", WIDTH - KEY)]
    else:
        origins = _wrap(origin, WIDTH - KEY - VALUE) or [""]
        lines = [f"{values[i] if i < len(values) else '':<{VALUE}}{part}" for i, part in enumerate(origins)]
        lines += values[len(origins) :]
    if len(key) > KEY - 3:
        return [f"  {key}", *(f"{'':<{KEY}}{line}".rstrip() for line in lines)]
    return [f"{f'  {key}' if i == 0 else '':<{KEY}}{line}".rstrip() for i, line in enumerate(lines)]


def _resolved(key: str, entry: dict[str, Any], notes: Notes) -> list[str]:
    value, origin = shown(key, entry["value"]), entry["origin"] + notes.mark(entry["source"])
    return _row(key, value, "" if origin == value else origin)


def _scenario(told: dict[str, Any]) -> list[str]:
    variants = ", ".join(told["variants"]) or "none"
    known = ", ".join(told["known_variants"])
    lines = [*_heading("Scenario"), *_row("file", told["file"] or "(not from a file)")]
    lines += _row("variants applied", variants + (f" (of {known})" if known else ""))
    values = told["values"]
    for key, entry in values.items():
        if entry["value"] is not None:
            lines += _row(key, shown(key, entry["value"]), entry["origin"])
    for one in told["no_effect"]:
        lines += _row("changes nothing", f"{one['key']}: {one['why']}")
    unset = ", ".join(key for key, entry in values.items() if entry["value"] is None)
    return [*lines, *(_row("not set", unset) if unset else [])]


def _workload(load: dict[str, Any]) -> list[str]:
    lines = [*_heading("Workload"), *_row("source", load["source"])]
    rate, tokens = load["offered_rate_per_s"], load["offered_tokens_per_s"]
    first_s, last_s = load["first_arrival_s"], load["last_arrival_s"]
    if first_s is None:
        span = "as answers come"
    else:
        span = f"from {duration(first_s)} to {duration(last_s)}" if first_s < last_s else f"at {duration(first_s)}"
    lines += _row("requests", f"{count(load['requests'], 'request')}, {span}")
    if rate is None:
        loops = load["closed_loop_clients"]
        lines += _row("offered rate", f"what {count(loops, 'client')} get answered" if loops else "all at once")
    else:
        per_s = f"{figures(tokens['prompt_tokens'])} prompt and {figures(tokens['output_tokens'])} output tokens/s"
        lines += _row("offered rate", f"{format_rate(rate)}, so {per_s}")
    lines.append(f"{'  tokens':<{KEY}}" + "".join(f"{name:>9}" for name in COLUMNS.values()))
    table = load["table"]
    for column in ("prompt_tokens", "output_tokens"):
        sets = [("this run", load["lengths"][column])]
        sets += [("its table", table["lengths"][column])] if table else []
        for label, row in sets:
            name = f"  {column.removesuffix('_tokens')}, {label}"
            lines.append(f"{name:<{KEY}}" + "".join(f"{_tokens(c, row[c]):>9}" for c in COLUMNS))
    lines += _about(table["about"]) if table else []
    return lines + [line for note in load["notes"] for line in _row("note", note)]


def _tokens(column: str, value: float) -> str:
    return f"{value:.2f}" if column == "cv" else f"{value:,.0f}"


def _about(about: dict[str, Any]) -> list[str]:
    """Where a length table comes from, and its error on later traffic of the same service."""
    told = (("source", "table's source"), ("period", "period"), ("licence", "licence"), ("attribution", "attribution"))
    lines = [line for key, label in told if key in about for line in _row(label, str(about[key]))]
    lines += _row("pitfalls", str(about["pitfalls"])) if about.get("pitfalls") else []
    for part, label in (("in_sample", "fit error, its own rows"), ("last_third", "fit error, last third")):
        errors = (about.get("fit") or {}).get(part)
        if errors:
            lines += _row(label, "; ".join(_errors(errors, c) for c in ("prompt_tokens", "output_tokens")))
    return lines


def _errors(errors: dict[str, Any], column: str) -> str:
    picked = [(name, errors[column].get(f"{name}_percent")) for name in ("mean", "cv", "p50", "p99")]
    # adding zero turns -0.0 into 0.0
    each = ", ".join(f"{COLUMNS[name]} {round(e, 1) + 0.0:+.1f} %" for name, e in picked if e is not None)
    return f"{column.removesuffix('_tokens')} {each}"


def _engine(told: dict[str, Any], notes: Notes) -> list[str]:
    lines = _heading("Engine options")
    for key, entry in told["engine"].items():
        lines += _resolved(key, entry, notes)
    lines += ["", *_heading("Host time (CPU work that no kernel timing shows)")]
    for key, entry in told["host"].items():
        lines += _resolved(f"host.{key}", entry, notes)
    return lines


def _model(told: dict[str, Any], notes: Notes) -> list[str]:
    model = told["model"]
    lines = [*_heading("Model"), *_resolved("name", model["name"], notes)]
    for key, entry in model["figures"].items():
        lines += _resolved(key, entry, notes)
    weights, each = model["weight_bytes"], model["weight_bytes_per_gpu"]
    lines += [line for key, text in layer_rows(model) for line in _row(key, text)]
    lines += _row("parameters", f"{model['parameters']:,}", "follows from the above")
    lines += _row("weights", format_bytes(weights), f"{weights:,} bytes")
    return lines + _row("weights on each GPU", format_bytes(each), f"{each:,} bytes")


def _gpu(gpu: dict[str, Any], notes: Notes) -> list[str]:
    lines = [*_heading("GPU"), *_resolved("name", gpu["name"], notes)]
    for key, entry in gpu["figures"].items():
        lines += _resolved(key, entry, notes)
    return lines


def _kv(kv: dict[str, Any] | None) -> list[str]:
    lines = _heading("KV cache of one replica")
    if kv is None:
        return [*lines, *_indented("not limited: neither model and GPU nor a number of blocks is given")]
    if kv["items"]:
        lines.append("  on each GPU")
    for item in kv["items"]:
        size = f"{item['bytes']:>17,} B {item['bytes'] / 2**30:>8.2f} GiB"
        parts = _wrap(item["formula"], WIDTH - ITEM)
        first = f"    {item['name']:<29}{size}"
        lines += [f"{first if i == 0 else '':<{ITEM}}{part}" for i, part in enumerate(parts)]
    lines += _row("rule", kv["source"])
    if kv["bytes_per_token"] is not None:
        lines += _row("bytes per token", kv["bytes_per_token_formula"])
        lines += _row("a block, on each GPU", kv["bytes_per_block_per_gpu_formula"])
    else:
        lines += _row("bytes per token", "not known without a model")
    lines += _row("blocks", kv["blocks_formula"] or f"{kv['blocks']:,} blocks")
    lines += _row("tokens", f"{kv['tokens_formula']} ({kv['usable_tokens']:,} usable: one block is vLLM's null block)")
    if kv["guaranteed_concurrency"] is None:
        return lines + _row("guaranteed concurrency", "no max_model_len: a request may be as long as the pool")
    text = f"{kv['guaranteed_concurrency_formula']} of max_model_len, {kv['max_model_len']:,} tokens"
    text += " (a floor, not a forecast: `llmqsim run` shows the concurrency that the pool sustains)"
    lines += _row("guaranteed concurrency", text)
    if kv["hybrid_concurrency"] is None:
        return lines
    text = f"{kv['hybrid_concurrency_formula']} of max_model_len, as the engine's start-up lines count it; a run here counts "
    lines += _row("by the engine's own pool", text + "every layer in full")
    return lines + [line for key, text in pool_rows(kv["pool"]) for line in _row(key, text)]


def _cost(cost: dict[str, Any]) -> list[str]:
    lines = [*_heading("Step cost"), *_row("model", cost["model"])]
    for sentence in cost["provenance"]:
        lines += _row("provenance", sentence)
    for what, source in cost["sources"].items():
        lines += _row("source", f"{what}: {source}")
    limits = [f"{axis} {value:,.0f}" for axis, value in cost["box"].items() if value is not None]
    lines += _row("measured up to", ", ".join(limits) or "no limit: the cost is given, not measured")
    if cost["families"]:
        columns = ("timings", "median", "P90", "bias")
        lines.append(f"{'  error on shapes no fit saw':<{KEY}}" + "".join(f"{name:>11}" for name in columns))
    for name, family in cost["families"].items():
        keys = ("median_percent", "p90_percent", "bias_percent")
        errors = "".join(f"{family[key]:>9.1f} %" if key in family else f"{NOTHING:>11}" for key in keys)
        note = "" if family["fitted"] else "   not fitted"
        lines.append(f"{'    ' + name:<{KEY}}{family['rows'] or 0:>11,}{errors}{note}")
    return lines


def _step(step: dict[str, Any], model: str) -> list[str]:
    shape = step["shape"]
    if shape["prefill_tokens"]:
        title = f"A prefill step: one prompt of {shape['prefill_tokens']:,} tokens"
    else:
        each = f"{shape['decode_context_tokens']:,} tokens of context each"
        title = f"A decode step: {count(shape['decode_requests'], 'request')}, {each}"
    if step["padded_tokens"] != step["tokens"]:
        title += f", padded to {step['padded_tokens']:,} tokens"
    columns = "".join(f"{name:>11}" for name in ("calls", "FLOP", "bytes", "time", "share"))
    lines = [*_heading(title), f"{'':<{KEY + 6}}{columns}"]
    for op in step["operators"]:
        share = NOTHING if op["share"] is None else f"{100 * op['share']:.1f} %"
        cells = (f"{op['calls']:,}", _power(op["flops"]), _power(op["bytes"]), duration(op["seconds"]), share)
        lines.append(f"  {op['name']:<{KEY + 4}}" + "".join(f"{cell:>11}" for cell in cells))
        lines += ["    " + part for part in _wrap(op["formula"], WIDTH - 4)]
    total = f"{duration(step['seconds'])} in all; a run charges {step['simulated_seconds'] * 1e3:,.6g} ms"
    if model != "calibrated":
        return [*lines, f"  {total}"]
    legend = "FLOP and bytes: one GPU, all calls. Formulae: one call, launch + time of arithmetic and memory traffic."
    if any("norm_" in op["formula"] for op in step["operators"]):
        legend += " norm_p(a, b) = (a^p + b^p)^(1/p): their sum for p = 1, nearly the longer one for large p."
    return [*lines, f"  {total}, from interpolated tables", *_indented(legend)]


def _power(value: float | None) -> str:
    """"1.61 T": three figures and an SI prefix."""
    if value is None:
        return NOTHING
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix}"
    return f"{value:.3g}"
