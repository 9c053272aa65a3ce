"""Performance, as ratios: each comparison runs its contestants by turns on this machine and divides.

``python -m benchmarks`` prints the table and exits 1 where a ratio is missed. Absolute figures are
shown because people ask for them; only the ratios are judged.
"""
