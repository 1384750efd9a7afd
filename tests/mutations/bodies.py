"""Puts changed bodies into functions that are loaded, in place of an import of the changed module."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

Functions = Mapping[str, Sequence[FunctionType]]


def loaded_functions() -> Functions:
    """Return the loaded functions by the path of the file that they come from."""
    found: defaultdict[str, list[FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType):
            found[thing.__code__.co_filename].append(thing)
    return {str(Path(name).resolve()): functions for name, functions in found.items()}


def replace_bodies(file: str, old: str, new: str, functions: Functions | None = None) -> bool:
    """Give the loaded functions of a module the bodies that they have in its new text.

    A file that is no module of Python has none, and is read when it is needed.

    Args:
        file: the path of the module.
        old: the text that it was loaded from.
        new: its text now.
        functions: those that are loaded, where they have been looked for: it takes longer than most tests.

    Returns:
        Whether a new import would have made nothing else of it. Otherwise nothing is replaced: what changed is carried
        out when the module is imported, or cannot be told apart by its name.
    """
    if not file.endswith(".py"):
        return True
    before, after = (list(_codes(compile(text, file, "exec", dont_inherit=True))) for text in (old, new))
    if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
        return False
    changed = [(one, other) for one, other in zip(before, after, strict=True) if _differ(one, other)]
    names = [code.co_qualname for code in before]
    if not changed or any(
        not one.co_flags & 0x2 or one.co_freevars != other.co_freevars or names.count(one.co_qualname) > 1
        for one, other in changed
    ):
        return False
    bodies = {code.co_qualname: code for code in after}
    # A function made inside another gets its body from that one's constants.
    outer = {".".join(one.co_qualname.split(".<locals>.")[:1]) for one, _ in changed}
    if any(names.count(name) > 1 for name in outer):
        return False
    found = set()
    for function in (loaded_functions() if functions is None else functions).get(str(Path(file).resolve()), ()):
        name = function.__code__.co_qualname
        if name in outer:
            function.__code__ = bodies[name]
            found.add(name)
    return found == outer


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _differ(one: CodeType, other: CodeType) -> bool:
    """Tell whether two do different things, lines and what they contain left aside."""

    def does(code: CodeType) -> tuple[object, ...]:
        constants = tuple(
            (type(constant), repr(constant)) for constant in code.co_consts if not isinstance(constant, CodeType)
        )
        return code.co_code, constants, code.co_names, code.co_varnames, code.co_exceptiontable

    return does(one) != does(other)
