"""Credit where it is due: recipes, benchmarks and tables of anchor-token reinforcement learning (AT-RL)."""

__version__ = "0.1.0"
