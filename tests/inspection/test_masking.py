"""Stored values as people see them: no secrets, no end without a bound, nothing that a terminal would obey."""

from __future__ import annotations

import pytest

from ultimat3_jobs.inspection.masking import MASK, MAX_SHOWN, is_secret, masked, printable, shown


@pytest.mark.parametrize(
    "name",
    [
        "password", "Password", "db_password", "passwd", "pwd", "passphrase", "client_secret", "token", "accessToken",
        "X-Auth-Token", "api_key", "apikey", "apiKey", "API-KEY", "private_key", "Authorization", "credentials",
        "session_cookie", "pin", "otp",
    ],
)  # fmt: skip
def test_the_name_of_a_secret_is_known(name: str) -> None:
    assert is_secret(name)
    assert masked({name: "s3cret"}) == {name: MASK}


@pytest.mark.parametrize("name", ["order", "key", "idempotency_key", "author", "pinned", "monkey", "passenger", "path"])
def test_other_names_are_shown(name: str) -> None:
    assert masked({name: "plain"}) == {name: "plain"}


def test_secrets_are_masked_at_any_depth_and_whole() -> None:
    value = {"rows": [{"login": {"password": {"old": "a", "new": "b"}, "user": "ann"}}], "token": None}

    assert masked(value) == {"rows": [{"login": {"password": MASK, "user": "ann"}}], "token": None}


def test_a_large_value_is_cut_with_a_mark() -> None:
    text = shown({"text": "x" * 30_000})

    assert len(text) < MAX_SHOWN + 50
    assert text.endswith("characters more]")


def test_what_a_terminal_would_obey_is_escaped() -> None:
    assert printable("a\x1b[31mb\x07\u202ec\x9b\r\n") == "a\\x1b[31mb\\x07\\u202ec\\x9b\\r\\n"
    assert printable("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"
    assert printable("Zürich 東京 مرحبا") == "Zürich 東京 مرحبا"
