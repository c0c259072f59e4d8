"""The handout as it is handed out: built as a whole, figures and all."""

from __future__ import annotations

import contextlib
import re
import zlib

import pytest

from autograder.inputs import known_secret
from autograder.release import handout
from autograder.release.leaks import leaks
from handouts import build

pytestmark = pytest.mark.slow  # 25 s, twice


def _pages(pdf: bytes) -> int:
    """How many pages a PDF has; what tells of them is packed."""
    unpacked = [pdf]
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        with contextlib.suppress(zlib.error):
            unpacked.append(zlib.decompress(stream))
    return sum(len(re.findall(rb"/Type\s*/Page\b", text)) for text in unpacked)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    build.main([])


def test_it_has_30_to_45_pages_and_the_staff_guide_about_ten() -> None:
    for name, least, most in (("handout", 30, 45), ("staff", 7, 12)):
        assert least <= _pages((build.HERE / f"{name}.pdf").read_bytes()) <= most, name


def test_the_page_for_the_web_is_one_file_with_figures_and_formulas() -> None:
    page = (build.HERE / "handout.html").read_text(encoding="utf-8")
    assert page.count("<math") > 100
    figures = sorted((build.OUT / "figures").glob("*.svg"))
    assert page.count('<img src="data:image/svg+xml') == len(figures)
    assert not re.findall(r'(?:src|href)="(?!data:|#)(?!https?:)', page)
    assert all("alt=" in image for image in re.findall(r"<img[^>]*>", page))


def test_a_release_takes_what_was_built_and_finds_nothing_in_it_that_must_not_be() -> None:
    assert handout.wrong() == ""
    assert leaks(handout.files(), known_secret().value) == []


def test_the_same_sources_give_the_same_bytes_a_second_time() -> None:
    first = handout.files()
    build.main([])
    assert handout.files() == first


def test_the_picture_in_the_readme_is_what_is_drawn() -> None:
    # It is in modelled time, so it is the same each time, to the last byte.
    drawn = (build.OUT / "figures" / "ddp.svg").read_text(encoding="utf-8")
    assert (build.HERE / "overlap.svg").read_text(encoding="utf-8") == drawn
