"""A grade.json for another platform, by its name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

from autograder.platforms import classroom50, junit, markdown, prairielearn
from autograder.record import Record


class Platform(StrEnum):
    """What a grade can be converted to."""

    JUNIT = "junit"
    MARKDOWN = "markdown"
    PRAIRIELEARN = "prairielearn"
    CLASSROOM50 = "classroom50"


def convert(record: Record, platform: Platform, environment: Mapping[str, str]) -> str:
    """The text of the file that the platform reads.

    Raises:
        classroom50.NotOnClassroom50: the environment is not that of its runner.
    """
    match platform:
        case Platform.JUNIT:
            return junit.convert(record)
        case Platform.MARKDOWN:
            return markdown.convert(record)
        case Platform.PRAIRIELEARN:
            return _json(prairielearn.convert(record))
        case Platform.CLASSROOM50:
            return _json(classroom50.convert(record, environment))


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, allow_nan=False, indent=1) + "\n"
