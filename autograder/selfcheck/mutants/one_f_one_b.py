"""Mistakes in one_f_one_b."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

WARMUP = "warmup = min(num_microbatches, num_stages - stage)"

MUTANTS = [
    mutant(
        "one_f_one_b",
        "one_f_one_b has one forward pass too many in the warm-up",
        "p - stage before the steady state, which begins with a forward pass.",
        (WARMUP, "warmup = min(num_microbatches, num_stages - stage + 1)"),
        ["in_flight", "edges"],
        told="a warm-up of one forward pass too many",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b has one forward pass too few in the warm-up",
        "p - stage - 1, and then a backward pass: the gradient cannot be there yet.",
        (WARMUP, "warmup = min(num_microbatches, max(1, num_stages - stage - 1))"),
        ["bubble", "edges"],
        told="a warm-up that is too short",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b does not clamp the warm-up",
        "There were always enough micro-batches.",
        (WARMUP, "warmup = num_stages - stage"),
        ["edges"],
        told="a warm-up longer than there are micro-batches",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b is GPipe",
        "The same bubble, so it must be the same.",
        (WARMUP, "warmup = num_microbatches"),
        ["in_flight", "edges"],
        told="all forward passes first",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b warms every stage up alike",
        "p forward passes everywhere.",
        (WARMUP, "warmup = min(num_microbatches, num_stages)"),
        ["bubble", "in_flight", "edges"],
        told="too many",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b warms the last stage up most",
        "Counted from the wrong end.",
        (WARMUP, "warmup = min(num_microbatches, stage + 1)"),
        ["*"],
        told="the stages wait for one another",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b has no cool-down",
        "As many backward passes as pairs, and the rest are forgotten.",
        """
        warmup = min(num_microbatches, num_stages - stage)
        actions = [Action("F", i) for i in range(warmup)]
        for i in range(num_microbatches - warmup):
            actions += [Action("B", i), Action("F", warmup + i)]
        return actions
        """,
        ["*"],
        told="is missing",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b goes back in the order last in, first out",
        "As a stack unwinds.",
        (
            'actions.append(Action("B", i))',
            'actions.append(Action("B", min(warmup + i, num_microbatches) - 1))',
        ),
        ["*"],
        told="is missing",
        also=["a warm-up that is too short"],
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b takes one micro-batch at a time",
        "One forward, one backward: the name says it.",
        'return [Action(kind, i) for i in range(num_microbatches) for kind in ("F", "B")]',
        ["bubble", "edges"],
        told="a warm-up that is too short",
    ),
    mutant(
        "one_f_one_b",
        "one_f_one_b refuses fewer micro-batches than stages",
        "An assertion, as in the first code that one finds.",
        (
            "    # BEGIN SOLUTION\n",
            "    # BEGIN SOLUTION\n    assert num_microbatches >= num_stages\n",
        ),
        ["edges"],
        told="AssertionError",
    ),
]
