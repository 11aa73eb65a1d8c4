"""napkin: time, memory, layout and cost of training a language model.

    >>> import napkin
    >>> answer = napkin.memory("llama3-8b", gpus=8, hardware="h100", zero=3)
    >>> answer.verdict, answer.total.unit
    ('fits', 'byte')

Every command that answers a question is a function of the same name, imported when it is first used; `napkin.bench` is
a package.
"""

from __future__ import annotations

__version__ = "0.2.0"

RECORDS = {
    "Meter": "napkin.integrations.meter",
    "Result": "napkin.api.result",
    "NapkinError": "napkin.errors",
    "Quantity": "napkin.api.quantity",
}
"""Names offered in addition to the commands, and the modules that define them."""


def __getattr__(name: str) -> object:
    """Import a name on first access (PEP 562): `import napkin` itself imports nothing, so that a command starts fast.
    `from napkin import units` calls this too, before Python looks for the package."""
    from napkin._tables.commands import FUNCTIONS

    found: object
    if name in RECORDS:
        from importlib import import_module

        found = getattr(import_module(RECORDS[name]), name)
    elif name in FUNCTIONS:
        from napkin.api import function

        found = function(FUNCTIONS[name])
    else:
        raise AttributeError(f"module 'napkin' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    from napkin._tables.commands import FUNCTIONS

    return sorted({*globals(), *RECORDS, *FUNCTIONS})
