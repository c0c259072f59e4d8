"""The graded checks: the trusted side. One file a problem, run under pytest by the grader."""
