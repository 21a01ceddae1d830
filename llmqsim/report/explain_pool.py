"""Layers of several kinds in `explain`: what each keeps, the groups and pages of the pool, and where each GiB goes."""

from __future__ import annotations

from typing import Any

from llmqsim.hardware.model import Model
from llmqsim.hardware.weights import parts
from llmqsim.kv.hybrid import STATE
from llmqsim.kv.pools import HybridPool

GIB = 2**30


def kinds_of_layers(model: Model) -> dict[str, Any]:
    """`layers_by_kind` and `weights_by_part` of a model whose layers are not all alike; nothing for a plain one."""
    if not model.mixers and not model.extra:
        return {}
    return {
        "layers_by_kind": [
            {
                "name": one.name,
                "kind": one.kind,
                "layers": one.layers,
                "kv_heads": one.kv_heads or None,
                "key_dim": one.key_dim or None,
                "value_dim": one.value_dim or None,
                "window": one.window or None,
                "shares_kv": one.shared,
                "state_bytes": one.state_bytes(1) or None,
            }
            for one in model.mixers
        ],
        "weights_by_part": [
            {"name": part.name, "parameters": part.parameters, "dtype": part.dtype, "bytes": round(part.bytes)}
            for part in parts(model)
        ],
    }


def pool_told(pool: HybridPool, longest: int | None) -> dict[str, Any]:
    """The pool of one GPU as the engine lays it out, for JSON."""
    layout, rule = pool.layout, pool.rule
    groups = []
    for group in layout.groups:
        need = layout.startup_pages(longest, pool.in_flight_tokens, rule.state_mode) if longest else None
        own = layout.group_startup(group, longest, pool.in_flight_tokens, rule.state_mode) if longest else None
        groups.append(
            {
                "layers": group.layers,
                "kind": group.kind.kind,
                "name": group.kind.name,
                "block_tokens": group.block_tokens,
                "window": group.kind.window or None,
                "pages_of_one_request": own,
                "share_of_one_request": own / need if own is not None and need else None,
            }
        )
    return {
        "hybrid": rule.hybrid,
        "why": rule.why,
        "state_mode": rule.state_mode if any(one.kind == STATE for one in pool.kinds) else None,
        "groups": groups,
        "group_layers": layout.group_layers,
        "padding_layers": layout.padding_layers,
        "wasted_share": layout.wasted_share,
        "page_bytes": layout.page_bytes,
        "pages": pool.pages,
        "in_flight_tokens": pool.in_flight_tokens,
        "pages_of_one_request": pool.need(longest) if longest else None,
        "bytes_of_one_request": pool.need(longest) * layout.page_bytes if longest else None,
        "longest": pool.longest(),
        "token_line": pool.token_line(longest) if longest else None,
    }


def layer_rows(model: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of the page about kinds of layers and parts of the weights."""
    rows = []
    for one in model.get("layers_by_kind", ()):
        if one["kind"] == STATE:
            text = f"{one['layers']} layers, a state of {one['state_bytes']:,} bytes a request in each"
        elif one["shares_kv"]:
            text = f"{one['layers']} layers, which keep no KV of their own"
        else:
            width = one["key_dim"] if one["key_dim"] == one["value_dim"] else f"{one['key_dim']} + {one['value_dim']}"
            text = f"{one['layers']} layers, {one['kv_heads']} KV heads of {width}"
            text += f", window {one['window']:,}" if one["window"] else ""
        rows.append((one["name"], text))
    for part in model.get("weights_by_part", ()):
        rows.append(
            (f"{part['name']}: parameters", f"{part['parameters']:,}, {part['dtype']}: {part['bytes'] / GIB:.3f} GiB")
        )
    return rows


def pool_rows(pool: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows of the page about groups and pages."""
    rows = []
    for count, group in _runs(pool["groups"]):
        times = f"{count} x " if count > 1 else ""
        text = f"{times}{group['layers']} layers, blocks of {group['block_tokens']:,} tokens"
        text += f", window {group['window']:,}" if group["window"] else ""
        if group["pages_of_one_request"] is not None:
            text += f"; a request of max_model_len takes {group['pages_of_one_request']:,} pages"
            text += f", {100 * group['share_of_one_request']:.1f} % of it" + (" each" if count > 1 else "")
        rows.append((f"group: {group['name']}", text))
    rows.append(
        (
            "page",
            f"{pool['page_bytes']:,} bytes in {pool['group_layers']} layers; {pool['pages']:,} pages, one of them the null page",
        )
    )
    if pool["padding_layers"]:
        text = f"{pool['padding_layers']} layers: {100 * pool['wasted_share']:.1f} % of the pool is lost"
        rows.append(("padding", text))
    if pool["bytes_of_one_request"] is not None:
        text = f"{pool['pages_of_one_request']:,} pages = {pool['bytes_of_one_request'] / GIB:.2f} GiB"
        text += f", windows counted with {pool['in_flight_tokens']:,} tokens in flight"
        text += f", states kept: {pool['state_mode']}" if pool["state_mode"] else ""
        rows.append(("a request of max_model_len", text))
    rows.append(("longest request that fits", f"{pool['longest']:,} tokens"))
    if pool["token_line"] is not None:
        rows.append(
            ('line "GPU KV cache size"', f"{pool['token_line']:,} tokens, whose meaning differs between releases")
        )
    return rows + ([("hybrid KV manager", pool["why"])] if pool["why"] else [])


def _runs(groups: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """(how many, group) of neighbours that are alike."""
    found: list[tuple[int, dict[str, Any]]] = []
    for group in groups:
        if found and found[-1][1] == group:
            found[-1] = (found[-1][0] + 1, group)
        else:
            found.append((1, group))
    return found
