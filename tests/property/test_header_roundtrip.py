"""Every header class reads what it writes, whatever its values."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import MISSING, fields
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol import headers
from orbitmq.protocol.headers.base import Bits, BoundaryType, Header


def _header_classes() -> list[type[Header]]:
    """All header classes, by module and name."""
    modules = [
        importlib.import_module(f"{headers.__name__}.{module.name}")
        for module in pkgutil.iter_modules(headers.__path__)
    ]
    return [
        member
        for module in modules
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Header)
        and member.__module__ == module.__name__
        and member is not Header
    ]


HEADER_CLASSES = _header_classes()


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        widths = [note.width for note in notes if isinstance(note, Bits)]
        return (
            st.integers(-(1 << widths[0] - 1), (1 << widths[0] - 1) - 1)
            if widths
            else _values(inner)
        )
    if alternatives := get_args(hint):
        return st.one_of(*map(_values, alternatives))
    plain: dict[type, st.SearchStrategy[Any]] = {
        str: st.text(),
        bool: st.booleans(),
        NoneType: st.none(),
        BoundaryType: st.sampled_from(BoundaryType),
    }
    return plain[hint]


def _headers(cls: type[Header]) -> st.SearchStrategy[Header]:
    hints = get_type_hints(cls, include_extras=True)
    return st.fixed_dictionaries(
        {field.name: _values(hints[field.name]) for field in fields(cls)}
    ).map(lambda values: cls(**values))


def _wire_names(cls: type[Header]) -> set[str]:
    """The names of the class's fields on the wire, as a header with all of them set writes them."""
    hints = get_type_hints(cls, include_extras=True)
    samples: dict[type, Any] = {str: "x", bool: True, int: 1, BoundaryType: BoundaryType.UPPER}
    return set(
        cls(**{field.name: samples[_kind(hints[field.name])] for field in fields(cls)}).to_fields()
    )


def _kind(hint: Any) -> type:
    inner = get_args(hint)
    return _kind(next(part for part in inner if part is not NoneType)) if inner else hint


WIRE_NAMES = sorted({name for header in HEADER_CLASSES for name in _wire_names(header)})


def test_the_headers_are_found() -> None:
    assert len(HEADER_CLASSES) >= 100


@pytest.mark.parametrize("cls", HEADER_CLASSES, ids=lambda cls: cls.__name__)
def test_a_header_is_read_back_as_it_was_written(cls: type[Header]) -> None:
    @settings(max_examples=20)
    @given(_headers(cls))
    def check(header: Header) -> None:
        assert cls.from_fields(header.to_fields()) == header

    check()


@pytest.mark.parametrize("cls", HEADER_CLASSES, ids=lambda cls: cls.__name__)
def test_no_two_fields_of_a_header_share_a_name_on_the_wire(cls: type[Header]) -> None:
    assert len(_wire_names(cls)) == len(fields(cls))
    assert all(field.default is MISSING or field.default is None for field in fields(cls)), (
        "a field that was not sent is None"
    )


@given(
    st.sampled_from(HEADER_CLASSES),
    st.dictionaries(st.sampled_from(WIRE_NAMES), st.none() | st.text() | st.integers().map(str)),
)
def test_any_fields_are_read_or_refused(cls: type[Header], texts: dict[str, str | None]) -> None:
    try:
        header = cls.from_fields(texts)
    except RequestRefusedError:
        return
    assert header.to_fields().keys() <= texts.keys()
