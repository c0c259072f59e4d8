"""Mistakes in setup and cleanup."""

from __future__ import annotations

from autograder.selfcheck.variant import mutant

MUTANTS = [
    mutant(
        "launch",
        "setup leaves the file out",
        "The student tried it with an address alone, which is what the examples use.",
        ("elif file is not None:", "elif False:"),
        ["file"],
        function="setup",
        told="the ranks would meet at another place than setup was told",
    ),
    mutant(
        "launch",
        "setup gives everyone rank 0",
        "A constant from the first try on one rank was left in.",
        ("rank=rank,", "rank=0,"),
        ["address", "torchrun"],
        function="setup",
        told="init_process_group got another rank than setup was told",
    ),
    mutant(
        "launch",
        "setup does not hand the timeout on",
        "Without it everything works as long as nobody is late.",
        (", timeout=timeout\n", "\n"),
        ["address"],
        function="setup",
        told="init_process_group got another timeout than setup was told",
    ),
    mutant(
        "launch",
        "setup always asks for NCCL",
        "It was written on a machine with GPUs.",
        ("init_process_group(\n        backend,", 'init_process_group(\n        "nccl",'),
        ["backend"],
        function="setup",
        told="where there is no GPU",
    ),
    mutant(
        "launch",
        "setup takes a rank that there cannot be",
        "The check of the arguments was thrown out as in the way.",
        ("if not 0 <= rank < world_size:", "if False:"),
        ["refusals"],
        function="_check_rank",
        told="must raise ValueError and start nothing",
    ),
    mutant(
        "launch",
        "cleanup destroys what is not there",
        "The student never called it twice.",
        ("if dist.is_initialized():", "if True:"),
        ["cleanup"],
        function="cleanup",
        told="Process group cannot be None",
    ),
    mutant(
        "launch",
        "cleanup does nothing",
        "The program ended anyway.",
        "pass",
        ["cleanup"],
        function="cleanup",
        told="cleanup called destroy_process_group 0 times; once was asked for",
    ),
]
