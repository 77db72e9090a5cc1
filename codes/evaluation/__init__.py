"""A data set, several solvers, a table."""
