"""The boundary around code that the grader does not trust, in layers.

One file for each layer: `user` (a user of the world's own), `limits` (of resources), `process` (no
new privileges, memory hidden), `seccomp` (a filter of system calls), `namespaces` (network,
processes, files, IPC), `landlock` (files again), `watchdog` (memory of all ranks together),
`counters` (what the kernel says was sent), `privacy` (nobody reads the grader's own folders). Each
has a name, which the result lists, and a probe. `modes` says which work here, `hooks` in which
order they are applied inside a world, and `boundary` is what the grader uses. multirank knows
nothing of this: it offers two hooks.
"""
