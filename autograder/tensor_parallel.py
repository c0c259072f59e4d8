"""Tensor-parallel regions and layers, against the same on one device, worked out here in float64.

Scenarios are data. The full weights and inputs are drawn here; every rank gets its part of the
input, and the full weights, as a rank does. What comes back must be the parts of what one device
gives: the output, the input's gradient, and that of each parameter. All numbers are small whole
numbers over a power of 2, so most of the sums are exact, in bfloat16 too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from autograder.agreement import difference
from autograder.collective import give
from autograder.compare import EPSILON
from autograder.cost import score_collectives, worst
from autograder.failure import CheckFailed
from autograder.grading import Credit
from autograder.inputs import integers
from autograder.judge import Answer, Case, Judge, array
from autograder.shards import Wanted, largest_error, require_parts
from multirank import Operation

CONSTRUCTED = "constructed"  # as in cases/tensor_parallel.py
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Setting:
    """Where something runs, and how its tensors lie.

    members: the ranks of a sub-group; None: all.
    layout: of the tensors that are given: "plain", "strided", "transposed".
    summed: backward begins with `.sum()`, so the gradient is an expanded one of ones.
    beside: the input is added to the output, so that both share it and its gradient.
    """

    world_size: int
    dtype: str = "float32"
    members: tuple[int, ...] | None = None
    layout: str = "plain"
    summed: bool = False
    beside: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.members or tuple(range(self.world_size))

    @property
    def n(self) -> int:
        """How many ranks take part."""
        return len(self.ranks)

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def facts(self) -> dict[str, str]:
        """What a student is told of it."""
        told = {"world size": str(self.world_size), "dtype": self.dtype}
        if self.members:
            told["group"] = str(list(self.members))
        if self.layout != "plain":
            told["layout"] = self.layout
        return told

    def __str__(self) -> str:
        return "".join(
            (
                f"on {self.world_size} ranks",
                f", in the group {list(self.members)}" if self.members else "",
                f", {self.dtype}",
                "" if self.layout == "plain" else f", {self.layout}",
                ", with the input added to the output" if self.beside else "",
                ", .sum().backward()" if self.summed else "",
            )
        )

    def inputs(self, x: Tensor, gradient: Tensor) -> dict[str, Any]:
        """What a rank gets whatever is run."""
        return {
            "x": x if x.dtype == torch.int64 else x.to(self.torch_dtype),
            "gradient": None if self.summed else gradient.to(self.torch_dtype),
            "layout": self.layout,
            "beside": self.beside,
        }


def draw(rng: np.random.Generator, *shape: int, step: float = 0.25) -> Tensor:
    """Multiples of `step`, up to 8 times, which every dtype holds exactly; in float64."""
    return torch.from_numpy(step * integers(rng, shape, "float64", -8, 8))


def add(tensors: Sequence[Tensor]) -> Tensor:
    """Their sum."""
    return torch.stack(list(tensors)).sum(dim=0)


# --- Regions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Region:
    """A call of one of the four.

    shape: of the whole tensor. dim: along which it is sharded. backward: of gather_from.
    """

    name: str
    setting: Setting
    shape: tuple[int, ...] = (2, 12)
    dim: int | None = None
    backward: str | None = None

    function = "region"  # the case

    @property
    def options(self) -> dict[str, Any]:
        given = {"dim": self.dim, "backward": self.backward}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def cost(self) -> Fraction:
        """Bytes that forward and backward may move, on each rank."""
        n = self.setting.n
        passes = 1 + (self.name in ("copy_to", "reduce_from") or self.backward == "reduce_scatter")
        whole = int(np.prod(self.shape)) * self.setting.torch_dtype.itemsize
        return passes * Fraction(n - 1, n) * whole

    def __str__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.name}{f'({told})' if told else ''} {self.setting}"

    def draw(self, rng: np.random.Generator) -> tuple[list[dict[str, Any]], list[Wanted]]:
        """Each member's inputs, and what must come out."""
        n, dim = self.setting.n, -1 if self.dim is None else self.dim
        whole = [draw(rng, *self.shape)] * n
        different = [draw(rng, *self.shape) for _ in range(n)]
        sharded = list(whole[0].chunk(n, dim))
        x, gradient = {
            "copy_to": (whole, different),
            "reduce_from": (different, whole),
            "gather_from": (sharded, different if self.backward == "reduce_scatter" else whole),
            "scatter_to": (whole, sharded),
        }[self.name]
        x, gradient = list(x), list(gradient)
        if self.setting.summed:
            gradient = [torch.ones_like(one) for one in gradient]
        if self.name == "copy_to":
            forward, backward = x, [add(gradient)] * n
        elif self.name == "reduce_from":
            forward, backward = [add(x)] * n, gradient
        elif self.name == "scatter_to":
            forward, backward = sharded, [torch.cat(gradient, dim)] * n
        else:
            total = add(gradient) if self.backward == "reduce_scatter" else gradient[0]
            forward, backward = whole, list(total.chunk(n, dim))
        guesses = {}
        if self.backward == "reduce_scatter":
            cause = "a split, where the gradients of all ranks must be added first"
            parts = (own.chunk(n, dim)[place] for place, own in enumerate(gradient))
            guesses[cause] = list(parts)
        if self.setting.beside:
            forward = [own + one for own, one in zip(x, forward, strict=True)]
            backward = [own + one for own, one in zip(gradient, backward, strict=True)]
            cause = "an in-place all-reduce of a gradient that something else needs as well"
            guesses[cause] = [2 * add(gradient)] * n
        called, dtype = {"region": self.name, "options": self.options}, self.setting.dtype
        return [called | self.setting.inputs(*one) for one in zip(x, gradient, strict=True)], [
            Wanted(("output",), "the output", dtype, forward),
            Wanted(("input_gradient",), "the input's gradient", dtype, backward, guesses=guesses),
        ]


# --- Layers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A layer that is made, and run forward and backward once.

    kind: "column", "row", "mlp", "column_mlp", "attention" or "embedding".
    features: the widths, from the input's to the output's; of an embedding, tokens and width.
    rows: the input's other dimensions.
    bias: whether its linear layers have one. options: of the constructor.
    activation: by its name in torch.nn.functional.
    heads: of attention: heads, key/value heads, and whether it is causal.
    masters_differ: every rank gives another full module; else all of them give the same.
    """

    kind: str
    setting: Setting
    features: tuple[int, ...]
    rows: tuple[int, ...] = (2, 3)
    bias: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    activation: str = "relu"
    heads: tuple[int, int, bool] = (1, 1, True)
    masters_differ: bool = False

    function = "layer"  # the case

    @property
    def cost(self) -> Fraction:
        """Bytes that forward and backward may move, on each rank."""
        n, itemsize = self.setting.n, self.setting.torch_dtype.itemsize
        first, *between, last = (int(np.prod(self.rows)) * width for width in self.features)
        match self.kind:
            case "column":
                passes = 2 * first * self.copies_input + last * self.gathers
            case "row":
                passes = 2 * last
            case "column_mlp":
                passes = 2 * first + 2 * sum(between) + last
            case "embedding":
                passes = 2 * int(np.prod(self.rows)) * self.features[1]
            case _:
                passes = 2 * first + 2 * last
        return Fraction(n - 1, n) * passes * itemsize

    @property
    def copies_input(self) -> bool:
        return bool(self.options.get("copy_input", True))

    @property
    def gathers(self) -> bool:
        return bool(self.options.get("gather_output", False))

    @property
    def name(self) -> str:
        return {
            "column": "ColumnParallelLinear",
            "row": "RowParallelLinear",
            "mlp": "ParallelMLP",
            "column_mlp": "ColumnParallelMLP",
            "attention": "ParallelAttention",
            "embedding": "VocabParallelEmbedding",
        }[self.kind]

    def __str__(self) -> str:
        told = [f"{name}={value}" for name, value in self.options.items()]
        if self.kind == "attention":
            told = [f"{self.heads[0]} heads, {self.heads[1]} for keys and values"]
        if self.kind == "embedding":
            told = [f"{self.features[0]} tokens"]
        if not self.bias:
            told.append("no bias")
        listed = f" ({', '.join(told)})" if told else ""
        return f"{self.name}{listed} {self.setting}"

    def weights(self, rng: np.random.Generator) -> Tensors:
        """The full parameters, by their names in the parallel layer."""
        if self.kind == "embedding":
            return {"weight": draw(rng, *self.features)}
        weights = {}
        for name, (fan_in, fan_out) in self._linears().items():
            weights[f"{name}weight"] = draw(rng, fan_out, fan_in, step=1 / 32)
            if self.bias:
                weights[f"{name}bias"] = draw(rng, fan_out)
        return weights

    def _linears(self) -> dict[str, tuple[int, int]]:
        """Input and output features of each linear layer, by the prefix of its name."""
        pairs = list(zip(self.features[:-1], self.features[1:], strict=True))
        if self.kind in ("column", "row"):
            return {"": pairs[0]}
        if self.kind == "mlp":
            return {"fc1.": pairs[0], "fc2.": pairs[1]}
        if self.kind == "column_mlp":
            return {f"layers.{number}.": pair for number, pair in enumerate(pairs)}
        hidden, kv = self.features[0], self.features[0] // self.heads[0] * self.heads[1]
        widths = {"q_proj.": hidden, "k_proj.": kv, "v_proj.": kv, "o_proj.": hidden}
        return {name: (hidden, width) for name, width in widths.items()}

    def dim(self, name: str) -> int | None:
        """The dimension along which a parameter is sharded; None: every rank has all of it."""
        by_rows = self.kind == "row" or name.startswith(("fc2.", "o_proj."))
        if name.endswith("bias"):
            return None if by_rows else 0
        return 1 if by_rows else 0

    def apply(
        self, weights: Tensors, x: Tensor, between: Callable[[Tensor], Tensor] = lambda x: x
    ) -> Tensor:
        """What the full layer computes. between: what comes after each layer of a column_mlp."""
        activation = getattr(F, self.activation)

        def linear(name: str, x: Tensor) -> Tensor:
            return F.linear(x, weights[f"{name}weight"], weights.get(f"{name}bias"))

        match self.kind:
            case "embedding":
                return F.embedding(x, weights["weight"])
            case "mlp":
                return linear("fc2.", activation(linear("fc1.", x)))
            case "column_mlp":
                for name in self._linears():
                    x = between(activation(linear(name, x)))
                return x
            case "attention":
                width = self.features[0] // self.heads[0]
                query, key, value = (
                    linear(name, x).reshape(*x.shape[:-1], -1, width).transpose(1, 2)
                    for name in ("q_proj.", "k_proj.", "v_proj.")
                )
                heads = F.scaled_dot_product_attention(
                    query, key, value, is_causal=self.heads[2], enable_gqa=True
                )
                return linear("o_proj.", heads.transpose(1, 2).flatten(-2))
            case _:
                return linear("", x)

    def on_one_device(
        self, weights: Tensors, x: Tensor, gradient: Tensor, dtype: torch.dtype
    ) -> Tensors:
        """Output and gradients of the full layer, computed in this dtype."""
        leaves = {name: one.to(dtype, copy=True).requires_grad_() for name, one in weights.items()}
        own = x if x.dtype == torch.int64 else x.to(dtype, copy=True).requires_grad_()
        output = self.apply(leaves, own)
        output = own + output if self.setting.beside else output
        torch.autograd.backward(output, gradient.to(dtype))
        found = {name: leaf.grad for name, leaf in leaves.items()} | {"output": output.detach()}
        if own.grad is not None:
            found["input_gradient"] = own.grad
        return {name: one for name, one in found.items() if one is not None}

    def draw(self, rng: np.random.Generator) -> tuple[list[dict[str, Any]], list[Wanted]]:
        """Each member's inputs, and what must come out."""
        n = self.setting.n
        masters = [self.weights(rng) for _ in range(n if self.masters_differ else 1)]
        if self.kind == "embedding":
            tokens = rng.permutation(np.arange(max(int(np.prod(self.rows)), self.features[0])))
            ids = tokens[: int(np.prod(self.rows))] % self.features[0]
            x = torch.from_numpy(ids.astype(np.int64)).reshape(self.rows)
        else:
            x = draw(rng, *self.rows, self.features[0])
        gradient = draw(rng, *self.rows, self.features[-1])
        if self.setting.summed:
            gradient = torch.ones_like(gradient)
        exact = self.on_one_device(masters[0], x, gradient, torch.float64)
        rounded = self.on_one_device(masters[0], x, gradient, self.setting.torch_dtype)
        called = {
            "layer": self.kind,
            "options": dict(self.options),
            "activation": self.activation,
            "heads": list(self.heads),
        }
        inputs = [
            called
            | self.setting.inputs(
                x.chunk(n, -1)[place] if self.kind == "row" else x,
                gradient if self._whole_output else gradient.chunk(n, -1)[place],
            )
            | {
                "weights": {
                    name: one.to(self.setting.torch_dtype)
                    for name, one in masters[place % len(masters)].items()
                }
            }
            for place in range(n)
        ]
        wanted = [
            self._wanted(name, exact, rounded, masters[0], x)
            for name in ("output", *masters[0], "input_gradient")
            if name in exact and (name != "input_gradient" or self.copies_input)
        ]
        if self.kind == "column_mlp" and n > 1:
            split = self._split_throughout(masters[0], x, gradient)
            cause = (
                'a gather whose backward is "split" where the next layer is split, too: '
                "the other ranks' summands are missing"
            )
            wanted = [
                replace(one, guesses={cause: split[one.where[-1]]})
                if one.where[-1] in split
                else one
                for one in wanted
            ]
        if self.masters_differ and self.kind == "column":
            own = [self.apply(master, x).chunk(n, -1) for master in masters]
            parts = [one[place].contiguous() for place, one in enumerate(own)]
            guess = {"parts of the ranks' own full layers, where those of one are asked for": parts}
            wanted[0] = replace(wanted[0], guesses=guess)
        return inputs, wanted

    def _split_throughout(
        self, weights: Tensors, x: Tensor, gradient: Tensor
    ) -> dict[str, list[Tensor]]:
        """The members' gradients if each goes on with what came back through its own columns."""
        n = self.setting.n
        found: dict[str, list[Tensor]] = {}
        for place in range(n):
            leaves = {name: one.double().clone().requires_grad_() for name, one in weights.items()}
            output = self.apply(leaves, x.double(), partial(_own_columns, place=place, n=n))
            torch.autograd.backward(output, gradient.double())
            for name, leaf in leaves.items():
                assert leaf.grad is not None
                found.setdefault(name, []).append(leaf.grad.chunk(n)[place])
        return found

    def _look_alikes(self) -> dict[str, Layer]:
        """Layers that somebody may have computed instead."""
        if self.kind == "attention":
            heads, kv_heads, causal = self.heads
            cause = "no causal mask" if causal else "a causal mask, where none was asked for"
            return {cause: replace(self, heads=(heads, kv_heads, not causal))}
        if self.kind in ("mlp", "column_mlp") and self.activation == "relu":
            return {"gelu, whatever activation is given": replace(self, activation="gelu")}
        return {}

    def _with_first_rows(self, output: Tensor, weight: Tensor, ids: Tensor) -> Tensor:
        """If every rank that does not have a token adds the first of its rows."""
        rows = -(-len(weight) // self.setting.n)
        firsts = F.pad(weight, (0, 0, 0, rows * self.setting.n - len(weight)))[::rows]
        return output + firsts.sum(dim=0) - firsts[ids // rows]

    @property
    def _whole_output(self) -> bool:
        return self.kind != "column" or self.gathers

    def _wanted(
        self, name: str, exact: Tensors, rounded: Tensors, weights: Tensors, x: Tensor
    ) -> Wanted:
        whole, n = exact[name], self.setting.n
        error = largest_error(rounded[name], whole)
        where: tuple[str, ...] = (name,)
        guesses = {}
        if name == "output":
            what = "the output"
            parts = [whole] * n if self._whole_output else list(whole.chunk(n, -1))
            if self.kind == "embedding" and n > 1:
                cause = "rows of ranks that do not have the token, which must be zero"
                guesses[cause] = [self._with_first_rows(whole, weights["weight"], x)] * n
            for cause, other in self._look_alikes().items():
                output = other.apply(weights, x)
                guesses[cause] = [x + output if self.setting.beside else output] * n
            bias = [weights[one] for one in weights if self.dim(one) is None]
            if bias and n > 1:
                cause = "a bias that every rank adds before the sum, so that it is added n times"
                guesses[cause] = [whole + (n - 1) * bias[0]] * n
        elif name == "input_gradient":
            what = "the input's gradient"
            parts = list(whole.chunk(n, -1)) if self.kind == "row" else [whole] * n
        else:
            where, what = ("gradients", name), f"the gradient of {name}"
            dim = self.dim(name)
            if dim is None:
                parts = [whole] * n
            else:
                missing = -whole.shape[dim] % n
                padded = F.pad(whole, (0, 0, 0, missing)) if missing else whole
                parts = list(padded.chunk(n, dim))
        parts = [one.contiguous() for one in parts]
        # The gradient of the keys' bias is zero but for rounding.
        weight = exact.get(name.replace("bias", "weight"), whole)
        scale = float(weight.abs().max())
        return Wanted(where, what, self.setting.dtype, parts, error, guesses, scale)


def _own_columns(x: Tensor, place: int, n: int) -> Tensor:
    """The same, but gradients come back through one member's columns alone."""
    own = torch.zeros_like(x)
    own.chunk(n, -1)[place].fill_(1)
    return x * own + (x * (1 - own)).detach()


# --- Cross-entropy ------------------------------------------------------------------------------


@dataclass(frozen=True)
class CrossEntropy:
    """A call of vocab_parallel_cross_entropy.

    tokens: V, for which every rank has ceil(V/n) logits. rows: the targets' shape.
    scale: the logits are up to 8 times as large. ignored: targets that do not count.
    ignore_index: what stands for them; None: it is left out, and so -100.
    """

    setting: Setting
    tokens: int = 24
    rows: tuple[int, ...] = (2, 5)
    scale: float = 0.25
    ignored: int = 0
    ignore_index: int | None = None

    function = "cross_entropy"  # the case

    @property
    def cost(self) -> Fraction:
        """Bytes that forward and backward may move, on each rank."""
        n = self.setting.n
        return 3 * 2 * Fraction(n - 1, n) * int(np.prod(self.rows)) * 4

    def __str__(self) -> str:
        told = [f"{self.tokens} tokens"]
        if self.ignored:
            told.append(f"{self.ignored} targets ignored")
        if self.scale > 10:
            told.append(f"logits up to {8 * self.scale:g}")
        return f"vocab_parallel_cross_entropy ({', '.join(told)}) {self.setting}"

    def draw(self, rng: np.random.Generator) -> tuple[list[dict[str, Any]], list[Wanted]]:
        """Each member's inputs, and what must come out."""
        n, count = self.setting.n, int(np.prod(self.rows))
        logits = draw(rng, count, self.tokens, step=self.scale)
        # Every rank that has any token has a target's.
        tokens = (self.tokens - 1 - 7 * np.arange(count)) % self.tokens
        targets = torch.from_numpy(rng.permutation(tokens))
        ignore_index = -100 if self.ignore_index is None else self.ignore_index
        targets[:: max(1, count // max(self.ignored, 1))][: self.ignored] = ignore_index
        factor = 3.0
        exact = self._on_one_device(logits, targets, ignore_index, factor, torch.float64)
        rounded = self._on_one_device(logits, targets, ignore_index, factor, torch.float32)
        errors = {name: largest_error(rounded[name], one) for name, one in exact.items()}
        missing = -self.tokens % n
        # What stands for no token would be noticed in every sum.
        padded = F.pad(logits, (0, missing), value=16 * self.scale).reshape(*self.rows, -1)
        gradient = F.pad(exact["input_gradient"], (0, missing)).reshape(*self.rows, -1)
        options: dict[str, Any] = (
            {} if self.ignore_index is None else {"ignore_index": ignore_index}
        )
        if missing:
            options["vocab_size"] = self.tokens
        inputs = [
            {
                "logits": part.contiguous().to(self.setting.torch_dtype),
                "targets": targets.reshape(self.rows),
                "options": options,
                "factor": factor,
                "layout": self.setting.layout,
            }
            for part in padded.chunk(n, -1)
        ]
        parts = [one.contiguous() for one in gradient.chunk(n, -1)]
        dtype, output_error = self.setting.dtype, errors["output"]
        # Whoever takes exp(logit - logsumexp) has what rounding does to two large numbers in it.
        rounding = EPSILON["float32"] * float(logits.abs().max())
        input_error = max(
            errors["input_gradient"], rounding * float(exact["input_gradient"].abs().max())
        )
        counts = (targets != ignore_index).double()
        without = factor * logits.softmax(-1) * (counts / counts.sum()).unsqueeze(-1)
        without = F.pad(without, (0, missing)).reshape(*self.rows, -1)
        softmax = list(without.chunk(n, -1))
        return inputs, [
            Wanted(
                *(("output",), "the loss", "float32", [exact["output"]] * n, output_error),
                self._guesses(logits, padded.flatten(0, -2), targets, ignore_index),
            ),
            Wanted(
                *(("input_gradient",), "the logits' gradient", dtype, parts, input_error),
                {"a gradient of the softmax alone, without that of the target's logit": softmax},
            ),
        ]

    def _guesses(
        self, logits: Tensor, padded: Tensor, targets: Tensor, ignore_index: int
    ) -> dict[str, list[Tensor]]:
        """The losses that mistakes lead to."""
        n, counts = self.setting.n, targets != ignore_index
        loss = F.cross_entropy(logits, targets, ignore_index=ignore_index)
        own_logit = logits.gather(-1, (targets % self.tokens).unsqueeze(-1)).squeeze(-1)
        alone = [(part.logsumexp(-1) - own_logit)[counts].mean() for part in padded.chunk(n, -1)]
        guesses = {
            "a mean over all targets, those that are ignored too": [loss * counts.double().mean()]
            * n,
            "a sum of the exponentials that is added over the ranks once more": [
                loss + float(np.log(n))
            ]
            * n,
            "exponentials that are added up on each rank, and not over the ranks": alone,
            "logits that stand for no token, and are counted all the same": [
                F.cross_entropy(padded, targets, ignore_index=ignore_index)
            ]
            * n,
        }
        if 0 <= ignore_index < self.tokens:
            all_count = F.cross_entropy(logits, targets)
            guesses["targets that are to be ignored, and are not"] = [all_count] * n
        return guesses

    def _on_one_device(
        self, logits: Tensor, targets: Tensor, ignore_index: int, factor: float, dtype: torch.dtype
    ) -> Tensors:
        """The loss, and the gradient of `factor` times the loss."""
        own = logits.to(dtype, copy=True).requires_grad_()
        loss = F.cross_entropy(own, targets, ignore_index=ignore_index)
        torch.autograd.backward(factor * loss)
        assert own.grad is not None
        return {"output": loss.detach(), "input_gradient": own.grad}


# --- What is asked of all of them -----------------------------------------------------------------

Scenario = Region | Layer | CrossEntropy


def require_right(judge: Judge, scenarios: Sequence[Scenario]) -> list[Answer]:
    """Runs them, those that fit one world in one; all that comes back must be right.

    Returns:
        the answers, in the scenarios' order.

    Raises:
        CheckFailed: at the first that is not as it should be.
    """
    rng = judge.seed.generator()
    answers = []
    for (function, world_size, members), group in groupby(scenarios, key=_world):
        together = list(group)
        drawn = _drawn(together, rng)
        case = Case("tensor_parallel", function, world_size, members)
        answered = judge.run(
            case,
            [_by_rank(one.setting, given) for one, (given, _) in zip(together, drawn, strict=True)],
            facts=[one.setting.facts for one in together],
        )
        for scenario, (_, wanted), answer in zip(together, drawn, answered, strict=True):
            judge.note(scenario.setting.facts)
            for one in wanted:
                require_parts(str(scenario), answer, scenario.setting.ranks, one)
            answers.append(answer)
    return answers


def _drawn(
    scenarios: Sequence[Scenario], rng: np.random.Generator
) -> list[tuple[list[dict[str, Any]], list[Wanted]]]:
    """Each scenario's inputs, and what must come out.

    The matrices are tiny: on a busy machine, threads would mostly wait for one another.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [scenario.draw(rng) for scenario in scenarios]
    finally:
        torch.set_num_threads(threads)


def _world(scenario: Scenario) -> tuple[str, int, tuple[int, ...] | None]:
    return scenario.function, scenario.setting.world_size, scenario.setting.members


def _by_rank(setting: Setting, given: Sequence[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """The members' inputs, and None for everybody else."""
    inputs: list[dict[str, Any] | None] = [None] * setting.world_size
    for rank, own in zip(setting.ranks, given, strict=True):
        inputs[rank] = own
    return inputs


def require_untouched(judge: Judge, regions: Sequence[Region]) -> None:
    """As `require_right`; and neither the input nor the output's gradient has changed.

    Raises:
        CheckFailed: otherwise.
    """
    rng = judge.seed.generator()
    given = [inputs for inputs, _ in _drawn(regions, rng)]
    for region, inputs, answer in zip(regions, given, require_right(judge, regions), strict=True):
        for rank, own in zip(region.setting.ranks, inputs, strict=True):
            for name, before, what in (
                ("input", own["x"], "its input, which may be needed elsewhere"),
                ("output_gradient", own["gradient"], "the gradient that backward gets"),
            ):
                if difference(answer.outputs[rank], name, array(before)):
                    raise CheckFailed(f"{region}: on rank {rank}, it changes {what}")


def score_cost(judge: Judge, credit: Credit, scenarios: Sequence[Scenario]) -> None:
    """Right values, then the bytes that forward and backward move; the worst scenario counts.

    Raises:
        CheckFailed: wrong values, or no credit left.
    """
    answers = require_right(judge, scenarios)
    scores = [
        score_collectives(_after_construction(answer, rank), rank, scenario.cost, str(scenario))
        for scenario, answer in zip(scenarios, answers, strict=True)
        for rank in scenario.setting.ranks
    ]
    give(credit, worst(*scores))


def _after_construction(answer: Answer, rank: int) -> list[Operation]:
    """What a rank communicated after the constructor had returned, if there was one."""
    ready = [
        mark.time for mark in answer.trace.marks if mark.rank == rank and mark.label == CONSTRUCTED
    ]
    return [one for one in answer.trace.of_rank(rank) if one.issued >= max(ready, default=0.0)]


def require_freed(judge: Judge, layers: Sequence[Layer]) -> None:
    """Right values; and of the full weights nothing is kept when the caller has let go of them.

    Raises:
        CheckFailed: wrong values, or something is kept.
    """
    for layer, answer in zip(layers, require_right(judge, layers), strict=True):
        judge.note(layer.setting.facts)
        for rank in layer.setting.ranks:
            _require_freed(layer, answer, rank)


def _require_freed(layer: Layer, answer: Answer, rank: int) -> None:
    itemsize, n = layer.setting.torch_dtype.itemsize, layer.setting.n
    weights = layer.weights(np.random.default_rng(0))  # for their sizes alone
    sizes = {name: one.numel() * itemsize for name, one in weights.items()}
    if answer.get(rank, "kept", int):
        raise CheckFailed(
            f"{layer}: rank {rank} keeps the memory of a full weight alive, though the caller has "
            "let go of it",
            causes=[
                "consistent with a parameter, or something else that the module keeps, being a "
                "view of the full weight",
                "consistent with the full module being kept",
            ],
        )
    parts = sum(size if layer.dim(name) is None else size / n for name, size in sizes.items())
    if (held := answer.get(rank, "held", int)) > 1.05 * parts:
        raise CheckFailed(
            f"{layer}: parameters and buffers of rank {rank} take {held} bytes; its parts of the "
            f"weights and biases take {parts:.0f}"
        )
    smallest = min(size for name, size in sizes.items() if name.endswith("weight"))
    if (saved := answer.get(rank, "saved", int)) >= smallest:
        raise CheckFailed(
            f"{layer}: on rank {rank}, a tensor of {saved} bytes is saved for backward, as large "
            f"as a full weight ({smallest} bytes); a part of it is all that is needed"
        )


@dataclass(frozen=True)
class BadCall:
    """What must raise ValueError. case: in cases/tensor_parallel.py. what: is wrong, in words."""

    case: str
    inputs: Mapping[str, Any]
    what: str


def require_refusals(judge: Judge, good: Scenario, bad: Sequence[BadCall]) -> None:
    """A good call must be right, and every bad one raise ValueError before it communicates.

    Raises:
        CheckFailed: otherwise.
    """
    require_right(judge, [good])
    told = {"arguments": "; ".join(one.what for one in bad)}
    inputs = {"calls": [[one.case, dict(one.inputs)] for one in bad]}
    case = Case("tensor_parallel", "refusals", good.setting.world_size)
    (answer,) = judge.run(case, [[inputs] * good.setting.world_size], facts=[told])
    for rank in good.setting.ranks:
        raised = answer.plain(rank, "raised")
        for one, found in zip(bad, [*raised, *["nothing"] * len(bad)], strict=False):
            if found != "ValueError":
                raise CheckFailed(
                    f"{one.what}: it must raise ValueError; on rank {rank} it raised {found}"
                )
    for operation in answer.trace.operations:
        raise CheckFailed(
            f"a bad call was refused too late: there had been a {operation.name} already, on rank "
            f"{operation.rank}"
        )


def bad_layer(layer: Layer) -> BadCall:
    """A layer whose sizes the ranks do not divide."""
    weights = {name: one.float() for name, one in layer.weights(np.random.default_rng(0)).items()}
    inputs = {
        "layer": layer.kind,
        "weights": weights,
        "options": {},
        "activation": layer.activation,
        "heads": list(layer.heads),
    }
    sizes = f"{' x '.join(map(str, layer.features))} features"
    if layer.kind == "attention":
        sizes = f"{layer.heads[0]} heads, {layer.heads[1]} for keys and values"
    return BadCall("build", inputs, f"{layer.name} of {sizes} on {layer.setting.n} ranks")
