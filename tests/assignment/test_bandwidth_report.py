"""The command that measures, `python -m assignment.bandwidth`: what it makes of measurements."""

from __future__ import annotations

import importlib
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest


@pytest.fixture
def report(implementation: str) -> Any:
    return importlib.import_module(f"{implementation}.bandwidth_report")


@pytest.fixture
def rows(report: Any) -> list[Any]:
    """A ring of 1 GB/s, and gloo's, whose reduce_scatter is an all_reduce; on 2 and 4 ranks."""
    return [
        report.Row(library, size, op, n, size, seconds, bandwidth)
        for library in ("torch", "yours")
        for n in (4, 2)
        for op, times in (("all_reduce", 2), ("reduce_scatter", 1))
        for size in (1 << 20, 1 << 10)
        for bandwidth in [1e9 if library == "yours" or times == 2 else 0.5e9]
        for seconds in [times * (n - 1) / n * size / bandwidth]
    ]


def test_the_table_has_a_line_for_each_size_and_all_ranks_and_libraries_beside(
    report: Any, rows: list[Any]
) -> None:
    lines = report.table(rows)
    (head,) = [line for line in lines if line.startswith("all_reduce")]
    names = ["2 ranks, yours", "2 ranks, torch", "4 ranks, yours", "4 ranks, torch"]
    assert [head.index(name) for name in names] == sorted(head.index(name) for name in names)
    small, large = lines[lines.index(head) + 1 : lines.index(head) + 3]
    assert small.split()[:2] == ["1", "KiB"]
    assert large.split() == [
        "1",
        "MiB",
        *["1.049", "ms", "1", "GB/s"] * 2,
        *["1.573", "ms", "1", "GB/s"] * 2,
    ]


def test_what_was_not_measured_is_a_dash(report: Any, rows: list[Any]) -> None:
    some = [row for row in rows if (row.library, row.op) != ("yours", "all_reduce")]
    (head,) = [line for line in report.table(some) if line.startswith("all_reduce")]
    assert report.table(some)[report.table(some).index(head) + 1].split().count("-") == 2


def test_twice_the_time_at_the_same_bus_bandwidth_is_told_and_why_gloos_is_not(
    report: Any, rows: list[Any]
) -> None:
    text = "\n".join(report.remarks(rows))
    assert (
        "4 ranks, yours, 1 MiB: all_reduce takes 2.00 times as long as reduce_scatter, at 1.00"
        in text
    )
    assert (
        "2 ranks, torch, 1 MiB: all_reduce takes 1.00 times as long as reduce_scatter, at 2.00"
        in text
    )
    assert "moves twice the bytes" in text


def test_without_both_operations_there_is_nothing_to_remark(report: Any, rows: list[Any]) -> None:
    assert report.remarks([row for row in rows if row.op == "all_reduce"]) == []


def test_the_chart_has_a_panel_for_each_operation_and_a_line_for_each_rest(
    report: Any, rows: list[Any]
) -> None:
    svg = ElementTree.fromstring(report.chart(rows, "cpu"))
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    for name in ("all_reduce", "reduce_scatter", "2 ranks, yours", "4 ranks, torch"):
        assert texts.count(name) == 1
    assert len([*svg.iter("{http://www.w3.org/2000/svg}circle")]) == len(rows)
    assert not any("peak" in str(text) for text in texts)


def test_the_peak_of_a_known_device_is_drawn(report: Any, rows: list[Any]) -> None:
    assert "450 GB/s, the links' peak" in report.chart(rows, "NVIDIA H200").replace("&#x27;", "'")


def test_sizes_and_rates_have_units(report: Any) -> None:
    assert [report.size_text(size) for size in (12, 1 << 10, 64 << 20, 1 << 30)] == [
        *("12 B", "1 KiB", "64 MiB", "1 GiB")
    ]
    assert [report.rate_text(rate) for rate in (1e2, 1e4, 1e6, 2.5e9)] == [
        *("100 B/s", "10 kB/s", "1 MB/s", "2.5 GB/s")
    ]


def test_a_chart_of_nothing_is_refused(report: Any) -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        report.chart([], "cpu")
