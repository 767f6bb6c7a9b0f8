"""Signatures are HMAC-SHA1 over the field values, ordered by field name, and the body."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.signature import SIGNATURE, SigningKey, signature


@given(secret=st.text(max_size=90), content=st.binary(max_size=300))
def test_a_key_that_is_used_again_and_again_signs_as_the_standard_library_does(
    secret: str, content: bytes
) -> None:
    secret = secret.encode("utf-8", "ignore").decode()
    key = SigningKey(secret)
    expected = base64.b64encode(hmac.digest(secret.encode(), content, "sha1"))
    assert [key.sign(content), key.sign(memoryview(content))] == [expected, expected]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_secrets_of_any_length_are_taken(length: int) -> None:
    secret = "s" * length
    expected = base64.b64encode(hmac.digest(secret.encode(), b"value", "sha1")).decode()
    assert signature({"name": "value"}, None, secret) == expected


def test_values_count_in_the_order_of_their_names_and_the_signature_itself_does_not() -> None:
    expected = base64.b64encode(hmac.digest(b"secret", "1é2body".encode(), "sha1")).decode()
    assert (
        signature({"b": "2", "a": "é", "B": "1", SIGNATURE: "whatever"}, b"body", "secret")
        == expected
    )
