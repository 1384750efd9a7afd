"""The page on drivers names what the contract has."""

from __future__ import annotations

import pytest

from tests.processes import ROOT_DIRECTORY
from ultimat3_jobs.drivers import Capability, Driver

PAGE = (ROOT_DIRECTORY / "docs" / "drivers.md").read_text()


@pytest.mark.parametrize("capability", list(Capability), ids=lambda capability: str(capability.name))
def test_every_capability_has_a_row(capability: Capability) -> None:
    assert f"\n| `{capability.name}` | " in PAGE


@pytest.mark.parametrize("method", [name for name in vars(Driver) if name[0] != "_" and name != "capabilities"])
def test_every_method_is_named(method: str) -> None:
    assert f"`{method}`" in PAGE or f"`{method}(" in PAGE
