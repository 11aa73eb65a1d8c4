"""The JUnit report of `check` and `lint`, written to a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.errors import WRITE_FAILED, NapkinError
from napkin.inputs.load import printable
from napkin.render.files import write_text
from napkin.render.findings import Finding, to_junit


def write_junit(path: str, findings: Sequence[Finding], seconds: Mapping[str, float], program: str) -> None:
    """Write findings as JUnit XML: errors fail, the others pass and are printed. seconds: time for each file; program:
    the name of the report."""
    try:
        write_text(path, to_junit(findings, seconds, program))
    except OSError as problem:
        raise NapkinError(
            f"--junit: {printable(path)}: {problem.strerror}", "name a file in a folder that exists", WRITE_FAILED
        ) from None
