"""Where an offset store is, in one line: ``redis://redis_default?key=...``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from airflow_kafka_offsets.core.errors import BadInputError, short
from airflow_kafka_offsets.core.fields import ANY_TEXT, OPTIONS, TEXT, check_attributes

MIN_KEEP = 10
"""The lowest value of ``keep``. Also: a writer of offset files came too late if this many newer versions exist."""


class _Kind(NamedTuple):
    """The options of a kind of store, apart from ``timeout``, and an example if its address requires a path."""

    options: str
    example: str = ""


_KINDS = {
    "files": _Kind("keep", "files:///var/lib/offsets"),
    "hbase": _Kind("family state_family"),
    "hdfs": _Kind("keep", "hdfs://webhdfs_default/apps/offsets"),
    "kafka": _Kind("commit transactional_id"),
    "redis": _Kind("cluster key"),
    "s3": _Kind("keep", "s3://aws_default/my-bucket/offsets"),
    "sql": _Kind("create group_column offset_column partition_column schema timestamp_column topic_column"),
    "zookeeper": _Kind("acl layout max_request_bytes"),
}
_CONN_ID = re.compile(r"[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class StoreAddress:
    """An offset store: its kind, the Airflow connection to it, a path and options.

    Attributes:
        kind: ``files``, ``hbase``, ``hdfs``, ``kafka``, ``redis``, ``s3``, ``sql`` or ``zookeeper``.
        conn_id: the Airflow connection; empty for ``files``, and for ``kafka``: the group's own.
        path: a directory, bucket and prefix, or table; empty if the kind has a default.
        options: names and values, as docs/stores lists them for the kind. All kinds have ``timeout``: the seconds to wait
            for an answer, 1 to 300, by default 10.

    Raises:
        BadInputError: an unknown kind or option.
    """

    kind: str
    conn_id: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_attributes(self, {"kind": TEXT, "conn_id": ANY_TEXT, "path": ANY_TEXT, "options": OPTIONS})
        if self.kind not in _KINDS:
            raise BadInputError(f"There is no offset store {short(self.kind)}; there are {', '.join(_KINDS)}")
        if not _CONN_ID.fullmatch(self.conn_id):
            raise _bad_address("holds no host, user or password, only the id of an Airflow connection")
        options = {"timeout", *_KINDS[self.kind].options.split()}
        if wrong := sorted(self.options.keys() - options):
            raise BadInputError(
                f"A {self.kind} store has no option {', '.join(wrong)}; it has {', '.join(sorted(options))}"
            )
        object.__setattr__(self, "options", MappingProxyType({k: str(v) for k, v in sorted(self.options.items())}))
        self._check_path()
        if not self.conn_id and self.kind not in ("files", "kafka"):
            raise BadInputError(f"A {self.kind} store needs an Airflow connection: {self.kind}://conn_id")
        self.timeout, self.keep  # noqa: B018 refuse a wrong value here, not at the first commit

    def __hash__(self) -> int:
        return hash(str(self))

    @property
    def timeout(self) -> float:
        """Seconds to wait for the store's answer."""
        text = self.options.get("timeout", "10")
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0
        if not 1 <= seconds <= 300:
            raise BadInputError(f"A store's timeout must be 1 to 300 seconds, got {short(text)}")
        return seconds

    def is_on(self, option: str) -> bool:
        """Whether a true-or-false option is true; a missing one is false.

        Raises:
            BadInputError: the value is neither true nor false.
        """
        text = self.options.get(option, "false").lower()
        if text not in ("true", "false"):
            raise BadInputError(f"The option {option} of {self} must be true or false")
        return text == "true"

    def choice(self, option: str, *choices: str) -> str:
        """Return the value of an option with a few choices; if it is missing, the first choice.

        Raises:
            BadInputError: it is another value.
        """
        value = self.options.get(option, choices[0])
        if value not in choices:
            raise BadInputError(f"The option {option} of {self} must be {' or '.join(choices)}")
        return value

    @property
    def keep(self) -> int:
        """How many versions of a group's offsets a store of files keeps."""
        text = self.options.get("keep", "100")
        if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < MIN_KEEP:
            raise BadInputError(f"A store must keep {MIN_KEEP} versions or more, got {short(text)}")
        return int(text)

    def _check_path(self) -> None:
        example = _KINDS[self.kind].example
        if not example:
            return
        has_path = self.path.strip("/") != "" and self.path.startswith("/")
        if not has_path or bool(self.conn_id) != (urlsplit(example).netloc != ""):
            raise BadInputError(f"A {self.kind} store is written like {example!r}; got {short(str(self))}")

    def __str__(self) -> str:
        query = f"?{urlencode(self.options, safe=':/{}')}" if self.options else ""
        return f"{self.kind}://{self.conn_id}{quote(self.path, safe='/=.-_')}{query}"


def split_url(text: str) -> SplitResult:
    """Split a URL.

    Raises:
        BadInputError: the text is not a URL. The message does not show it: it might hold a password.
    """
    try:
        return urlsplit(text)
    except ValueError:
        raise BadInputError("This is not a URL") from None


def _bad_address(rule: str) -> BadInputError:
    return BadInputError(f"An offset store's address, such as 'redis://redis_default', {rule}")


def parse_store_address(text: str | StoreAddress) -> StoreAddress:
    """Read an address.

    >>> parse_store_address("s3://aws_default/offsets/prod").path
    '/offsets/prod'

    Raises:
        BadInputError: the text is not an address. The message does not show it: it might hold a password.
    """
    if isinstance(text, StoreAddress):
        return text
    if not isinstance(text, str) or "://" not in text:
        raise _bad_address("holds '://'")
    parts = split_url(text)
    if parts.fragment:
        raise _bad_address("holds no '#'")
    options = parse_qsl(parts.query, keep_blank_values=True)
    if len(dict(options)) < len(options):
        raise _bad_address("names an option once")
    return StoreAddress(parts.scheme, parts.netloc, unquote(parts.path), dict(options))
