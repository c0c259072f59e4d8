"""result.json of a Classroom 50 autograder, schema `classroom50/result/v1`.

Its scores are whole numbers, so they are hundredths of a point here, rounded down: nobody has full
marks who has not earned them. Owner, kind of assignment and time of submission are the runner's to
fill in, which makes its own rules for lateness.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from autograder.record import Problem, Record

SCHEMA = "classroom50/result/v1"
SCALE = 100
# What the runner tells an autograder in its environment, by the field that holds it.
FROM_ENVIRONMENT = {
    "classroom": "CLASSROOM",
    "assignment": "ASSIGNMENT",
    "submission": "SUBMISSION_TAG",
    "commit": "COMMIT_URL",
    "release": "RELEASE_URL",
}


class NotOnClassroom50(ValueError):
    """The environment is not the runner's."""


def convert(record: Record, environment: Mapping[str, str]) -> dict[str, Any]:
    """The whole of result.json.

    Raises:
        NotOnClassroom50: a variable of the runner's is missing.
    """
    missing = [name for name in FROM_ENVIRONMENT.values() if not environment.get(name)]
    if missing:
        raise NotOnClassroom50(
            f"Classroom 50's runner sets {', '.join(missing)}; they are not set here."
        )
    tests = [_test(record, problem) for problem in record.problems]
    named = {field: environment[name] for field, name in FROM_ENVIRONMENT.items()}
    return {
        "schema": SCHEMA,
        **named,
        "review": environment.get("REVIEW_URL") or environment["COMMIT_URL"],
        "datetime": record.grading.finished.replace("+00:00", "Z"),
        "score": sum(test["score"] for test in tests),
        "max-score": sum(test["max-score"] for test in tests),
        "tests": tests,
    }


def _test(record: Record, problem: Problem) -> dict[str, Any]:
    earned = problem.earned.of * Fraction(record.factor)
    score, most = int(SCALE * earned), int(SCALE * problem.points.of)
    return {
        "test-name": f"{problem.number} {problem.title}",
        "passed": earned == problem.points.of,
        "score": score,
        "max-score": most,
        "outcome": problem.outcome.value,
        "told": [
            f"{check.number} {check.title}: {check.told}"
            for check in record.checks_of(problem)
            if check.told and not check.passed
        ],
    }
