"""A claim is a lease: renewed while its worker lives, taken back by a sweep where it lapses."""

from __future__ import annotations

from datetime import timedelta

from ultimat3_jobs.records import Ack, Renewal, Swept
from ultimat3_jobs.testing.conformance.claiming import minute
from ultimat3_jobs.testing.conformance.harness import HOUR, LEASE, MARGIN, Harness, keys, request


class TestLeases:
    """Rules of `heartbeat`, `lapsed` and `sweep`."""

    def test_a_lease_holds_until_it_lapses(self, harness: Harness) -> None:
        harness.running("k")

        harness.advance(LEASE - MARGIN)
        assert harness.driver().sweep(limit=10) == []
        harness.advance(2 * MARGIN)
        assert len(harness.driver().sweep(limit=10)) == 1

    def test_a_heartbeat_renews_for_its_own_length_from_now(self, harness: Harness) -> None:
        running = harness.running("k")

        for _ in range(3):
            harness.advance(LEASE - MARGIN)
            assert harness.driver().heartbeat(running, lease=timedelta(seconds=LEASE)) == [Renewal.RENEWED]
        assert harness.driver().heartbeat(running, lease=timedelta(seconds=2 * HOUR)) == [Renewal.RENEWED]
        harness.advance(2 * HOUR - MARGIN)
        assert harness.driver().sweep(limit=10) == []
        harness.advance(2 * MARGIN)
        assert len(harness.driver().sweep(limit=10)) == 1

    def test_a_sweep_takes_lapsed_leases_alone(self, harness: Harness) -> None:
        lapsing, renewed = harness.running("lapsing", "renewed")
        harness.advance(LEASE - MARGIN)
        harness.driver().heartbeat([renewed], lease=timedelta(seconds=LEASE))
        harness.enqueue("later")
        harness.claim(1)
        harness.advance(2 * MARGIN)

        assert [swept.id for swept in harness.driver().sweep(limit=10)] == [lapsing.id]
        assert harness.buckets() == {"ready": 1, "running": 2}
        assert harness.driver().ack([Ack(renewed)]) == [True]

    def test_a_look_for_lapsed_leases_takes_nothing(self, harness: Harness) -> None:
        lapsing, renewed = harness.running("lapsing", "renewed")
        assert harness.driver().lapsed(limit=10) == []
        harness.lapse()
        harness.driver().heartbeat([renewed], lease=timedelta(seconds=LEASE))

        assert [lapse.id for lapse in harness.driver().lapsed(limit=10)] == [lapsing.id]
        assert harness.buckets() == {"running": 2}
        harness.lapse()
        assert len(harness.driver().lapsed(limit=10)) == 2
        assert len(harness.driver().lapsed(limit=1)) == 1

    def test_a_sweep_of_what_was_seen_takes_that_alone_and_nothing_that_was_renewed_since(
        self, harness: Harness
    ) -> None:
        seen, renewed, unseen = harness.running("seen", "renewed", "unseen")
        harness.driver().heartbeat([unseen], lease=timedelta(seconds=3 * LEASE))
        harness.lapse()
        lapses = harness.driver().lapsed(limit=10)
        assert {lapse.id for lapse in lapses} == {seen.id, renewed.id}
        # Both are lapsed again by now; but the one has been renewed, and the other was not looked at.
        harness.driver().heartbeat([renewed, unseen], lease=timedelta(seconds=-1))

        assert harness.driver().sweep(limit=10, seen=[]) == []
        assert [swept.id for swept in harness.driver().sweep(limit=10, seen=lapses)] == [seen.id]
        assert len(harness.driver().sweep(limit=10)) == 2

    def test_a_swept_job_says_whose_it_was_and_where_it_went(self, harness: Harness) -> None:
        back = harness.enqueue_one("back", run_at=minute(0))
        dead = harness.enqueue_one("dead", max_attempts=1)
        harness.claim(1, worker="w1")
        harness.claim(1, worker="w2")
        harness.lapse()

        assert sorted(harness.driver().sweep(limit=10), key=lambda swept: swept.worker) == [
            Swept(back.id, "shop.ship", "w1", "ready"),
            Swept(dead.id, "shop.ship", "w2", "dead"),
        ]

    def test_a_swept_job_keeps_its_place_in_the_order(self, harness: Harness) -> None:
        harness.driver().enqueue([request(f"{number}", run_at=minute(number)) for number in range(5)])
        harness.claim(3)
        harness.lapse()
        harness.driver().sweep(limit=10)

        assert keys(harness.claim()) == ["0", "1", "2", "3", "4"]

    def test_an_attempt_that_lapsed_counts(self, harness: Harness) -> None:
        harness.running("k")
        harness.lapse()
        harness.driver().sweep(limit=10)

        assert [job.attempt for job in harness.claim()] == [2]

    def test_a_job_whose_attempts_are_used_is_not_started_again(self, harness: Harness) -> None:
        harness.enqueue("killer", max_attempts=2)
        starts = 0
        for _ in range(5):
            starts += len(harness.claim())
            harness.lapse()
            harness.driver().sweep(limit=10)

        assert starts == 2
        assert harness.buckets() == {"dead": 1}

    def test_a_sweep_takes_no_more_than_it_is_asked_to(self, harness: Harness) -> None:
        harness.running(*"abcde", queue="one", name="one")
        harness.running(*"abcde", queue="two", name="two")
        harness.lapse()

        assert [len(harness.driver().sweep(limit=4)) for _ in range(4)] == [4, 4, 2, 0]

    def test_a_look_at_lapsed_leases_takes_nothing(self, harness: Harness) -> None:
        running = harness.running(*"abc")
        harness.enqueue("waiting")
        assert harness.driver().lapsed(limit=10) == []
        harness.lapse()
        seen = [lapse.id for lapse in harness.driver().lapsed(limit=10)]

        assert sorted(seen) == sorted(claim.id for claim in running)
        assert len(harness.driver().lapsed(limit=2)) == 2
        assert harness.buckets() == {"ready": 1, "running": 3}
        assert all(harness.driver().ack([Ack(claim) for claim in running]))
        assert harness.driver().lapsed(limit=10) == []

    def test_a_sweep_of_what_was_seen_takes_that_alone(self, harness: Harness) -> None:
        harness.running(*"abc")
        harness.lapse()
        one, two, three = harness.driver().lapsed(limit=10)

        assert harness.driver().sweep(limit=10, seen=[]) == []
        assert [swept.id for swept in harness.driver().sweep(limit=10, seen=[two])] == [two.id]
        assert len(harness.driver().sweep(limit=1, seen=[one, two, three])) == 1
        assert len(harness.driver().sweep(limit=10, seen=[one, two, three])) == 1
        assert harness.buckets() == {"ready": 3}

    def test_a_sweep_of_what_was_seen_leaves_a_lease_that_was_renewed_since(self, harness: Harness) -> None:
        running = harness.running(*"ab")
        harness.lapse()
        seen = harness.driver().lapsed(limit=10)
        # Renewed for no time at all: it has lapsed again, but that is not the lapse that was seen.
        assert harness.driver().heartbeat(running[:1], lease=timedelta(0)) == [Renewal.RENEWED]

        assert [swept.id for swept in harness.driver().sweep(limit=10, seen=seen)] == [running[1].id]
        assert [swept.id for swept in harness.driver().sweep(limit=10)] == [running[0].id]

    def test_one_key_that_was_taken_does_not_spoil_the_recovery_of_others(self, harness: Harness) -> None:
        names = [f"{number}" for number in range(20)]
        harness.running("last-attempt", max_attempts=1)
        harness.running("asked-again", max_attempts=1)
        harness.running(*names)
        harness.enqueue("asked-again", while_running="again")
        harness.lapse()

        assert len(harness.driver().sweep(limit=100)) == 22
        assert harness.buckets() == {"ready": 21, "dead": 2}
        assert not harness.enqueue_one("last-attempt").joined
        assert sorted(keys(harness.claim())) == sorted([*names, "asked-again", "last-attempt"])

    def test_a_sweep_and_an_ack_at_once_never_both_win(self, harness: Harness) -> None:
        running = harness.running(*(f"{number}" for number in range(60)))
        harness.lapse()

        def sweep_all() -> list[Swept]:
            taken = []
            while batch := harness.driver().sweep(limit=5):
                taken += batch
            return taken

        acked, *sweeps = harness.together(
            lambda: [harness.driver().ack([Ack(claim)])[0] for claim in running], sweep_all, sweep_all
        )
        done = [claim.id for claim, landed in zip(running, acked, strict=True) if landed]
        taken = [swept.id for sweep in sweeps for swept in sweep]

        assert sorted(done + taken) == sorted(claim.id for claim in running), "each is taken or done, and once"
        assert harness.depth().ready == len(taken)

    def test_a_sweep_and_a_heartbeat_at_once_never_both_win(self, harness: Harness) -> None:
        running = harness.running(*(f"{number}" for number in range(60)))
        harness.lapse()

        def renew_all() -> list[Renewal]:
            lease = timedelta(seconds=LEASE)
            return [harness.driver().heartbeat([claim], lease=lease)[0] for claim in running]

        def sweep_all() -> list[Swept]:
            return [swept for _ in running for swept in harness.driver().sweep(limit=2)]

        renewals, sweep = harness.together(renew_all, sweep_all)
        renewed = {claim.id for claim, one in zip(running, renewals, strict=True) if one is Renewal.RENEWED}
        taken = {swept.id for swept in sweep}

        assert not renewed & taken
        assert harness.buckets().get("ready", 0) == len(taken)
        left = [claim for claim in running if claim.id not in taken]
        assert all(harness.driver().ack([Ack(claim) for claim in left]))
