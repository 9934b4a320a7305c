"""`python -m atrl_bench` is `atrl-bench`."""

from atrl_bench.cli import main

main()
