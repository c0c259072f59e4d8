"""Right solutions of part 4 that are not the reference's."""

from __future__ import annotations

from autograder.selfcheck.variant import alternative

ALTERNATIVES = [
    alternative(
        "parallel_regions",
        "an all-reduce as a reduce-scatter and an all-gather, in a flat buffer that is padded",
        "The same bytes, in two steps.",
        {
            "_all_reduce": """
            n = _size(group)
            flat = F.pad(x.reshape(-1), (0, -x.numel() % n))
            own = flat.new_empty(len(flat) // n)
            dist.reduce_scatter_tensor(own, flat, group=group)
            whole = torch.empty_like(flat)
            dist.all_gather_into_tensor(whole, own, group=group)
            return whole[: x.numel()].view(x.shape)
            """
        },
    ),
    alternative(
        "parallel_regions",
        "gathering into one tensor, along dimension 0, and slices without a copy",
        "The dimension is moved to the front and back; what comes out is not contiguous.",
        {
            "_all_gather": """
            front = x.movedim(dim, 0).contiguous()
            whole = front.new_empty((_size(group) * len(front), *front.shape[1:]))
            dist.all_gather_into_tensor(whole, front, group=group)
            return whole.movedim(0, dim)
            """,
            "_own_part": """
            width = x.shape[dim] // _size(group)
            return x.narrow(dim, dist.get_rank(group) * width, width)
            """,
            "_reduce_scatter": """
            parts = [part.contiguous() for part in x.tensor_split(_size(group), dim)]
            own = torch.empty_like(parts[0])
            dist.reduce_scatter(own, parts, group=group)
            return own
            """,
        },
    ),
    alternative(
        "parallel_regions",
        "a hook for copy_to, and an all-reduce below autograd for reduce_from",
        "register_hook adds the gradients; a clone's memory is summed through a detached alias.",
        {
            "copy_to_tensor_parallel_region": """
            copied = x.view_as(x)
            if copied.requires_grad:
                copied.register_hook(lambda grad: _all_reduce(grad, group))
            return copied
            """,
            "reduce_from_tensor_parallel_region": """
            total = x.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(total.detach(), group=group)
            return total
            """,
        },
    ),
    alternative(
        "parallel_linear",
        "the master is broadcast, and each rank clones its slice",
        "More bytes in the constructor, which are free; F.linear by hand.",
        {
            "shard_parameter": """
            with torch.no_grad():
                whole = full.detach().contiguous().clone()
                dist.broadcast(whole, dist.get_global_rank(group or dist.group.WORLD, 0), group)
                if dim is not None:
                    width = whole.shape[dim] // dist.get_world_size(group)
                    whole = whole.narrow(dim, dist.get_rank(group) * width, width).clone()
            parameter = nn.Parameter(whole.contiguous())
            parameter.requires_grad_(full.requires_grad)
            return parameter
            """,
            "ColumnParallelLinear.forward": """
            whole = copy_to_tensor_parallel_region(x, self.group) if self.copy_input else x
            y = whole @ self.weight.T
            if self.bias is not None:
                y = y + self.bias
            if not self.gather_output:
                return y
            return gather_from_tensor_parallel_region(y, y.dim() - 1, self.group)
            """,
            "RowParallelLinear.forward": """
            partial = torch.matmul(x, self.weight.t())
            y = reduce_from_tensor_parallel_region(partial, group=self.group)
            return torch.add(y, self.bias) if self.bias is not None else y
            """,
        },
    ),
    alternative(
        "parallel_linear",
        "only the first rank adds the bias, and its gradient is copied",
        "Before the sum; copy_to gives each rank's bias the gradient that the first has.",
        {
            "RowParallelLinear.forward": """
            y = F.linear(x, self.weight)
            if self.bias is not None:
                bias = copy_to_tensor_parallel_region(self.bias, self.group)
                y = y + bias if dist.get_rank(self.group) == 0 else y + 0 * bias
            return reduce_from_tensor_parallel_region(y, self.group)
            """
        },
    ),
    alternative(
        "parallel_mlp",
        "the activation after the all-gather, and ParallelMLP without its layers' forward",
        "Every rank applies it to all; then fc1 and fc2 are used for their weights alone.",
        {
            "ColumnParallelMLP.forward": """
            h = copy_to_tensor_parallel_region(x, self.group)
            for i in range(len(self.layers)):
                kind = "split" if i + 1 == len(self.layers) else "reduce_scatter"
                y = self.layers[i](h)
                h = self.activation(
                    gather_from_tensor_parallel_region(y, group=self.group, backward=kind)
                )
            return h
            """,
            "ParallelMLP.forward": """
            group = self.fc1.group
            hidden = F.linear(
                copy_to_tensor_parallel_region(x, group), self.fc1.weight, self.fc1.bias
            )
            partial = F.linear(self.activation(hidden), self.fc2.weight)
            y = reduce_from_tensor_parallel_region(partial, group)
            return y if self.fc2.bias is None else y + self.fc2.bias
            """,
        },
    ),
    alternative(
        "parallel_attention",
        "one matrix for queries, keys and values, and attention written out",
        "The three weights are put together in forward; softmax by hand.",
        {
            "ParallelAttention.forward": """
            x = copy_to_tensor_parallel_region(x, self.group)
            layers = (self.q_proj, self.k_proj, self.v_proj)
            weight = torch.cat([one.weight for one in layers])
            bias = None
            if self.q_proj.bias is not None:
                bias = torch.cat([one.bias for one in layers])
            widths = [len(one.weight) for one in layers]
            q, k, v = (
                one.view(*one.shape[:2], -1, self.head_dim).transpose(1, 2)
                for one in F.linear(x, weight, bias).split(widths, -1)
            )
            times = q.shape[1] // k.shape[1]
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            scores = q @ k.transpose(-1, -2) / self.head_dim**0.5
            if self.causal:
                length = x.shape[1]
                later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(later, float("-inf"))
            heads = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
            return self.o_proj(heads)
            """
        },
    ),
    alternative(
        "vocab_embedding",
        "a row of zeros for all tokens of other ranks",
        "They are looked up behind the last row.",
        {
            "VocabParallelEmbedding.forward": """
            rows = self.weight.shape[0]
            first = rows * dist.get_rank(self.group)
            mine = torch.logical_and(ids >= first, ids < first + rows)
            place = torch.where(mine, ids - first, rows)
            table = torch.cat([self.weight, self.weight.new_zeros(1, self.weight.shape[1])])
            return reduce_from_tensor_parallel_region(table[place], self.group)
            """
        },
    ),
    alternative(
        "vocab_cross_entropy",
        "a function of autograd of its own, and two sums in one all-reduce",
        "Backward is softmax - onehot, written out.",
        {
            "vocab_parallel_cross_entropy": """
            rows = logits.shape[-1]
            start = rows * dist.get_rank(group)

            class Loss(torch.autograd.Function):
                @staticmethod
                def forward(ctx, logits):
                    wide = logits.detach()
                    wide = wide.clone() if wide.dtype == torch.float64 else wide.float().clone()
                    real = max(0, min(rows, vocab_size - start))
                    wide[..., real:] = float("-inf")
                    top = wide.max(-1).values.contiguous()
                    dist.all_reduce(top, dist.ReduceOp.MAX, group=group)
                    exp = (wide - top[..., None]).exp()
                    here = (targets >= start) & (targets < start + rows)
                    place = torch.where(here, targets - start, 0)
                    mine = wide.gather(-1, place[..., None])[..., 0] - top
                    both = torch.stack([exp.sum(-1), torch.where(here, mine, 0.0)])
                    dist.all_reduce(both, group=group)
                    counts = targets != ignore_index
                    losses = torch.where(counts, both[0].log() - both[1], 0.0)
                    softmax = exp / both[0][..., None]
                    onehot = F.one_hot(place, rows) * here[..., None]
                    weight = counts / counts.sum()
                    gradient = (softmax - onehot) * weight[..., None]
                    ctx.save_for_backward(gradient.to(logits.dtype))
                    return losses.sum() / counts.sum()

                @staticmethod
                def backward(ctx, grad):
                    return ctx.saved_tensors[0] * grad

            return Loss.apply(logits)
            """
        },
    ),
    alternative(
        "vocab_cross_entropy",
        "every rank's log-sum-exp, gathered",
        "One number of each rank for each target, and the target's logit by an all-reduce.",
        {
            "vocab_parallel_cross_entropy": """
            rows, n = logits.shape[-1], _size(group)
            start = rows * dist.get_rank(group)
            wide = logits if logits.dtype == torch.float64 else logits.float()
            place = torch.arange(rows, device=logits.device) + start
            wide = torch.where(place < vocab_size, wide, -1e30)
            own = torch.logsumexp(wide, -1)
            every = gather_from_tensor_parallel_region(own[..., None], -1, group)
            total = torch.logsumexp(every, -1)
            onehot = place == targets[..., None]
            target = reduce_from_tensor_parallel_region((wide * onehot).sum(-1), group)
            counts = targets != ignore_index
            return (total - target)[counts].sum() / counts.sum()
            """
        },
    ),
]
