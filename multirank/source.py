"""What can be sent to a rank: a function as source text, and arguments that differ by rank."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Source:
    """A function given as the source text of its module.

    Nothing of the sender's process travels with it: the text is compiled in the rank, as a module
    of its own, under `filename` (which tracebacks then show). Whoever does not trust what runs in
    the ranks sends functions this way.

    Args:
        text: the module's source.
        function: the name of the function in it that is called.
        filename: the name for tracebacks; need not exist.
        arguments: keyword arguments given to every call.
    """

    text: str
    function: str
    filename: str = "<source>"
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Callable[..., Any]:
        """Compiles the module and returns the function, with `arguments` bound."""
        module = types.ModuleType(self.filename)
        sys.modules[self.filename] = module  # dataclasses look their module up there
        module.__file__ = self.filename
        show_source(self.filename, self.text)
        exec(compile(self.text, self.filename, "exec", dont_inherit=True), module.__dict__)
        if self.function not in module.__dict__:
            raise NameError(f"{self.filename} defines no function {self.function!r}")
        function: Callable[..., Any] = module.__dict__[self.function]
        if not self.arguments:
            return function
        bound = dict(self.arguments)

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **bound, **kwargs)

        return call


@dataclass(frozen=True)
class PerRank:
    """Made by `per_rank`: one value for each rank."""

    items: tuple[Any, ...]


def per_rank(items: Sequence[Any]) -> Any:
    """Marks an argument of `run` or `World.call` of which rank r is given `items[r]`.

    It stands for a whole argument, positional or keyword, never for a part of one.
    """
    return PerRank(tuple(items))


def show_source(filename: str, text: str) -> None:
    """Lets tracebacks and `inspect` show lines of a file that exists in memory only."""
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
