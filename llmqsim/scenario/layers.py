"""Layers of overrides to one tree: a later layer wins, key by key.

Lists are replaced whole; null resets a key to its default; a mapping of another kind replaces what it overrides, and
of the old keys only those stay that the new kind also knows. A later layer that gives one of two spellings of the
same thing (cv, burstiness) drops the other.
"""

from __future__ import annotations

import os

from llmqsim.scenario import shape
from llmqsim.scenario.slo_text import SloError, parse_slo
from llmqsim.scenario.source import Fault, Node

POLICIES: tuple[shape.Path, ...] = (
    ("routing",),
    ("admission",),
    ("engine", "batching"),
    ("engine", "ordering"),
    ("engine", "preemption"),
    ("workload", "predictor"),
    ("placement",),
)
"""places of a policy with its parameters, which the schema does not know"""
SHORTHANDS: dict[shape.Path, str] = {("workload", "trace"): "file", **dict.fromkeys(POLICIES, "policy")}
"""places where a bare text is short for a mapping with this key"""
FILES: tuple[shape.Path, ...] = (
    ("workload", "trace", "file"),
    ("workload", "lengths", "file"),
    ("workload", "predictor", "trace"),
    ("model", "config"),
)
"""values that name a file, relative to the file that wrote them"""
EITHER_OR: dict[shape.Path, tuple[shape.Path, ...]] = {}
"""place -> places that it drops from lower layers"""
for _one, _other in (
    ("workload.arrivals.cv", "workload.arrivals.burstiness"),
    ("workload.arrivals.rate", "workload.arrivals.stages"),
    ("engine.in_flight", "engine.async_scheduling"),
    ("engine.num_gpu_blocks_override", "engine.kv_cache_memory_bytes"),
):
    EITHER_OR[tuple(_one.split("."))] = (tuple(_other.split(".")),)
    EITHER_OR[tuple(_other.split("."))] = (tuple(_one.split(".")),)
EITHER_OR["workload", "trace"] = (("workload", "arrivals"), ("workload", "lengths"))


SERVER_KEYS = (
    "gpu", "interconnect", "replicas", "tensor_parallel_size", "pipeline_parallel_size", "routing", "engine", "cost",
)  # fmt: skip
"""what describes servers; a pool takes from the top level what it does not say itself"""


def at_top(path: shape.Path) -> shape.Path:
    """Where a key of a pool stands at the top level; other keys as they are."""
    return path[2:] if path[:1] == ("pools",) and len(path) > 2 else path


def inherit(tree: Node) -> Node:
    """Give each pool of a merged tree what the top level says about servers. The tree is not changed."""
    pools = tree.value.get("pools")
    if pools is None or not pools.is_mapping:
        return tree
    shared = Node({key: tree.value[key] for key in SERVER_KEYS if key in tree.value}, tree.place)
    full = {name: merge([shared, pool]) if pool.is_mapping else pool for name, pool in pools.value.items()}
    for name, pool in pools.value.items():
        full[name].place = pool.place
    return Node({**tree.value, "pools": Node(full, pools.place)}, tree.place)


def expand(node: Node, faults: list[Fault], prefix: str = "") -> Node:
    """Return the tree with dotted keys opened into mappings; a place written twice is a fault."""
    if not node.is_mapping:
        return node
    out: dict[str, Node] = {}
    for key, value in node.value.items():
        parts = key.split(".")
        if not all(parts):
            faults.append(Fault(value.place, f"{prefix}{key}", "is no key; write names joined by single points"))
            continue
        tree = expand(value, faults, f"{prefix}{key}.")
        for part in reversed(parts[1:]):
            tree = Node({part: tree}, value.place)
        _put(out, parts[0], tree, faults, prefix)
    return Node(out, node.place)


def _put(out: dict[str, Node], key: str, value: Node, faults: list[Fault], prefix: str) -> None:
    if key not in out:
        out[key] = value
    elif out[key].is_mapping and value.is_mapping:
        for inner, node in value.value.items():
            _put(out[key].value, inner, node, faults, f"{prefix}{key}.")
    else:
        faults.append(Fault(value.place, f"{prefix}{key}", f"written twice, first at {out[key].place}; keep one"))


def normalise(node: Node, folder: str, main_folder: str, path: shape.Path = ()) -> Node:
    """Open shorthands and make file names relative to the main file's folder, in place; returns the node.

    folder : what file names in this tree are relative to.
    """
    if at_top(path) in SHORTHANDS and isinstance(node.value, str):
        node.value, node.whole = {SHORTHANDS[at_top(path)]: Node(node.value, node.place)}, True
    if is_slo(path) and isinstance(node.value, str):
        node.value, node.whole = _slo(node), True
    if is_file(path) and isinstance(node.value, str) and node.value and not os.path.isabs(node.value):
        home, main = os.path.realpath(folder), os.path.realpath(main_folder)  # ".." after a link leads elsewhere
        if home != main:
            node.value = os.path.relpath(os.path.join(home, node.value), main)
    if node.is_mapping:
        for key, inner in node.value.items():
            normalise(inner, folder, main_folder, (*path, key))
    return node


def is_slo(path: shape.Path) -> bool:
    """Does this place hold an SLO, of all traffic or of a class?"""
    return path == ("slo",) or (path[:2] == ("workload", "classes") and path[3:] == ("slo",))


def _slo(node: Node) -> object:
    """An SLO in text opened into its keys; left as it is where it can't be read, for the schema to say why."""
    try:
        return {key: Node(value, node.place) for key, value in parse_slo(node.value).items()}
    except SloError:
        return node.value


def is_file(path: shape.Path) -> bool:
    """Does the value at this place name a file? Classes have what `workload` has."""
    return ((path[0], *path[3:]) if path[:2] == ("workload", "classes") else path) in FILES


def tidy(path: str) -> str:
    """The path without needless steps, unless it passes through a link, where ".." leads elsewhere."""
    short = os.path.normpath(path)
    return short if os.path.realpath(short) == os.path.realpath(path) else path


def merge(layers: list[Node]) -> Node:
    """Return one tree from layers, lowest first. Layers are not changed."""
    tree = Node({}, layers[-1].place)
    for layer in layers:
        pools = _find(layer, ("pools",))
        for start in ((), *(("pools", name) for name in (pools.value if pools and pools.is_mapping else ()))):
            for place, dropped in EITHER_OR.items():
                if _find(layer, (*start, *place)) is not None:
                    for other in dropped:
                        _remove(tree, (*start, *other))
        tree = _over(tree, layer, ())
    return tree


def _find(tree: Node, path: shape.Path) -> Node | None:
    for key in path:
        if not tree.is_mapping or key not in tree.value:
            return None
        tree = tree.value[key]
    return None if tree.value is None else tree


def _remove(tree: Node, path: shape.Path) -> None:
    parent = _find(tree, path[:-1])
    if parent is not None and parent.is_mapping:
        parent.value.pop(path[-1], None)


def _over(lower: Node | None, upper: Node, path: shape.Path) -> Node:
    """Return `upper` laid over `lower`, as new mappings; nulls vanish."""
    if not upper.is_mapping:
        return upper
    kept, same = ({}, False) if lower is None or upper.whole else _kept(lower, upper, path)
    out = dict(kept)
    for key, value in upper.value.items():
        if value.value is None and (shape.at((*path, key)) or at_top(path) in POLICIES):
            out.pop(key, None)  # an unknown key stays, so that it is found to be unknown
        else:
            out[key] = _over(kept.get(key), value, (*path, key))
    # a mapping stands where the nearest file wrote it; an override stands for it only if it changed its kind
    in_file = upper.place.line is not None and upper.place.variant is None
    return Node(out, lower.place if same and lower is not None and not in_file else upper.place)


def _kept(lower: Node, upper: Node, path: shape.Path) -> tuple[dict[str, Node], bool]:
    """The entries of the lower mapping that live on under the upper one; is it still of the same kind?"""
    if not lower.is_mapping:
        return {}, False
    if at_top(path) in POLICIES:
        same = "policy" not in upper.value or _text(upper, "policy") == _text(lower, "policy")
        return (lower.value if same else {}), same
    its = next(iter(shape.at(path)), shape.Shape())
    new, old = (its.kind_of({k: n.value for k, n in tree.value.items()}) for tree in (upper, lower))
    if new is None or old is None or new == old:
        return lower.value, True
    known = its.models[new].model_fields if its.told_by and new in its.models else ()
    return {k: n for k, n in lower.value.items() if k in known}, False


def _text(node: Node, key: str) -> object:
    return node.value[key].value if key in node.value else None
