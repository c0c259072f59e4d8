"""The changes: what a slip of the pen or of the mind makes of one expression or statement.

Each is a patch: the text of one node of the syntax tree, and what takes its place. Names and
strings are left alone: another name mostly is an error at once, which says little of the checks.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

_BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitXor: ast.BitOr,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


_SYMMETRIC = ("min", "max")  # functions whose first two arguments may change places
_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True)
class Patch:
    """A change of a text: of the node that lies at these characters, from 0."""

    begin: int
    end: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        return source[: self.begin] + self.new + source[self.end :]


def patches(source: str, first: int, last: int) -> Iterator[Patch]:
    """Every change of the statements in the lines `first` to `last` (from 1) of a module."""
    starts = [0]
    for line in source.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    lines = source.split("\n")

    def place(line: int, column: int) -> int:
        """Where it is in the text; columns count bytes."""
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    tree = ast.parse(source)
    unread = _annotations(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt | ast.expr) or node.end_lineno is None or node in unread:
            continue
        if not (first <= node.lineno and node.end_lineno <= last):
            continue
        begin = place(node.lineno, node.col_offset)
        end = place(node.end_lineno, node.end_col_offset or 0)
        for text in dict.fromkeys(_changes(node)):
            yield Patch(begin, end, source[begin:end], text)


def _annotations(tree: ast.AST) -> set[ast.AST]:
    """What stands in annotations, which nobody reads while the program runs."""
    tops = [
        top
        for node in ast.walk(tree)
        for top in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(top, ast.AST)
    ]
    return {node for top in tops for node in ast.walk(top)}


def _changes(node: ast.stmt | ast.expr) -> Iterator[str]:
    """What can stand in a node's place. An expression is put into parentheses."""
    if isinstance(node, ast.expr):
        for changed in _expressions(node):
            plain = isinstance(changed, ast.Constant | ast.Call | ast.Name | ast.Attribute)
            text = ast.unparse(changed)
            yield text if plain and not text.startswith("-") else f"({text})"
        return
    yield from _statements(node)


def _statements(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
        yield "pass"
    elif isinstance(node, ast.AugAssign):
        yield "pass"
        if replacement := _BINARY.get(type(node.op)):
            yield ast.unparse(_with(node, op=replacement()))
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "return None"
    elif isinstance(node, ast.Break):
        yield "continue"
    elif isinstance(node, ast.Continue):
        yield "break"
    elif isinstance(node, ast.Raise | ast.Delete):
        yield "pass"


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(op=op) if type(op) in _BINARY:
            yield _with(node, op=_BINARY[type(op)]())
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.Compare(ops=[op]):
            for other in _COMPARISONS[type(op)]:
                yield _with(node, ops=[other()])
        case ast.IfExp(body=body, orelse=orelse):
            yield body
            yield orelse
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
            if value == 1:
                yield ast.Constant(0)
        case ast.Call(args=[left, right, *rest]) if not isinstance(left, ast.Starred):
            same = isinstance(node.func, ast.Name) and node.func.id in _SYMMETRIC
            if not isinstance(right, ast.Starred) and not same:
                yield _with(node, args=[right, left, *rest])
    if isinstance(node, ast.Call):
        for place, keyword in enumerate(node.keywords):
            if keyword.arg is not None:
                others = [*node.keywords[:place], *node.keywords[place + 1 :]]
                yield _with(node, keywords=others)


def _with(node: _Node, **fields: object) -> _Node:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
