"""The guards of steps, sleeps and suspensions."""

from __future__ import annotations

from tests.mutations.mutation import BOTH, POSTGRESQL, SQLITE, Mutation

STEPS = "ultimat3_jobs/steps/steps.py"
TRACE = "ultimat3_jobs/steps/trace.py"
WAITS = "ultimat3_jobs/steps/waits.py"
ASKED = "ultimat3_jobs/steps/asked.py"
OUTPUTS = "ultimat3_jobs/outputs.py"
EXECUTE = "ultimat3_jobs/worker/execute.py"
PLAIN = "tests/worker/test_steps.py::"
ASYNC = "tests/worker/test_async_steps.py::"
RULES = "tests/drivers/test_database.py::TestSteps::"
SUSPENDING = "tests/drivers/test_database.py::TestSuspensions::"


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "steps: what is recorded is not done again",
        STEPS,
        "        if stored is not None:\n            return Replayed",
        "        if False:\n            return Replayed",
        f"{PLAIN}test_a_recorded_step_is_not_done_again",
        SQLITE,
    ),
    Mutation(
        "steps: the first run gets the decoded value",
        STEPS,
        "        return begun.codec.decode(self.landed(self.driver.record_step(self.job.claim, record)).output)",
        "        self.landed(self.driver.record_step(self.job.claim, record))\n        return result",
        f"{PLAIN}test_a_replay_gives_what_the_first_run_gave",
        SQLITE,
    ),
    Mutation(
        "steps: a result that is not of the declared type is refused",
        OUTPUTS,
        "            decoded = self._decoder.decode(text)\n        except msgspec.ValidationError",
        "            decoded = msgspec.json.decode(text)\n        except msgspec.ValidationError",
        f"{PLAIN}test_what_cannot_work_is_refused_and_ends_the_job",
        SQLITE,
    ),
    Mutation(
        "steps: numbers come back as they were",
        OUTPUTS,
        "if self._examined.has_floats else text",
        "if False else text",
        f"{PLAIN}test_a_replay_gives_what_the_first_run_gave",
        POSTGRESQL,
    ),
    Mutation(
        "steps: what a class gives comes back as its instance",
        OUTPUTS,
        "    if isinstance(target, type):\n        return target\n",
        "    if isinstance(target, type):\n        return Any\n",
        f"{PLAIN}test_a_replay_gives_what_the_first_run_gave",
        SQLITE,
    ),
    Mutation(
        "steps: the fix of an event that did not come is quoted for a shell",
        "ultimat3_jobs/steps/waits.py",
        "{shlex.quote(name)}",
        "{name!r}",
        "tests/test_jobs_command.py::test_the_fix_of_an_event_that_did_not_come_waits_for_it_anew",
        SQLITE,
    ),
    Mutation(
        "steps: a queue that records none refuses them",
        STEPS,
        "        if needed not in self.driver.capabilities:",
        "        if False:",
        f"{PLAIN}test_a_driver_that_records_nothing_refuses_it",
        SQLITE,
    ),
    Mutation(
        "steps: a wait has a name",
        "ultimat3_jobs/steps/waits.py",
        "    name = check_name(name)\n    event,",
        "    name = name or 'wait-1'\n    event,",
        f"{PLAIN}test_what_cannot_work_is_refused_and_ends_the_job",
        SQLITE,
    ),
    Mutation(
        "steps: a name comes once",
        TRACE,
        "            if name in self._met:",
        "            if False:",
        f"{PLAIN}test_what_cannot_work_is_refused_and_ends_the_job",
        SQLITE,
    ),
    Mutation(
        "steps: a hook's signal is not lost",
        STEPS,
        "        if self.pending is not None:  # by a hook",
        "        if False:  # by a hook",
        f"{PLAIN}test_a_hook_of_an_atomic_step_may_suspend_the_run",
        SQLITE,
    ),
    Mutation(
        "steps: a name is plain text",
        ASKED,
        "    return str.__str__(name)\n",
        "    return name\n",
        f"{PLAIN}test_a_name_may_be_text_of_its_own_kind[wait]",
        SQLITE,
    ),
    Mutation(
        "steps: a step is not taken for a sleep",
        TRACE,
        "        if stored is not None and stored.kind != kind:",
        "        if False:",
        f"{PLAIN}test_a_step_that_is_recorded_as_something_else_is_refused[step]",
        SQLITE,
    ),
    Mutation(
        "steps: none inside a transaction of the body",
        STEPS,
        "        elif self._in_a_block():",
        "        elif False:",
        f"{PLAIN}test_what_cannot_work_is_refused_and_ends_the_job",
        SQLITE,
    ),
    Mutation(
        "steps: no coroutine in a transaction",
        STEPS,
        "        if atomic and is_async(fn):",
        "        if False:",
        f"{ASYNC}test_an_atomic_step_takes_no_coroutine",
        SQLITE,
    ),
    Mutation(
        "steps: what cannot be stored is refused before it is done",
        STEPS,
        "        codec = codec_for(fn, returns)\n        stored",
        "        codec = codec_for(print, Any)\n        stored",
        f"{PLAIN}test_what_cannot_work_is_refused_and_ends_the_job",
        SQLITE,
    ),
    Mutation(
        "steps: one that leaves a transaction open has failed",
        STEPS,
        "        if self._in_a_block():\n            raise TransactionBroken",
        "        if False:\n            raise TransactionBroken",
        f"{PLAIN}test_a_step_that_leaves_a_transaction_open_has_failed",
        SQLITE,
    ),
    Mutation(
        "steps: an atomic job has no other",
        STEPS,
        "            if not atomic:\n                raise StepNotAtomic(",
        "            if False:\n                raise StepNotAtomic(",
        f"{PLAIN}TestInAtomicJobs::test_what_lets_go_or_commits_by_itself_is_refused",
        SQLITE,
    ),
    Mutation(
        "steps: those of an atomic job commit with it",
        EXECUTE,
        "            steps.flush()\n",
        "",
        f"{PLAIN}TestInAtomicJobs::test_its_steps_commit_with_it",
        SQLITE,
    ),
    Mutation(
        "steps: one of an atomic job can be undone alone",
        STEPS,
        "        with transaction.atomic(using=queue_alias()):\n",
        "        if True:\n",
        f"{PLAIN}TestInAtomicJobs::test_a_step_that_fails_can_be_undone_alone",
        SQLITE,
    ),
    Mutation(
        "steps: who lost the claim stops",
        STEPS,
        "        if answer is None:\n",
        "        if False:\n",
        f"{PLAIN}test_a_run_that_was_cancelled_records_nothing_and_stops[False]",
        SQLITE,
    ),
    Mutation(
        "steps: a signal that was swallowed is a failure",
        EXECUTE,
        "    if steps.pending is not None:\n        raise SignalSwallowed(",
        "    if False:\n        raise SignalSwallowed(",
        f"{PLAIN}test_a_body_that_goes_on_after_the_signal_has_failed",
        SQLITE,
    ),
    Mutation(
        "steps: a signal that was swallowed comes again",
        STEPS,
        "        if self.pending is not None:\n            raise Suspended(self.pending)",
        "        if False:\n            raise Suspended(self.pending)",
        f"{PLAIN}test_a_body_that_goes_on_after_the_signal_does_no_further_step",
        SQLITE,
    ),
    Mutation(
        "steps: an exception of its own is no signal",
        EXECUTE,
        "    if steps.pending is not None and _is_suspension(error):",
        "    if steps.pending is not None:",
        f"{PLAIN}test_an_exception_is_no_signal",
        SQLITE,
    ),
    Mutation(
        "steps: a group of tasks hands a suspension on",
        EXECUTE,
        "    if issubclass(type(error), BaseExceptionGroup):",
        "    if False:",
        f"{ASYNC}test_a_sleep_suspends_the_run_from_wherever_it_is_awaited[group]",
        SQLITE,
    ),
    Mutation(
        "steps: a failure in a group of tasks is no suspension",
        EXECUTE,
        "        return all(map(_is_suspension, error.exceptions))",
        "        return any(map(_is_suspension, error.exceptions))",
        f"{ASYNC}test_a_failure_beside_a_sleep_is_a_failure",
        SQLITE,
    ),
    Mutation(
        "sleep: one of no length lets nothing go",
        WAITS,
        "        if length <= timedelta(0):\n            return\n",
        "",
        f"{PLAIN}test_a_sleep_of_no_length_is_over_at_once",
        POSTGRESQL,
    ),
    Mutation(
        "sleep: it goes on where it is over",
        WAITS,
        "    if stored.is_over:\n        return\n",
        "",
        f"{PLAIN}test_a_sleep_lets_go_of_the_worker_and_burns_no_attempt",
        SQLITE,
    ),
    Mutation(
        "steps: names are checked",
        ASKED,
        "    if not is_label(name, MAX_NAME):",
        "    if False:",
        f"{PLAIN}test_what_cannot_work_is_refused_and_ends_the_job",
        SQLITE,
    ),
    Mutation(
        "steps: outputs over the budget are read when they are needed",
        TRACE,
        "        if stored is not None and stored.left_out:",
        "        if False:",
        f"{PLAIN}test_outputs_that_are_too_many_to_keep_are_read_when_they_are_needed",
        SQLITE,
    ),
    *(
        Mutation(
            "suspend: no attempt is burnt",
            f"ultimat3_jobs/sql/{vendor}/nack.sql",
            "attempt = CASE WHEN settled.kind IN ('park', 'suspend', 'hand-back')",
            "attempt = CASE WHEN settled.kind IN ('park', 'hand-back')",
            f"{SUSPENDING}test_a_suspended_run_burns_no_attempt",
            (vendor,),
        )
        for vendor in BOTH
    ),
    *(
        Mutation(
            "suspend: a run with steps has begun",
            f"ultimat3_jobs/sql/{vendor}/holders.sql",
            old,
            "j.attempt > 0 AS begun,",
            f"{SUSPENDING}test_one_that_has_recorded_something_has_begun",
            (vendor,),
        )
        for vendor, old in (
            ("sqlite", "j.attempt > 0 OR EXISTS (SELECT 1 FROM x_job_steps AS s WHERE s.run_id = j.run_id) AS begun,"),
            (
                "postgresql",
                "j.attempt > 0 OR (SELECT true FROM x_job_steps AS s WHERE s.run_id = j.run_id LIMIT 1) IS NOT NULL AS begun,",
            ),
        )
    ),
    Mutation(
        "burst: it does not end while one of its loops is about to wake a run",
        "ultimat3_jobs/worker/loop.py",
        "        with self._turn:\n            if self._options.relay:",
        "        if True:\n            if self._options.relay:",
        "tests/worker/test_burst.py::test_a_burst_does_not_end_while_its_relay_is_about_to_wake_what_it_met",
        SQLITE,
    ),
)
