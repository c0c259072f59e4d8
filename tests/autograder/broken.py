"""Broken variants of the reference, as students hand them in by accident: by number, seeded.

Variant n is always the same. Each is broken in one place of one module: a file that ends in the
middle, lines that have changed places, functions that are missing, raise, sleep, hang, recurse,
print megabytes or return something else.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from .submissions import SMALL, Files, reference_files

_EXCEPTIONS = (
    *(
        "ValueError(1)",
        "KeyError",
        "StopIteration",
        "AssertionError()",
        "MemoryError",
        "OSError(9)",
    ),
    *("SystemExit(0)", "KeyboardInterrupt", "GeneratorExit", "RecursionError('deep')"),
    *("UnicodeDecodeError('utf-8', b'\\xff', 0, 1, 'no')", "RuntimeError('x' * 5_000_000)"),
    *("ExceptionGroup('many', [ValueError(i) for i in range(1000)])", "NotImplementedError"),
    *("type('Odd', (BaseException,), {'__str__': lambda self: 1 / 0})", "BaseException"),
)
_RESULTS = (
    *("None", "0", "-1", "'text'", "b'bytes'", "[]", "{}", "object()", "lambda: 0", "type"),
    *("float('nan')", "float('inf')", "10**5000", "-(10**5000)", "1e400", "(i for i in [1])"),
    *("torch.zeros(())", "torch.zeros(0)", "torch.full((3,), float('nan'))", "True", "..."),
    *("torch.zeros(2, dtype=torch.complex64)", "torch.eye(2).to_sparse()", "[[[]]] * 10_000"),
    *("['\\ud800'] * 3", "{1: 2}", "[None] * 100_000", "(1, (2, (3,)))", "NotImplemented"),
    *("torch.zeros(1, device='meta')", "1 + 2j", "range(5)", "set()"),
)
_SECONDS = (0.001, 0.2, 1.0, 1e6)


@dataclass(frozen=True)
class Broken:
    """One variant.

    module: what is broken. story: how, for whoever reads of it in a failed test.
    """

    number: int
    module: str
    story: str
    files: Files = field(repr=False)

    @property
    def whole(self) -> set[str]:
        """The modules that do without the broken one."""
        return {
            name.removesuffix(".py")
            for name in self.files
            if self.module not in _needed(self.files, name.removesuffix(".py"))
        }


def broken(number: int) -> Broken:
    """Variant `number`."""
    rng = random.Random(number)
    problem = SMALL.problems[number % len(SMALL.problems)]
    files = reference_files()
    name = f"{problem.module}.py"
    source = files[name].decode()
    how = rng.choice(_WAYS)
    function = rng.choice([*problem.names, *problem.names, *_functions(source)])
    story, text = how(rng, source, function)
    files[name] = text.encode("utf-8", "surrogatepass")
    return Broken(number, problem.module, f"{name}: {story}", files)


def _functions(source: str) -> list[str]:
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]


def _needed(files: Files, module: str, known: frozenset[str] = frozenset()) -> set[str]:
    """The module and those that it imports, and they."""
    found = re.findall(
        r"^ *from \.(\w+) import|^ *from \. import (\w+)", _text(files, module), re.M
    )
    needed = {module}
    for other in {name for names in found for name in names if name} - known - {module}:
        needed |= _needed(files, other, known | needed)
    return needed


def _text(files: Files, module: str) -> str:
    return files.get(f"{module}.py", b"").decode("utf-8", "replace")


# --- Ways to break it ---------------------------------------------------------------------------

Way = Callable[[random.Random, str, str], tuple[str, str]]


def _cut(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    end = rng.randrange(len(source))
    return f"ends after {end} characters", source[:end]


def _swapped(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    lines = source.splitlines(keepends=True)
    begin, end = _place(source, function)
    one, other = rng.randrange(begin, end), rng.randrange(begin, end)
    lines[one], lines[other] = lines[other], lines[one]
    return f"lines {one + 1} and {other + 1} have changed places", "".join(lines)


def _without_a_line(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    lines = source.splitlines(keepends=True)
    place = rng.randrange(*_place(source, function))
    return f"line {place + 1} is missing", "".join(lines[:place] + lines[place + 1 :])


def _without_it(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    lines = source.splitlines(keepends=True)
    begin, end = _place(source, function)
    return f"{function} is missing", "".join(lines[:begin] + lines[end:])


def _raising(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    return _beginning(source, function, f"raise {rng.choice(_EXCEPTIONS)}")


def _sleeping(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    return _beginning(source, function, f"__import__('time').sleep({rng.choice(_SECONDS)})")


def _returning(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    return _beginning(source, function, f"return {rng.choice(_RESULTS)}")


def _recursing(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    return _beginning(source, function, f"return (lambda f: f(f))(lambda f: f(f)), {function}")


def _printing(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    text = rng.choice(["'x' * 5_000_000", "'\\n' * 300_000", "'\\x1b[2J\\u202e<b>' * 200_000"])
    return _beginning(source, function, f"print({text})")


def _spinning(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    return _beginning(source, function, "while True: pass")


def _failing_on_import(rng: random.Random, source: str, function: str) -> tuple[str, str]:
    line = rng.choice(["def", "import numpi", "1 / 0", "raise SystemExit(0)", "'\\ud800'.encode()"])
    return f"ends with {line!r}", f"{source}\n{line}\n"


_WAYS: tuple[Way, ...] = (
    *(_cut, _swapped, _swapped, _without_a_line, _without_a_line, _without_it),
    *(_raising, _raising, _returning, _returning, _returning, _sleeping, _recursing, _printing),
    *(_spinning, _failing_on_import),
)


def _place(source: str, function: str) -> tuple[int, int]:
    """Its first line, from 0, and the one after its last."""
    node = _node(source, function)
    return node.lineno - 1, node.end_lineno or node.lineno


def _beginning(source: str, function: str, statement: str) -> tuple[str, str]:
    """A function (or a class's first method) that begins with a statement."""
    node = _node(source, function)
    body = next((one for one in node.body if isinstance(one, ast.FunctionDef)), node).body
    first = body[0]
    lines = source.splitlines(keepends=True)
    lines.insert(first.end_lineno or first.lineno, f"{' ' * first.col_offset}{statement}\n")
    return f"{function} does: {statement}", "".join(lines)


def _node(source: str, function: str) -> ast.FunctionDef | ast.ClassDef:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == function:
            return node
    raise ValueError(f"there is no {function}")
