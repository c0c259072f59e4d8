"""JUnit XML, as continuous-integration systems read it: a suite for each problem.

The format has no points, so a check passes with full marks alone, and what it earned stands in its
message. What could not be judged through no fault of the submission is an error, not a failure.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from autograder.grade import NOT_JUDGED, Outcome, points_text
from autograder.record import Check, Record

_SKIPPED = (Outcome.NOT_RUN, Outcome.BLOCKED, Outcome.NEEDS_HARDWARE)
# XML 1.0 has no place for these, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def convert(record: Record) -> str:
    """The whole file."""
    suites = ET.Element("testsuites", name=_xml(record.course))
    _count(suites, record.checks)
    for problem in record.problems:
        suite = ET.SubElement(suites, "testsuite", name=_xml(f"{problem.number} {problem.title}"))
        suite.set("timestamp", record.grading.started.removesuffix("+00:00"))
        _count(suite, record.checks_of(problem))
        for check in record.checks_of(problem):
            _add(suite, check)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _count(element: ET.Element, checks: Sequence[Check]) -> None:
    kinds = [_kind(check) for check in checks]
    element.set("tests", str(len(kinds)))
    for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(attribute, str(kinds.count(kind)))
    element.set("time", f"{sum(check.seconds or 0.0 for check in checks):.3f}")


def _kind(check: Check) -> str:
    if check.passed:
        return ""
    if check.outcome in _SKIPPED:
        return "skipped"
    return "error" if check.outcome in NOT_JUDGED else "failure"


def _add(suite: ET.Element, check: Check) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname=_xml(check.problem),
        name=_xml(f"{check.number} {check.title}"),
        time=f"{check.seconds or 0.0:.3f}",
    )
    if kind := _kind(check):
        first = check.message.partition("\n")[0]
        earned = f"{points_text(check.score.of)} of {points_text(check.points.of)} points"
        said = f"{check.outcome.value}, {earned}{f': {first}' if first else ''}"
        found = ET.SubElement(case, kind, message=_xml(said))
        if kind != "skipped":
            found.set("type", check.outcome.value)
        found.text = _xml(check.told)
    if check.log:
        ET.SubElement(case, "system-out").text = _xml(check.log)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
