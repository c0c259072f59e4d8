"""Mistakes in run_schedule."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

SHARE = "share = microbatch_sizes[microbatch] / sum(microbatch_sizes)"
BATCH = "works = dist.batch_isend_irecv(receives + sends) if receives or sends else []"
ALL = ["gpipe", "1f1b", "uneven", "any_schedule", "edges", "gradients_are_added", "cost", "memory"]
LAST = "return torch.stack(losses).sum() if stage.is_last else None"

MUTANTS = [
    mutant(
        "run_schedule",
        "run_schedule does not scale the loss",
        "Gradients add up by themselves; that they add up to m times too much, Adam hides.",
        (SHARE, "share = 1"),
        ["*"],
        told="a loss that is not scaled",
    ),
    mutant(
        "run_schedule",
        "run_schedule scales the loss twice",
        "Once where it is computed, and once more in the gradient, to be sure.",
        (
            "return output.grad",
            "return output.grad / len(microbatch_sizes)",
        ),
        ["*"],
        told="a loss that is scaled twice",
    ),
    mutant(
        "run_schedule",
        "run_schedule counts all micro-batches equally",
        "1 / m, whatever is in the last one.",
        (SHARE, "share = 1 / len(microbatch_sizes)"),
        ["uneven", "any_schedule", "edges", "gradients_are_added"],
        told="micro-batches that count equally",
    ),
    mutant(
        "run_schedule",
        "run_schedule returns the loss of the last micro-batch",
        "The variable of the loop.",
        (LAST, "return losses[-1] if stage.is_last else None"),
        ["*"],
        told="the last micro-batch alone",
    ),
    mutant(
        "run_schedule",
        "run_schedule returns a sum of mean losses",
        "The gradients are right.",
        ("losses.append(loss.detach())", "losses.append(loss.detach() / share)"),
        ["*"],
        told="a loss that is not scaled",
    ),
    mutant(
        "run_schedule",
        "run_schedule rescales the gradients in the end",
        "All of them, with what was there before.",
        (
            LAST,
            "for parameter in stage.module.parameters():\n"
            "        if parameter.grad is not None:\n"
            "            parameter.grad /= len(microbatch_sizes)\n"
            "    return torch.stack(losses).sum() * 1.0 if stage.is_last else None",
        ),
        ["*"],
        told="a loss that is scaled twice",
        also=["being scaled, too"],
    ),
    mutant(
        "run_schedule",
        "run_schedule scales by rescaling what has accumulated",
        "The loss is not, the gradients are, in the end: right, where nothing was there before.",
        {
            "run_schedule.loss_gradient": (SHARE, "share = 1"),
            "run_schedule": (
                LAST,
                "for parameter in stage.module.parameters():\n"
                "        if parameter.grad is not None:\n"
                "            parameter.grad /= len(microbatch_sizes)\n"
                "    return torch.stack(losses).mean() if stage.is_last else None",
            ),
        },
        ["uneven", "any_schedule", "edges", "gradients_are_added"],
        told="micro-batches that count equally",
        also=["being scaled, too"],
    ),
    mutant(
        "run_schedule",
        "run_schedule receives gradients in the shape of the input",
        "One kind of buffer for everything.",
        (
            "buffer = torch.empty_like(output, memory_format=torch.contiguous_format)",
            "buffer = stage.receive_buffer(len(output))",
        ),
        [one for one in ALL if one != "cost"],
        told="do not agree on the size",
    ),
    mutant(
        "run_schedule",
        "run_schedule sends what lies in memory otherwise",
        "contiguous() was left out.",
        ("result.contiguous()", "result"),
        ["edges"],
        told="contiguous",
    ),
    mutant(
        "run_schedule",
        "run_schedule receives, computes and sends, and each blocks",
        "The plain order, as in the forward-only pipeline: textbook 1F1B deadlocks so.",
        """
        outputs, losses = {}, []
        for kind, i in schedule[stage.index]:
            if kind == "F":
                input = inputs[i] if stage.is_first else stage.receive_buffer(microbatch_sizes[i])
                if not stage.is_first:
                    dist.recv(input, previous, group)
                outputs[i] = stage.forward(i, input)
                if not stage.is_last:
                    dist.send(outputs[i].contiguous(), next, group)
                continue
            output = outputs.pop(i)
            if stage.is_last:
                output.requires_grad_()
                loss = loss_fn(output, targets[i]) * microbatch_sizes[i] / sum(microbatch_sizes)
                loss.backward()
                losses.append(loss.detach())
                grad = output.grad
            else:
                grad = torch.empty(output.shape, dtype=output.dtype)
                dist.recv(grad, next, group)
            grad = stage.backward(i, grad)
            if not stage.is_first:
                dist.send(grad.contiguous(), previous, group)
        return torch.stack(losses).sum() if stage.is_last else None
        """,
        [one for one in ALL if one != "gpipe"],
        told="can never go on",
    ),
    mutant(
        "run_schedule",
        "run_schedule sends all outputs from one buffer",
        "A send buffer of its own, filled again before the message has left.",
        {
            "run_schedule": (
                "return [dist.P2POp(dist.isend, result.contiguous(), peer, group)]",
                "stage.buffer = getattr(stage, 'buffer', result.clone())\n"
                "        buffer = stage.buffer.resize_(result.shape).copy_(result)\n"
                "        return [dist.P2POp(dist.isend, buffer, peer, group)]",
            )
        },
        ["*"],
        told="changed the memory of a send",
    ),
    mutant(
        "run_schedule",
        "run_schedule computes before the message is there",
        "work.wait() was left out for the receives.",
        (
            "tensor, work = arriving.pop(action)\n        work.wait()",
            "tensor, work = arriving.pop(action)\n"
            "        stage.late = [*getattr(stage, 'late', []), work]",
        ),
        ["*"],
        told="without having waited for a receive",
    ),
    mutant(
        "run_schedule",
        "run_schedule posts every receive when it needs it",
        "Receive, then compute: no message arrives meanwhile.",
        (
            "early = following is not None and following.kind == action.kind",
            "early = False",
        ),
        ["cost"],
        told="times as long as it must",
    ),
    mutant(
        "run_schedule",
        "run_schedule waits until each message has been received",
        "Receives are posted before; so 1F1B and GPipe run, but nothing is sent meanwhile.",
        {"run_schedule.exchange": ("leaving[done] = works[-1]", "works[-1].wait()")},
        ["any_schedule", "cost"],
        told="times as long as it must",
    ),
    mutant(
        "run_schedule",
        "run_schedule sends everything twice",
        "A second message, to be sure that one arrives.",
        {
            "run_schedule.exchange": (
                BATCH,
                "stage.more = [*getattr(stage, 'more', []),\n"
                "            *(receives + sends and dist.batch_isend_irecv(receives + sends))]\n"
                "        " + BATCH,
            ),
            "run_schedule": (
                LAST,
                "for work in stage.__dict__.pop('more', []):\n        work.wait()\n    " + LAST,
            ),
        },
        ["cost"],
        told="times the bytes",
    ),
    mutant(
        "run_schedule",
        "run_schedule keeps what it has received",
        "A list of all inputs, for debugging.",
        (
            "        return tensor\n\n    def loss_gradient",
            '        stage.seen = [*getattr(stage, "seen", []), tensor]\n'
            "        return tensor\n\n    def loss_gradient",
        ),
        ["memory"],
        told="activations being kept after their backward pass",
    ),
    mutant(
        "run_schedule",
        "run_schedule posts all receives at the beginning",
        "No message ever waits; and every buffer is there from the first moment on.",
        {
            "run_schedule.incoming": ("if peer is None:", "if peer is None or action in arriving:"),
            "run_schedule": (
                "exchange(actions[0])",
                "for one in actions:\n        if one.kind == 'F':\n            exchange(one)",
            ),
        },
        ["memory"],
        told="holds the activations of 9 micro-batches",
        also=["kept after their backward pass"],
    ),
    mutant(
        "run_schedule",
        "run_schedule runs 1F1B, whatever it is given",
        "The schedule was derived again, from stage and number of micro-batches.",
        (
            "actions = schedule[stage.index]",
            "actions = one_f_one_b(stage.index, stage.num_stages, len(microbatch_sizes))",
        ),
        ["gpipe", "uneven", "any_schedule", "edges", "cost"],
        told="does not compute its actions",
    ),
    mutant(
        "run_schedule",
        "run_schedule takes the place in the group for a rank",
        "Stage r is rank r, in the default group.",
        (
            "    # BEGIN SOLUTION\n",
            "    # BEGIN SOLUTION\n"
            "    previous = None if stage.is_first else stage.index - 1\n"
            "    next = None if stage.is_last else stage.index + 1\n",
        ),
        ["edges"],
    ),
    mutant(
        "run_schedule",
        "run_schedule tells everybody the loss",
        "A broadcast at the end, for the log.",
        (
            LAST,
            "total = torch.stack(losses).sum() if losses else torch.zeros(()).double()\n"
            "    dist.broadcast(total, dist.get_process_group_ranks(group)[-1], group)\n"
            "    return total",
        ),
        ["*"],
        told="allows only",
    ),
    mutant(
        "run_schedule",
        "run_schedule returns a loss that drags its graph along",
        "detach() was left out.",
        ("losses.append(loss.detach())", "losses.append(loss)"),
        ["*"],
        told="cut off from autograd",
    ),
]
