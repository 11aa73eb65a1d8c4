"""The version is stated once in the package, and every other file that states one states the same."""

from __future__ import annotations

import os
import runpy

from tests.conftest import ROOT

RELEASE = runpy.run_path(os.path.join(ROOT, "tools", "release.py"))
disagreements, versions = RELEASE["disagreements"], RELEASE["versions"]


def test_every_file_states_the_version_of_the_package() -> None:
    assert disagreements(versions()) == []


def test_a_file_that_lags_behind_is_named() -> None:
    stated = {"src/napkin/__init__.py": ["0.3.0"], "docs/ci.md": ["0.3.0", "0.2.0"], "CITATION.cff": []}
    assert disagreements(stated) == ["docs/ci.md: 0.3.0, 0.2.0, not 0.3.0", "CITATION.cff: no version, not 0.3.0"]
