"""Judges a submission: what it computes, what it sends and how long that takes.

intake      reads a submission (folder, zip, tar) into bytes, within limits; nothing is imported
manifest    what is asked and for how many points: problems.toml as course.toml changes it
stubs       makes assignment/ from reference/, by removing the marked solution regions
cases       the untrusted side: each drives an implementation in the ranks and returns tensors
checks      the trusted side: each picks inputs, runs a case and compares; no student code in here
scoring     turns what the checks found into points, over a denominator fixed beforehand
reports     writes results.json (Gradescope), grade.json (everything) and report.html

Neither a submission nor the reference is ever imported by this package: both reach the ranks of
`multirank` as source bytes, and only bytes come back.
"""
