"""Timelines: what a picture of a run shows, in each format, and in a browser."""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
import subprocess
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import multirank
from multirank import INFINIBAND, Mark, Operation, Run, Trace, timeline
from multirank.gallery import different_tags, dropped_handle, groups_in_different_order
from multirank.timelines.build import MOST_OPERATIONS, from_replay, from_run, from_trace
from multirank.timelines.layout import MOST_ROWS, lay_out, pack
from multirank.timelines.panel import Bar, Panel
from multirank.timelines.svg import CROWD, shortened
from multirank.timelines.timeline import MOST_BYTES
from multirank.timelines.words import clean, duration, letters, nbytes_text, ticks

KINDS = {"send": "send", "recv": "receive", "all_reduce": "collective", "barrier": "collective"}
HOSTILE = "</title></svg><script>alert(1)</script>&\x00\x1b\u202e\ud800\n\"'"


def exchange(rounds: int) -> None:
    """Messages around a ring, with declared compute, a block and a mark."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine, theirs = torch.ones(256), torch.empty(256)
    multirank.mark("begin")
    with multirank.span("rounds"):
        for _ in range(rounds):
            multirank.compute("forward", 1e-4 * (rank + 1))
            handle: Any = dist.isend(mine, (rank + 1) % size)
            dist.recv(theirs, (rank - 1) % size)
            handle.wait()
    dist.all_reduce(mine)


@pytest.fixture(scope="module")
def run() -> Run:
    return multirank.run(exchange, 3, 3)


@pytest.fixture(scope="module")
def large() -> Run:
    """About 2,000 operations on 8 ranks."""
    return multirank.run(exchange, 8, 124)


def of_kind(panel: Panel, *kinds: str) -> list[Bar]:
    return [bar for bar in panel.bars if bar.kind in kinds]


# ---------------------------------------------------------------- what is shown


def test_every_operation_has_a_bar_with_its_times_bytes_partner_and_line(run: Run) -> None:
    panel = from_run(run, "exchange")
    begin = min(
        [operation.issued for operation in run.trace.operations]
        + [mark.time for mark in run.trace.marks]
    )
    found = Counter(
        (bar.rank, bar.kind, bar.start, bar.end, bar.nbytes)
        for bar in of_kind(panel, "send", "receive", "collective")
    )
    assert found == Counter(
        (
            operation.rank,
            KINDS[operation.name],
            operation.issued - begin,
            (operation.completed or math.nan) - begin,
            1024,
        )
        for operation in run.trace.operations
    )
    labels = {bar.label for bar in of_kind(panel, "send") if bar.rank == 2}
    (line,) = {one.line for one in run.trace.of_rank(2) if one.name == "send"}
    assert labels == {f"send → 0 · 1 KiB · test_timelines.py:{line}"}
    assert panel.operations == len(run.trace.operations) == 21
    assert not any(bar.open for bar in panel.bars)


def test_each_message_is_an_arrow_from_its_send_to_its_receive(run: Run) -> None:
    panel = from_run(run, "exchange")
    assert len(panel.arrows) == 9
    for rank in range(3):
        sends = [bar for bar in of_kind(panel, "send") if bar.rank == rank]
        receives = [bar for bar in of_kind(panel, "receive") if bar.rank == (rank + 1) % 3]
        arrows = [arrow for arrow in panel.arrows if arrow.sent.rank == rank]
        assert [arrow.sent for arrow in arrows] == sends
        assert [arrow.received for arrow in arrows] == receives
        for arrow in arrows:
            assert (arrow.start, arrow.end) == (arrow.sent.start, arrow.received.end)
            assert f"1 KiB from rank {rank} to rank {(rank + 1) % 3}" in arrow.detail


def test_a_rank_waits_where_its_operation_was_waited_for(run: Run) -> None:
    panel = from_run(run, "exchange")
    begin = min(mark.time for mark in run.trace.marks)
    for rank in range(3):
        waits = [(bar.start, bar.end) for bar in of_kind(panel, "wait") if bar.rank == rank]
        for operation in run.trace.of_rank(rank):
            if operation.name != "recv":
                continue
            assert operation.waited is not None
            assert operation.completed is not None
            start, end = operation.waited - begin, operation.completed - begin
            assert any(one == pytest.approx((start, end)) for one in waits)
        assert all(end <= start for (_, end), (start, _) in pairwise(waits))


def test_what_two_threads_wait_for_at_once_counts_once() -> None:
    trace = Trace([operation(0, "recv", 0.0, 3.0, peer=1), operation(0, "recv", 1.0, 4.0, peer=1)])
    waits = of_kind(from_trace(trace, "threads"), "wait")
    assert [(bar.start, bar.end) for bar in waits] == [(0.0, 3.0), (3.0, 4.0)]


def test_marks_blocks_and_declared_compute_are_shown(run: Run) -> None:
    panel = from_run(run, "exchange")
    points = Counter((point.rank, point.label) for point in panel.points)
    for rank in range(3):
        assert points[rank, "begin"] == 1
        assert points[rank, f"forward: {100 * (rank + 1)} µs declared"] == 3
    assert Counter((bar.rank, bar.label) for bar in of_kind(panel, "span")) == Counter(
        (rank, "rounds") for rank in range(3)
    )
    assert of_kind(panel, "compute") == []


def test_modelled_time_is_the_replays(run: Run) -> None:
    replay = multirank.replay(run.trace, INFINIBAND)
    panel = from_replay(replay, "modelled")
    assert panel.modelled
    assert panel.end == replay.makespan
    messages = [a for a in replay.activities if a.name == "message"]
    assert Counter(
        ((arrow.sent.rank, arrow.received.rank), arrow.start, arrow.end) for arrow in panel.arrows
    ) == Counter((activity.ranks, activity.start, activity.end) for activity in messages)
    for rank in replay.ranks:
        length: dict[str, float] = defaultdict(float)
        for bar in panel.bars:
            if bar.rank == rank.rank:
                length[bar.kind] += bar.end - bar.start
        assert length["compute"] == pytest.approx(rank.compute)
        assert length["wait"] == pytest.approx(rank.waiting)
    assert {bar.label for bar in of_kind(panel, "compute")} == {"forward"}
    assert {point.label for point in panel.points} == {"begin"}


def test_a_message_whose_activity_is_not_known_leaves_when_it_is_sent(run: Run) -> None:
    replay = replace(multirank.replay(run.trace, INFINIBAND), activities=())
    panel = from_replay(replay, "modelled")
    assert len(panel.arrows) == 9
    assert all(arrow.start == arrow.sent.start for arrow in panel.arrows)


def test_what_is_over_at_time_0_of_the_model_does_not_seem_to_last() -> None:
    later = Mark(0, "compute", "later", 9.0, 1.0)
    trace = Trace([operation(0, "new_group", 5.0, 6.0)], [later])
    panel = from_replay(multirank.replay(trace, INFINIBAND), "modelled")
    (bar,) = [bar for bar in panel.bars if bar.label.startswith("new_group")]
    assert (bar.start, bar.end, bar.open) == (0.0, 0.0, False)


def test_a_hang_is_open_to_the_right_edge_and_says_what_it_waits_for() -> None:
    run = multirank.run(different_tags, 3, timeout=10, check=False)
    panel = from_run(run, "hang")
    (receive,) = of_kind(panel, "receive")
    assert receive.open
    assert receive.end == panel.end > max(bar.start for bar in panel.bars)
    (wait,) = (bar for bar in of_kind(panel, "wait") if bar.rank == 1)
    assert wait.open
    assert wait.label.startswith("waits for ever")
    assert "recv from rank 0 (gallery.py:" in wait.label + wait.detail
    assert panel.endings[1] == "blocked for ever"
    assert panel.endings[2] == "finished"
    assert panel.arrows == []
    assert run.verdict is not None
    page = timeline(run).html()
    assert html.escape(run.verdict.story) in page
    assert page.count('class="v"') == 1 + len(of_kind(panel, "wait"))  # and in the legend


def test_a_dropped_handle_ends_with_its_drop_and_its_message_has_no_arrow() -> None:
    panel = from_run(multirank.run(dropped_handle, 3, timeout=10, check=False), "hang")
    (send,) = of_kind(panel, "send")
    assert send.open
    assert send.end < panel.end / 2
    assert send.detail.endswith("not seen to end, handle dropped without wait()")
    assert panel.arrows == []


def test_a_group_that_is_made_is_named_by_its_ranks() -> None:
    run = multirank.run(groups_in_different_order, 3, timeout=10, check=False)
    labels = {bar.label for bar in of_kind(from_run(run, "groups"), "collective")}
    assert {label.partition(" · ")[0] for label in labels} == {
        "new_group of 0, 1",
        "new_group of 1, 2",
    }


def test_a_rank_that_raised_is_named_by_its_exception() -> None:
    def stumbles() -> None:
        if dist.get_rank() == 1:
            raise KeyError("x")
        dist.barrier()

    run = multirank.run(stumbles, 2, timeout=10, check=False)
    assert from_run(run, "fails").endings[1] == "KeyError"
    svg = timeline(run).svg()
    assert ">KeyError<" in svg
    # Its peer was stopped: nobody knows whether it would have waited for ever.
    assert ">waits, and was not seen to end<" in svg
    assert "never" not in svg


def test_a_message_that_makes_no_sense_gets_no_arrow() -> None:
    outside = [operation(0, "send", 0.0, 1.0, peer=5, group=(0, 1))]
    within = [
        operation(0, "send", 2.0, 3.0, peer=1, group=(0, 1)),
        operation(1, "recv", 2.0, 3.0, peer=None, group=(0, 1)),
    ]
    panel = from_trace(Trace(outside + within), "nonsense")
    assert [arrow.start for arrow in panel.arrows] == [2.0]


def test_an_empty_run_is_an_empty_picture() -> None:
    for source in (Trace(), multirank.replay(Trace(), INFINIBAND, 2)):
        picture = timeline(source)
        ET.fromstring(picture.svg())
        json.loads(picture.perfetto())


def test_only_the_last_operations_are_kept_and_the_picture_says_so() -> None:
    many = [operation(0, "barrier", float(n), n + 0.5) for n in range(MOST_OPERATIONS + 5)]
    panel = from_trace(Trace(many), "many")
    assert panel.operations == MOST_OPERATIONS
    assert panel.end == MOST_OPERATIONS - 0.5
    (note,) = panel.notes
    assert note == f"The last {MOST_OPERATIONS} of {MOST_OPERATIONS + 5} operations are shown."


def test_messages_are_paired_rightly_although_the_first_are_not_shown() -> None:
    many = [operation(0, "send", n / 2, n + 1.0, 1, (0, 1)) for n in range(MOST_OPERATIONS)]
    many += [operation(1, "recv", float(n), n + 1.0, 0, (0, 1)) for n in range(MOST_OPERATIONS)]
    panel = from_trace(Trace(many), "many")
    assert panel.operations == MOST_OPERATIONS
    assert all(arrow.sent.end == arrow.received.end == arrow.end for arrow in panel.arrows)
    assert 0 < len(panel.arrows) < MOST_OPERATIONS / 2


def test_what_came_from_any_rank_is_drawn_in_modelled_time_too() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            for _ in range(2):
                dist.recv(torch.empty(1))
        else:
            dist.send(torch.ones(1), 0)

    replay = multirank.replay(multirank.run(program, 3).trace, INFINIBAND)
    panel = from_replay(replay, "any")
    assert sorted(arrow.sent.rank for arrow in panel.arrows) == [1, 2]
    assert all(bar.label.startswith("recv ← any") for bar in of_kind(panel, "receive"))


def test_an_incomplete_record_is_told() -> None:
    assert from_trace(Trace(truncated=True), "cut").notes
    assert from_trace(Trace(damaged=True), "damaged").notes


def operation(
    rank: int,
    name: str,
    issued: float,
    completed: float | None,
    peer: int | None = None,
    group: tuple[int, ...] = (0,),
) -> Operation:
    return Operation(
        *(rank, 1, name, group, peer, 0, None, "float32", (4,), 16, issued, "a.py", 1),
        waited=issued,
        completed=completed,
    )


# ---------------------------------------------------------------- how it is laid out


def test_bars_of_one_row_do_not_overlap_and_rows_are_bounded() -> None:
    bars = [bar(n, n + 20.5) for n in range(100)]
    assert len(pack(bars)) == 21
    rows = pack(bars, 4)
    assert len(rows) == 4
    assert sum(map(len, rows)) == 100
    for row in rows[:-1]:
        assert all(one.end <= other.start for one, other in pairwise(row))
    (lane,) = lay_out(Panel("", 1, False, 121.0, bars), 1e-9, 10**6).lanes
    assert len(lane.rows) == MOST_ROWS
    for shapes in lane.rows:
        assert all(one.end <= other.start for one, other in pairwise(shapes))
    assert sum(shape.count for shapes in lane.rows for shape in shapes) == 100


def bar(start: float, end: float) -> Bar:
    return Bar(0, "send", start, end, "send → 1", "")


def test_only_what_is_brief_and_close_is_drawn_together() -> None:
    bars = [bar(0, 1), bar(2, 3), bar(50, 51), bar(52, 100), bar(100, 101)]
    (lane,) = lay_out(Panel("", 1, False, 101.0, bars), 5.0, 10**6).lanes
    shapes = [(shape.start, shape.end, shape.count) for shape in lane.rows[0]]
    assert shapes == [(0, 3, 2), (50, 51, 1), (52, 100, 1), (100, 101, 1)]


def test_where_there_is_too_much_more_is_drawn_together(large: Run) -> None:
    panel = from_run(large, "large")
    assert lay_out(panel, 1e-12, 10**6).size > 4000
    for most in (1000, 300):
        layout = lay_out(panel, 1e-12, most)
        assert layout.size <= most
        counted = sum(shape.count for lane in layout.lanes for row in lane.rows for shape in row)
        assert counted == panel.operations


@pytest.mark.parametrize(
    ("end", "first", "last"),
    [(9.0, "1 s", "9 s"), (0.0047, "0.5 ms", "4.5 ms"), (3e-7, "50 ns", "300 ns")],
)
def test_an_axis_has_round_moments_in_one_unit(end: float, first: str, last: str) -> None:
    moments = ticks(end)
    assert moments[0] == (0.0, "0")
    assert (moments[1][1], moments[-1][1]) == (first, last)
    assert 4 <= len(moments) <= 11
    assert moments[-1][0] <= end * (1 + 1e-9)


def test_an_axis_is_there_for_any_length() -> None:
    for exponent in range(-12, 13):
        for factor in (1.0, 1.7, 9.99):
            assert 2 <= len(ticks(factor * 10.0**exponent)) <= 12
    assert ticks(0.0) == [(0.0, "0")]


def test_times_and_sizes_are_told_with_three_digits() -> None:
    assert [duration(s) for s in (0.0, 1.5e-9, 1e-6, 0.00125, 0.9999, 12.34, 5000)] == [
        *("0 s", "1.5 ns", "1 µs", "1.25 ms", "1000 ms", "12.3 s", "5000 s")
    ]
    assert [nbytes_text(n) for n in (0, 16, 1000, 1 << 16, 3 << 19, 1 << 62)] == [
        *("0 B", "16 B", "0.977 KiB", "64 KiB", "1.5 MiB", "4 EiB")
    ]


def test_wide_letters_take_the_room_of_two() -> None:
    assert letters("ab… µs →") == 8
    assert letters("a日本") == 5
    whole, part = Mark(0, "begin", "日" * 40, 0.0), Mark(0, "begin", "日" * 40, 1.0)
    ends = [Mark(0, "end", "", 0.8), Mark(0, "end", "", 1.3)]
    svg = timeline(Trace([], [whole, ends[0], part, ends[1]])).svg()
    assert svg.count("日" * 40 + "</text>") == 1  # 544 of 606 px, not of 379


def test_a_label_is_shortened_part_by_part() -> None:
    assert list(shortened("send → 1 · 4 B · a.py:3")) == [
        *("send → 1 · 4 B · a.py:3", "send → 1 · 4 B", "send → 1", "→ 1")
    ]
    assert list(shortened("forward")) == ["forward"]


# ---------------------------------------------------------------- SVG and HTML


def test_a_picture_of_2000_operations_is_whole_below_a_megabyte_and_quickly_made(
    large: Run,
) -> None:
    begun = time.perf_counter()
    page = timeline(large).html()
    assert time.perf_counter() - begun < max(1.0, os.getloadavg()[0])
    assert len(large.trace.operations) == 1992
    assert len(page.encode()) < MOST_BYTES
    assert len(timeline(large).perfetto()) < 2 * MOST_BYTES
    picture = ET.fromstring(timeline(multirank.replay(large.trace, INFINIBAND)).svg())
    drawn = Counter(one.get("class") for one in picture.iter(f"{SVG}rect"))
    assert drawn["s"] + drawn["r"] + drawn["l"] == 1992 + 3  # in the legend


SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("most", [60_000, 250_000])
def test_a_picture_is_as_small_as_asked_for(large: Run, most: int) -> None:
    picture = timeline(large).svg(most)
    assert most / 4 < len(picture.encode()) <= most
    ET.fromstring(picture)


def test_what_cannot_be_drawn_so_small_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="cannot be drawn in 100 bytes"):
        timeline(run).svg(100)


def test_the_picture_shows_bars_and_arrows_where_they_belong(run: Run) -> None:
    panel = from_run(run, "exchange")
    picture = ET.fromstring(timeline(run).svg())
    rects = list(picture.iter(f"{SVG}rect"))
    ends = {percent(rect, "x") + percent(rect, "width") for rect in rects if rect.get("x")}
    longest = max(percent(r, "width") for r in rects if r.get("class") == "o" and not r.get("x"))
    scale = longest / panel.end
    for bar in panel.bars:
        assert any(abs(bar.end * scale - end) < 2e-3 for end in ends)
    lines = [line for group in groups(picture, "a") for line in group.iter(f"{SVG}line")]
    drawn = sorted((percent(line, "x1"), percent(line, "x2")) for line in lines[:-1])
    wanted = sorted((arrow.start * scale, arrow.end * scale) for arrow in panel.arrows)
    assert [number for pair in drawn for number in pair] == pytest.approx(
        [number for pair in wanted for number in pair], abs=2e-3
    )
    (down,) = {
        float(line.get("y2", 0)) > float(line.get("y1", 0))
        for line in lines[:-1]
        if "rank 0 to" in told(line)
    }
    assert down  # from rank 0's lane to rank 1's, below


def percent(element: ET.Element, name: str) -> float:
    return float((element.get(name) or "0").removesuffix("%"))


def told(element: ET.Element) -> str:
    return "".join(element.itertext())


def groups(picture: ET.Element, style: str) -> list[ET.Element]:
    return [g for g in picture.iter(f"{SVG}g") if style in (g.get("class") or "").split()]


def test_labels_stand_only_where_there_is_room(large: Run) -> None:
    picture = ET.fromstring(timeline(large).svg())
    labels = [text for group in groups(picture, "labels") for text in group]
    assert len(labels) < 100
    assert groups(picture, "crowd")
    assert len(list(groups(picture, "crowd")[0])) > CROWD


def test_runs_side_by_side_have_one_scale() -> None:
    short, long = (Trace([operation(0, "barrier", 3.0, end)]) for end in (4.0, 7.0))
    picture = ET.fromstring(timeline(short, long, titles=["short", "long"]).svg())
    widths = [percent(r, "width") for r in picture.iter(f"{SVG}rect") if r.get("class") == "l"]
    assert widths[1] == pytest.approx(4 * widths[0], abs=1e-2)
    assert 95 < widths[1] < 100
    headings = [t.text for t in picture.iter(f"{SVG}text") if t.get("class") == "h"]
    assert headings == ["short", "long"]


def test_a_page_loads_nothing_and_each_pictures_rules_are_its_own(run: Run, large: Run) -> None:
    page = timeline(run).html()
    assert not re.search(r"(?:src|href)=[\"'](?!#)|url\((?!#)|@import", page)
    assert "default-src 'none'" in page
    ids = [re.findall(r'id="([^"]+)"', timeline(one).svg()) for one in (run, large)]
    assert not set(ids[0]) & set(ids[1])
    for one, own in zip((run, large), ids, strict=True):
        rules = re.search(r"<style>\n(.*?)\n</style>", timeline(one).svg(), re.DOTALL)
        assert rules is not None
        assert all(line.startswith(f"#{own[0]} ") for line in rules[1].splitlines())


def hostile_trace() -> Trace:
    bad = replace(
        operation(0, HOSTILE * 20, 0.0, None), file=HOSTILE * 9, line=10**60, dtype=HOSTILE * 9
    )
    marks = [Mark(0, kind, HOSTILE * 30, 0.5) for kind in ("mark", "begin", "end")]
    return Trace([bad, replace(bad, name="send", peer=0, tag=10**60)], marks)


def test_a_programs_texts_are_cut_and_can_do_nothing() -> None:
    picture = timeline(hostile_trace(), titles=[HOSTILE])
    page = picture.html()
    ET.fromstring(picture.svg())
    assert "<script>alert" not in page
    assert page.count("<script") == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\ud800-\udfff]", page)
    assert len(page) < 25_000
    assert max(len(line) for line in told(ET.fromstring(picture.svg())).splitlines()) < 300
    json.loads(picture.perfetto())
    assert clean("a" * 100) == "a" * 59 + "…"


def test_no_text_of_a_program_is_taken_for_the_pictures_own() -> None:
    told = "KEY $title {names} \ue000p"
    picture = timeline(Trace([], [Mark(0, "mark", told, 0.0)]), titles=["MONKEY"])
    for text in (picture.svg(), picture.html()):
        assert text.count("KEY $title {names} \N{REPLACEMENT CHARACTER}p") == 2
        assert "MONKEY" in text
        assert "\ue000" not in text


def test_a_trace_of_any_times_is_drawn() -> None:
    times: Sequence[tuple[float, float | None]] = [(0.0, 1e12), (1e12, 0.0), (5e11, None)]
    picture = timeline(Trace([operation(0, "barrier", *pair) for pair in times]))
    assert "nan" not in picture.svg()
    assert "inf" not in picture.svg()
    json.loads(picture.perfetto())


def test_a_file_is_written_by_its_suffix(run: Run, tmp_path: Path) -> None:
    picture = timeline(run)
    for suffix, start in ((".html", "<!doctype"), (".svg", "<svg"), (".json", "{")):
        picture.save(tmp_path / f"run{suffix}")
        assert (tmp_path / f"run{suffix}").read_text(encoding="utf-8").startswith(start)
    with pytest.raises(ValueError, match=r"run\.png: a timeline's name ends in \.html"):
        picture.save(tmp_path / "run.png")


def test_titles_must_be_as_many_as_runs(run: Run) -> None:
    with pytest.raises(ValueError, match="1 titles for 2 runs"):
        timeline(run, run, titles=["one"])
    with pytest.raises(ValueError, match="needs a run"):
        timeline()


# ---------------------------------------------------------------- Perfetto


def events(*sources: Run | Trace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(timeline(*sources).perfetto())["traceEvents"]
    return found


def test_perfetto_gets_a_process_for_each_rank_and_slices_that_do_not_overlap(large: Run) -> None:
    found = events(large)
    names = {e["pid"]: e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert sorted(names.values()) == [f"rank {rank}" for rank in range(8)]
    until: dict[tuple[int, int], float] = defaultdict(lambda: -1.0)
    slices = sorted((e for e in found if e["ph"] == "X"), key=lambda e: e["ts"])
    for one in slices:
        thread = one["pid"], one["tid"]
        assert one["dur"] > 0
        assert one["ts"] >= until[thread] - 2e-3
        until[thread] = one["ts"] + one["dur"]
    operations = [e for e in slices if e["cat"] in ("send", "receive", "collective")]
    assert len(operations) == len(large.trace.operations)
    assert sum(e["args"]["bytes"] for e in operations) == 1992 * 1024


def test_perfettos_flows_begin_and_end_within_slices_of_a_send_and_its_receive(run: Run) -> None:
    found = events(run)
    slices = [e for e in found if e["ph"] == "X"]
    flows: dict[int, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in found:
        if event["ph"] in "sf":
            flows[event["id"]][event["ph"]] = event
    assert len(flows) == 9
    for ends in flows.values():
        assert ends["s"]["ts"] < ends["f"]["ts"]
        assert ends["f"]["bp"] == "e"
        for phase, kind in (("s", "send"), ("f", "receive")):
            (_,) = (
                one
                for one in slices
                if (one["pid"], one["tid"]) == (ends[phase]["pid"], ends[phase]["tid"])
                and one["ts"] <= ends[phase]["ts"] < one["ts"] + one["dur"]
                and one["cat"] == kind
            )


def test_perfetto_tells_runs_apart_by_their_titles(run: Run) -> None:
    found = events(run, run)
    names = [e["args"]["name"] for e in found if e["name"] == "process_name"]
    assert names == [f"Run {n}: rank {rank}" for n in (1, 2) for rank in range(3)]
    assert len({e["pid"] for e in found}) == 6
    assert len({e["id"] for e in found if e["ph"] == "s"}) == 18


# ---------------------------------------------------------------- in a browser

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
in_a_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium here: install the package chromium to run this"
    ),
]

PROBE = """
<script>
const seen = {};
function look(name) {
  const boxes = [...document.querySelectorAll(".labels text")].map((text) => {
    const style = text.getAttribute("class").slice(1), y = +text.getAttribute("y") - $down;
    const thing = [...text.closest(".panel").querySelectorAll("rect." + style)].find((rect) =>
      rect.getAttribute("x") === text.getAttribute("x") && +rect.getAttribute("y") === y);
    return [text.getBoundingClientRect(), thing && thing.getBoundingClientRect()];
  });
  seen[name] = {
    labels: boxes.length,
    out: boxes.filter(([text, thing]) => !thing || text.right > thing.right + 1).length,
    things: document.querySelectorAll(".panel rect > title").length,
    wide: document.documentElement.scrollWidth > innerWidth,
    crowd: document.querySelector(".a").classList.contains("crowd"),
    plot: document.querySelector(".scroll svg").clientWidth,
  };
}
look("at first");
for (let i = 0; i < 6; i++) document.getElementById("in").click();
look("wide");
document.getElementById("all").click();
look("again");
document.documentElement.setAttribute("data-seen", JSON.stringify(seen));
</script>
"""


def open_page(page: str, folder: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """What the probe saw of a page in Chromium, and what the console said."""
    from multirank.timelines.svg import DOWN

    file = folder / "page.html"
    file.write_text(page + PROBE.replace("$down", str(DOWN)), encoding="utf-8")
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-quic", f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"),
            *("--window-size=1200,800", "--dump-dom", file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'data-seen="([^"]+)"', done.stdout)
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    assert found is not None, console
    return json.loads(html.unescape(found[1])), console


class TestInABrowser:
    pytestmark = in_a_browser

    def test_2000_operations_are_all_there_and_labels_fit_at_every_width(
        self, large: Run, tmp_path: Path
    ) -> None:
        seen, console = open_page(timeline(large).html(), tmp_path)
        assert console == ""
        for look in seen.values():
            assert look["out"] == 0
            assert not look["wide"]
            assert look["things"] >= 1992
        assert seen["at first"] == seen["again"]
        assert seen["wide"]["labels"] > 1000 > seen["at first"]["labels"]
        assert seen["wide"]["plot"] == pytest.approx(64 * seen["at first"]["plot"], rel=0.01)
        assert seen["at first"]["crowd"]
        assert not seen["wide"]["crowd"]

    def test_hostile_texts_do_nothing_and_fit(self, run: Run, tmp_path: Path) -> None:
        page = timeline(run, hostile_trace(), titles=["a", HOSTILE]).html()
        seen, console = open_page(page, tmp_path)
        assert console == ""
        assert seen["at first"]["out"] == 0

    def test_without_its_script_a_page_shows_the_same(self, run: Run, tmp_path: Path) -> None:
        page = timeline(run).html()
        labels = re.findall(r'<text class="t\w" x="([^"]+)" dx="6" y="([^"]+)">', page)
        seen, _ = open_page(page, tmp_path)
        assert seen["at first"]["labels"] == pytest.approx(len(labels), abs=3)

    def test_its_script_gives_wide_letters_their_room_too(self, tmp_path: Path) -> None:
        marks = [
            Mark(0, "begin", "日" * 40, 0.0),
            Mark(0, "end", "", 0.5),
            Mark(0, "mark", "", 1.3),
        ]
        exchange = [
            operation(0, "send", 0.1, 0.2, 1, (0, 1)),
            operation(1, "recv", 0.1, 0.2, 0, (0, 1)),
        ]
        seen, console = open_page(timeline(Trace(exchange, marks)).html(), tmp_path)
        assert console == ""
        assert seen["wide"]["labels"] == seen["at first"]["labels"] + 1  # the block's
