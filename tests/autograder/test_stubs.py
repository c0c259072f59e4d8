"""The stub generator: what students get is the reference without its solutions, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from autograder.manifest import Manifest, load_problems
from autograder.stubs import (
    HEADER,
    StubError,
    check,
    generate,
    header,
    regions,
    stub,
    with_header,
    write,
)

ROOT = Path(__file__).resolve().parents[2]

PROBLEMS = """
title = "Distributed training"

[[part]]
id = "collectives"
number = "1"
title = "Collectives"

[[problem]]
id = "launch"
number = "1.1"
part = "collectives"
title = "Start"
points = 1
module = "launch"
names = ["setup"]

[[problem]]
id = "all_reduce"
number = "1.7"
part = "collectives"
title = "All-reduce"
points = 12
module = "collectives"
names = ["all_reduce"]
"""


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    """A folder with problems.toml, two modules with problems and one without."""
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "problems.toml").write_text(PROBLEMS)
    (folder / "course.toml").write_text('name = "A course"\n')
    (folder / "launch.py").write_text(
        "# Problems in this file (points in problems.toml):\n"
        "#   1.1  launch  1 point\n"
        '"""Start."""\n' + in_function("return 1", "setup")
    )
    (folder / "collectives.py").write_text(
        "# Problems in this file (points in problems.toml):\n"
        "#   1.7  all_reduce  12 points\n" + in_function("return x", "all_reduce")
    )
    (folder / "__init__.py").write_text('"""Given."""\n')
    return folder


@pytest.fixture
def manifest(reference: Path) -> Manifest:
    return load_problems(reference)


@pytest.fixture
def assignment(reference: Path) -> Path:
    """The folder that `write` made of `reference`."""
    folder = reference.parent / "assignment"
    write(reference, folder)
    return folder


def in_function(body: str, name: str = "all_reduce") -> str:
    """A function whose whole body is one region."""
    return f"def {name}(x=None):\n    # BEGIN SOLUTION\n    {body}\n    # END SOLUTION\n"


def names_in(source: str, **names: object) -> dict[str, Any]:
    """What a module defines when it is run."""
    namespace: dict[str, Any] = dict(names)
    exec(compile(source, "stub", "exec", dont_inherit=True), namespace)
    return namespace


def error_of(source: str, manifest: Manifest) -> str:
    with pytest.raises(StubError) as caught:
        stub(source, "reference/collectives.py", manifest)
    return str(caught.value)


def error_of_regions(source: str) -> str:
    with pytest.raises(StubError) as caught:
        regions(source, "reference/collectives.py")
    return str(caught.value)


# --- what a stub is -------------------------------------------------------------------------------


def test_a_region_becomes_one_raise_and_the_rest_stays_byte_for_byte(manifest: Manifest) -> None:
    before = (
        '"""Süß, 日本語, and a form feed:\f."""\n'
        "import math  # only the solution needs it \n"
        "\n\n\n"
        "@decorate(\n  1)  \n"
        "def all_reduce(x,\n"
        "               y = {'a':1}):   # type: (int, int) -> int\n"
        '    """Docstring.\n\n\tA tab, and spaces at the end:   \n    """\n'
        "    y = 1;  z = x  # type: int\n"
    )
    region = (
        "    # BEGIN SOLUTION\n"
        "    # The idea, which nobody may read.\n"
        "    for _ in range(2):\n"
        '        x = """\nno indentation in here\n"""  # type: ignore\n'
        "\n"
        "    # A last word.\n"
        "    # END SOLUTION\n"
    )
    after = "    return x # one space\n\nTAIL = '\u2028\x0b'   \n\n\n"
    expected = '    raise NotImplementedError("Problem 1.7, all_reduce: not written yet")\n'
    stubbed = stub(before + region + after, "reference/collectives.py", manifest)
    assert stubbed == before + expected + after


def test_a_missing_final_newline_stays_missing(manifest: Manifest) -> None:
    source = in_function("return x").removesuffix("\n")
    assert stub(source, "collectives.py", manifest).endswith('not written yet")')
    assert stub(source + "\nX = 1", "collectives.py", manifest).endswith("\nX = 1")


def test_tabs_stay_tabs(manifest: Manifest) -> None:
    source = in_function("return x").replace("    ", "\t")
    assert stub(source, "collectives.py", manifest).splitlines()[1].startswith("\traise ")


def test_a_file_without_regions_is_its_own_stub(manifest: Manifest) -> None:
    source = "import torch\n\n\ndef given() -> None:\n    return\n"
    assert stub(source, "reference/given.py", manifest) == source


def test_every_region_of_a_function_is_replaced_and_what_is_given_runs(manifest: Manifest) -> None:
    source = dedent(
        """
        def all_reduce(x, log):
            log.append("given")
            if x == 1:
                log.append("one")
                # BEGIN SOLUTION
                return 1
                # END SOLUTION
            elif x == 2:
                for i in [1]:
                    with log:
                        # BEGIN SOLUTION
                        if i:
                            return 2
                        else:
                            return 3
                        # END SOLUTION
            try:
                log.append("try")
            except ValueError:
                # BEGIN SOLUTION
                pass
                # END SOLUTION
            finally:
                if x == 3:
                    # BEGIN SOLUTION
                    y = 1
                    # END SOLUTION
            match x:
                case 4:
                    # BEGIN SOLUTION
                    return 4
                    # END SOLUTION
            return "the end, all given"
        """
    )

    class Log(list[str]):
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    assert [region.begin for region in regions(source, "collectives.py")] == [6, 12, 21, 26, 31]
    stubbed = stub(source, "collectives.py", manifest)
    assert "SOLUTION" not in stubbed
    all_reduce = names_in(stubbed)["all_reduce"]
    for x, given in [
        (1, ["given", "one"]),
        (2, ["given"]),
        (3, ["given", "try"]),
        (4, ["given", "try"]),
    ]:
        log = Log()
        with pytest.raises(NotImplementedError, match=r"^Problem 1\.7, all_reduce: not written"):
            all_reduce(x, log)
        assert log == given
    assert all_reduce(5, Log()) == "the end, all given"


FORMS: dict[str, tuple[str, str, Callable[[dict[str, Any]], object]]] = {
    "a method": (
        """
        class all_reduce:
            size = 1

            def forward(self):
                # BEGIN SOLUTION
                return 1
                # END SOLUTION
        """,
        "all_reduce.forward",
        lambda names: names["all_reduce"]().forward(),
    ),
    "a static method of a class in a class": (
        """
        class all_reduce:
            class Inner:
                @staticmethod
                def apply():
                    # BEGIN SOLUTION
                    return 1
                    # END SOLUTION
        """,
        "all_reduce.Inner.apply",
        lambda names: names["all_reduce"].Inner.apply(),
    ),
    "a function in a function": (
        """
        def all_reduce():
            def step():
                # BEGIN SOLUTION
                return 1
                # END SOLUTION
            return step()
        """,
        "all_reduce.step",
        lambda names: names["all_reduce"](),
    ),
    "an async function": (
        """
        async def all_reduce():
            # BEGIN SOLUTION
            return 1
            # END SOLUTION
        """,
        "all_reduce",
        lambda names: asyncio.run(names["all_reduce"]()),
    ),
    "a decorated function inside the region": (
        """
        def all_reduce():
            # BEGIN SOLUTION
            @staticmethod
            def step():
                return 1
            return step()
            # END SOLUTION
        """,
        "all_reduce",
        lambda names: names["all_reduce"](),
    ),
    "a generator that is none without its yield": (
        """
        def all_reduce():
            # BEGIN SOLUTION
            yield 1
            # END SOLUTION
        """,
        "all_reduce",
        lambda names: names["all_reduce"](),
    ),
    "a function that only some Pythons define": (
        """
        if True:
            def all_reduce():
                # BEGIN SOLUTION
                return 1
                # END SOLUTION
        """,
        "all_reduce",
        lambda names: names["all_reduce"](),
    ),
}


@pytest.mark.parametrize(("source", "name", "call"), FORMS.values(), ids=FORMS)
def test_a_region_raises_with_its_problem_and_function_wherever_it_stands(
    manifest: Manifest, source: str, name: str, call: Callable[[dict[str, Any]], object]
) -> None:
    source = dedent(source)
    assert [region.qualname for region in regions(source, "collectives.py")] == [name]
    stubbed = stub(source, "collectives.py", manifest)
    with pytest.raises(NotImplementedError) as caught:
        call(names_in(stubbed))
    assert str(caught.value) == f"Problem 1.7, {name}: not written yet"


def test_markers_in_strings_are_only_text(manifest: Manifest) -> None:
    source = (
        '"""How to mark:\n\n    # BEGIN SOLUTION\n    # END SOLUTION\n"""\n'
        "WORDS = '# begin solution', f'# END SOLUTION'\n"
    )
    assert regions(source, "collectives.py") == []
    whole = source + in_function('return """\n    # END SOLUTION\n    # BEGIN SOLUTION"""')
    assert len(regions(whole, "collectives.py")) == 1
    assert stub(whole, "collectives.py", manifest).startswith(source + "def all_reduce(x=None):\n")


# --- what is an error -----------------------------------------------------------------------------

NEAR = [
    "#BEGIN SOLUTION",
    "# begin solution",
    "# Begin Solution",
    "# BEGIN SOLUTION:",
    "# BEGIN  SOLUTION",
    "#  BEGIN SOLUTION",
    "# BEGIN SOLUTION ",
    "# BEGIN\tSOLUTION",
    "# BEGIN\u00a0SOLUTION",
    "## BEGIN SOLUTION",
    "# SOLUTION BEGIN",
    "# BEGIN SOLUTIONS",
    "# BEGIN_SOLUTION",
    "# BEGIN-SOLUTION",
    "# BEGINSOLUTION",
    "# <BEGIN SOLUTION>",
    "# --- BEGIN SOLUTION ---",
    "# BEGIN SOLUTION of the ring",
    "# here: begin solution",
    "# here we begin -- solution of the ring",
    "# of the ring the solution -- end it here",
    "# B E G I N  S O L U T I O N",
    "# BEGIN SOULTION",
    "# BEGIN SOLUTON",
    "# BEGN SOLUTION",
    "# START SOLUTION",
    "# STOP SOLUTION",
    "# END OF SOLUTION",
    "#END SOLUTION",
    "# end solution",
    "# END SOLUTION.",
    "# END  SOLUTIONS",
    "# SOLUTION END",
    "# SOLUTION ENDS HERE",
    "# END SOULTION",
]


@pytest.mark.parametrize("comment", NEAR)
def test_a_comment_that_is_nearly_a_marker_is_an_error(comment: str) -> None:
    source = f"def all_reduce(x):\n    y = x\n    {comment}\n    return y\n"
    error = error_of_regions(source)
    assert error.startswith("reference/collectives.py:3: ")
    assert "is nearly a marker" in error


def test_a_near_miss_is_an_error_in_a_file_without_problems_too(manifest: Manifest) -> None:
    with pytest.raises(StubError, match=r"given\.py:2"):
        stub("X = 1\n# end solution\n", "reference/given.py", manifest)


@pytest.mark.parametrize(
    "comment",
    [
        "# The best solution sends 1.75 S.",
        "# Append it; resolution in ns.",
        "# Begin with rank 0.",
        "# The end of the ring.",
        "# We append solutions to the list.",
        "# The same resolution, begin with it.",
        "# solution",
        "#",
        "#!",
    ],
)
def test_ordinary_comments_are_left_alone(comment: str) -> None:
    assert regions(f"X = 1\n{comment}\n", "reference/given.py") == []


BAD: dict[str, tuple[str, int, str]] = {
    "code before a BEGIN": (
        """
        def all_reduce(x):
            y = x  # BEGIN SOLUTION
            return y
            # END SOLUTION
        """,
        2,
        "must have a line to itself",
    ),
    "code before an END": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            return x  # END SOLUTION
        """,
        3,
        "must have a line to itself",
    ),
    "no END": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            return x
        """,
        2,
        "without an `# END SOLUTION` after it",
    ),
    "no BEGIN": (
        """
        def all_reduce(x):
            return x
            # END SOLUTION
        """,
        3,
        "without a `# BEGIN SOLUTION` before it",
    ),
    "a region in a region": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            if x:
                # BEGIN SOLUTION
                return x
                # END SOLUTION
            # END SOLUTION
        """,
        4,
        "inside the one that began at line 2",
    ),
    "an empty region": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            # Only words.

            # END SOLUTION
            return x
        """,
        2,
        "the region up to line 5 holds no statement",
    ),
    "a region in the middle of a statement": (
        """
        def all_reduce(x):
            return max(
                # BEGIN SOLUTION
                x,
                # END SOLUTION
                1,
            )
        """,
        3,
        "holds no statement",
    ),
    "a region at module level": (
        """
        # BEGIN SOLUTION
        X = 1
        # END SOLUTION
        """,
        1,
        "must stand inside a function or method",
    ),
    "a region that holds a whole function": (
        """
        # BEGIN SOLUTION
        def all_reduce(x):
            return x
        # END SOLUTION
        """,
        1,
        "must stand inside a function or method",
    ),
    "a region in a class body": (
        """
        class all_reduce:
            # BEGIN SOLUTION
            size = 1
            # END SOLUTION
        """,
        2,
        "must stand inside a function or method",
    ),
    "a BEGIN too far left": (
        """
        def all_reduce(x):
        # BEGIN SOLUTION
            return x
            # END SOLUTION
        """,
        2,
        "must have the indentation of the code",
    ),
    "a BEGIN too far right": (
        """
        def all_reduce(x):
                # BEGIN SOLUTION
            return x
            # END SOLUTION
        """,
        2,
        "must have the indentation of the code",
    ),
    "an END too far left": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            return x
        # END SOLUTION
        """,
        4,
        "must have the indentation of the code",
    ),
    "both markers too far left": (
        """
        def all_reduce(x):
            if x:
            # BEGIN SOLUTION
                return x
            # END SOLUTION
            return x
        """,
        3,
        "must have the indentation of the code",
    ),
    "a region that ends in another block": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            y = x
            if x:
                y = 1
                # END SOLUTION
                return 1
            return y
        """,
        6,
        "must have the indentation of the code",
    ),
    "a region without the else of its if": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            y = x
            if x:
                return y
            # END SOLUTION
            else:
                return 2
        """,
        2,
        "cuts a statement in two",
    ),
    "a region that begins at an elif": (
        """
        def all_reduce(x):
            if x == 1:
                return x
            # BEGIN SOLUTION
            elif x == 2:
                return 2
            # END SOLUTION
            return 3
        """,
        4,
        "cuts a statement in two",
    ),
    "a region that swallows an else": (
        """
        def all_reduce(x):
            if x:
                # BEGIN SOLUTION
                y = 1
            else:
                # END SOLUTION
                y = 2
            return y
        """,
        3,
        "cuts a statement in two",
    ),
    "a region without the decorator of its function": (
        """
        def all_reduce(x):
            @staticmethod
            # BEGIN SOLUTION
            def step():
                return x
            # END SOLUTION
            return step()
        """,
        3,
        "cuts a statement in two",
    ),
    "a region over two functions": (
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            return x

        def given(x):
            y = x
            # END SOLUTION
            return y
        """,
        2,
        "cuts a statement in two",
    ),
    "a region that holds the docstring": (
        '''
        def all_reduce(x):
            # BEGIN SOLUTION
            """What students need to read."""
            return x
            # END SOLUTION
        ''',
        2,
        "must not hold the docstring",
    ),
    "what is not Python": (
        """
        def all_reduce(x):
            return (
        """,
        2,
        "this is not valid Python",
    ),
}


@pytest.mark.parametrize(("source", "line", "sentence"), BAD.values(), ids=BAD)
def test_a_region_that_is_not_exactly_right_is_an_error(
    source: str, line: int, sentence: str
) -> None:
    error = error_of_regions(dedent(source).lstrip("\n"))
    assert error.startswith(f"reference/collectives.py:{line}: ")
    assert sentence in error


@pytest.mark.parametrize("text", ["X = 1\n\r\n", "X = 1\nY = '\r'\n", "X = 1\nY = 2\r\n"])
def test_carriage_returns_are_an_error(text: str) -> None:
    assert error_of_regions(text).startswith("reference/collectives.py:2: carriage return")


@pytest.mark.parametrize("text", ["X = '\0'\n", "\ufeffX = 1\n"])
def test_null_bytes_and_byte_order_marks_are_an_error(text: str) -> None:
    assert "this is not valid Python" in error_of_regions(text)


def test_a_region_that_belongs_to_no_problem_is_an_error(manifest: Manifest) -> None:
    error = error_of(in_function("return x") + in_function("return x", "helper"), manifest)
    assert error == (
        "reference/collectives.py:6: this region has no problem. "
        "No problem in problems.toml asks for `helper` in `collectives`."
    )


def test_a_name_of_a_problem_without_a_region_is_an_error(manifest: Manifest) -> None:
    error = error_of("def all_reduce(x):\n    return x\n", manifest)
    assert error == (
        "reference/collectives.py: problem 1.7 asks for `all_reduce`, but no solution region is in "
        "it; mark what students write."
    )


def test_a_stub_that_would_not_compile_is_an_error(manifest: Manifest) -> None:
    source = dedent(
        """
        def all_reduce(x):
            # BEGIN SOLUTION
            total = 0
            # END SOLUTION
            def add(y):
                nonlocal total
                total += y
            return add
        """
    )
    error = error_of(source, manifest)
    assert error.startswith("reference/collectives.py: without its solutions this does not compile")
    assert "nonlocal 'total'" in error


# --- the header -----------------------------------------------------------------------------------


def test_a_header_lists_the_problems_of_its_file_in_columns(reference: Path) -> None:
    more = PROBLEMS + (
        '[[problem]]\nid = "barrier"\nnumber = "1.10"\npart = "collectives"\ntitle = "Barrier"\n'
        'points = 1\nmodule = "collectives"\nnames = ["barrier"]\n'
    )
    (reference / "problems.toml").write_text(more)
    assert header("collectives", load_problems(reference)) == (
        "# Problems in this file (points in problems.toml):\n"
        "#   1.7   all_reduce  12 points\n"
        "#   1.10  barrier      1 point\n"
    )


def test_a_header_is_put_before_everything_else(manifest: Manifest) -> None:
    source = '"""All."""\n\nX = 1'
    made = with_header(source, "collectives", manifest)
    assert made == header("collectives", manifest) + source
    assert with_header(made, "collectives", manifest) == made


def test_an_old_header_is_replaced_and_nothing_below_it(manifest: Manifest) -> None:
    below = "# A comment of the author's.\n#  And one more.\n\nX = 1\n"
    old = f"{HEADER}\n#   1.6  ring   3 points\n#   1.7  all_reduce  9 points\n"
    new = header("collectives", manifest)
    assert with_header(old + below, "collectives", manifest) == new + below
    assert with_header(HEADER, "collectives", manifest) == new


def test_a_file_without_problems_has_no_header(manifest: Manifest) -> None:
    assert header("given", manifest) == ""
    assert with_header("X = 1\n", "given", manifest) == "X = 1\n"
    assert with_header(f"{HEADER}\n#   1.1  a  1 point\nX = 1\n", "given", manifest) == "X = 1\n"


def test_a_comment_that_is_like_a_header_is_no_header(manifest: Manifest) -> None:
    source = "# Problems in this file are hard.\n#   1.7 most of all\n"
    assert with_header(source, "given", manifest) == source


def test_a_header_below_the_first_line_is_an_error(manifest: Manifest) -> None:
    with pytest.raises(StubError, match=r"collectives.py:2: .* must be the first lines"):
        with_header(f"X = 1\n{HEADER}\n", "collectives", manifest)


# --- the folder -----------------------------------------------------------------------------------


def test_the_public_files_are_generated_and_the_private_ones_are_not(reference: Path) -> None:
    for name in ["_notes.py", ".hidden.py"]:
        (reference / name).write_text("SECRET = 1\n")
    (reference / "README.md").write_text("For staff.\n")
    (reference / "__main__.py").write_text("print(1)\n")
    files = generate(reference)
    assert set(files) == {
        "__init__.py",
        "__main__.py",
        "collectives.py",
        "launch.py",
        "problems.toml",
    }
    assert files["problems.toml"] == PROBLEMS.encode()
    assert files["launch.py"] == (
        b"# Problems in this file (points in problems.toml):\n"
        b"#   1.1  launch  1 point\n"
        b'"""Start."""\n'
        b"def setup(x=None):\n"
        b'    raise NotImplementedError("Problem 1.1, setup: not written yet")\n'
    )


def test_a_course_that_leaves_a_problem_out_changes_no_stub(reference: Path) -> None:
    before = generate(reference)
    (reference / "course.toml").write_text(
        'name = "Short"\n[problems]\noff = ["launch"]\n[weights]\nall_reduce = 1\n'
    )
    assert generate(reference) == before


def test_a_module_that_problems_toml_asks_for_must_be_there(reference: Path) -> None:
    (reference / "launch.py").unlink()
    with pytest.raises(StubError, match=r"^reference/launch.py: problems.toml asks for module"):
        generate(reference)


def test_a_file_that_is_not_utf_8_is_an_error(reference: Path) -> None:
    (reference / "launch.py").write_bytes(b"# \xff\n")
    with pytest.raises(StubError, match=r"^reference/launch.py: this is not UTF-8"):
        generate(reference)


def test_writing_changes_what_differs_and_says_what(reference: Path, assignment: Path) -> None:
    assert {path.name: path.read_bytes() for path in assignment.iterdir()} == generate(reference)
    assert write(reference, assignment) == []
    (assignment / "launch.py").write_text("mine\n")
    (assignment / "old.py").write_text("from before\n")
    (assignment / "README.md").write_text("foreign\n")
    (assignment / "data").mkdir()
    (assignment / "data" / "kept.py").write_text("foreign\n")
    assert write(reference, assignment) == [assignment / "launch.py", assignment / "old.py"]
    assert not (assignment / "old.py").exists()
    assert (assignment / "README.md").read_text() == "foreign\n"
    assert (assignment / "data" / "kept.py").exists()
    assert check(reference, assignment) == []


def test_writing_brings_the_headers_of_the_reference_up_to_date(
    reference: Path, assignment: Path
) -> None:
    before = (reference / "collectives.py").read_text()
    (reference / "problems.toml").write_text(PROBLEMS.replace("points = 12", "points = 9"))
    assert check(reference, assignment) == [
        "The header of reference/collectives.py is not what problems.toml says now.",
        "assignment/collectives.py differs from what reference/ gives, at line 2.",
        "assignment/problems.toml differs from what reference/ gives, at line 23.",
    ]
    write(reference, assignment)
    after = (reference / "collectives.py").read_text()
    assert after == before.replace("12 points", "9 points")
    assert check(reference, assignment) == []


def test_nothing_is_written_when_a_file_is_wrong(reference: Path, assignment: Path) -> None:
    (reference / "problems.toml").write_text(PROBLEMS.replace("points = 12", "points = 9"))
    (reference / "launch.py").write_text("# begin solution\n")
    before = {path: path.read_bytes() for path in reference.parent.glob("*/*")}
    with pytest.raises(StubError):
        write(reference, assignment)
    assert {path: path.read_bytes() for path in reference.parent.glob("*/*")} == before


def test_checking_says_what_differs_and_where(reference: Path, assignment: Path) -> None:
    (assignment / "__init__.py").unlink()
    (assignment / "extra.py").write_text("")
    stubbed = (assignment / "launch.py").read_bytes()
    (assignment / "launch.py").write_bytes(stubbed.removesuffix(b"\n"))
    (assignment / "collectives.py").write_bytes(b"\xff")
    (assignment / "notes.txt").write_text("foreign\n")
    assert check(reference, assignment) == [
        "assignment/__init__.py is missing.",
        "assignment/collectives.py differs from what reference/ gives, at line 1.",
        "assignment/launch.py differs from what reference/ gives, at line 6.",
        "assignment/extra.py should not be there: nothing in reference/ gives it.",
    ]


def test_checking_a_folder_that_is_not_there_says_that_all_is_missing(reference: Path) -> None:
    sentences = check(reference, reference.parent / "assignment")
    assert sentences == [f"assignment/{name} is missing." for name in generate(reference)]
    assert not (reference.parent / "assignment").exists()


# --- packages in the folder -----------------------------------------------------------------------


@pytest.fixture
def examples(reference: Path) -> Path:
    """A package in the reference; a module of it has the name of one with problems."""
    package = reference / "examples"
    package.mkdir()
    (package / "__init__.py").write_text('"""Examples."""\n')
    (package / "collectives.py").write_text("def all_reduce():\n    return 1\n")
    return package


def test_a_package_is_given_as_it_is_without_headers(reference: Path, examples: Path) -> None:
    (examples / "_notes.py").write_text("SECRET = 1\n")
    (examples / "data.txt").write_text("For staff.\n")
    for private in ("_drafts", "no_package"):
        (reference / private).mkdir()
        (reference / private / "more.py").write_text("SECRET = 1\n")
    (reference / "_drafts" / "__init__.py").touch()
    files = generate(reference)
    given = {name: data for name, data in files.items() if "/" in name}
    assert given == {
        f"examples/{name}": (examples / name).read_bytes()
        for name in ("__init__.py", "collectives.py")
    }


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (in_function("return 1"), r"collectives.py:2: a package is given; it has no solutions"),
        ("# begin solution\n", r"collectives.py:1: .*nearly a marker"),
    ],
)
def test_a_package_with_solutions_is_an_error(
    reference: Path, examples: Path, source: str, told: str
) -> None:
    (examples / "collectives.py").write_text(source)
    with pytest.raises(StubError, match=f"^reference/examples/{told}"):
        generate(reference)


def test_what_differs_in_a_package_is_told_and_written(reference: Path, examples: Path) -> None:
    assignment = reference.parent / "assignment"
    write(reference, assignment)
    assert check(reference, assignment) == []
    given = assignment / "examples"
    (given / "collectives.py").write_text("mine\n")
    (given / "old.py").write_text("from before\n")
    assert check(reference, assignment) == [
        "assignment/examples/collectives.py differs from what reference/ gives, at line 1.",
        "assignment/examples/old.py should not be there: nothing in reference/ gives it.",
    ]
    assert write(reference, assignment) == [given / "collectives.py", given / "old.py"]
    assert check(reference, assignment) == []


def test_a_package_that_the_reference_has_no_more_goes_from_the_assignment(
    reference: Path, examples: Path
) -> None:
    assignment = reference.parent / "assignment"
    write(reference, assignment)
    for path in [*examples.iterdir()]:
        path.unlink()
    assert len(check(reference, assignment)) == 2
    write(reference, assignment)
    assert check(reference, assignment) == []
    assert not [*assignment.glob("examples/*.py")]


def test_the_assignment_of_this_repository_is_what_its_reference_gives() -> None:
    assert check(ROOT / "reference", ROOT / "assignment") == []
