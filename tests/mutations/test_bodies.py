"""Bodies are replaced where a new import would have made nothing else of the module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutations.bodies import replace_bodies

TEXT = """
LIMIT = 3

def plain(n):
    return n + 1

def outer(n):
    def inner():
        return n * 10
    return inner()

class Thing:
    def method(self, n=1):
        return n + 2
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    """A module with that text, imported from a file."""
    file = tmp_path / "mutated.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("mutated", file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def replace(module: ModuleType, old: str, new: str) -> bool:
    assert old in TEXT
    return replace_bodies(str(module.__file__), TEXT, TEXT.replace(old, new))


def test_a_function_a_method_and_one_inside_another_get_their_bodies(module: ModuleType) -> None:
    plain, thing = module.plain, module.Thing()

    assert replace(module, "n + 1", "n - 1")
    assert replace(module, "n * 10", "n * 20")
    assert replace(module, "n + 2", "n - 2")
    assert (plain(5), module.outer(5), thing.method(5)) == (4, 100, 3)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("n=1", "n=2"),
        ("class Thing", "class Other"),
        ("def plain(n)", "@str\ndef plain(n)"),
    ],
)
def test_what_is_carried_out_by_the_import_is_left_to_an_import(module: ModuleType, old: str, new: str) -> None:
    assert not replace(module, old, new)


def test_a_file_that_is_read_when_needed_has_no_bodies() -> None:
    assert replace_bodies("ack.sql", "a", "b")
