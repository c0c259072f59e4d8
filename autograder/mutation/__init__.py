"""Generic mutation: small changes of every solution region, each of which the checks should notice.

operators    the changes: of one expression or statement, as a patch of the text
candidates   all of them, over the reference; and which are known to change nothing
trials       grades them until one check loses something, and remembers what came of it
table        tells what came of them
"""

from autograder.mutation.candidates import candidates, sample
from autograder.mutation.trials import Memory, run

__all__ = ["Memory", "candidates", "run", "sample"]
