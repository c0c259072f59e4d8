"""A summary in Markdown, for the page of a continuous-integration job or a comment.

Whatever a submission may have written stands in fences or in code, so that it stays text.
"""

from __future__ import annotations

import re

from autograder.grade import points_text
from autograder.record import Check, Problem, Record
from autograder.text import fenced_markdown

_SIGNS = re.compile(r"[\\|<>*_`\[\]]")
MOST = 20  # checks that are told of; grade.json and report.html have all


def convert(record: Record) -> str:
    """The whole text."""
    total = f"{points_text(record.final.of)} of {points_text(record.points.of)} points"
    lines = [f"# {_plain(record.course)}: {total}", ""]
    lines += [fenced_markdown("\n".join(record.sentences[1:]))] if record.sentences[1:] else []
    lines += ["| | Problem | Points | Outcome |", "|---|---|---:|---|"]
    lines += [_line(problem) for problem in record.problems]
    lost = [check for check in record.checks if not check.passed and check.told]
    if lost:
        lines += ["", "## What to look at"]
    for check in lost[:MOST]:
        lines += ["", *_told(check)]
    if len(lost) > MOST:
        lines += ["", f"... and {len(lost) - MOST} more checks."]
    return "\n".join(lines) + "\n"


def _line(problem: Problem) -> str:
    earned = f"{points_text(problem.earned.of)} / {points_text(problem.points.of)}"
    return f"| {problem.number} | {_plain(problem.title)} | {earned} | {problem.outcome.value} |"


def _told(check: Check) -> list[str]:
    earned = f"{points_text(check.score.of)} of {points_text(check.points.of)}"
    heading = f"**{check.number} {_plain(check.title)}**: {check.outcome.value}, {earned}"
    return [heading, "", fenced_markdown(check.told)]


def _plain(text: str) -> str:
    """Our own words, where Markdown would read signs."""
    return _SIGNS.sub(r"\\\g<0>", text)
