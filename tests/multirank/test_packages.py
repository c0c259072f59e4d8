"""Packages served from memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import multirank
from multirank import Run, World


def imported(files: Mapping[str, bytes | str], use: Callable[[], Any], **options: Any) -> Run:
    """A run of `use` in a rank in which `files` are the package `work`."""
    content = {
        name: text.encode() if isinstance(text, str) else text for name, text in files.items()
    }
    with World(
        1, packages={"work": content}, import_path=(), process_group=False, **options
    ) as world:
        return world.call(use, check=False)


def result(files: Mapping[str, bytes | str], use: Callable[[], Any], **options: Any) -> Any:
    return imported(files, use, **options).check().results[0]


def test_modules_import_each_other_relatively_and_absolutely() -> None:
    files = {
        "__init__.py": "NAME = __name__",
        "one.py": "from .two import two\nfrom . import three\nimport work.two\none = two - 1\n",
        "two.py": "from work import three\nfrom work.three import three as number\ntwo = 2\n",
        "three.py": "three = 3\n",
    }

    def use() -> list[Any]:
        one = importlib.import_module("work.one")
        return [one.one, one.three.three, one.work.NAME, one.__name__, one.__package__]

    assert result(files, use) == [1, 3, "work", "work.one", "work"]


def test_a_module_is_executed_once() -> None:
    files = {"a.py": "import sys\nsys.ran = getattr(sys, 'ran', 0) + 1\n", "b.py": "import work.a"}

    def use() -> int:
        import sys

        for name in ("work.a", "work.b", "work.a"):
            importlib.import_module(name)
        return int(sys.ran)  # type: ignore[attr-defined]

    assert result(files, use) == 1


def test_a_package_without_init_file_is_an_empty_one() -> None:
    assert result({"a.py": "x = 1"}, lambda: importlib.import_module("work").__doc__) is None
    assert result({"a.py": "x = 1"}, lambda: importlib.import_module("work.a").x) == 1


def test_a_package_is_the_same_in_all_ranks_and_calls() -> None:
    def count() -> int:
        state = vars(importlib.import_module("work.state"))
        state["calls"] += 1
        return int(state["calls"])

    with World(2, packages={"work": {"state.py": b"calls = 0"}}, import_path=()) as world:
        assert [world.call(count).results for _ in range(2)] == [[1, 1], [2, 2]]


def test_several_packages_see_each_other() -> None:
    packages = {
        "first": {"__init__.py": b"x = 1"},
        "second": {"__init__.py": b"from first import x"},
    }
    with World(1, packages=packages, import_path=(), process_group=False) as world:
        assert world.call(lambda: importlib.import_module("second").x).results == [1]


def test_a_missing_module_is_named() -> None:
    run = imported({"a.py": "from . import nothing"}, lambda: importlib.import_module("work.a"))
    assert "ImportError: cannot import name 'nothing' from 'work'" in run.story
    run = imported({"a.py": ""}, lambda: importlib.import_module("work.nothing"))
    assert "ModuleNotFoundError: No module named 'work.nothing'" in run.story


def test_a_file_that_shares_the_name_of_an_installed_module_shadows_nothing() -> None:
    files = {
        "torch.py": "raise SystemError('shadowed')",
        "json.py": "raise SystemError('shadowed')",
        "a.py": "import torch, json\nfrom . import a\nok = torch.ones(1).item(), json.dumps(1)\n",
    }
    assert result(files, lambda: importlib.import_module("work.a").ok) == [1.0, "1"]


def test_nothing_on_disk_shadows_the_package(tmp_path: Path) -> None:
    (tmp_path / "assignment.py").write_text("HERE = 'disk'")
    packages = {"assignment": {"__init__.py": b"HERE = 'memory'"}}
    path = [str(tmp_path)]
    with World(1, packages=packages, import_path=path, process_group=False) as world:
        use = world.call(lambda: importlib.import_module("assignment").HERE)
    assert use.results == ["memory"]


def test_inspect_shows_the_source() -> None:
    def use() -> list[str]:
        import inspect

        module = importlib.import_module("work.a")
        return [
            inspect.getsource(module.double),
            inspect.getsource(module),
            inspect.getsource(module.Box),
            str(inspect.getsourcefile(module)),
            inspect.getfile(module.double),
        ]

    text = "def double(x):\n    return 2 * x\n\n\nclass Box:\n    side = 1\n"
    assert result({"a.py": text}, use) == [
        "def double(x):\n    return 2 * x\n",
        text,
        "class Box:\n    side = 1\n",
        "work/a.py",
        "work/a.py",
    ]


def test_a_traceback_shows_file_line_and_text() -> None:
    files = {
        "a.py": "from .b import fall\ndef go():\n    fall()\n",
        "b.py": "def fall():\n    1 / 0\n",
    }
    story = imported(files, lambda: importlib.import_module("work.a").go()).story
    assert 'File "work/a.py", line 3, in go\n' in story
    assert 'File "work/b.py", line 2, in fall\n' in story
    assert "1 / 0" in story
    assert "ZeroDivisionError: division by zero" in story
    assert str(Path(multirank.__file__).parent) not in story


def test_a_warning_shows_the_line_that_it_is_about() -> None:
    files = {"a.py": "import warnings\nwarnings.warn('careful')  # this line\n"}
    run = imported(files, lambda: importlib.import_module("work.a").__name__)
    assert "work/a.py:2: UserWarning: careful\n  warnings.warn('careful')  # this line\n" in (
        run.ranks[0].log
    )


def test_a_module_that_raises_at_import_shows_where() -> None:
    run = imported({"a.py": "x = 1\nraise KeyError('oh')\n"}, lambda: __import__("work.a"))
    assert 'File "work/a.py", line 2, in <module>' in run.story
    assert str(Path(multirank.__file__).parent) not in run.story
    assert "importlib" not in run.story


def test_a_module_that_failed_to_import_may_be_tried_again() -> None:
    files = {"a.py": "import sys\nsys.tries = getattr(sys, 'tries', 0) + 1\nassert sys.tries > 1\n"}

    def use() -> int:
        import sys

        try:
            importlib.import_module("work.a")
        except AssertionError:
            importlib.import_module("work.a")
        return int(sys.tries)  # type: ignore[attr-defined]

    assert result(files, use) == 2


def test_a_syntax_error_names_file_and_line() -> None:
    run = imported({"a.py": "x = 1\ndef broken(:\n"}, lambda: importlib.import_module("work.a"))
    assert 'File "work/a.py", line 2' in run.story
    assert "def broken(:" in run.story
    assert "SyntaxError" in run.story


def test_encodings_follow_the_declaration_in_the_file() -> None:
    files: dict[str, bytes | str] = {
        "latin.py": "# -*- coding: latin-1 -*-\nx = '\u00e4'\n".encode("latin-1"),
        "bom.py": b"\xef\xbb\xbfx = '\xc3\xa4'\n",
        "dos.py": b"x = '\xc3\xa4'\r\ny = 1\r\n",
    }

    def use() -> list[str]:
        return [importlib.import_module(f"work.{name}").x for name in ("latin", "bom", "dos")]

    assert result(files, use) == ["\u00e4"] * 3


def test_bytes_that_are_no_text_are_an_error_that_names_the_file() -> None:
    for content in (b"x = '\xff'\n", b"# coding: nonsense\n", b"x = 1\x00\n"):
        run = imported({"a.py": content}, lambda: importlib.import_module("work.a"))
        assert not run.ok
        assert "SyntaxError" in run.story
        assert "a.py" in run.story


def test_nothing_of_a_package_is_imported_before_the_function_asks_for_it() -> None:
    def loaded() -> bool:
        import sys

        return "work" in sys.modules

    assert result({"__init__.py": "raise SystemExit"}, loaded) is False


def test_the_callers_own_directory_is_not_importable_when_the_path_is_empty() -> None:
    def find() -> list[bool]:
        import importlib.util

        return [
            importlib.util.find_spec(name) is not None
            for name in ("autograder", "reference", "tests", "multirank", "torch", "numpy")
        ]

    with World(1, import_path=(), process_group=False) as world:
        assert world.call(find).results == [[False, False, False, True, True, True]]


def test_dataclasses_and_pickles_of_a_package_work() -> None:
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Pair:\n    a: int\n    b: int = 2\n"
    )

    def use() -> list[int]:
        import pickle

        module = importlib.import_module("work.a")
        pair = pickle.loads(pickle.dumps(module.Pair(1)))
        return [pair.a, pair.b]

    assert result({"a.py": text}, use) == [1, 2]


def test_packages_are_the_worlds_own() -> None:
    assert multirank.run(lambda: __import__("sys").meta_path[0].__class__.__name__, 1).results != [
        "MemoryPackage"
    ]
