"""The screen of `llmqsim size`: the answer first, then what one replica less gives, what binds, and what was assumed."""

from __future__ import annotations

from typing import Any

from llmqsim.report.show import count, duration, figures, percent, warnings, wrap

WIDTH, LABEL = 100, 12
UNSTATED = "the costs are the scenario's own and state no error: how far the answer moves with them is not known"
WAITS = {
    "slots": "waiting for a slot (max_num_seqs)",
    "kv": "waiting for KV blocks",
    "token_budget": "waiting for room in a step's token budget",
    "preempted": "waiting to resume after a preemption",
    "step": "waiting for the next step to be formed",
    "step_time": "steps too long for the TPOT target",
}


def size_text(told: dict[str, Any]) -> str:
    """The answer as text. told : what planner.sizing.size returns."""
    pooled = told["split"] is not None and told["smaller"] is None
    lines = warnings(told["warnings"], WIDTH)
    lines += [] if pooled else _headline(told)
    rows = [] if pooled else [*_feasible(told), *_theory(told)]
    for label, text in (*rows, *_split(told), *_candidates(told)):
        lines += _line(label, text)
    for note in told["notes"]:
        lines += wrap(f"note: {note}", WIDTH)
    lines += ["", *wrap(f"{told['runs']} runs in {told['seconds']:g} s; the same again:", WIDTH), f"  {told['command']}"]
    return "\n".join(lines)


def _line(label: str, text: str) -> list[str]:
    return [f"{label if i == 0 else '':<{LABEL}}{part}" for i, part in enumerate(wrap(text, WIDTH - LABEL))]


def _headline(told: dict[str, Any]) -> list[str]:
    if told["verdict"] != "feasible":
        return wrap(f"{told['verdict'].upper()} ({told['reason']}): {told['explanation']}", WIDTH)
    chosen = told["deployment"]
    each = chosen["tensor_parallel_size"] * chosen["pipeline_parallel_size"]
    shape = "" if each == 1 else f" of {each} GPUs"
    said = f"{count(told['replicas'], 'replica')}{shape}: {told['gpus']:,} × {chosen['gpu'] or 'GPU'}"
    said += f", {chosen['routing']}, {chosen['engine']}"
    said += f", ${told['usd_per_hour']:,.2f} an hour" if told["usd_per_hour"] is not None else ""
    return wrap(said, WIDTH)


def _feasible(told: dict[str, Any]) -> list[tuple[str, str]]:
    if told["verdict"] != "feasible":
        return []
    rows = [("attains", _share(told["attainment"]))]
    if told["one_less"] is not None:
        less = told["one_less"]
        verdict = "" if less["judged"] == "broken" else f": not shown to be enough ({less['why']})"
        rows.append(("one less", f"{count(less['replicas'], 'replica')}: {_share(less)}{verdict}"))
    for name, one in told["details"]["objectives"].items():
        if len(told["details"]["objectives"]) > 1:
            rows.append(("", f"{name}: {_share({**one, 'objective': name})}"))
    if told["headroom_rate_per_s"] is not None:
        rate = told["theory"]["rate_per_s"]
        rows.append(("head-room", f"{figures(told['headroom_rate_per_s'])} req/s more, of {figures(rate)} now"))
    rows += _step_error(told)
    if told["binds"] is not None:
        rows.append(("binds", f"{told['binds_target'].upper()}: {WAITS.get(told['binds'], told['binds'])}"))
    rows += _concurrency(told)
    more = told["n_plus_one"]
    dollars = "" if more["usd_per_hour"] is None else f", ${more['usd_per_hour']:,.2f} an hour"
    rows.append(("N+1", f"{count(more['replicas'], 'replica')}, {count(more['gpus'], 'GPU')}{dollars}: keeps the SLO when one fails"))
    return rows


def _step_error(told: dict[str, Any]) -> list[tuple[str, str]]:
    """How the answer moves with step times, or that nothing is known of it."""
    if "step_error" not in told:
        return []
    error = told["step_error"]
    if error is None:
        return [("step times", UNSTATED)]
    share = f"{100 * error['error']:.2g} %"
    longer, shorter = (_moved(error[name]) for name in ("longer", "shorter"))
    return [("step times", f"if they are {share} longer: {longer}; {share} shorter: {shorter}")]


def _moved(one: dict[str, Any]) -> str:
    return f"none ({one['reason']})" if one["value"] is None else count(one["value"], "replica")


def _concurrency(told: dict[str, Any]) -> list[tuple[str, str]]:
    held = told["concurrency"]
    if held is None:
        return []
    floor = "" if held["guaranteed"] is None else f"guaranteed {figures(held['guaranteed'])} of max_model_len, "
    return [("at once", f"requests in a replica: {floor}sustained {figures(held['sustained'])}, peak {figures(held['peak'])}")]


def _share(one: dict[str, Any]) -> str:
    interval = "" if one["low"] is None else f" [{percent(one['low'])}, {percent(one['high'])}]"
    return f"{percent(one['mean'])}{interval} of {percent(one['asked'])} asked for ({one['objective']})"


def _theory(told: dict[str, Any]) -> list[tuple[str, str]]:
    theory = told["theory"]
    if not theory:
        return []
    said = f"a replica carries {figures(theory['capacity_per_replica_per_s'])} req/s at most ({theory['binding']})"
    if theory["replicas_by_means"]:
        said += f"; by means alone {count(theory['replicas_by_means'], 'replica')}"
        said += f" at utilisation {theory['utilisation_by_means']:.2f}"
    if theory["utilisation"] is not None:
        said += f"; the answer runs at {theory['utilisation']:.2f}"
    if theory["wait_s"] is not None:
        said += f", Allen-Cunneen wait {duration(theory['wait_s'])}"
    return [("arithmetic", said)]


def _split(told: dict[str, Any]) -> list[tuple[str, str]]:
    """Prefill and decode apart: what it takes, what one less of each gives, and which of the answers is smaller."""
    one, rows = told["split"], []
    if one is None:
        asked = told["split_reason"] is not None and told["split_explanation"] != told["explanation"]
        return [("split", f"none ({told['split_reason']}): {told['split_explanation']}")] if asked else []
    prefill, decode = one["prefill_replicas"], one["decode_replicas"]
    dollars = "" if one["usd_per_hour"] is None else f", ${one['usd_per_hour']:,.2f} an hour"
    degrees = "/".join(map(str, dict.fromkeys(one["tensor_parallel_size"])))
    shape = f"{prefill}P{decode}D: {one['gpus']:,} × {' and '.join(one['gpu'])}, TP {degrees}"
    rows.append(("split", f"{shape}, {one['handoff']} over {one['link']}{dollars}"))
    rows.append(("attains", _share(one["attainment"])))
    for phase, less in one["one_less"].items():
        if less is not None:
            pair = (prefill - (phase == "prefill"), decode - (phase == "decode"))
            doubt = "" if less["judged"] == "broken" else f": not shown to be enough ({less['why']})"
            rows.append(("one less", f"{pair[0]}P{pair[1]}D: {_share(less)}{doubt}"))
    theory = one["theory"]
    carries = f"{figures(theory['prefill_capacity_per_s'])} and {figures(theory['decode_capacity_per_s'])} req/s at most"
    rows.append(("arithmetic", f"a prefill and a decode replica carry {carries} (decode: {theory['decode_binding']})"))
    if told["smaller"] is None:
        if told["headroom_rate_per_s"] is not None:
            rows.append(("head-room", f"{figures(told['headroom_rate_per_s'])} req/s more, of {figures(theory['rate_per_s'])} now"))
        return rows
    unit = "cheaper" if told["minimised"] == "cost" else "smaller"
    said = {"split": f"split is {unit}", "colocated": f"colocated is {unit}", "same": f"neither is {unit}"}
    return [*rows, ("so", said[told["smaller"]])]


def _candidates(told: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for one in told["candidates"]:
        name = ", ".join(f"{key.split('.')[-1]} {value}" for key, value in one["choice"].items())
        if one["replicas"] is None:
            result = f"{one['reason']}: {one['explanation'].removeprefix('--try: ')}"
        else:
            dollars = "" if one["usd_per_hour"] is None else f", ${one['usd_per_hour']:,.2f}/h"
            result = f"{count(one['replicas'], 'replica')}, {count(one['gpus'], 'GPU')}{dollars}"
        rows.append(("tried" if not rows else "", f"{name}: {result}"))
    for one in told["split_candidates"]:
        name = ", ".join(f"{key.split('.')[-1]} {value}" for key, value in one["choice"].items())
        if one["prefill_replicas"] is None:
            result = f"{one['reason']}: {one['explanation']}"
        else:
            dollars = "" if one["usd_per_hour"] is None else f", ${one['usd_per_hour']:,.2f}/h"
            result = f"{one['prefill_replicas']}P{one['decode_replicas']}D, {count(one['gpus'], 'GPU')}{dollars}"
        rows.append(("tried" if not rows else "", f"split, {name}: {result}"))
    if told["prices"]:
        rows.append(("prices", "; ".join(told["prices"])))
    return rows
