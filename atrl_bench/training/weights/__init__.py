"""Factors of each token's advantage.

A credit (`credit.py`) is made of attention rows, which a pass that happens anyway records. Another weighting is asked
once for each rollout, when its advantages are known, and may ask for further passes.
"""
