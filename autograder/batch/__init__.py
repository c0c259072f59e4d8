"""Grades a class: many submissions, on one machine or a Slurm cluster, resumable at any moment.

    sources        finds the submissions: a folder, Gradescope's export, git checkouts
    store          the state of every grading, on disk, in a directory of its own
    worker         the frame around one grading: its lock, its states, its faults
    grader         does one grading: what runs on a core, in a job, in a container
    local, slurm   the two executors: they start workers, and say what became of them
    conduct        plans, executes, tries again what failed through no fault of the submission
    scoring        what was graded, into points: overrides, lateness, adjustments
    outcome        grades.csv and grades.jsonl, each student's files, the page for staff
    movement       whose grade moves, and why, when something was graded again

Grading and scoring are kept apart: a grading's record stays as it was made, and everything that a
course decides later is applied to it anew, in seconds, whenever the batch is run.
"""
