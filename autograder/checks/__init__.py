"""The graded checks: the trusted side. One file for each problem, run under pytest by the grader."""
