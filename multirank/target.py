"""A function named on a command line: `train.py:main`, or `package.module:main`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def split(text: str) -> tuple[str, str]:
    """The file or module, and the function's name.

    Raises:
        ValueError: the text names none, or a file that does not exist.
    """
    source, colon, function = text.rpartition(":")
    if not (colon and source and function.isidentifier()):
        raise ValueError(f"{text!r} must be FILE:FUNCTION, such as train.py:main")
    if _is_file(source):
        if not Path(source).is_file():
            raise ValueError(f"there is no file {source}")
        return str(Path(source).resolve()), function
    return source, function


def call(source: str, function: str) -> Any:
    """Imports the file or module, in the rank, and calls its function.

    Raises:
        NameError: it has no such function.
    """
    module = _from_file(Path(source)) if _is_file(source) else importlib.import_module(source)
    found: Callable[[], Any] | None = getattr(module, function, None)
    if not callable(found):
        raise NameError(f"{source} defines no function {function!r}")
    return found()


def _is_file(source: str) -> bool:
    return source.endswith(".py")


def _from_file(file: Path) -> ModuleType:
    """Imports a file as `python FILE` would find its neighbours: as part of its package, if it
    lies in one, so that relative imports work."""
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    if len(names) > 1:
        return importlib.import_module(".".join(names))
    # Under a name of its own: the file may be called as one of Python's modules is.
    spec = importlib.util.spec_from_file_location(f"{file.stem} (program)", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
