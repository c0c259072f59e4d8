"""The graded checks: the trusted side. One file a problem, run under pytest by the grader."""

# dta-canary-5c1e7f0a9d3b
