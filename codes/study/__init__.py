"""Which solver, with how many evaluations: candidates, measurements, reports."""
