"""What `scripts/benchmark.py` measures: one file per subject, ratios within one run."""
