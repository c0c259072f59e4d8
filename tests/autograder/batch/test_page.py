"""The staff's page of a class: whole, offline, sortable, searchable, and deaf to what is in it."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from autograder.manifest import Override

from .batches import Batch, with_course

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
HOSTILE = "<script>document.title = 'owned'</script>"
_TRY = """
const table = document.getElementById("of-students");
table.tHead.rows[0].cells[2].querySelector("button").click();
const order = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
const search = document.querySelector("input[data-table=of-students]");
search.value = "BERT";
search.dispatchEvent(new Event("input"));
const shown = [...table.tBodies[0].rows].filter((row) => !row.hidden);
document.body.dataset.found = order.join(" ") + "; " + shown.map((r) => r.cells[0].textContent);
"""


@pytest.fixture
def page(tmp_path: Path) -> str:
    """Of a class with something of everything in it."""
    (tmp_path / "class").mkdir()
    batch = Batch(tmp_path / "class", tmp_path / "out")
    for name, part in (("anna", "3/4"), ("bert", "1/4"), ("carl", 1)):
        batch.submit(name, score=part)
    batch.submit("dora", faults=9)
    batch.submit("emil", open={"broadcast/second": 9})
    (batch.path / "fritz.zip").write_bytes(b"no archive")
    (batch.path / "submissions.csv").write_text(f"submission,student,name\nbert,bert,{HOSTILE}\n")
    batch.run()
    (batch.out / "adjustments.csv").write_text(
        "student,extension_days,points,author,reason\nzoe,1,,A,b\n"
    )
    batch.run(with_course(overrides=(Override("broadcast/first", "full", "It was wrong.", "A"),)))
    return (batch.out / "class.html").read_text()


def test_it_tells_what_needs_somebody(page: str) -> None:
    text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))
    for said in (
        "The grader failed on these, 3 times each",
        "the fake grader was asked to fail",
        "emil: 1 points open (broadcast/second)",
        "fritz: This file is not a zip",
        "broadcast/first counts in full: It was wrong. (A)",
        "Adjustments of students who handed in nothing: zoe",
        "consistent with a fake",
    ):
        assert said in text, said


def test_it_loads_nothing_and_runs_our_script_alone(page: str) -> None:
    assert not re.search(r"(src|href)=\"(?!#|staff/)", page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    ours = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{ours}'" in page
    assert "default-src 'none'" in page
    assert HOSTILE not in page


@pytest.mark.slow  # 5 s
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: install the package chromium")
def test_a_browser_sorts_and_searches_and_obeys_nobody_else(page: str, tmp_path: Path) -> None:
    allowed = base64.b64encode(hashlib.sha256(_TRY.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{allowed}' ")
    file = tmp_path / "tried.html"
    file.write_text(page.replace("</body>", f"<script>{_TRY}</script></body>"))
    done = subprocess.run(
        [
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
            *("--no-first-run", "--disable-background-networking", "--disable-sync"),
            *("--disable-component-update", f"--user-data-dir={tmp_path / 'browser'}"),
            *("--dump-dom", file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    found = re.search('data-found="([^"]*)"', done.stdout)
    assert found is not None, done.stderr
    assert found[1] == "fritz bert anna carl dora emil; bert"
    assert "<title>owned</title>" not in done.stdout
