"""The paper's tables and figures: which runs they need, what was published, and the report that puts both together.

Everything but `runs.py` and `cost.py` runs without torch: tables are rendered from stored numbers.
"""
