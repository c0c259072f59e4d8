"""What grading platforms read, each a pure function of grade.json.

gradescope    its metadata, and the results that are written when there is no grade to report
junit         JUnit XML, which most continuous-integration systems show
markdown      a summary, for a job's page or a comment
prairielearn  PrairieLearn's external grader
classroom50   Classroom 50, in whole points

Gradescope's results.json of a grade itself is made in `autograder.report`, after every check. What
is for staff alone is in none of them.
"""
