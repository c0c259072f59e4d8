"""The grader, graded: mistakes must lose what they should, and right solutions must lose nothing.

`mutants` and `alternatives` are data: the reference with a mistake in it, or written another way,
and what each must earn (`variant`). `trial` grades one of them and says where the grader broke that
promise; `public` runs the public tests on one. `plan` chooses what to try, `run` tries it on all
cores, and `table` tells what came of it.
"""
