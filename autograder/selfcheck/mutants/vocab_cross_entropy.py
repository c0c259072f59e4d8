"""Mistakes in cross-entropy split by the vocabulary."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

_LOSS = "vocab_parallel_cross_entropy"

MUTANTS = [
    mutant(
        "vocab_cross_entropy",
        "the cross-entropy does not subtract the largest logit",
        "It is the same without, until exp overflows.",
        ("local = local - largest.unsqueeze(-1)", "local = local + 0 * largest.unsqueeze(-1)"),
        ["large_logits"],
        function=_LOSS,
        told="NaN or infinite",
    ),
    mutant(
        "vocab_cross_entropy",
        "every rank subtracts its own largest logit",
        "The all-reduce of the maximum was forgotten, so the sums do not fit together.",
        ("    dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)\n", ""),
        ["loss_and_gradient", "large_logits", "ignored", "sub_group", "padding"],
        function=_LOSS,
    ),
    mutant(
        "vocab_cross_entropy",
        "the softmax is over the calling rank's part of the vocabulary alone",
        "The exponentials are added up on each rank, and not over the ranks.",
        (
            "reduce_from_tensor_parallel_region(local.exp().sum(dim=-1), group)",
            "local.exp().sum(dim=-1)",
        ),
        ["*"],
        function=_LOSS,
        told="added up on each rank, and not over the ranks",
    ),
    mutant(
        "vocab_cross_entropy",
        "the exponentials are added over the ranks twice",
        "The sum that all ranks have already goes through another all-reduce.",
        (
            "reduce_from_tensor_parallel_region(local.exp().sum(dim=-1), group)",
            "reduce_from_tensor_parallel_region(\n"
            "        reduce_from_tensor_parallel_region(local.exp().sum(dim=-1), group), group\n"
            "    )",
        ),
        ["*"],
        function=_LOSS,
        told="added over the ranks once more",
    ),
    mutant(
        "vocab_cross_entropy",
        "the target's logit gets no gradient",
        "It is brought together outside of autograd, so the gradient is the softmax alone.",
        (
            "    target_logit = reduce_from_tensor_parallel_region(target_logit, group)\n",
            "    target_logit = _all_reduce(target_logit.detach(), group)\n",
        ),
        ["*"],
        function=_LOSS,
        told="a gradient of the softmax alone",
    ),
    mutant(
        "vocab_cross_entropy",
        "targets of other ranks count as the first token of each rank",
        "Their logit is not set to zero before the sum.",
        (".squeeze(-1).masked_fill(elsewhere, 0)", ".squeeze(-1)"),
        ["*"],
        function=_LOSS,
    ),
    mutant(
        "vocab_cross_entropy",
        "the logits are gathered",
        "F.cross_entropy of the whole vocabulary, on every rank.",
        """
        whole = gather_from_tensor_parallel_region(logits, -1, group)[..., :vocab_size]
        whole = whole if whole.dtype == torch.float64 else whole.float()
        return F.cross_entropy(
            whole.flatten(0, -2), targets.flatten(), ignore_index=ignore_index
        )
        """,
        ["traffic"],
        function=_LOSS,
        told="are enough",
    ),
    mutant(
        "vocab_cross_entropy",
        "the logits are gathered, and their gradients added",
        "All ranks compute one loss, so the gradient is n times too large.",
        """
        whole = gather_from_tensor_parallel_region(logits, -1, group, backward="reduce_scatter")
        whole = whole[..., :vocab_size]
        whole = whole if whole.dtype == torch.float64 else whole.float()
        return F.cross_entropy(
            whole.flatten(0, -2), targets.flatten(), ignore_index=ignore_index
        )
        """,
        ["*"],
        function=_LOSS,
        told="too large",
    ),
    mutant(
        "vocab_cross_entropy",
        "the mean is over all targets",
        "losses.mean(), with the ignored ones in it.",
        ("losses.sum() / counts.sum()", "losses.mean()"),
        ["ignored"],
        function=_LOSS,
        told="a mean over all targets",
    ),
    mutant(
        "vocab_cross_entropy",
        "-100 is what is ignored, whatever is asked for",
        "F.cross_entropy's default, written into the code.",
        ("counts = targets != ignore_index", "counts = targets != -100"),
        ["ignored"],
        function=_LOSS,
        told="targets that are to be ignored, and are not",
    ),
    mutant(
        "vocab_cross_entropy",
        "logits that stand for no token are counted",
        "vocab_size is not looked at.",
        ("    local = local.masked_fill(tokens >= vocab_size, -torch.inf)\n", ""),
        ["padding"],
        function=_LOSS,
        told="stand for no token, and are counted",
    ),
    mutant(
        "vocab_cross_entropy",
        "the cross-entropy is computed in bfloat16 where the logits are",
        "Sums of exponentials in 8 bits.",
        ("logits if logits.dtype == torch.float64 else logits.float()", "logits + 0"),
        ["loss_and_gradient"],
        function=_LOSS,
        told="has dtype",
    ),
    mutant(
        "vocab_cross_entropy",
        "the cross-entropy takes its place from the global rank",
        "dist.get_rank() without the group.",
        ("first = dist.get_rank(group) *", "first = dist.get_rank() *"),
        ["sub_group"],
        function=_LOSS,
    ),
]
