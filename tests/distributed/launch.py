# Copyright 2026 The SOK Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes that stand in for ranks: started once, then asked to run functions together.

`Ranks(2).run(f, x)` calls f(x) in two processes that Horovod has connected and returns both results.
Starting TensorFlow takes seconds, so tests share the processes of one job; see `conftest.py`.
"""

import contextlib
import importlib
import multiprocessing.connection
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]


class RankError(Exception):
    """What went wrong on the ranks: a traceback of each."""


class Ranks:
    """A job of `size` processes on this machine.

    environment: added to that of each process.
    """

    def __init__(self, size: int, environment: dict[str, str] | None = None):
        # Here: a machine without Horovod can still collect the tests.
        from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
        from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
        from horovod.runner.http.http_server import RendezvousServer

        self.size = size
        self._apart = False
        self._server = RendezvousServer()
        port = self._server.start()
        slots = get_host_assignments(parse_hosts(f"localhost:{size}"), size)
        self._server.init(slots)
        self._output = tempfile.TemporaryDirectory(prefix="sok-ranks-")
        self._pipes = []
        self.processes = []
        for slot in slots:
            ours, theirs = multiprocessing.connection.Pipe()
            env = {
                **os.environ,
                **{k: str(v) for k, v in create_run_env_vars("127.0.0.1", ["lo"], port).items()},
                **create_slot_env_vars(slot),
                # Cores are few: one thread of each kind a rank.
                "TF_NUM_INTRAOP_THREADS": "1",
                "TF_NUM_INTEROP_THREADS": "2",
                "OMP_NUM_THREADS": "1",
                "TF_CPP_MIN_LOG_LEVEL": "2",
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")])
                ),
                **(environment or {}),
            }
            with self._log(slot.rank).open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=env,
                    cwd=ROOT,
                )
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def _log(self, rank: int) -> Path:
        return Path(self._output.name) / f"rank{rank}.log"

    def output(self, rank: int) -> str:
        """What a rank has printed so far."""
        return self._log(rank).read_text(errors="replace")

    def start(self, function, *args, **kwargs) -> None:
        """Asks every rank to call a function, which must be at the top of a module under tests/."""
        name = function.__module__, function.__qualname__
        for pipe in self._pipes:
            pipe.send((*name, args, kwargs))

    def results(self, timeout: float = 240) -> list:
        """(result, None) or (None, traceback) of each rank; (None, None) for one that has died.

        Raises:
            TimeoutError: a rank has not answered; all have been killed.
        """
        results: list = [(None, None)] * self.size
        waiting = dict(zip(self._pipes, range(self.size)))
        deadline = time.monotonic() + timeout
        while waiting:
            ready = multiprocessing.connection.wait(list(waiting), deadline - time.monotonic())
            if not ready:
                texts = [f"rank {r}:\n{self.output(r)[-3000:]}" for r in waiting.values()]
                self.kill()
                raise TimeoutError(
                    f"ranks {sorted(waiting.values())} have not answered within {timeout} s\n"
                    + "\n".join(texts)
                )
            for pipe in ready:
                rank = waiting.pop(pipe)
                with contextlib.suppress(EOFError, ConnectionError):
                    results[rank] = pipe.recv()
        return results

    def run(self, function, *args, timeout: float = 240, **kwargs) -> list:
        """Calls a function on every rank; its results, by rank.

        Raises:
            RankError: it failed somewhere.
        """
        self.start(function, *args, **kwargs)
        results = self.results(timeout)
        failed = [
            f"---- rank {rank}:\n{error or 'died: ' + self.output(rank)[-3000:]}"
            for rank, (_, error) in enumerate(results)
            if error is not None or self.processes[rank].poll() is not None
        ]
        if failed:
            self._apart = True
            raise RankError("\n".join(failed))
        return [result for result, _ in results]

    @property
    def usable(self) -> bool:
        """Whether another test may use it: all ranks live, and none has gone another way, as after a failure."""
        return not self._apart and all(process.poll() is None for process in self.processes)

    def retire(self) -> None:
        """No other test gets this job: its ranks have made different tables, and balance others differently from now
        on."""
        self._apart = True

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def close(self) -> None:
        """Ends the job, gently where it can be done."""
        for pipe in self._pipes:
            pipe.close()
        deadline = time.monotonic() + 20
        for process in self.processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
        self.kill()
        self._server.stop()
        self._output.cleanup()


def serve(descriptor: int) -> None:
    """The life of a rank: calls what it is asked for until the pipe closes."""
    pipe = multiprocessing.connection.Connection(descriptor)
    while True:
        try:
            module, name, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            function = getattr(importlib.import_module(module), name)
            answer = function(*args, **kwargs), None
        except Exception:
            answer = None, traceback.format_exc()
        pipe.send(answer)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
