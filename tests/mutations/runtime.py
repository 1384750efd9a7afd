"""The guards of async bodies, of the worker's command and of connections."""

from __future__ import annotations

from tests.mutations.mutation import SQLITE, Mutation

PROCESS = "tests/scenarios/test_worker_process.py"
COMMAND = "ultimat3_jobs/management/commands/jobs_worker.py"
ASYNC_BODIES = "ultimat3_jobs/worker/async_bodies.py"

MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        guard="async: calls of a body run in its slot",
        file=ASYNC_BODIES,
        old="ThreadSensitiveContext(executor=slot)",
        new="ThreadSensitiveContext()",
        test="tests/worker/test_async_bodies.py::test_the_orm_calls_of_a_body_are_on_the_connection_of_its_slot_which_is_kept",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: a run's own context",
        file=ASYNC_BODIES,
        old="ended, self._process), context=context)",
        new="ended, self._process))",
        test="tests/worker/test_async_bodies.py::test_the_tenant_and_the_projects_scoping_hold_in_the_coroutine_and_in_what_it_calls",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: a cancelled run is cancelled",
        file=ASYNC_BODIES,
        old="            cancelled.call(lambda: self._soon(task.cancel",
        new="            (lambda: self._soon(task.cancel",
        test="tests/worker/test_async_bodies.py::test_a_run_that_is_handed_back_is_cancelled_so_that_it_unwinds",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: tasks left behind end with their run",
        file=ASYNC_BODIES,
        old="                await _end(children)\n",
        new="",
        test="tests/worker/test_async_bodies.py::test_tasks_that_a_body_left_behind_end_with_its_run",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: connections past the slot are closed",
        file=ASYNC_BODIES,
        old="                await _close_connections()\n",
        new="",
        test="tests/worker/test_async_bodies.py::test_a_connection_that_a_body_opened_past_its_slot_ends_with_its_run",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: what leaves the loop does not end it",
        file=ASYNC_BODIES,
        old="        while not self._stopped:\n            try:",
        new="        if not self._stopped:\n            try:",
        test="tests/worker/test_async_bodies.py::test_a_call_that_raises_in_the_loop_and_a_loop_that_is_stopped_hold_up_nobody",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: SystemExit and its like are the run's",
        file=ASYNC_BODIES,
        old="    except BaseException as error:\n        leave_if_forked(process, error)\n        ended",
        new="    except Exception as error:\n        leave_if_forked(process, error)\n        ended",
        test="tests/worker/test_async_bodies.py::test_every_kind_of_exception_is_a_failed_attempt_and_the_worker_goes_on[raised]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: an exception that cannot be awaited is told",
        file=ASYNC_BODIES,
        old="if issubclass(type(error), StopIteration):",
        new="if isinstance(error, StopIteration):",
        test="tests/worker/test_async_bodies.py::test_every_kind_of_exception_is_a_failed_attempt_and_the_worker_goes_on[raised_in_a_thread]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: a run cancelled before its first step ends",
        file=ASYNC_BODIES,
        old="            task.add_done_callback(partial(_make_sure, ended))\n",
        new="",
        test="tests/worker/test_async_bodies.py::test_a_run_that_is_cancelled_before_it_starts_never_does",
        vendors=SQLITE,
    ),
    Mutation(
        guard="async: a loop that ends at once waits for nobody",
        file="ultimat3_jobs/worker/loop.py",
        old="self._async_bodies.close(wait=ending is Ending.DRAINED)",
        new="self._async_bodies.close(wait=True)",
        test="tests/worker/test_async_bodies.py::test_a_body_that_ignores_its_cancellation_does_not_keep_the_worker[2]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="forks: a child of a plain body ends",
        file="ultimat3_jobs/worker/attempt.py",
        old="            leave_if_forked(process)\n",
        new="",
        test=f"{PROCESS}::test_the_child_of_a_body_that_forks_is_no_second_worker",
        vendors=SQLITE,
    ),
    Mutation(
        guard="forks: a child of an async body ends",
        file=ASYNC_BODIES,
        old="        leave_if_forked(process)\n        ended",
        new="        ended",
        test=f"{PROCESS}::test_the_child_of_a_body_that_forks_is_no_second_worker",
        vendors=SQLITE,
    ),
    Mutation(
        guard="signals: one that comes while the worker starts",
        file=COMMAND,
        old="        if self.asked:\n            worker.stop()\n",
        new="",
        test=f"{PROCESS}::test_a_signal_while_the_worker_starts_ends_it_with_0_before_it_claims[15]",
        vendors=SQLITE,
    ),
    Mutation(
        guard="max-jobs: no more are claimed",
        file="ultimat3_jobs/worker/loop.py",
        old="slots if self._left is None else min(slots, self._left)",
        new="slots",
        test=f"{PROCESS}::test_a_worker_with_a_bound_claims_no_more_and_lets_what_it_claimed_end",
        vendors=SQLITE,
    ),
    Mutation(
        guard="reload: running jobs end first",
        file=COMMAND,
        old="CodeWatch(worker.finish)",
        new="CodeWatch(worker.stop)",
        test=f"{PROCESS}::test_changed_code_starts_the_worker_again_once_its_jobs_have_ended",
        vendors=SQLITE,
    ),
)
