"""JSON headers as real clients of all languages send them, and malformed ones."""

from __future__ import annotations

import pytest

from orbitmq.common.errors import ProtocolError
from orbitmq.protocol import header_json
from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.command import RemotingCommand


def read(text: str | bytes) -> RemotingCommand:
    header = text.encode() if isinstance(text, str) else text
    padded = bytearray(b"{" + header + b"}")  # bytes around the header must not matter
    command = header_json.decode(padded, 1, 1 + len(header))
    assert command == header_json.decode_general(header)
    return command


def test_missing_members_have_their_defaults() -> None:
    assert read("{}") == RemotingCommand(0, language=LanguageCode.OTHER, version=0)


def test_unknown_members_of_any_kind_are_passed_over() -> None:
    command = read(
        '{"code":1,"new":{"a":[1,{"b":null}]},"more":[],"x":1.5,"y":true,"z":null,"serializeTypeCurrentRPC":"ROCKETMQ"}'
    )
    assert command == RemotingCommand(1, language=LanguageCode.OTHER, version=0)


def test_numbers_and_booleans_in_ext_fields_are_read_as_text() -> None:
    command = read(
        '{"extFields":{"n":5,"m":-7,"t":true,"f":false,"d":1.5,"s":"x","big":12345678901234567890}}'
    )
    assert command.ext_fields == {
        "n": "5", "m": "-7", "t": "true", "f": "false", "d": "1.5", "s": "x", "big": "12345678901234567890",
    }  # fmt: skip


def test_values_that_are_structures_are_read_as_their_json() -> None:
    assert read('{"extFields":{"l":[1,"a"],"o":{"k":1}}}').ext_fields == {
        "l": '[1,"a"]',
        "o": '{"k":1}',
    }


def test_null_members_are_as_if_missing() -> None:
    text = '{"code":null,"extFields":null,"flag":null,"language":null,"opaque":null,"remark":null,"version":null}'
    assert read(text) == RemotingCommand(0, language=LanguageCode.OTHER, version=0)
    assert read('{"extFields":{"a":null,"b":"x"}}').ext_fields == {"b": "x"}


@pytest.mark.parametrize("language", ['"COBOL"', '"java"', '""', "5", "[]", '"JA\\u0000VA"'])
def test_an_unknown_language_is_other(language: str) -> None:
    assert read(f'{{"language":{language}}}').language is LanguageCode.OTHER


@pytest.mark.parametrize("language", LanguageCode)
def test_every_known_language_is_read_also_when_its_name_is_escaped(language: LanguageCode) -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in language.name)
    assert read(f'{{"language":"{language.name}"}}').language is language
    assert read(f'{{"language":"{escaped}"}}').language is language


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ('"7"', 7),
        ("-7", -7),
        ("7.0", 7),
        ("true", 1),
        ("007", 7),
        ("+7", 7),
        ('""', 0),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
    ],
)
def test_numbers_are_read_leniently(text: str, number: int) -> None:
    assert read(f'{{"opaque":{text}}}').opaque == number


@pytest.mark.parametrize(
    "text",
    [
        "2147483648",
        "-2147483649",
        '"x"',
        "[1]",
        '{"a":1}',
        "1e400",
        "9" * 5000,
        '"' + "9" * 5000 + '"',
    ],
)
@pytest.mark.parametrize("member", ["code", "flag", "opaque", "version"])
def test_what_is_no_32_bit_number_closes_the_connection(member: str, text: str) -> None:
    with pytest.raises(ProtocolError):
        header_json.decode((header := f'{{"{member}":{text}}}'.encode()), 0, len(header))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "[]",
            "5",
            '"text"',
            "null",
            "true",
            "{",
            "}",
            "{}}",
            "{} x",
            '{"code"}',
            '{"code":}',
            '{"code":1',
            '{"code":1 "flag":2}',
        ),
        *(
            '{"extFields":5}',
            '{"extFields":"x"}',
            '{"extFields":[1]}',
            '{"remark":"unclosed}',
            '{"remark":"\\q"}',
            '{"a":undefine}',
        ),
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"extFields":{"a":{"b":null,"c":' + "[" * 900 + "]" * 900 + "}}}",
    ],
)
def test_what_is_no_header_closes_the_connection(text: str) -> None:
    with pytest.raises(ProtocolError):
        header_json.decode((header := text.encode()), 0, len(header))


@pytest.mark.parametrize(
    "header",
    [
        b'{"remark":"\xff"}',
        b'{"extFields":{"\xff":"x"}}',
        b'{"extFields":{"x":"\xed\xa0\x80"}}',
        b'{"language":"\xc3"}',
        b'{"serializeTypeCurrentRPC":"\xff"}',
        b'{"\xff":1}',
    ],
)
def test_what_is_not_utf_8_closes_the_connection(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        header_json.decode(header, 0, len(header))


def test_escapes_that_only_fastjson_knows_are_read_by_both_decoders() -> None:
    command = read('{"code":1,"extFields":{"a":"\\x41\\v\\\'","b":"\\u0041\\n"},"remark":"\\x42"}')
    assert (command.ext_fields, command.remark) == ({"a": "A\x0b'", "b": "A\n"}, "B")


def test_control_characters_and_odd_spellings_are_read() -> None:
    assert read('{"remark":"tab\there"}').remark == "tab\there"
    assert read("{ 'code' : 5 , }").code == 5
    assert read('\n{\t"code"\r: 5 }\n').code == 5
    assert read("{code:5}").code == 5


def test_of_doubled_members_the_last_counts() -> None:
    command = read(
        '{"code":1,"code":2,"extFields":{"a":"1","a":"2"},"remark":"x","remark":"y","extFields":{"b":"3"}}'
    )
    assert (command.code, command.ext_fields, command.remark) == (2, {"b": "3"}, "y")


def test_lone_surrogates_are_kept_until_they_are_written() -> None:
    assert read('{"remark":"\\ud800","extFields":{"a":"\\udc00\\ud800"}}').remark == "\ud800"
    assert read('{"remark":"\\ud83d\\ude00"}').remark == "😀"
