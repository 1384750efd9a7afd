"""`ULTIMAT3_JOBS`: what is in force, and what is refused with what mends it."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest
from django.db.utils import ConnectionHandler
from django.test import override_settings

from ultimat3_jobs import settings as module
from ultimat3_jobs.errors import SettingsInvalid
from ultimat3_jobs.settings import OutboxSettings, Retention, Settings, get_settings


def refused(value: Any) -> SettingsInvalid:
    """Return the error with which this value of the setting is refused."""
    with override_settings(ULTIMAT3_JOBS=value), pytest.raises(SettingsInvalid) as caught:
        get_settings()
    return caught.value


@override_settings(ULTIMAT3_JOBS={})
def test_nothing_needs_to_be_set() -> None:
    settings = get_settings()

    assert settings == Settings()
    assert settings.lease == timedelta(seconds=30)
    assert settings.renewal == timedelta(seconds=10)
    assert settings.outbox == OutboxSettings("auto", 500, None, timedelta(seconds=30))
    assert settings.retention == Retention(outbox=timedelta(days=7))


def test_the_setting_itself_may_be_missing(settings: Any) -> None:
    del settings.ULTIMAT3_JOBS

    assert get_settings() == Settings()


def test_every_setting_is_read() -> None:
    with override_settings(
        ULTIMAT3_JOBS={
            "DEFAULT_QUEUE": "slow lane",
            "CONCURRENCY": 3,
            "LEASE": "1m",
            "RENEWAL": 5,
            "DRAIN_TIMEOUT": timedelta(seconds=7),
            "CANCEL_GRACE": "3s",
            "POLL": 0.5,
            "MAX_INPUT_BYTES": 1_000,
            "MAX_RESULT_BYTES": 2_000,
            "RELEASE": "2026.3.1 (ab12)",
            "ENVIRONMENT": "staging eu",
            "TENANT_CONTEXT": "contextlib.nullcontext",
            "OUTBOX": {"MODE": "required", "BATCH": 10, "DATABASES": ["default"], "CLAIM_LEASE": "5s"},
            "QUEUE_DATABASE": "default",
            "RETENTION": {"OUTBOX": "1d"},
        }
    ):
        assert get_settings() == Settings(
            default_queue="slow lane",
            concurrency=3,
            lease=timedelta(minutes=1),
            renewal=timedelta(seconds=5),
            drain_timeout=timedelta(seconds=7),
            cancel_grace=timedelta(seconds=3),
            poll=timedelta(seconds=0.5),
            max_input_bytes=1_000,
            max_result_bytes=2_000,
            release="2026.3.1 (ab12)",
            environment="staging eu",
            tenant_context="contextlib.nullcontext",
            outbox=OutboxSettings("required", 10, ("default",), timedelta(seconds=5)),
            queue_database="default",
            retention=Retention(timedelta(days=1)),
        )


def test_settings_are_parsed_once_and_again_when_they_change() -> None:
    assert get_settings() is get_settings()
    with override_settings(ULTIMAT3_JOBS={"CONCURRENCY": 77}):
        assert get_settings().concurrency == 77
    assert get_settings().concurrency != 77


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        get_settings().concurrency = 5  # type: ignore[misc]


@pytest.mark.parametrize("value", [None, 5, "LEASE", ["LEASE"], [("LEASE", "30s")]])
def test_a_setting_that_is_no_dict_is_refused(value: Any) -> None:
    assert "not a dict" in refused(value).cause


@pytest.mark.parametrize(
    ("value", "near"),
    [
        ({"LEASES": "30s"}, '"LEASE"'),
        ({"lease": "30s"}, '"LEASE"'),
        ({"CONCURENCY": 3}, '"CONCURRENCY"'),
        ({"OUTBOX": {"BATCHES": 3}}, '"BATCH"'),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(value: Any, near: str) -> None:
    error = refused(value)

    assert error.code == "X_SETTINGS_INVALID"
    assert f"did you mean {near}" in error.cause
    assert near in error.fix


@pytest.mark.parametrize("value", [{"zzz": 1}, {5: 1}, {None: 1}, {"OUTBOX": {"zzz": 1}}])
def test_an_unknown_key_like_no_other_is_refused_with_all_there_are(value: Any) -> None:
    error = refused(value)

    assert "has no key" in error.cause
    assert ("BATCH, CLAIM_LEASE, DATABASES, MODE" if "OUTBOX" in value else "CONCURRENCY, DEFAULT_QUEUE") in error.cause


WRONG: dict[str, list[Any]] = {
    "DEFAULT_QUEUE": ["", " ", "q" * 101, "a,b", " padded", "line\nbreak", "nul\x00", "\ud800", 5, None],
    "CONCURRENCY": [0, -1, 1.5, "3", True, None, 1_001],
    "LEASE": [0, -1, "0s", "soon", "", float("nan"), float("inf"), timedelta(0), True, None],
    "RENEWAL": [0, "-1s", None],
    "DRAIN_TIMEOUT": [0, [], None],
    "POLL": [0, "now", None],
    "MAX_INPUT_BYTES": [0, "1k", 1.0, None],
    "MAX_RESULT_BYTES": [0, "1k", 1.0, None],
    "RELEASE": [" ", "a\nb", "a\x00", "x" * 101, None, 3],
    "ENVIRONMENT": [" ", " staging", "a\nb", "x" * 101, None, 3],
    "TENANT_CONTEXT": ["", "nowhere", "no.such.module", "os.nothing", "os.sep", 5, object],
    "OUTBOX": [
        *(None, 5, "auto", {"MODE": "AUTO"}, {"MODE": None}, {"MODE": []}),
        *({"BATCH": 0}, {"BATCH": True}, {"BATCH": "500"}),
        *({"CLAIM_LEASE": 0}, {"CLAIM_LEASE": "-1s"}, {"CLAIM_LEASE": None}, {"CLAIM_LEASE": "soon"}),
        *({"DATABASES": []}, {"DATABASES": "default"}, {"DATABASES": ["default", "default"]}),
        *({"DATABASES": ["nowhere"]}, {"DATABASES": [None]}, {"DATABASES": [[]]}, {"DATABASES": 5}),
    ],
    "QUEUE_DATABASE": ["nowhere", "", 5, [], ["default"]],
    "RETENTION": [None, "7d", {"OUTBOX": 0}, {"OUTBOX": "-1d"}, {"OUTBOX": "always"}, {"OUTBOX": True}],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_a_value_that_cannot_work_is_refused(key: str, value: Any) -> None:
    error = refused({key: value})

    assert error.code == "X_SETTINGS_INVALID"
    assert f'ULTIMAT3_JOBS["{key}"]' in error.cause
    assert "\n" not in error.fix


@pytest.mark.parametrize(("key", "value"), [(key, values[0]) for key, values in WRONG.items()])
def test_what_the_fix_says_can_be_typed_as_it_stands(key: str, value: Any) -> None:
    setting = {key: value}
    error = refused(setting)
    exec(error.fix, {"ULTIMAT3_JOBS": setting})

    with override_settings(ULTIMAT3_JOBS=setting):
        get_settings()


MISTYPED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"QUEUE_DATABASE": "queu"}, {"QUEUE_DATABASE": "queue"}),
    ({"QUEUE_DATABASE": " Queue "}, {"QUEUE_DATABASE": "queue"}),
    ({"OUTBOX": {"DATABASES": ["shopp", "defualt"]}}, {"OUTBOX": {"DATABASES": ["shop", "default"]}}),
    ({"OUTBOX": {"DATABASES": ("default", "sho")}}, {"OUTBOX": {"DATABASES": ["default", "shop"]}}),
    ({"OUTBOX": {"DATABASES": ["shop", "shop"]}}, {"OUTBOX": {"DATABASES": ["shop"]}}),
    ({"OUTBOX": {"DATABASES": "shop"}}, {"OUTBOX": {"DATABASES": ["shop"]}}),
    ({"OUTBOX": {"MODE": "Required"}}, {"OUTBOX": {"MODE": "required"}}),
    ({"OUTBOX": {"MODE": "requird"}}, {"OUTBOX": {"MODE": "required"}}),
    ({"DEFAULT_QUEUE": "mail "}, {"DEFAULT_QUEUE": "mail"}),
    ({"ENVIRONMENT": "staging\n"}, {"ENVIRONMENT": "staging"}),
    ({"RELEASE": " 7f3a"}, {"RELEASE": "7f3a"}),
    ({"TENANT_CONTEXT": "contextlib.nullcontex"}, {"TENANT_CONTEXT": "contextlib.nullcontext"}),
]


@pytest.fixture
def several_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aliases to choose from; nothing is connected to."""
    monkeypatch.setattr(
        module, "connections", ConnectionHandler({"default": {}, "queue": {}, "shop": {}, "europe1": {}, "europe2": {}})
    )


@pytest.mark.usefixtures("several_databases")
@pytest.mark.parametrize(("mistyped", "meant"), MISTYPED, ids=str)
def test_what_is_mistyped_is_mended_into_what_was_meant(mistyped: dict[str, Any], meant: dict[str, Any]) -> None:
    setting = copy.deepcopy(mistyped)
    fix = refused(mistyped).fix

    exec(fix, {"ULTIMAT3_JOBS": setting})

    assert setting == meant
    with override_settings(ULTIMAT3_JOBS=setting):
        get_settings()


@pytest.mark.usefixtures("several_databases")
@pytest.mark.parametrize("alias", ["elsewhere", "shipping", 5, "", "europe3"])
def test_an_alias_like_no_other_is_told_what_none_means(alias: Any) -> None:
    aliases = " is then where the routers put it; DATABASES has 'default', 'queue', 'shop', 'europe1', 'europe2'"

    assert refused({"QUEUE_DATABASE": alias}).fix == f'ULTIMAT3_JOBS["QUEUE_DATABASE"] = None  # the queue{aliases}'
    outbox = refused({"OUTBOX": {"DATABASES": ["default", alias]}})
    assert outbox.fix == f'ULTIMAT3_JOBS["OUTBOX"]["DATABASES"] = None  # the outbox{aliases}'


@pytest.mark.parametrize("key", ["ENVIRONMENT", "RELEASE"])
@pytest.mark.parametrize("value", [None, 3, " ", "a\nb"])
def test_a_name_that_cannot_be_told_is_mended_into_none_and_never_into_that_of_another(key: str, value: Any) -> None:
    setting = {key: value}
    exec(refused(setting).fix, {"ULTIMAT3_JOBS": setting})

    assert setting == {key: ""}


@pytest.mark.parametrize("value", ["nowhere.context", "contextlib.zzz", "nullcontext", 5])
def test_a_tenants_context_that_cannot_be_told_is_warned_of_where_it_goes(value: Any) -> None:
    assert refused({"TENANT_CONTEXT": value}).fix.endswith(" = None  # bodies then run outside of any tenant's context")


def test_a_key_that_should_not_be_there_goes_as_the_fix_says() -> None:
    setting: dict[str, Any] = {"LEASES": "30s"}
    exec(refused(setting).fix, {"ULTIMAT3_JOBS": setting})

    assert setting == {}
