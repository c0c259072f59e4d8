"""Right solutions of part 5 that are not the reference's."""

from __future__ import annotations

from autograder.selfcheck.variant import alternative

ALTERNATIVES = [
    alternative(
        "pipeline_forward",
        "pipeline_forward with isend and irecv, one receive ahead",
        "Nothing blocks, and all sends are waited for in the end.",
        """
        works = []
        def post(i):
            buffer = stage.receive_buffer(microbatch_sizes[i])
            return buffer, dist.irecv(buffer, src=previous, group=group)

        m = len(microbatch_sizes)
        coming = None if stage.is_first else post(0)
        results = []
        for i in range(m):
            if stage.is_first:
                x = inputs[i]
            else:
                x, work = coming
                if i + 1 < m:
                    coming = post(i + 1)
                work.wait()
            y = stage.module(x)
            if stage.is_last:
                results += [y]
            else:
                y = y.contiguous()
                works.append((y, dist.isend(y, dst=next, group=group)))
        for _, work in works:
            work.wait()
        return results
        """,
    ),
    alternative(
        "partition_layers",
        "partition_layers with the longer stages at the end",
        "The bounds are products, rounded down.",
        """
        ends = [(stage + 1) * num_layers // num_stages for stage in range(num_stages)]
        return [range(a, b) for a, b in zip([0, *ends], ends)]
        """,
    ),
    alternative(
        "gpipe",
        "GPipe that goes back last in, first out; figures by ticks and by running sums",
        "A clock that ticks, and every stage that can computes.",
        {
            "gpipe": """
            order = list(range(num_microbatches))
            return [Action("F", i) for i in order] + [Action("B", i) for i in reversed(order)]
            """,
            "bubble_fraction": """
            p = len(schedule)
            left = [list(actions) for actions in schedule]
            done = set()
            ticks = 0
            while any(left):
                ticks += 1
                now = [
                    (stage, actions[0])
                    for stage, actions in enumerate(left)
                    if actions and all(one in done for one in needs(stage, actions[0], p))
                ]
                for stage, action in now:
                    left[stage].pop(0)
                done.update(now)
            return (ticks * p - len(done)) / (ticks * p)
            """,
            "peak_in_flight": """
            from itertools import accumulate
            return [max(accumulate({"F": 1, "B": -1}[a.kind] for a in one)) for one in schedule]
            """,
        },
    ),
    alternative(
        "one_f_one_b",
        "1F1B as Megatron counts it",
        "Warm-up p - stage - 1; then a forward and a backward pass in turn; then the rest.",
        """
        warmup = min(num_stages - stage - 1, num_microbatches)
        steady = num_microbatches - warmup
        actions = [Action("F", i) for i in range(warmup)]
        for i in range(steady):
            actions += [Action("F", warmup + i), Action("B", i)]
        return actions + [Action("B", steady + i) for i in range(warmup)]
        """,
    ),
    alternative(
        "one_f_one_b",
        "1F1B by counting what is in flight",
        "No warm-up at all: forward while there is room, else backward; generated, then listed.",
        """
        def generate():
            sent = back = 0
            while back < num_microbatches:
                if sent < num_microbatches and sent - back < num_stages - stage:
                    yield Action("F", sent)
                    sent += 1
                else:
                    yield Action("B", back)
                    back += 1

        return list(generate())
        """,
    ),
    alternative(
        "pipeline_stage",
        "PipelineStage that works out the input's gradient apart",
        "A copy as the leaf; its own attributes; the gradient is taken by a hook.",
        {
            "PipelineStage.forward": """
            x = input if self.index == 0 else input.clone().requires_grad_(True)
            y = self.module(x)
            self._in_flight.setdefault(microbatch, (x, y))
            return y.data
            """,
            "PipelineStage.backward": """
            x, y = self._in_flight[microbatch]
            del self._in_flight[microbatch]
            if y.grad_fn is not None:
                torch.autograd.backward([y], [output_grad])
            if self.index == 0:
                return None
            return x.grad.detach()
            """,
        },
    ),
    alternative(
        "run_schedule",
        "run_schedule with single sends and receives, and tags",
        "isend and irecv, a receive always ahead, the loss at the forward pass; waits at the end.",
        """
        mine = list(schedule[stage.index])
        total = float(sum(microbatch_sizes))
        shapes, seeds, sends, loss_sum = {}, {}, [], 0.0
        coming = {}

        def post(k):
            if k >= len(mine) or mine[k] in coming:
                return
            kind, i = mine[k]
            if kind == "F" and not stage.is_first:
                buffer = stage.receive_buffer(microbatch_sizes[i])
                coming[mine[k]] = buffer, dist.irecv(buffer, previous, group, tag=2 * i)
            if kind == "B" and not stage.is_last and i in shapes:
                buffer = torch.empty(shapes[i][0], dtype=shapes[i][1], device=shapes[i][2])
                coming[mine[k]] = buffer, dist.irecv(buffer, next, group, tag=2 * i + 1)

        def take(k):
            post(k)
            post(k + 1)
            buffer, work = coming.pop(mine[k])
            work.wait()
            return buffer

        for k, (kind, i) in enumerate(mine):
            if kind == "F":
                x = inputs[i] if stage.is_first else take(k)
                y = stage.forward(i, x)
                shapes[i] = y.shape, y.dtype, y.device
                if stage.is_last:
                    with torch.enable_grad():
                        leaf = y.detach().clone().requires_grad_()
                        loss = loss_fn(leaf, targets[i])
                        (loss * (microbatch_sizes[i] / total)).backward()
                    loss_sum = loss_sum + loss.detach() * microbatch_sizes[i] / total
                    seeds[i] = leaf.grad
                else:
                    y = y.contiguous()
                    sends.append((dist.isend(y, next, group, tag=2 * i), y))
            else:
                g = seeds.pop(i) if stage.is_last else take(k)
                back = stage.backward(i, g)
                if not stage.is_first:
                    back = back.contiguous()
                    sends.append((dist.isend(back, previous, group, tag=2 * i + 1), back))
        for work, _ in sends:
            work.wait()
        return loss_sum if stage.is_last else None
        """,
    ),
    alternative(
        "run_schedule",
        "run_schedule with a header before the first message",
        "The shape of a sample travels once, in a message of 72 bytes, as if nobody knew it.",
        """
        actions = schedule[stage.index]
        dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
        sends, outputs, losses, posted, known = [], {}, [], {}, []

        def send(tensor, to):
            tensor = tensor.contiguous()
            sends.append((tensor, dist.isend(tensor, to, group)))

        def post(action):
            kind, i = action
            if kind == "B":
                like = outputs[i]
                buffer = torch.empty(like.shape, dtype=like.dtype)
            else:
                if not known:
                    header = torch.empty(9, dtype=torch.int64)
                    dist.recv(header, previous, group)
                    known.extend(header.tolist())
                shape = known[2 : 2 + known[1]]
                buffer = torch.empty((microbatch_sizes[i], *shape), dtype=dtypes[known[0]])
            posted[action] = buffer, dist.irecv(buffer, next if kind == "B" else previous, group)

        for k, action in enumerate(actions):
            kind, i = action
            for one in actions[k : k + 2]:
                local = stage.is_first if one.kind == "F" else stage.is_last
                if not local and one not in posted and (one.kind == "F" or one[1] in outputs):
                    post(one)
            if action in posted:
                tensor, work = posted.pop(action)
                work.wait()
            if kind == "F":
                outputs[i] = stage.forward(i, inputs[i] if stage.is_first else tensor)
                if not stage.is_last:
                    if len(outputs) == 1 and not sends:
                        header = torch.zeros(9, dtype=torch.int64)
                        one = outputs[i]
                        header[0], header[1] = dtypes.index(one.dtype), one.dim() - 1
                        header[2 : 1 + one.dim()] = torch.tensor(one.shape[1:])
                        send(header, next)
                    send(outputs[i], next)
                continue
            output = outputs.pop(i)
            if stage.is_last:
                output.requires_grad_()
                loss = loss_fn(output, targets[i]) * microbatch_sizes[i] / sum(microbatch_sizes)
                loss.backward()
                losses.append(loss.item())
                tensor = output.grad
            back = stage.backward(i, tensor)
            if back is not None:
                send(back, previous)
        for _, work in sends:
            work.wait()
        return torch.tensor(losses, dtype=torch.float64).sum() if stage.is_last else None
        """,
    ),
]
