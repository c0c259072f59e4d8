"""Mistakes in PipelineStage."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

FORWARD, BACKWARD = "PipelineStage.forward", "PipelineStage.backward"
KEEP = "self._in_flight[microbatch] = input, output"
TAKE = "input, output = self._in_flight.pop(microbatch)"

MUTANTS = [
    mutant(
        "pipeline_stage",
        "PipelineStage does not ask for the gradient of its input",
        "What comes out of a buffer requires none.",
        ("input = input.detach().requires_grad_()", "input = input.detach()"),
        ["*"],
        function=FORWARD,
        told="the gradient of the input must be returned",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage asks for the gradient of token ids",
        "Every input alike.",
        ("if not self.is_first:\n            input", "if True:\n            input"),
        ["one_micro_batch", "edges", "memory"],
        function=FORWARD,
        told="none, on the first stage",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage keeps one micro-batch alone",
        "self.input and self.output: enough, as long as backward follows forward.",
        {
            FORWARD: (KEEP, "self._in_flight = {0: (input, output)}"),
            BACKWARD: (TAKE, "input, output = self._in_flight[0]"),
        },
        ["several_in_flight", "gradients_are_added", "edges", "memory"],
        told="backward through the graph a second time",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage takes the micro-batches first in, first out",
        "A queue, whatever number backward is given.",
        {BACKWARD: (TAKE, "input, output = self._in_flight.pop(next(iter(self._in_flight)))")},
        ["several_in_flight"],
        told="shape",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage returns an output that drags its graph along",
        "detach() was left out.",
        ("return output.detach()", "return output"),
        ["*"],
        function=FORWARD,
        told="must not require a gradient",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage keeps every micro-batch for good",
        "A dictionary is read, and nothing taken out of it.",
        (TAKE, "input, output = self._in_flight[microbatch]"),
        ["memory"],
        function=BACKWARD,
        told="activations being kept after their backward pass",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage retains every graph",
        "retain_graph=True made an error go away.",
        (
            "torch.autograd.backward(output, output_grad)",
            "torch.autograd.backward(output, output_grad, retain_graph=True)\n"
            "            self.last = getattr(self, 'last', []) + [output]",
        ),
        ["memory"],
        function=BACKWARD,
        told="activations being kept after their backward pass",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage starts backward from ones",
        "output.sum().backward(): the gradient that came in is not used.",
        (
            "torch.autograd.backward(output, output_grad)",
            "torch.autograd.backward(output, torch.ones_like(output))",
        ),
        ["*"],
        function=BACKWARD,
        told="is not right",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage empties the gradients first",
        "As at the beginning of each step in every tutorial.",
        (
            "if output.requires_grad:\n",
            "self.module.zero_grad()\n        if output.requires_grad:\n",
        ),
        ["several_in_flight", "gradients_are_added", "edges", "memory"],
        function=BACKWARD,
        told="the last micro-batch alone",
        also=["gradients that were there before being lost"],
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage computes the forward pass again",
        "In backward, because the output was not kept; nobody asked for recomputation.",
        {
            BACKWARD: (
                TAKE,
                "input, output = self._in_flight.pop(microbatch)\n"
                "        output = self.module(input)",
            )
        },
        ["*"],
        told="not once for each micro-batch",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage cannot do with a first stage that has nothing to train",
        "Every output requires a gradient, one thinks.",
        ("if output.requires_grad:\n            ", "if True:\n            "),
        ["edges"],
        function=BACKWARD,
        told="does not require grad",
    ),
    mutant(
        "pipeline_stage",
        "PipelineStage computes without autograd",
        "no_grad, as the forward-only pipeline has it.",
        (
            "output: Tensor = self.module(input)",
            "with torch.no_grad():\n            output: Tensor = self.module(input)",
        ),
        ["*"],
        function=FORWARD,
        told="the gradient of the input must be returned",
        also=["no gradient at all"],
    ),
]
