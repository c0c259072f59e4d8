"""submission_metadata.yml of Gradescope's "export submissions": who handed in which folder, when.

Written by a Ruby program: keys are symbols (":submitters"), and times may be objects of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml

from autograder.batch.people import Student

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML was built without libyaml; ten times slower
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

NAME = "submission_metadata.yml"


@dataclass(frozen=True)
class Submitted:
    """What the metadata says of one folder."""

    students: tuple[Student, ...]
    submitted_at: datetime | None


class _Loader(_SafeLoader):
    """Reads Ruby's objects as the mappings that they are written as."""


def _plain(loader: _Loader, tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


_Loader.add_multi_constructor("!ruby/", _plain)


def read(content: bytes) -> dict[str, Submitted]:
    """The submissions, by folder.

    Raises:
        ValueError: it is not what Gradescope writes; the message says what is wrong.
    """
    try:
        raw = yaml.load(content, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"this is not YAML that can be read: {error}") from None
    if not isinstance(raw, dict) or not raw:
        raise ValueError("it lists no submissions")
    return {str(folder): _submitted(str(folder), one) for folder, one in raw.items()}


def _submitted(folder: str, one: object) -> Submitted:
    if not isinstance(one, dict) or not isinstance(one.get(":submitters"), list):
        raise ValueError(f"{folder} has no list of :submitters")
    students = tuple(
        _student(who) for who in one[":submitters"] if isinstance(who, dict) and any(who.values())
    )
    if not students:
        raise ValueError(f"{folder} has no submitter with a name")
    return Submitted(students, _time(one.get(":created_at")))


def _student(who: dict[str, Any]) -> Student:
    """Known by the student id; where the course keeps none, by the address, else by the name."""
    sid, email, name = (str(who.get(key) or "").strip() for key in (":sid", ":email", ":name"))
    return Student(sid or email or name, name, email)


def _time(value: object) -> datetime | None:
    if isinstance(value, dict):  # a time of ActiveSupport's
        value = value.get("utc") or value.get("time")
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00"))
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo else value.replace(tzinfo=UTC)
