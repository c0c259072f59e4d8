"""`python -m autograder`: the command line."""

from autograder.cli import main

main()
