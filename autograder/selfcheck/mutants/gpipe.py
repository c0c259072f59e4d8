"""Mistakes in gpipe, bubble_fraction and peak_in_flight."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

SCHEDULES = ["schedule", "edges"]

MUTANTS = [
    mutant(
        "gpipe",
        "gpipe counts micro-batches from 1",
        "As people do.",
        {
            "gpipe": """
            forwards = [Action("F", i) for i in range(1, num_microbatches + 1)]
            backwards = [Action("B", i) for i in range(1, num_microbatches + 1)]
            return forwards + backwards
            """
        },
        SCHEDULES,
        told="counted from 1",
    ),
    mutant(
        "gpipe",
        "gpipe takes one micro-batch at a time",
        "Forward and backward in the same loop: no pipeline.",
        'return [Action(kind, i) for i in range(num_microbatches) for kind in ("F", "B")]',
        SCHEDULES,
        told="all forward passes come first",
    ),
    mutant(
        "gpipe",
        "gpipe leaves out the last backward pass",
        "range(m - 1) was left from another loop.",
        (
            'Action("B", i) for i in range(num_microbatches)',
            'Action("B", i) for i in range(num_microbatches - 1)',
        ),
        SCHEDULES,
        told="is missing",
    ),
    mutant(
        "gpipe",
        "gpipe goes back in the reverse order on odd stages alone",
        "Last in, first out; but only where it was tried.",
        ("return forwards + backwards", "return forwards + backwards[:: -1 if stage % 2 else 1]"),
        ["schedule"],
        told="has another order of B",
    ),
    mutant(
        "gpipe",
        "gpipe starts a stage's micro-batches later",
        "Idle time written down as actions.",
        ("return forwards + backwards", "return forwards[:1] * stage + forwards + backwards"),
        SCHEDULES,
        told="more than once",
    ),
    mutant(
        "gpipe",
        "bubble_fraction is the formula",
        "All schedules of the lecture have it.",
        "p, m = len(schedule), len(schedule[0]) // 2\nreturn (p - 1) / (m + p - 1)",
        ["bubble_fraction"],
        function="bubble_fraction",
        told="the formula of GPipe and 1F1B",
    ),
    mutant(
        "gpipe",
        "bubble_fraction is the bubble ratio",
        "Idle over work, as in the other part.",
        (
            "return 1 - len(ends) / (p * max(free))",
            "return p * max(free) / len(ends) - 1",
        ),
        ["bubble_fraction"],
        function="bubble_fraction",
        told="the bubble ratio, a part of the time in which the stages work",
    ),
    mutant(
        "gpipe",
        "bubble_fraction forgets that stages wait for one another",
        "Every stage by itself is never idle.",
        ("max([free[stage], *inputs]) + 1", "free[stage] + 1"),
        ["bubble_fraction"],
        function="bubble_fraction",
    ),
    mutant(
        "gpipe",
        "bubble_fraction forgets that a stage computes one thing at a time",
        "As soon as the input is there.",
        (
            "ends[stage, action] = free[stage] = max([free[stage], *inputs]) + 1",
            "ends[stage, action] = max([0, *inputs]) + 1\n"
            "        free[stage] = max(free[stage], ends[stage, action])",
        ),
        ["bubble_fraction"],
        function="bubble_fraction",
    ),
    mutant(
        "gpipe",
        "bubble_fraction looks at the first stage alone",
        "It is the one that waits longest, so one thinks; and its last backward pass ends last.",
        (
            "return 1 - len(ends) / (p * max(free))",
            "return 1 - len(schedule[0]) / free[-1]",
        ),
        ["bubble_fraction"],
        function="bubble_fraction",
    ),
    mutant(
        "gpipe",
        "bubble_fraction is a percentage",
        "For the plot.",
        (
            "return 1 - len(ends) / (p * max(free))",
            "return 100 * (1 - len(ends) / (p * max(free)))",
        ),
        ["bubble_fraction"],
        function="bubble_fraction",
        told="a percentage, where a fraction is asked for",
    ),
    mutant(
        "gpipe",
        "peak_in_flight counts the forward passes before the first backward pass",
        "The warm-up is the peak, in the usual schedules.",
        """
        return [
            next(k for k, action in enumerate(actions) if action.kind == "B")
            for actions in schedule
        ]
        """,
        ["peak_in_flight"],
        function="peak_in_flight",
        told="the number of forward passes before the first backward pass",
    ),
    mutant(
        "gpipe",
        "peak_in_flight leaves out the forward pass that has just ended",
        "The maximum is taken before the count goes up.",
        """
        peaks = []
        for actions in schedule:
            in_flight = peak = 0
            for action in actions:
                if action.kind == "F":
                    peak = max(peak, in_flight)
                    in_flight += 1
                else:
                    in_flight -= 1
            peaks.append(peak)
        return peaks
        """,
        ["peak_in_flight"],
        function="peak_in_flight",
        told="a micro-batch that is not in flight until the next action",
    ),
    mutant(
        "gpipe",
        "peak_in_flight gives every stage the largest",
        "One number for the pipeline.",
        ("return peaks", "return [max(peaks)] * len(peaks)"),
        ["peak_in_flight"],
        function="peak_in_flight",
        told="the most on any stage, for every stage",
    ),
    mutant(
        "gpipe",
        "peak_in_flight is m",
        "Every micro-batch has to be there.",
        "return [len(actions) // 2 for actions in schedule]",
        ["peak_in_flight"],
        function="peak_in_flight",
        told="the number of micro-batches",
    ),
]
