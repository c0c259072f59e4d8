"""How a check says that the submission, not the grader, is at fault."""

from __future__ import annotations

from collections.abc import Sequence

from autograder.grade import Outcome


class CheckFailed(Exception):
    """The check did not pass. Anything else that a check raises is a fault of the grader's.

    Args:
        message: what is wrong, for the student; never a value that was expected.
        outcome: how it is told apart.
        causes: likely causes, worded "consistent with ...".
    """

    def __init__(
        self,
        message: str,
        *,
        outcome: Outcome = Outcome.FAILED,
        causes: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.outcome = outcome
        self.causes = tuple(causes)
