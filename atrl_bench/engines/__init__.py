"""Where work runs: so far, side by side in processes of this machine."""
