"""Takes pictures of the page: an API server, a broker with the records of some days, and a ledger that read them.

`python -m tests.page.pictures` writes the pictures of the docs. `python -m tests.page.pictures FOLDER [NAME...]` writes pictures of every
state, or of those that are named, into a folder instead: in light and dark, 1280 and 1920 pixels wide.
"""

from __future__ import annotations

import itertools
import random
import socket
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import requests
from confluent_kafka import Producer
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.window import Lane, Outcome
from airflow_kafka_offsets.task.links import in_airflow
from tests.lab.browser import open_browser
from tests.lab.history import History, write
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.topics import create_topic, delete_records
from tests.lab.waiting import ANSWER
from tests.page.server import PATH, PageServer, Story

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

IMAGES = Path(__file__).parents[2] / "docs" / "images"
HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
LONG_NAME = "lake." + "a-very-long-name-that-someone-chose-with-care-" * 3 + "end"
OF_AIRFLOW = "manual__of_airflow"
LONG_TOPIC = "topic-" + "with-the-longest-name-that-kafka-allows-" * 6 + "end"


class Log:
    """A topic whose records arrive hour by hour.

    Args:
        kafka: the broker.
        topic: its name.
        sizes: how many records each partition gets in an hour, about.
        hours: for how many hours until now.
        retention: how long Kafka keeps them.
    """

    def __init__(self, kafka: KafkaBroker, topic: str, sizes: list[int], hours: int, retention: timedelta) -> None:
        self.kafka, self.topic, self.hours = kafka, topic, hours
        ms = str(retention // timedelta(milliseconds=1))
        self.id = create_topic(
            kafka, topic, len(sizes), {"retention.ms": ms, "message.timestamp.before.max.ms": "9223372036854775807"}
        )
        self.ends: list[list[int]] = [[0] for _ in sizes]
        chance, producer = random.Random(topic), Producer({**kafka.client_config(), "linger.ms": 20})
        for hour in range(hours):
            at = NOW - (hours - hour) * HOUR
            for partition, size in enumerate(sizes):
                count = chance.randrange(size // 2, size * 3 // 2 + 1) if size else 0
                self.ends[partition].append(self.ends[partition][-1] + count)
                for i in range(count):
                    ms_at = int((at + i * HOUR / count).timestamp() * 1000)
                    producer.produce(topic, b"1", partition=partition, timestamp=ms_at)
                producer.poll(0)
        producer.flush(60)

    def between(self, first: int, last: int) -> OffsetRanges:
        """Return the records of some hours."""
        return OffsetRanges(
            (TopicPartition(self.topic, p), OffsetRange(ends[first], ends[last])) for p, ends in enumerate(self.ends)
        )


def _story(server: PageServer, name: str, log: Log, dag_id: str = "orders") -> Story:
    return Story(server.ledger, KafkaGroup(name, topics=[log.topic]), dag_id, {log.topic: log.id})


def _read(
    story: Story, log: Log, first: int, last: int, *, is_open: bool = False, tries: int = 1, late: int = 0
) -> str:
    """Let a run read some hours at their end, or some hours late, as a cap makes it."""
    story.at = NOW - (log.hours - last - late) * HOUR
    unread = log.between(first, min(last + late, log.hours)).span
    draft = replace(story.draft(0, 1), ranges=log.between(first, last), is_capped=late > 0, unread=unread)
    return story.run(draft, is_open=is_open, tries=tries)


def _write(server: PageServer, kafka: KafkaBroker) -> None:
    week = timedelta(days=7)
    orders = Log(kafka, "orders", [60, 55, 70, 65, 25, 60], 44, week)
    lake = _story(server, "lake.orders", orders)
    for hour in range(4, 24):
        _read(lake, orders, hour, hour + 1, tries=3 if hour == 17 else 1)
    lake.at = NOW - 18 * HOUR
    for i in range(2):
        draft = replace(
            lake.draft(0, 1),
            ranges=orders.between(2 * i, 2 * i + 2),
            lane=Lane.BACKFILL,
            planned_until=NOW - (42 - 2 * i) * HOUR,
        )
        lake.run(draft, dag_id="replays" if i else "orders", run_id=f"manual__{i}")
    lake.act("import", "data-eng", "moving over from the stream")
    ranges = orders.between(24, 25)
    lost_tp = TopicPartition("orders", 2)
    lost = OffsetRange(ranges[lost_tp].start, ranges[lost_tp].start + 45)
    lossy = {tp: (OffsetRange(lost.end, max(lost.end, r.end)) if tp == lost_tp else r) for tp, r in ranges.items()}
    lake.at = NOW - 19 * HOUR
    lake.run(replace(lake.draft(0, 1), ranges=OffsetRanges(lossy), lost=OffsetRanges({lost_tp: lost})))
    for hour in range(25, 42):
        _read(lake, orders, hour, hour + 1)
    lake.act("commit", "ada", "the job wrote everything, only its last heartbeat was lost", window="lake.orders-000031")
    _read(lake, orders, 42, 43, is_open=True, tries=2)
    delete_records(kafka, "orders", orders.ends[0][1], 0)

    by_hour = _story(server, "lake.orders_by_hour", orders, "orders_by_hour")
    for hour in range(20, 44):
        _read(by_hour, orders, hour, hour + 1)
    by_hour.run(replace(by_hour.draft(0, 1), ranges=orders.between(10, 14), lane=Lane.BACKFILL))
    by_hour.prune(6)
    clicks = Log(kafka, "clicks", [400, 380], 20, timedelta(hours=13))
    risky = _story(server, "lake.clicks", clicks, "load_clicks")
    for hour in range(8):
        _read(risky, clicks, hour, hour + 1)
    _read(risky, clicks, 8, 9, is_open=True)
    sessions = Log(kafka, "sessions", [120, 100, 90], 30, week)
    behind = _story(server, "lake.sessions", sessions, "load_sessions")
    for hour in range(18):
        _read(behind, sessions, hour, hour + 1, late=11 * hour // 17)  # further each hour
    payments = Log(kafka, "payments", [30, 30], 60, week)
    stalled = _story(server, "dwh.payments", payments, "payments")
    for hour in range(32):
        _read(stalled, payments, hour, hour + 1, tries=12 if hour == 31 else 1)
    logins = Log(kafka, "logins", [6], 50, timedelta(days=30))
    idle = _story(server, "audit.logins", logins, "audit")
    for hour in range(0, 50, 5):
        _read(idle, logins, hour, hour + 5)
    customers = Log(kafka, "customers", [40] * 64, 12, week)
    wide = _story(server, "ml.features", customers, "features")
    for hour in range(12):
        _read(wide, customers, hour, hour + 1)
    expired = Log(kafka, "refunds", [90, 80, 70], 30, timedelta(days=2))
    lost = _story(server, "dwh.refunds", expired, "refunds")
    for hour in range(12):
        _read(lost, expired, hour, hour + 1)
    for partition, ends in enumerate(expired.ends[:2]):
        delete_records(kafka, "refunds", ends[15], partition)


def _few_windows(server: PageServer, kafka: KafkaBroker) -> None:
    """Write a group of which partitions have no block, and one that was moved here and has not planned."""
    log = Log(kafka, "returns", [30, 0, 40, 25], 8, timedelta(days=7))
    quiet = _story(server, "lake.quiet", log)
    for hour in range(8):
        quiet.at = NOW - (log.hours - hour - 1) * HOUR
        ranges = log.between(hour, hour + 1)
        unread = TopicPartition("returns", 3)
        quiet.run(replace(quiet.draft(0, 1), ranges=OffsetRanges({**ranges, unread: OffsetRange(0, 0)})))
    ends = {TopicPartition("returns", p): ends[-1] for p, ends in enumerate(log.ends)}
    act = Act("import", "ada", "moving over from the stream", NOW - HOUR)
    server.ledger.found(_story(server, "lake.moved", log).group, Position(ends, {"returns": log.id}), act)


def _moved_watermarks(server: PageServer, kafka: KafkaBroker) -> None:
    """Write a group that was reset backwards, and one that was reset forwards, of a topic that keeps all records."""
    log = Log(kafka, "audit", [40, 50, 30], 12, timedelta(milliseconds=-1))
    for name, to, superseded in (("lake.back", 4, range(5, 11)), ("lake.forth", 11, ())):
        story = _story(server, name, log)
        for hour in range(10 if superseded else 8):
            _read(story, log, hour, hour + 1)
        story.reset({tp: r.start for tp, r in log.between(to, to + 1).items()}, superseded)


def _in_danger(server: PageServer, kafka: KafkaBroker) -> None:
    """Write a group of many partitions, of which some lost records and some are at risk."""
    lossy = Log(kafka, "views-eu", [6] * 90, 6, timedelta(days=7))
    short = Log(kafka, "views-us", [0 if p % 7 else 6 for p in range(70)], 6, timedelta(hours=3))
    ids = {log.topic: log.id for log in (lossy, short)}
    story = Story(server.ledger, KafkaGroup("ml.danger", topics=[*ids]), "features", ids)
    for hour in range(4):
        story.at = NOW - (6 - hour) * HOUR
        ranges = {tp: r for log in (lossy, short) for tp, r in log.between(hour, hour + 1).items()}
        story.run(replace(story.draft(0, 1), ranges=OffsetRanges(ranges)))
    for partition in (3, 4, 5, 41, 77):
        delete_records(kafka, "views-eu", lossy.ends[partition][5], partition)


def _failed(server: PageServer, kafka: KafkaBroker) -> None:
    """Write a group whose last try failed."""
    log = Log(kafka, "invoices", [30, 40], 14, timedelta(days=7))
    story = _story(server, "dwh.invoices", log, "invoices")
    for hour in range(10):
        _read(story, log, hour, hour + 1, tries=2 if hour == 7 else 1)
    [*_, last] = server.ledger.attempts(_read(story, log, 10, 11, is_open=True, tries=3))
    server.ledger.end_attempt(last.id, Outcome.FAILED, None, last.started_at + timedelta(minutes=1))


def _long_names(server: PageServer) -> None:
    topics = ["topic-" + "with-a-long-name-" * 5 + str(i) for i in range(8)]
    story = Story(
        server.ledger, KafkaGroup(LONG_NAME, topics=topics, kafka_conn_id="kafka_down"), "dag_" + "of_a_long_name_" * 10
    )
    story.at = NOW - 3 * HOUR
    story.hours(3)


def _what_the_docs_do_not_show(server: PageServer, kafka: KafkaBroker) -> None:
    """Write groups that only the pictures of every state have: the pictures of the docs have few groups."""
    many = Story(server.ledger, KafkaGroup("lake.events", topics=["events"], kafka_conn_id="kafka_down"), "events")
    many.hours(2, partitions=20_000)
    _few_windows(server, kafka)
    _long_names(server)
    _moved_watermarks(server, kafka)
    _in_danger(server, kafka)
    _failed(server, kafka)
    folded = [
        Log(kafka, name, [4] * count, 6, timedelta(days=7)) for name, count in (("clicks-eu", 180), (LONG_TOPIC, 90))
    ]
    wide = Story(
        server.ledger,
        KafkaGroup("ml.wide", topics=[log.topic for log in folded]),
        "features",
        {log.topic: log.id for log in folded},
    )
    for hour in range(4):
        wide.at = NOW - (6 - hour) * HOUR
        ranges = {tp: r for log in folded for tp, r in log.between(hour, hour + 1).items()}
        wide.run(replace(wide.draft(0, 1), ranges=OffsetRanges(ranges)))
    decoded = Story(
        server.ledger, KafkaGroup("lake.decoded", topics=[LONG_TOPIC], kafka_conn_id="kafka_down"), "orders"
    )
    decoded.at = NOW - 4 * HOUR
    decoded.hours(1, start=1_204_331_000, span=41_800_000)
    schemas = {
        f"{LONG_TOPIC}-value": Subject("AVRO", 1_043, dict.fromkeys(range(1001, 1044), "{}")),
        "orders-key": None,
    }
    server.ledger.freeze([(server.ledger.window("lake.decoded-000001").window, schemas)])
    long = KafkaGroup("lake.minutes", topics=["minutes"], kafka_conn_id="kafka_down")
    write(server.ledger._engine, [History(long, {"minutes": 4}, {"minutes": "id-of-minutes"}, 1_000_000, span=1_250)])


def _runs_of_airflow(server: PageServer) -> None:
    """Let Airflow have a run, and give it windows."""
    body = {"logical_date": None, "dag_run_id": OF_AIRFLOW}
    token = {"Authorization": f"Bearer {server.token('admin')}"}
    answer = requests.post(f"{server.url}/api/v2/dags/orders/dagRuns", json=body, headers=token, timeout=ANSWER)
    answer.raise_for_status()
    story = Story(server.ledger, KafkaGroup("lake.triggered", topics=["triggers"], kafka_conn_id="kafka_down"))
    story.at = NOW - 2 * HOUR
    story.run(story.draft(0, 1_250), run_id=OF_AIRFLOW)
    story.run(story.draft(1_250, 3_104_331), run_id=OF_AIRFLOW, is_open=True, tries=2)


def _many_groups(server: PageServer) -> None:
    names = [f"crowd.group-{number:04}" for number in range(1_000)]
    groups = [KafkaGroup(name, topics=[name.replace(".", "-")], kafka_conn_id="kafka_down") for name in names]
    write(server.ledger._engine, [History(g, {g.topics[0]: 3}, {g.topics[0]: "id"}, 14, every=HOUR) for g in groups])


def _shown(browser: WebDriver, server: PageServer, path: str, height: int = 1000) -> None:
    browser.switch_to.default_content()
    browser.set_window_size(browser.get_window_size()["width"], height)
    browser.get(f"{server.url}/{path}")
    if "plugin/" in path:
        wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, "iframe"), what="the frame is there")
        browser.switch_to.frame(browser.find_element(By.CSS_SELECTOR, "iframe"))
    wait_until(lambda: browser.find_elements(By.CSS_SELECTOR, "h1"), what=f"{path} is there")
    wait_until(lambda: not _waits(browser), what="Kafka has answered", interval=0.3)


def _waits(browser: WebDriver) -> bool:
    return bool(browser.find_elements(By.CSS_SELECTOR, ".badge.wait"))


def _theme(browser: WebDriver, server: PageServer, theme: str) -> None:
    browser.get(f"{server.url}/kafka-offsets/static/icon.svg")
    server.log_in(browser)
    browser.execute_script("localStorage.setItem('theme', arguments[0])", theme)


def _select(browser: WebDriver, first: int, last: int) -> None:
    one, other = (browser.find_element(By.CSS_SELECTOR, f"#strips rect[data-w='{seq}']") for seq in (first, last))
    ActionChains(browser).click_and_hold(one).move_to_element(other).release().perform()


def of_the_docs(browser: WebDriver, server: PageServer) -> None:
    """Write the two pictures of the README."""
    _theme(browser, server, "light")
    _shown(browser, server, STATES["groups"], 850)
    _shown(browser, server, STATES["groups"], 850)  # once more: the worst are first when Kafka has answered before
    browser.save_screenshot(str(IMAGES / "page-groups.png"))
    _theme(browser, server, "dark")
    _shown(browser, server, STATES["group"], 1000)
    _select(browser, 14, 16)
    title = browser.find_element(By.CSS_SELECTOR, "h1")
    ActionChains(browser).move_to_element(title).perform()  # no hint over the form
    browser.save_screenshot(str(IMAGES / "page-group.png"))


STATES = {
    "groups": "kafka-offsets/groups",
    "group": "kafka-offsets/groups/lake.orders",
    "by-time": "kafka-offsets/groups/lake.orders?axis=time",
    "64": "kafka-offsets/groups/ml.features",
    "270": "kafka-offsets/groups/ml.wide",
    "270-by-time": "kafka-offsets/groups/ml.wide?axis=time",
    "danger": "kafka-offsets/groups/ml.danger",
    "20000": "kafka-offsets/groups/lake.events",
    "million": "kafka-offsets/groups/lake.minutes",
    "million-by-time": "kafka-offsets/groups/lake.minutes?axis=time",
    "one": "kafka-offsets/groups/audit.logins",
    "risk": "kafka-offsets/groups/lake.clicks",
    "behind": "kafka-offsets/groups/lake.sessions",
    "lost": "kafka-offsets/groups/dwh.refunds",
    "stalled": "kafka-offsets/groups/dwh.payments",
    "failed": "kafka-offsets/groups/dwh.invoices",
    "tries": "kafka-offsets/windows/dwh.payments-000032",
    "window": "kafka-offsets/windows/lake.orders-000041",
    "window-lost": "kafka-offsets/windows/lake.orders-000023",
    "window-backfill": "kafka-offsets/windows/lake.orders-000021",
    "window-superseded": "kafka-offsets/windows/lake.back-000010",
    "window-decoded": "kafka-offsets/windows/lake.decoded-000001",
    "window-20000": "kafka-offsets/windows/lake.events-000002",
    "window-million": "kafka-offsets/windows/lake.minutes-1000000",
    "window-long": f"kafka-offsets/windows/{LONG_NAME}-000003",
    "dag": "kafka-offsets/dag?dag_id=orders",
    "dag-none": "kafka-offsets/dag?dag_id=nothing",
    "run": f"kafka-offsets/run?dag_id=orders&run_id=scheduled__{NOW - 2 * HOUR:%Y-%m-%dT%H}",
    "task": "kafka-offsets/task?dag_id=orders&run_id=manual__0&task_id=load",
    "run-none": "kafka-offsets/run?dag_id=orders&run_id=nothing",
    "missing": "kafka-offsets/groups/nowhere",
    "missing-window": "kafka-offsets/windows/lake.orders_by_hour-000002",
    "misread": "kafka-offsets/groups/lake.orders?from=yesterday",
    "older": "kafka-offsets/groups/lake.orders?before=20",
    "span": f"kafka-offsets/groups/lake.orders?axis=time&from={NOW - 20 * HOUR:%Y-%m-%dT%H:%M}&to={NOW - 8 * HOUR:%Y-%m-%dT%H:%M}",
    "span-none": "kafka-offsets/groups/lake.orders?axis=time&from=2020-01-01T00:00&to=2020-01-02T00:00",
    "pruned": "kafka-offsets/groups/lake.orders_by_hour",
    "no-window": "kafka-offsets/groups/lake.moved",
    "quiet": "kafka-offsets/groups/lake.quiet",
    "back": "kafka-offsets/groups/lake.back",
    "forth": "kafka-offsets/groups/lake.forth?axis=time",
    "long": f"kafka-offsets/groups/{LONG_NAME}",
    "in-airflow": in_airflow("groups", f"http://host{PATH}"),
    "in-airflow-group": in_airflow("groups/lake.orders", f"http://host{PATH}"),
    "in-airflow-dag": "dags/orders/plugin/kafka-windows-dag",
    "in-airflow-run": f"dags/orders/runs/{OF_AIRFLOW}/plugin/kafka-windows-run",
    "in-airflow-task": f"dags/orders/runs/{OF_AIRFLOW}/tasks/load/plugin/kafka-windows-task",
}
"""Pages that a user who may do everything only has to open."""

OF_OTHERS = {
    "groups-limited": ("limited", "kafka-offsets/groups"),
    "group-limited": ("limited", "kafka-offsets/groups/lake.orders"),
    "window-limited": ("limited", "kafka-offsets/windows/lake.orders-000040"),
    "forbidden": ("limited", "kafka-offsets/groups/dwh.payments"),
    "anonymous": (None, "kafka-offsets/groups"),
}
"""Pages as others see them: the user, and the address."""

DIALOGS = {
    "dialog": ("admin", "lake.orders", range(14, 17)),
    "dialog-refused": ("admin", "lake.orders", range(19, 26)),
    "dialog-none": ("admin", "lake.orders", range(21, 22)),
    "dialog-viewer": ("viewer", "lake.orders", range(14, 17)),
    "dialog-many": ("admin", "lake.orders", range(1, 41)),
    "dialog-kafka-down": ("admin", LONG_NAME, range(1, 4)),
}
"""What a replay would do: the user, the group and its windows."""


@dataclass
class Camera:
    """Takes pictures of a server's pages.

    Attributes:
        only: the names of the pictures to take; empty: all.
    """

    browser: WebDriver
    server: PageServer
    folder: Path
    theme: str
    width: int
    only: frozenset[str] = field(default_factory=frozenset)

    def wants(self, *names: str) -> list[str]:
        """Return which of these pictures to take."""
        return [name for name in names if not self.only or name in self.only]

    def log_in(self, user: str | None = "admin") -> None:
        """Let a user look, in this theme. None is someone who has not logged in."""
        _theme(self.browser, self.server, self.theme)
        self.browser.set_window_size(self.width, 1000)
        if user is None:
            self.browser.delete_all_cookies()
        elif user != "admin":
            self.server.log_in(self.browser, user)

    def take(self, name: str, path: str) -> None:
        """Take a picture of a whole page."""
        _shown(self.browser, self.server, path)
        height = min(2_000, self.browser.execute_script("return document.documentElement.scrollHeight") + 140)
        self.browser.set_window_size(self.width, max(700, 1000 if "in-airflow" in name else height))
        self.save(name)

    def save(self, name: str) -> None:
        """Write the browser's view into a file."""
        self.browser.switch_to.default_content()
        self.browser.save_screenshot(str(self.folder / f"{name}-{self.theme}-{self.width}.png"))

    def dialog(self, name: str, group: str, seqs: Iterable[int]) -> None:
        """Take a picture of the preview of a replay."""
        self.browser.set_window_size(self.width, 1000)
        _shown(self.browser, self.server, f"kafka-offsets/groups/{group}")
        self.browser.execute_script(
            "const b = document.getElementById('selection'); b.dataset.windows = arguments[0];"
            "const r = document.getElementById('replay'); r.disabled = false; r.click();",
            ",".join(map(str, seqs)),
        )
        selector = "#dialog[open] table, #dialog[open] .bad"
        wait_until(lambda: self.browser.find_elements(By.CSS_SELECTOR, selector), what="the dialog is there")
        self.save(name)

    def hint(self, name: str, path: str, css: str) -> None:
        """Take a picture of a block's details."""
        self.browser.set_window_size(self.width, 1000)
        _shown(self.browser, self.server, path)
        ActionChains(self.browser).move_to_element(self.browser.find_element(By.CSS_SELECTOR, css)).perform()
        self.save(name)


def of_every_state(camera: Camera) -> None:
    """Write pictures of every state."""
    camera.log_in()
    for name in camera.wants(*STATES):
        camera.take(name, STATES[name])
    for name in camera.wants("hint"):
        camera.hint(name, STATES["group"], "#strips rect[data-w='14']")
    for name in camera.wants("hint-heat"):
        camera.hint(name, STATES["270"], ".heat rect:nth-child(30)")
    for name in camera.wants("selected"):
        _shown(camera.browser, camera.server, STATES["group"])
        _select(camera.browser, 14, 16)
        camera.save(name)
    for name in camera.wants("ledger-down"):
        with socket.create_server((LOOPBACK, 0)) as silent, camera.server.with_ledger_at(silent.getsockname()[1]):
            camera.browser.set_window_size(camera.width, 700)
            camera.take(name, STATES["groups"])
    for name in camera.wants("ledger-none"):
        nowhere = {"ledger": {"conn_type": "sqlite", "host": str(camera.server.folder / "none.db")}}
        camera.server.replace_connections(nowhere)
        camera.take(name, STATES["groups"])
        camera.server.replace_connections({})
    for name in camera.wants(*DIALOGS):
        user, group, seqs = DIALOGS[name]
        camera.log_in(user)
        camera.dialog(name, group, seqs)
    for name in camera.wants(*OF_OTHERS):
        camera.log_in(OF_OTHERS[name][0])
        camera.take(name, OF_OTHERS[name][1])


def of_the_list(camera: Camera, name: str) -> None:
    """Write a picture of the list, as it is now."""
    for wanted in camera.wants(name):
        camera.log_in()
        camera.take(wanted, STATES["groups"])


def main(folder: Path | None, only: Iterable[str] = ()) -> None:
    """Take the pictures: with a folder, those of every state or of some; without, those of the docs."""
    with tempfile.TemporaryDirectory(prefix="page-pictures-") as home, KafkaBroker(Path(home) / "kafka") as kafka:
        connections = {"kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()}}
        server = PageServer(Path(home), connections)
        (Path(home) / "browser").mkdir()
        with server, open_browser(Path(home) / "browser", width=1280, height=1000) as browser:
            if folder is None:
                _write(server, kafka)
                of_the_docs(browser, server)
                return
            folder.mkdir(parents=True, exist_ok=True)
            cameras = [
                Camera(browser, server, folder, theme, width, frozenset(only))
                for theme, width in itertools.product(("light", "dark"), (1280, 1920))
            ]
            _write_in_steps(cameras, kafka)


def _write_in_steps(cameras: Sequence[Camera], kafka: KafkaBroker) -> None:
    """Take the pictures while the ledger grows."""
    server = cameras[0].server
    for camera in cameras:
        of_the_list(camera, "groups-none")
    _write(server, kafka)
    _what_the_docs_do_not_show(server, kafka)
    _runs_of_airflow(server)
    for camera in cameras:
        of_every_state(camera)
    _many_groups(server)
    for camera in cameras:
        of_the_list(camera, "groups-1000")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2:])
