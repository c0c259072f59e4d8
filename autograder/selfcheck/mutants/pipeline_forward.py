"""Mistakes in pipeline_forward."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

BUFFER = "input = stage.receive_buffer(samples)"

MUTANTS = [
    mutant(
        "pipeline_forward",
        "pipeline_forward makes every buffer as large as the first micro-batch",
        "All micro-batches are alike, one thinks.",
        (BUFFER, "input = stage.receive_buffer(microbatch_sizes[0])"),
        ["uneven", "edges"],
        told="do not agree on the size",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward feeds the first micro-batch over and over",
        "inputs[0], from when there was but one.",
        ("inputs[microbatch]", "inputs[0][:samples]"),
        ["*"],
        told="the output for micro-batch 1 is not right",
        also=["consistent with"],
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward returns the outputs in reverse",
        "insert(0, ...), by mistake.",
        ("outputs.append(output)", "outputs.insert(0, output)"),
        ["*"],
        told="micro-batches in reverse order",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward computes everything before it sends anything",
        "Two loops look tidier; and the stages work one after another.",
        """
        computed = []
        for microbatch, samples in enumerate(microbatch_sizes):
            if stage.is_first:
                input = inputs[microbatch]
            else:
                input = stage.receive_buffer(samples)
                dist.recv(input, previous, group)
            computed.append(stage.module(input))
        if stage.is_last:
            return computed
        for output in computed:
            dist.send(output.contiguous(), next, group)
        return []
        """,
        ["cost"],
        told="times as long as it must",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward sends what lies in memory otherwise",
        "contiguous() was left out.",
        ("output.contiguous()", "output"),
        ["edges"],
        told="contiguous",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward returns the outputs on every stage",
        "The list is built everywhere.",
        (
            "if stage.is_last:\n            outputs.append(output)\n        else:",
            "outputs.append(output)\n        if not stage.is_last:",
        ),
        ["*"],
        told="must return [], as it is not the last",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward takes the place in the group for a rank",
        "Stage r is rank r, in the default group.",
        (
            "outputs = []\n",
            "outputs = []\n    previous, next = stage.index - 1, stage.index + 1\n",
        ),
        ["edges"],
        told="not",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward forgets the group",
        "Everything was tried in the default group.",
        ("next, group)", "next)"),
        ["edges"],
        told="group",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward leaves the last micro-batch out",
        "range(1, m), and the first one by itself, wrongly.",
        (
            "enumerate(microbatch_sizes)",
            "enumerate(microbatch_sizes[: max(1, len(microbatch_sizes) - 1)])",
        ),
        ["outputs", "uneven", "edges", "cost"],
        told="not once for each micro-batch",
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward sends every output twice",
        "Once for the neighbour, and once for logging.",
        {
            "pipeline_forward": (
                "dist.send(output.contiguous(), next, group)",
                "dist.send(output.contiguous(), next, group)\n"
                "            dist.send(output.contiguous(), next, group)",
            ),
        }
        | {},
        ["*"],
    ),
    mutant(
        "pipeline_forward",
        "pipeline_forward broadcasts the outputs",
        "So that every rank can print them.",
        (
            "return outputs\n",
            "for output in outputs or [stage.receive_buffer(n) for n in microbatch_sizes]:\n"
            "        dist.broadcast(output.contiguous(), 0, group)\n"
            "    return outputs\n",
        ),
        ["*"],
        told="allows only",
    ),
]
