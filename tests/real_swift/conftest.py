"""ms-swift's own trainer, on a CPU; where ms-swift is not installed nothing here is collected."""

from importlib.util import find_spec

if find_spec("swift") is None:
    collect_ignore_glob = ["*.py"]
