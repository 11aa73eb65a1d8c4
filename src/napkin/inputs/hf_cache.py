"""The local Hugging Face cache, read only: which config.json it holds for `org/name`.

Folders are those of huggingface_hub (constants.py, file_download.py): models--org--name/refs/main holds the commit of
the branch main, snapshots/<commit>/ the files of a commit.
"""

from __future__ import annotations

import os
import re

from napkin.errors import NapkinError
from napkin.inputs.load import printable, read_text

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_COMMIT = re.compile(r"[\w.-]{1,96}", re.ASCII)


def folder() -> str:
    """Return the cache's folder, as huggingface_hub finds it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return _expanded(os.environ[name])
    home = os.environ.get("HF_HOME")
    if not home:
        home = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"), "huggingface")
    return os.path.join(_expanded(home), "hub")


def _expanded(path: str) -> str:
    return os.path.expanduser(os.path.expandvars(path))


def cached_config(model: str) -> str | None:
    """Return the path of the config.json that the cache holds for a Hugging Face id; None if it holds none of that
    id. NapkinError (2): the cache has the id, but not one config.json."""
    if not _ID.fullmatch(model) or ".." in model:
        return None
    found = _repository(folder(), f"models--{model.replace('/', '--')}")
    if found is None:
        return None
    path = os.path.join(_snapshot(found, model), "config.json")
    if not os.path.exists(path):
        raise NapkinError(
            f"{printable(model, 100)}: the Hugging Face cache has this model, but not its config.json",
            f"hf download {model} config.json fetches it",
        )
    return path


def _repository(cache: str, name: str) -> str | None:
    """Return a model's folder in the cache; letter case is free if only one model has the name."""
    exact = os.path.join(cache, name)
    if os.path.isdir(exact):
        return exact
    try:
        same = [one for one in os.listdir(cache) if one.lower() == name.lower()]
    except OSError:
        return None
    return os.path.join(cache, same[0]) if len(same) == 1 else None


def _snapshot(repository: str, model: str) -> str:
    """Return the folder of the commit of the branch main, or of the only commit that there is."""
    snapshots, main = os.path.join(repository, "snapshots"), os.path.join(repository, "refs", "main")
    if os.path.exists(main):
        commit = read_text(main, 1000).strip()
        if not _COMMIT.fullmatch(commit) or not commit.strip("."):
            raise NapkinError(f"{printable(main)}: is not a commit", f"hf download {model} config.json writes it again")
        return os.path.join(snapshots, commit)
    try:
        held = sorted(os.listdir(snapshots))
    except OSError:
        held = []
    if len(held) > 1:
        raise NapkinError(
            f"{printable(model, 100)}: the Hugging Face cache has {len(held)} commits of it, and none is main",
            f"give the path of one: {printable(os.path.join(snapshots, held[0], 'config.json'))}",
        )
    return os.path.join(snapshots, *held)
