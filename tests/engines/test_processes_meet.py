"""Processes of one launch that wait for one another, and one of them that does not come."""

import os
import subprocess
import sys

PROGRAM = """
import time
from datetime import timedelta
from atrl_bench.engines.processes import launched
from atrl_bench.errors import AtrlBenchError

processes = launched()
processes.meet("sampling for rollout 2")
if processes.index == 1:
    time.sleep(20)
try:
    processes.meet("sampling for rollout 3", timedelta(seconds=3))
except AtrlBenchError as error:
    print(error, flush=True)
"""


def test_a_process_that_is_late_is_named_with_the_work_that_it_has_not_done(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    command = [*launcher, tmp_path / "program.py"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=100)
    assert "Process 1 is not done with sampling for rollout 3; others waited 0.05 minutes here." in done.stdout
    assert "rollout 2" not in done.stdout
