"""What clients are told of a cluster, and the names that they have there."""

from __future__ import annotations

import itertools
import os
import re

import pytest

from orbitmq.client import settings as of_settings
from orbitmq.client.settings import ClientSettings


def test_clients_of_one_address_and_one_process_id_have_ids_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as in containers behind one address
    ids = []
    for _ in range(2):
        monkeypatch.setattr(of_settings, "_INSTANCES", itertools.count())
        ids.append(ClientSettings().client_id())
    assert ids[0] != ids[1]
    assert all(re.fullmatch(r"[0-9.]+@1#[0-9]+#0", client_id) for client_id in ids)


def test_an_instance_name_and_a_unit_name_make_an_id_that_stays() -> None:
    settings = ClientSettings(instance_name="till-1", unit_name="north")
    assert settings.client_id() == settings.client_id() == settings.lasting_id()
    assert settings.client_id().endswith("@till-1@north")
    assert ClientSettings().lasting_id().endswith("@DEFAULT")
