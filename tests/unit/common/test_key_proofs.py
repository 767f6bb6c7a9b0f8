"""Every key declared as used has a test that fails if the key has no effect."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.common.config import Settings, Use
from orbitmq.nameserver.config import NameServerConfig
from support.broker.key_proofs import PROOFS

TESTS = Path(__file__).resolve().parents[2]


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse((TESTS / path).read_text())
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@pytest.mark.parametrize("kind", [BrokerConfig, NameServerConfig])
def test_every_used_key_has_a_test_of_its_effect(kind: type[Settings]) -> None:
    assert {
        key.name for key in kind.all_keys() if key.declared.use is Use.USED
    } - PROOFS.keys() == set()


def test_the_tests_that_are_named_exist() -> None:
    named = {proof for proofs in PROOFS.values() for proof in proofs}
    assert {
        proof
        for proof in named
        if proof.partition("::")[2] not in names_in(proof.partition("::")[0])
    } == set()


def test_only_keys_that_are_used_are_in_the_table() -> None:
    used = {
        key.name
        for kind in (BrokerConfig, NameServerConfig)
        for key in kind.all_keys()
        if key.declared.use is Use.USED
    }
    assert PROOFS.keys() - used == set()
