"""The verb that serves a model until it is told to stop."""

from __future__ import annotations

import shlex
import signal
from typing import Annotated, Any, NoReturn

from typer import Argument, Option, echo

from atrl_bench.cli.options import Options, with_options
from atrl_bench.cli.printing import show_text


@with_options("profile", "out", "gpus", "dry_run", "as_json")
def serve(
    options: Options,
    model: Annotated[str, Argument(help="mini, a hub id, or a folder such as a trained row's checkpoint")],
    port: Annotated[int | None, Option(min=1, max=65535, help="default: one that is free")] = None,
    seconds: Annotated[float, Option(min=1, help="how long it may take to start")] = 1800,
) -> None:
    """Serve a model by vLLM, with the flags that decide its number.

    Says where it listens once it answers, and stops it on Ctrl-C. Precision, image sizes and lengths are the profile's.
    With --dry-run it prints vLLM's own command, and stops.
    """
    from atrl_bench.engines.model_server import find_vllm, serve_command
    from atrl_bench.experiments.cost import gpus_to_serve
    from atrl_bench.experiments.serving import flags_for, serving
    from atrl_bench.models.local import find_model

    run_dir = options.run_dir(model=model, quiet=True)
    devices = options.machine.devices_for(gpus_to_serve(run_dir.profile))
    if options.dry_run:
        ref = find_model(model)
        command = serve_command("vllm", ref.folder, ref.name, flags_for(ref, run_dir, devices), port or 8000)
        show_text({"command": command}, shlex.join(command), options.as_json)
        return
    if not options.as_json:
        echo(f"Starting vLLM {find_vllm().version} for {model}.")
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        with serving(model, run_dir, devices, f"serve {model}", port=port, seconds=seconds) as server:
            ready = {"model": server.name, "base_url": server.base_url, "log": str(server.log)}
            show_text(ready, f"Serving {server.name} at {server.base_url}\nLog: {server.log}", options.as_json)
            if not options.as_json:
                echo("Ctrl-C stops it.")
            server.process.wait()
            raise server.died()
    except KeyboardInterrupt:
        echo(f"Stopped serving {model}.", err=options.as_json)


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt
