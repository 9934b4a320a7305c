"""Where work runs: in this process, in processes and on GPUs of this machine, on a Ray cluster."""
