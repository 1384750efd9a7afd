"""Puts changed bodies into functions that are loaded, in place of an import of the changed module."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType


def replace_bodies(file: str, old: str, new: str) -> bool:
    """Give the loaded functions of a module the bodies that they have in its new text.

    A file that is no module of Python has none, and is read when it is needed.

    Args:
        file: the path of the module.
        old: the text that it was loaded from.
        new: its text now.

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
    path, found = Path(file).resolve(), set()
    for function in [thing for thing in gc.get_objects() if isinstance(thing, FunctionType)]:
        code = function.__code__
        if code.co_qualname in outer and Path(code.co_filename).resolve() == path:
            function.__code__ = bodies[code.co_qualname]
            found.add(code.co_qualname)
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
