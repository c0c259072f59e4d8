"""Packages served from memory: nothing is read from disk, and nothing on disk can shadow them."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Mapping, Sequence

from ..source import show_source


class MemoryPackage(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finder and loader of one flat package given as `{"module.py": bytes}`.

    Relative and absolute imports between its modules work, `inspect` and tracebacks show its
    lines, and its files appear as `NAME/module.py`. A missing `__init__.py` counts as empty.
    """

    def __init__(self, name: str, files: Mapping[str, bytes]) -> None:
        self.name = name
        self.files = dict(files)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == self.name:
            origin = f"{self.name}/__init__.py"
            return importlib.util.spec_from_loader(fullname, self, origin=origin, is_package=True)
        package, _, module = fullname.rpartition(".")
        if package == self.name and f"{module}.py" in self.files:
            return importlib.util.spec_from_loader(
                fullname, self, origin=f"{self.name}/{module}.py"
            )
        return None

    def get_source(self, fullname: str) -> str:
        """The module's text, decoded as Python would (PEP 263)."""
        return importlib.util.decode_source(self._bytes(fullname))

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        assert module.__spec__.origin is not None
        module.__file__ = module.__spec__.origin
        source = self._bytes(module.__name__)
        if b"\0" in source:  # for which early releases of Python 3.11 name no file
            raise SyntaxError("source code cannot contain null bytes", (module.__file__, 1, 0, ""))
        code = compile(source, module.__file__, "exec", dont_inherit=True)
        show_source(module.__file__, self.get_source(module.__name__))
        exec(code, module.__dict__)

    def _bytes(self, fullname: str) -> bytes:
        module = "__init__" if fullname == self.name else fullname.rpartition(".")[2]
        return self.files.get(f"{module}.py", b"")


def serve(packages: Mapping[str, Mapping[str, bytes]]) -> None:
    """Makes every given package importable in this process, before anything on `sys.path`."""
    for name, files in packages.items():
        sys.meta_path.insert(0, MemoryPackage(name, files))
