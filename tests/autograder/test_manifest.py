"""problems.toml and course.toml: what is read, what a course may change, and what is an error."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from autograder.manifest import ManifestError, load, load_problems

ROOT = Path(__file__).resolve().parents[2]

PROBLEMS = """
title = "Distributed training"

[[part]]
id = "collectives"
number = "1"
title = "Collectives"

[[part]]
id = "data_parallel"
number = "3"
title = "Data parallelism"

[[problem]]
id = "launch"
number = "1.1"
part = "collectives"
title = "Start and stop"
points = 1
module = "launch"
names = ["setup", "cleanup"]

[[problem]]
id = "broadcast"
number = "1.2"
part = "collectives"
title = "Broadcast"
points = 2
module = "collectives"
names = ["broadcast"]

[[problem]]
id = "buckets"
number = "3.1"
part = "data_parallel"
title = "Buckets"
points = 4
module = "ddp"
names = ["partition_buckets"]

[[problem]]
id = "scatter_gather"
number = "1.3"
part = "collectives"
title = "Scatter and gather"
points = 2
module = "collectives"
names = ["scatter", "gather"]
"""
COURSE = 'name = "Systems for learning"\n'


def folder(tmp_path: Path, problems: str = PROBLEMS, course: str | None = COURSE) -> Path:
    reference = tmp_path / "reference"
    reference.mkdir(parents=True)
    (reference / "problems.toml").write_text(problems)
    if course is not None:
        (reference / "course.toml").write_text(course)
    return reference


def error_of(reference: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        load(reference)
    return str(caught.value)


def test_parts_problems_and_course_are_read_in_order(tmp_path: Path) -> None:
    manifest = load(folder(tmp_path))
    assert manifest.title == "Distributed training"
    assert manifest.course.name == "Systems for learning"
    assert [(part.id, part.number, part.title) for part in manifest.parts] == [
        ("collectives", "1", "Collectives"),
        ("data_parallel", "3", "Data parallelism"),
    ]
    assert [problem.number for problem in manifest.problems] == ["1.1", "1.2", "3.1", "1.3"]
    last = manifest.problems[-1]
    assert (last.id, last.part, last.title) == (
        "scatter_gather",
        "collectives",
        "Scatter and gather",
    )
    assert (last.points, last.module, last.names) == (
        Fraction(2),
        "collectives",
        ("scatter", "gather"),
    )
    assert type(last.points) is Fraction
    assert manifest.total_points == 9
    assert manifest.modules == ("launch", "collectives", "ddp")


def test_a_problem_is_found_by_its_id_its_module_and_its_names(tmp_path: Path) -> None:
    manifest = load(folder(tmp_path))
    assert manifest.problem("buckets").number == "3.1"
    in_module = manifest.problems_of_module("collectives")
    assert [problem.id for problem in in_module] == ["broadcast", "scatter_gather"]
    assert manifest.problems_of_module("bandwidth") == ()
    assert manifest.owner_of("collectives", "gather").id == "scatter_gather"


def test_an_unknown_id_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"no problem `ring`; .* launch, broadcast, buckets"):
        load(folder(tmp_path)).problem("ring")


@pytest.mark.parametrize(("module", "name"), [("collectives", "setup"), ("launch", "broadcast")])
def test_a_name_has_an_owner_in_its_own_module_only(tmp_path: Path, module: str, name: str) -> None:
    with pytest.raises(ManifestError, match=f"asks for `{name}` in `{module}`"):
        load(folder(tmp_path)).owner_of(module, name)


def test_a_course_leaves_problems_out_and_the_denominator_follows(tmp_path: Path) -> None:
    manifest = load(folder(tmp_path, course=COURSE + '[problems]\noff = ["launch", "buckets"]\n'))
    assert [problem.id for problem in manifest.problems] == ["broadcast", "scatter_gather"]
    assert manifest.total_points == 4
    assert manifest.modules == ("collectives",)
    with pytest.raises(ManifestError):
        manifest.problem("launch")


def test_a_course_weighs_problems_exactly_and_the_denominator_follows(tmp_path: Path) -> None:
    manifest = load(folder(tmp_path, course=COURSE + "[weights]\nbroadcast = 5\nbuckets = 0.1\n"))
    assert manifest.problem("broadcast").points == 5
    assert manifest.problem("buckets").points == Fraction(1, 10)
    assert manifest.problem("launch").points == 1
    assert manifest.total_points == Fraction(81, 10)


def test_a_course_has_rules_of_its_own(tmp_path: Path) -> None:
    text = "[lateness]\npercent_per_day = 12.5\n[rate_limit]\nsubmissions = 5\n"
    policy = load(folder(tmp_path, course=COURSE + text)).course.policy
    assert policy.lateness.percent_per_day == Fraction(25, 2)
    assert (policy.rate_limit.submissions, policy.rate_limit.hours) == (5, 24)


def test_problems_toml_alone_knows_nothing_of_the_course(tmp_path: Path) -> None:
    course = COURSE + '[problems]\noff = ["launch"]\n[weights]\nbroadcast = 5\n'
    manifest = load_problems(folder(tmp_path, course=course))
    assert manifest.total_points == 9
    assert manifest.problem("broadcast").points == 2
    assert load_problems(folder(tmp_path / "x", course=None)).total_points == 9


BAD_PROBLEMS = {
    "an unknown key": (
        ('id = "buckets"', 'id = "buckets"\nweight = 3'),
        "unknown key `weight` in problem `buckets`.",
    ),
    "an unknown key at the top": (
        ('title = "Dis', 'year = 1\ntitle = "Dis'),
        "unknown key `year`.",
    ),
    "an unknown key of a part": (
        ('number = "3"', 'number = "3"\ncolor = 1'),
        "unknown key `color` in part `data_parallel`.",
    ),
    "a missing key": (
        ('module = "ddp"\n', ""),
        "missing key `module` in problem `buckets`.",
    ),
    "a missing id": (
        ('id = "broadcast"\n', ""),
        "missing key `id` in problem number 2.",
    ),
    "points that are words": (
        ("points = 4", 'points = "four"'),
        "Expected a number, got 'four' in problem `buckets`, key `points`.",
    ),
    "points that are true": (
        ("points = 4", "points = true"),
        "Expected a number, got True in problem `buckets`, key `points`.",
    ),
    "names that are no list": (
        ('names = ["broadcast"]', 'names = "broadcast"'),
        "Expected `array`, got `str` in problem `broadcast`, key `names`.",
    ),
    "no points": (
        ("points = 4", "points = 0"),
        "problem `buckets` has 0 points: it must be a whole number above 0.",
    ),
    "negative points": (
        ("points = 4", "points = -4"),
        "problem `buckets` has -4 points: it must be a whole number above 0.",
    ),
    "half a point": (
        ("points = 4", "points = 0.5"),
        "problem `buckets` has 1/2 points: it must be a whole number above 0.",
    ),
    "an id twice": (
        ('id = "buckets"', 'id = "launch"'),
        "there are two problems with the id `launch`.",
    ),
    "a number twice": (
        ('number = "1.2"', 'number = "1.1"'),
        "there are two problems with the number 1.1.",
    ),
    "a part's id twice": (
        ('id = "data_parallel"', 'id = "collectives"'),
        "there are two parts with the id `collectives`.",
    ),
    "a part's number twice": (
        ('number = "3"', 'number = "1"'),
        "there are two parts with the number 1.",
    ),
    "an id that is not a name": (
        ('id = "buckets"', 'id = "the buckets"'),
        "the problem id `the buckets` is not an identifier.",
    ),
    "a number that is not one": (
        ('number = "1.2"', 'number = "1.2\\""'),
        '`1.2"` is not a number such as 1.7.',
    ),
    "a part that is not there": (
        ('part = "data_parallel"', 'part = "tensor_parallel"'),
        "problem `buckets` is of part `tensor_parallel`, which is not listed.",
    ),
    "a number of another part": (
        ('number = "1.2"', 'number = "3.2"'),
        "problem `broadcast` has number 3.2: it must begin with `1.`.",
    ),
    "a module with its suffix": (
        ('module = "ddp"', 'module = "ddp.py"'),
        "problem `buckets` has module `ddp.py`, which is not an identifier.",
    ),
    "no names": (
        ('names = ["broadcast"]', "names = []"),
        "problem `broadcast` has no names: list the functions or classes to write.",
    ),
    "a name that is not one": (
        ('names = ["broadcast"]', 'names = ["broadcast()"]'),
        "problem `broadcast` has the name `broadcast()`, which is not an identifier.",
    ),
    "a keyword for a name": (
        ('names = ["broadcast"]', 'names = ["lambda"]'),
        "problem `broadcast` has the name `lambda`, which is not an identifier.",
    ),
    "a name of two problems": (
        ('names = ["broadcast"]', 'names = ["gather"]'),
        "`gather` of module `collectives` is asked for 2 times.",
    ),
    "a name twice in one problem": (
        ('names = ["broadcast"]', 'names = ["broadcast", "broadcast"]'),
        "`broadcast` of module `collectives` is asked for 2 times.",
    ),
}


@pytest.mark.parametrize(("change", "sentence"), BAD_PROBLEMS.values(), ids=BAD_PROBLEMS)
def test_an_error_in_problems_toml_is_named(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    assert change[0] in PROBLEMS
    reference = folder(tmp_path, PROBLEMS.replace(change[0], change[1], 1))
    assert error_of(reference) == f"reference/problems.toml: {sentence}"


BAD_COURSES = {
    "an unknown key": ('deadline = "May"', "unknown key `deadline`."),
    "an unknown switch": ("[problems]\non = []", "unknown key `on` in `problems`."),
    "an unknown id to leave out": (
        '[problems]\noff = ["ring"]',
        "`problems.off` names `ring`, which is not in problems.toml.",
    ),
    "an unknown id to weigh": (
        "[weights]\nring = 2",
        "`weights` names `ring`, which is not in problems.toml.",
    ),
    "a weight of nothing": (
        "[weights]\nlaunch = 0",
        "the weight of `launch` must be above 0 (`problems.off` leaves a problem out).",
    ),
    "everything left out": (
        '[problems]\noff = ["launch", "broadcast", "buckets", "scatter_gather"]',
        "`problems.off` leaves out every problem.",
    ),
    "more than all lost": (
        "[lateness]\npercent_per_day = 101",
        "`lateness.percent_per_day` must be 0 to 100.",
    ),
    "less than no grace": (
        "[lateness]\ngrace_minutes = -1",
        "`lateness.grace_minutes` must not be below 0.",
    ),
    "no time to grade": (
        "[platform]\nminutes = 4",
        "`platform.minutes` must be at least 5.",
    ),
    "within no time": ("[rate_limit]\nhours = 0", "`rate_limit.hours` must be above 0."),
}


@pytest.mark.parametrize(("text", "sentence"), BAD_COURSES.values(), ids=BAD_COURSES)
def test_an_error_in_course_toml_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    assert error_of(folder(tmp_path, course=COURSE + text)) == f"reference/course.toml: {sentence}"


@pytest.mark.parametrize("text", ["title = ", "title = 1\ntitle = 2", "a = inf", "\udcff"])
def test_what_is_not_toml_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    reference = folder(tmp_path)
    (reference / "problems.toml").write_bytes(text.encode(errors="surrogateescape"))
    assert error_of(reference).startswith("reference/problems.toml: this is not TOML we can read")


@pytest.mark.parametrize("name", ["problems.toml", "course.toml"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    reference = folder(tmp_path)
    (reference / name).unlink()
    assert error_of(reference) == f"reference/{name}: there is no such file."


def test_the_manifest_of_this_repository_loads() -> None:
    manifest = load(ROOT / "reference")
    assert manifest.problem("all_reduce").number == "1.7"
    assert manifest.total_points > 0
