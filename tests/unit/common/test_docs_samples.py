"""The YAML and properties samples of the pages can be loaded as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from orbitmq.access.account_file import AccountFile, InvalidAccountFileError
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.common.config import load
from orbitmq.nameserver.config import NameServerConfig

DOCS = Path(__file__).parents[3] / "docs"
SAMPLES = [
    pytest.param(path.name, kind, text, id=f"{path.name}:{page.count(chr(10), 0, found.start())}")
    for path in sorted(DOCS.glob("*.md"))
    for page in (path.read_text(),)
    for found in re.finditer(r"^```(yaml|properties)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for kind, text in (found.groups(),)
]


@pytest.mark.parametrize(("page", "kind", "text"), SAMPLES)
def test_a_sample_can_be_loaded(page: str, kind: str, text: str, tmp_path: Path) -> None:
    if kind == "yaml":
        assert yaml.safe_load(text)
        return
    file = tmp_path / "sample.conf"
    file.write_text(text)
    if page == "nameserver.md":
        assert load(NameServerConfig, file=str(file), environment={}).warnings == ()
    else:
        assert load_broker(file=str(file), environment={}).warnings == ()


def test_the_accounts_of_the_page_are_accounts() -> None:
    (sample,) = (
        text
        for page, kind, text in (each.values for each in SAMPLES)
        if (page, kind) == ("access-control.md", "yaml")
    )
    found = AccountFile.decode(str(sample).encode())
    assert [account.access_key for account in found.accounts] == ["RocketMQ", "operator"]
    assert len(found.white) == 2


def test_the_hint_for_text_that_is_no_yaml_names_braces() -> None:
    with pytest.raises(InvalidAccountFileError, match=r"put quotes around texts with .*\{ or \}"):
        AccountFile.decode(b"globalWhiteRemoteAddresses: [192.168.0.{1,2}]\n")
