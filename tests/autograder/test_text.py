"""Text from a submission is cut and made harmless before anybody sees it."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autograder.text import LEFT_OUT, fenced_markdown, safe, safe_line

anything = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=())),
    st.text("\x1b\x9b\x9d\x07[]\\;:0m8ab`\n\r\t\u202e\u200b\ufe0f… "),
)
small = st.integers(1, 12)


@given(anything, small, small)
@example("\x1b\x1b[0m[31mred", 3, 9)
@example("a\n" * 50, 1, 1)
@settings(deadline=None)
def test_shown_text_is_visible_and_within_its_bounds(text: str, lines: int, width: int) -> None:
    shown = safe(text, lines, width)
    assert len(shown.split("\n")) <= lines
    assert all(len(line) <= width for line in shown.split("\n"))
    hidden = [c for c in shown if unicodedata.category(c)[0] == "C" and c not in "\n\t"]
    assert not hidden


@given(anything, small, small)
@settings(deadline=None)
def test_making_text_safe_twice_changes_nothing(text: str, lines: int, width: int) -> None:
    once = safe(text, lines, width)
    assert safe(once, lines, width) == once


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z", "M", "Lo")), max_size=80))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert safe(text) == text


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_can_be_shown(content: bytes) -> None:
    assert safe(content).encode("utf-8").decode("utf-8") == safe(content)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hcleared", "cleared"),
        ("\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]52;c;cHduZWQ=\x07text", "text"),
        ("\x9b31mred", "red"),
        ("\x1bPdevice\x1b\\text", "text"),
        ("\x1bcreset", "reset"),
        ("passed\u202edeliaf", "passed\ufffddeliaf"),
        ("pa\u200bssed\ufeff", "pa\ufffdssed\ufffd"),
        ("hangul\u3164filler", "hangul\ufffdfiller"),
        ("warning \u26a0\ufe0f", "warning \u26a0"),
        ("tag \U000e0041", "tag \ufffd"),
        ("hid\ufe00\ufe0f\U000e0100\U000e01efden \ufe10", "hidden \ufe10"),
        ("nul\0bell\a", "nul\ufffdbell\ufffd"),
        ("10%\r20%\r\ndone", "10%\n20%\ndone"),
        ("one\u2028two", "one\ntwo"),
        ("lone \ud800", "lone \ufffd"),
        (b"\xff\xfe caf\xc3\xa9", "\ufffd\ufffd café"),
    ],
)
def test_what_a_terminal_would_obey_is_gone(hostile: str | bytes, shown: str) -> None:
    assert safe(hostile) == shown


def test_an_unfinished_sequence_shows_but_does_nothing() -> None:
    assert safe("\x1b]0;never closed") == "\ufffd]0;never closed"
    assert "\x1b" not in safe("\x1b\x1b[0m[2J")


def test_the_beginning_and_the_end_of_a_long_text_stay() -> None:
    shown = safe("\n".join(f"line {n}" for n in range(1000)), lines=11).split("\n")
    assert shown[:5] == [f"line {n}" for n in range(5)]
    assert shown[5] == LEFT_OUT
    assert shown[6:] == [f"line {n}" for n in range(995, 1000)]


def test_a_text_that_just_fits_is_left_whole() -> None:
    for text in ("x\n" * 199 + "x", "x" * 500, ("x" * 500 + "\n") * 199):
        assert safe(text) == text


def test_a_wide_line_is_cut_and_the_cut_is_seen() -> None:
    assert safe("x" * 600) == "x" * 499 + "…"


@pytest.mark.parametrize(
    "unit", ["\x1b]", "\x1b[0", "\x9d", "\x1b[0;", "\u202e", "a\n", "x", "\x1b"]
)
def test_a_megabyte_of_anything_takes_no_time(unit: str) -> None:
    started = time.process_time()
    safe(unit * (1_000_000 // len(unit)))
    assert time.process_time() - started < 2


def test_of_an_endless_text_only_the_ends_are_looked_at() -> None:
    started = time.process_time()
    shown = safe("first\n" + "\u202e" * 20_000_000 + "\nlast")
    assert time.process_time() - started < 2
    assert shown.startswith("first\n")
    assert shown.endswith("\nlast")


def test_usually_two_hundred_lines_are_shown() -> None:
    assert len(safe("x\n" * 1000).split("\n")) == 200


def test_a_name_stays_on_one_line() -> None:
    assert safe_line("a\nb\t c") == "a b c"
    assert safe_line("x" * 40, width=40) == "x" * 40
    assert safe_line(f"{'x' * 30}\n{'y' * 30}", width=40) == f"{'x' * 30} yyyyyyyy…"
    assert len(safe_line("x\n" * 100_000, width=40)) <= 40


@given(st.text("`~a\n "))
@example("```")
@example("a ```` b\n`````\n```")
def test_nothing_closes_a_fence_from_within(text: str) -> None:
    first, *inside, last, end = fenced_markdown(text).split("\n")
    fence = first.removesuffix("text")
    assert set(fence) == {"`"}
    assert len(fence) >= 3
    assert (last, end) == (fence, "")
    assert all(fence not in line for line in inside)


def test_a_fence_is_no_longer_than_it_must_be() -> None:
    assert fenced_markdown("plain") == "```text\nplain\n```\n"
    assert fenced_markdown("````").startswith("`````text\n")


def test_markdown_shows_no_control_characters_either() -> None:
    assert "\x1b" not in fenced_markdown("```\n\x1b[31m<script>")
