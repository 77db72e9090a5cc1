"""The command lines: one module for each, over the functions of the other rooms."""
