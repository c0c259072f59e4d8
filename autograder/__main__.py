"""`python -m autograder`, and the command `autograder`."""

from __future__ import annotations

import sys

import typer

from autograder.batch import command_line


def main() -> None:
    """Runs the command; for a class without importing what the others need."""
    if sys.argv[1:2] and sys.argv[1] in command_line.COMMANDS:
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        command_line.register(app)
    else:
        from autograder.cli import app
    app()


if __name__ == "__main__":
    main()
