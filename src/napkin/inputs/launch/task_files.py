"""Read the commands of a cloud task's YAML (SkyPilot, dstack, Kubernetes, Beaker) as the script that they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from napkin.inputs.launch.source import LaunchFile
from napkin.inputs.load import Document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SKYPILOT = ("resources", "setup", "envs", "num_nodes", "file_mounts", "workdir")
"""Keys that SkyPilot's tasks have next to `run` (docs.skypilot.co, YAML specification)."""
_EACH = ("SKYPILOT_NUM_GPUS_PER_NODE", "DSTACK_GPUS_PER_NODE")
_NODES = ("SKYPILOT_NUM_NODES", "DSTACK_NODES_NUM")
_ALL = ("DSTACK_GPUS_NUM",)
"""Variables in which the runner passes the number of GPUs and nodes to the commands."""


def script_of(document: Document) -> str | None:
    """Return the shell script of a task, its variables first, or None for another file."""
    data = document.data
    if not isinstance(data, dict):
        return None
    listed, run = data.get("commands"), data.get("run")
    if isinstance(data.get("apiVersion"), str) and "kind" in data:
        return _of_containers(list(_containers(data)))
    if isinstance(data.get("tasks"), list) and "version" in data:
        return _of_containers([one for one in data["tasks"] if isinstance(one, dict)])
    if data.get("type") in ("task", "dev-environment") and isinstance(listed, list):
        commands = [str(one) for one in listed]
    elif isinstance(run, str) and any(key in data for key in SKYPILOT):
        commands = [run]
    else:
        return None
    text = "\n".join(commands)
    return "\n".join([*_variables(data, text), text, ""])


def _containers(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the containers of a Kubernetes manifest, whatever kind of job they are in."""
    if isinstance(node, dict):
        listed = node.get("containers")
        yield from (one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()
        for value in node.values():
            yield from _containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from _containers(value)


def _of_containers(containers: list[dict[str, Any]]) -> str | None:
    """Return the scripts of containers, each once, or None if there is none."""
    scripts = list(dict.fromkeys(_of_container(one) for one in containers))
    return "\n".join([*filter(None, scripts), ""]) if any(scripts) else None


def _of_container(container: dict[str, Any]) -> str:
    """Return the script of a container: that of `bash -c SCRIPT`, or its command with its arguments."""
    words = [
        str(one)
        for key in ("command", "args", "arguments")
        for one in (container[key] if isinstance(container.get(key), list) else ())
    ]
    shells = [at for at, word in enumerate(words) if word.lstrip("-").endswith("c") and word.startswith("-")]
    if shells and words[0].rsplit("/", 1)[-1] in ("bash", "sh") and shells[0] + 1 < len(words):
        text = words[shells[0] + 1]
    else:
        text = " ".join(words)
    stated = container.get("env", container.get("envVars"))
    named = [one for one in stated if isinstance(one, dict)] if isinstance(stated, list) else []
    pairs = [(str(one.get("name")), one.get("value")) for one in named]
    assigned = [f"{name}={_quoted(value)}" for name, value in pairs if _NAME.fullmatch(name) and value is not None]
    return "\n".join((*assigned, text)) if text.strip() else ""


_NAME = re.compile(r"[A-Za-z_]\w*")


def _variables(data: dict[str, Any], text: str) -> Iterator[str]:
    """Yield assignments of the task's environment, and of what its resources determine if the commands use it."""
    found = data.get("envs") or data.get("env") or {}
    listed = [str(one).partition("=")[::2] for one in found] if isinstance(found, list) else []
    for name, value in found.items() if isinstance(found, dict) else listed:
        if _NAME.fullmatch(str(name)) and value not in (None, ""):
            yield f"{name}={_quoted(value)}"
    each, nodes = _gpus(data.get("resources")), data.get("num_nodes") or data.get("nodes") or 1
    if each is not None and isinstance(nodes, int):
        counts = [(_EACH, each), (_NODES, nodes), (_ALL, each * nodes)]
        yield from (f"{name}={count}" for names, count in counts for name in names if name in text)


def _quoted(value: object) -> str:
    return "'" + str(value).replace("'", "'\\''") + "'"


def _gpus(resources: object) -> int | None:
    """Return the GPUs of a node: `H100:8`, `{H100: 8}`, `{name: H100, count: 8}`; None if no key states them."""
    if not isinstance(resources, dict):
        return None
    stated = resources.get("accelerators", resources.get("gpu"))
    if isinstance(stated, dict):
        stated = stated.get("count", next(iter(stated.values()), None))
        return stated if isinstance(stated, int) else None
    parts = [part for part in str(stated or "").split(":") if part.isdecimal()]
    return int(parts[0]) if parts else (1 if isinstance(stated, str) and ".." not in stated else None)


def with_lines(source: LaunchFile, text: str) -> LaunchFile:
    """Return the source with the lines that its options have in the task's own text."""
    rows = text.splitlines()
    lines = source.document.lines
    for (spelled, *_), _line in list(lines.items()):
        at = next((number for number, row in enumerate(rows, 1) if str(spelled) in row), None)
        if at is not None:
            lines[spelled,] = at
    return source
