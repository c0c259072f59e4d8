"""Judges a submission: what it computes, what it sends and how long that takes.

intake      reads a submission (folder, zip, tar) into bytes, within limits; nothing is imported
manifest    what is asked and for how many points: problems.toml as course.toml changes it
release     makes the archive that students get, and looks for leaks in it
stubs       makes assignment/ from reference/, by removing the marked solution regions
cases       the untrusted side: each drives an implementation in the ranks and returns tensors
checks      the trusted side: each picks inputs, runs a case and compares; no student code in here
judge       runs a case on the submission, the reference or an oracle, in ranks of their own
grading     runs the checks and turns what they found into points, the denominator fixed before
report      writes results.json (Gradescope), grade.json (everything) and report.html
policy      what a course's rules make of a grade: lateness, how often one may hand in
harness     what a platform runs for one submission: supervises a grading, always leaves a result
platforms   what Gradescope tells us, and what other platforms read, made of grade.json
merge       puts the results of a CPU and a GPU machine together
smoke       submissions to try a platform with, and what they must score

Neither a submission nor the reference is ever imported by this package: both reach the ranks of
`multirank` as source bytes, and only bytes come back.
"""

# dta-canary-5c1e7f0a9d3b
