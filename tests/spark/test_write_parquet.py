"""Windows written to Parquet: a rerun replaces, a twin does not mix, an error leaves the old output."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.spark.errors import (
    IncompleteReadError,
    KafkaWindowError,
    LostRecordsError,
    OtherWindowError,
    PublishError,
    WriteOptionError,
)
from airflow_kafka_offsets.spark.sinks.files import _ROUNDS, LABEL_FILE, Files, publish
from tests.lab.topics import commit_transaction, create_topic, delete_records, produce
from tests.lab.waiting import LONGEST
from tests.spark.conftest import take_whole_names_only

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow, Ranges


def values(window: KafkaWindow) -> DataFrame:
    return window.read().selectExpr("cast(cast(value as string) as int) as n")


def found(spark: SparkSession, path: Path | str) -> list[int]:
    return sorted(row.n for row in spark.read.schema("n int").parquet(str(path)).collect())


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_writes_a_directory_per_window(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    first = make_window(ranges, window_id="lake.orders-000001")
    assert first.write_parquet(values(first), f"{tmp_path}/") == f"{tmp_path}/window_id=lake.orders-000001"
    second = make_window(ranges, window_id="lake.orders-000002")
    second.write_parquet(values(second), str(tmp_path))
    assert names(tmp_path) == ["window_id=lake.orders-000001", "window_id=lake.orders-000002"]
    assert found(spark, tmp_path) == sorted([*range(10), *range(10)])
    assert spark.read.parquet(str(tmp_path)).filter("window_id = 'lake.orders-000002'").count() == 10
    assert first.records == 10
    assert not first.is_unchecked


@pytest.mark.parametrize(
    ("condition", "left"),
    [("n < 3", [0, 1, 2]), ("n < 100", [*range(10)]), ("n < 0", [])],
    ids=["fewer", "more", "nothing"],
)
def test_a_rerun_replaces_what_the_first_run_wrote(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path, condition: str, left: list[int]
) -> None:
    run = make_window(ranges)
    run.write_parquet(values(run).filter("n < 7"), str(tmp_path))
    assert found(spark, tmp_path) == [*range(7)]
    rerun = make_window(ranges)
    rerun.write_parquet(values(rerun).filter(condition), str(tmp_path))
    assert found(spark, tmp_path) == left
    assert names(tmp_path) == [f"window_id={run.id}"]


def test_partitions_below_the_window_are_replaced_too(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    run = make_window(ranges)
    run.write_parquet(values(run).selectExpr("n", "n % 3 as third"), str(tmp_path), partition_by=["third"])
    assert {path.name for path in (tmp_path / f"window_id={run.id}").glob("third=*")} == {
        "third=0",
        "third=1",
        "third=2",
    }
    rerun = make_window(ranges)
    rerun.write_parquet(values(rerun).selectExpr("n", "n % 3 as third").filter("third = 1"), str(tmp_path), "third")
    assert sorted(tuple(row) for row in spark.read.parquet(str(tmp_path)).select("n", "third").collect()) == [
        (1, 1),
        (4, 1),
        (7, 1),
    ]


def test_an_empty_window_replaces_as_well(
    spark: SparkSession, make_window: MakeWindow, topic: str, tmp_path: Path
) -> None:
    window = make_window({topic: {0: (4, 4)}})
    window.write_parquet(values(window), str(tmp_path))
    assert names(tmp_path) == [f"window_id={window.id}"]
    assert found(spark, tmp_path) == []
    assert window.records == 0


def test_one_persisted_frame_can_be_written_twice(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    window = make_window(ranges)
    frame = values(window).persist()
    window.write_parquet(frame.filter("n % 2 = 0"), f"{tmp_path}/even")
    window.write_parquet(frame.filter("n % 2 = 1"), f"{tmp_path}/odd")
    assert found(spark, tmp_path / "even") == [0, 2, 4, 6, 8]
    assert found(spark, tmp_path / "odd") == [1, 3, 5, 7, 9]


def test_of_threads_that_write_to_one_directory_only_the_first_does(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    window = make_window(ranges)
    halves = {"n % 2 = 0": [0, 2, 4, 6, 8], "n % 2 = 1": [1, 3, 5, 7, 9]}
    together = threading.Barrier(len(halves))
    with window.persisted() as frame, ThreadPoolExecutor(len(halves)) as pool:
        rows = frame.selectExpr("cast(cast(value as string) as int) as n")

        def write(half: str) -> str:
            together.wait(LONGEST)
            return window.write_parquet(rows.filter(half), str(tmp_path))

        writes = {half: pool.submit(write, half) for half in halves}
        refused = {half for half, write in writes.items() if isinstance(write.exception(LONGEST), WriteOptionError)}
    (written,) = halves.keys() - refused
    assert found(spark, tmp_path) == halves[written]
    with pytest.raises(PublishError, match="a second write would replace the first"):
        window.finish()


@pytest.mark.parametrize("is_own", [False, True], ids=["a write", "the job's own"])
def test_a_job_that_begins_anew_after_a_failure_writes_all_anew(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path, is_own: bool
) -> None:
    window = make_window(ranges)
    (tmp_path / "b").touch()

    def body() -> None:
        with window.persisted() as frame:
            rows = frame.selectExpr("cast(cast(value as string) as int) as n")
            window.write_parquet(rows, f"{tmp_path}/a")
            if is_own and (tmp_path / "b").exists():
                raise ValueError("not to /b")
            window.write_parquet(rows, f"{tmp_path}/b")

    with pytest.raises(Exception, match="/b"):
        body()
    (tmp_path / "b").unlink()
    body()
    window.finish()
    assert found(spark, tmp_path / "a") == found(spark, tmp_path / "b") == [*range(10)]


def test_a_caught_failure_lets_a_job_write_again_once_and_no_part_replaces_the_whole(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    window = make_window(ranges)
    (tmp_path / "b").touch()
    window.write_parquet(values(window), f"{tmp_path}/a")
    with pytest.raises(Exception, match="/b"):
        window.write_parquet(values(window), f"{tmp_path}/b")
    (tmp_path / "b").unlink()
    window.write_parquet(values(window), f"{tmp_path}/a")
    rows = values(window)
    with pytest.raises(WriteOptionError, match="a second write would replace the first"):
        window.write_parquet(rows.filter("n < 5"), f"{tmp_path}/a")
    window.write_parquet(rows, f"{tmp_path}/b")
    assert found(spark, tmp_path / "a") == found(spark, tmp_path / "b") == [*range(10)]
    with pytest.raises(PublishError, match="a second write would replace the first"):
        window.finish()


@pytest.mark.parametrize("is_kept", [False, True], ids=["read", "persisted"])
def test_a_loop_that_writes_parts_and_ignores_errors_keeps_the_first_and_fails(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path, is_kept: bool
) -> None:
    window = make_window(ranges)
    for part in ("n % 3 = 0", "n % 3 = 1", "n % 3 = 2"):
        with suppress(KafkaWindowError), window.persisted() if is_kept else nullcontext(window.read()) as frame:
            rows = frame.selectExpr("cast(cast(value as string) as int) as n")
            window.write_parquet(rows.filter(part), str(tmp_path))
            window.check()
    assert found(spark, tmp_path) == [0, 3, 6, 9]
    with pytest.raises(PublishError, match="a second write would replace the first"):
        window.finish()


def test_an_incomplete_read_is_not_published(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    good = make_window(ranges)
    good.write_parquet(values(good), str(tmp_path))
    bad = make_window(ranges)
    with pytest.raises(IncompleteReadError, match=f"Window {bad.id}: "):
        bad.write_parquet(values(bad).limit(2), str(tmp_path))
    assert found(spark, tmp_path) == [*range(10)]
    assert names(tmp_path) == [f"window_id={good.id}"]
    assert bad.is_unchecked


def test_offsets_without_a_record_are_not_published_unless_expected(
    kafka: KafkaBroker, topic: str, spark: SparkSession, make_window: MakeWindow, tmp_path: Path
) -> None:
    create_topic(kafka, topic)
    commit_transaction(kafka, topic, 3)
    plain = make_window({topic: {0: (0, 4)}})
    with pytest.raises(IncompleteReadError, match="expect_gaps=True"):
        plain.write_parquet(values(plain), str(tmp_path))
    assert names(tmp_path) == []
    gappy = make_window({topic: {0: (0, 4)}}, expect_gaps=True)
    gappy.write_parquet(values(gappy), str(tmp_path))
    assert found(spark, tmp_path) == [0, 1, 2]


def test_a_frame_that_is_not_of_the_window_is_not_published(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    with pytest.raises(IncompleteReadError, match="nothing was read"):
        make_window(ranges).write_parquet(spark.range(10), str(tmp_path))
    assert names(tmp_path) == []


def test_expired_records_are_data_loss_and_nothing_is_published(
    kafka: KafkaBroker, topic: str, spark: SparkSession, make_window: MakeWindow, tmp_path: Path
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 100)
    first = make_window({topic: {0: (10, 90)}})
    first.write_parquet(values(first), str(tmp_path))
    delete_records(kafka, topic, before=60)
    rerun = make_window({topic: {0: (10, 90)}})
    with pytest.raises(LostRecordsError, match=rf"\[10, 90\) for topic partition {topic}-0"):
        rerun.write_parquet(values(rerun), str(tmp_path))
    assert found(spark, tmp_path) == [*range(10, 90)]
    assert names(tmp_path) == [f"window_id={first.id}"]


def test_a_crash_before_publishing_leaves_the_old_output(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_window(ranges)
    run.write_parquet(values(run), str(tmp_path))

    def killed(self: Files, source: str, target: str) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Files, "rename", killed)
        patch.setattr(Files, "discard", lambda self, path: None)  # a killed process does not clean up either
        rerun = make_window(ranges)
        with pytest.raises(KeyboardInterrupt):
            rerun.write_parquet(values(rerun).filter("n < 2"), str(tmp_path))
    left = names(tmp_path)
    assert len(left) == 2, "the staging directory is still there"
    assert left[0].startswith(".staging-")
    assert found(spark, tmp_path) == [*range(10)], "and no reader sees it"


@pytest.mark.parametrize("is_moved_back", [False, True], ids=["the retry runs", "a person moves the old one back"])
def test_a_rerun_that_was_killed_between_the_two_renames_has_two_ways_out(
    spark: SparkSession,
    make_window: MakeWindow,
    ranges: Ranges,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_moved_back: bool,
) -> None:
    run = make_window(ranges)
    run.write_parquet(values(run), str(tmp_path))
    target, renamed = tmp_path / f"window_id={run.id}", Files.rename

    def killed(self: Files, source: str, to: str) -> bool:
        if not target.exists():  # the old one is away, and a killed process does nothing more
            raise KeyboardInterrupt
        return renamed(self, source, to)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "rename", killed)
        patch.setattr(Files, "discard", lambda self, path: None)
        rerun = make_window(ranges)
        with pytest.raises(KeyboardInterrupt):
            rerun.write_parquet(values(rerun).filter("n < 2"), str(tmp_path))
    assert not target.exists()
    assert found(spark, tmp_path) == [], "no reader sees a part"
    [old] = tmp_path.glob(f".staging-{run.id}-*-old-*")
    assert found(spark, old) == [*range(10)]
    if is_moved_back:
        old.rename(target)
        assert found(spark, tmp_path) == [*range(10)]
    others = [tmp_path / f".staging-{name}-{'1' * 32}-old-0" for name in (f"{run.id}-000001", "another")]
    for other in others:
        other.mkdir()
    retry = make_window(ranges)
    retry.write_parquet(values(retry).filter("n < 3"), str(tmp_path))
    assert found(spark, tmp_path) == [0, 1, 2]
    assert not old.exists(), "its old output is replaced"
    assert all(other.exists() for other in others), "those of other windows are left"


def test_the_old_output_of_another_window_of_this_id_is_never_removed(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A publish of another ledger's window was killed before it saw that what it had moved away was not its own."""
    folder = tmp_path / "a{b,c}[d]"
    run = make_window(ranges)
    run.write_parquet(values(run), str(folder))
    target = folder / f"window_id={run.id}"
    kept, own = (folder / f".staging-{run.id}-{letter * 32}-old-0" for letter in "ab")
    shutil.copytree(target, own)
    shutil.copytree(target, kept)
    note = json.loads((kept / LABEL_FILE).read_text())
    (kept / f".{LABEL_FILE}.crc").unlink()
    (kept / LABEL_FILE).write_text(json.dumps({**note, "digest": "another"}))
    again = make_window(ranges)
    again.write_parquet(values(again), str(folder))
    assert names(folder) == [kept.name, target.name]
    assert f"{kept.name} has output of another window" in caplog.text


def test_twins_end_with_one_complete_copy(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    failures: list[BaseException] = []
    together = threading.Barrier(3)

    def job(condition: str) -> None:
        try:
            for _ in range(2):
                together.wait(LONGEST)
                window = make_window(ranges)
                window.write_parquet(values(window).filter(condition).repartition(3), str(tmp_path))
        except BaseException as exc:
            failures.append(exc)

    copies = {"n >= 0": [*range(10)], "n < 5": [*range(5)], "n < 2": [0, 1]}
    jobs = [threading.Thread(target=job, args=[condition]) for condition in copies]
    for thread in jobs:
        thread.start()
    for thread in jobs:
        thread.join()
    assert failures == []
    assert found(spark, tmp_path) in copies.values()
    assert names(tmp_path) == [f"window_id={make_window(ranges).id}"]


class Directories:
    """Directories to publish by hand; `scheme` chooses Hadoop's own rename (viewfs) or the one of the system (file)."""

    def __init__(self, root: Path, scheme: str) -> None:
        self.root = root
        self.target = f"{scheme}/window"

    def stage(self, scheme: str, name: str) -> tuple[str, str]:
        new = self.root / f".staging-{name}" / "new"
        new.mkdir(parents=True)
        (new / f"part-{name}").touch()
        return f"{scheme}/.staging-{name}/new", f"{scheme}/.staging-{name}-old"

    def published(self) -> list[str]:
        return names(self.root / "window")


@pytest.fixture(params=["file", "viewfs"])
def scheme(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> str:
    """Return the same directory as a local path, and through a file system that only Hadoop can rename in."""
    if request.param == "file":
        return f"file:{tmp_path}"
    spark.conf.set("fs.viewfs.mounttable.lab.link./out", f"file://{tmp_path}")
    return "viewfs://lab/out"


def test_publishing_moves_the_old_one_away_and_the_new_one_in(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    directories, files = Directories(tmp_path, scheme), Files(spark)
    for name in ("a", "b"):
        publish(files, *_arguments(directories, scheme, name))
        assert directories.published() == [f"part-{name}"]
    assert names(tmp_path) == [".staging-a", ".staging-b", "window"], "the old one is gone"


def test_a_twin_that_is_faster_is_replaced_as_a_whole(
    spark: SparkSession, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories, files = Directories(tmp_path, scheme), Files(spark)
    publish(files, *_arguments(directories, scheme, "old"))
    twin = _arguments(directories, scheme, "twin")
    rename = Files.rename
    steps: list[str] = []

    def with_twin(self: Files, source: str, target: str) -> bool:
        # The old one is out of the way, ours is about to come in: now the twin publishes.
        if steps == ["new", "old"]:
            rename(self, twin[0], directories.target)
        steps.append("new" if target == directories.target else "old")
        return rename(self, source, target)

    monkeypatch.setattr(Files, "rename", with_twin)
    publish(files, *_arguments(directories, scheme, "mine"))
    assert directories.published() == ["part-mine"]
    assert steps == ["new", "old", "new", "old", "new"]


def test_an_error_between_the_two_renames_puts_the_old_one_back(
    spark: SparkSession, tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories, files = Directories(tmp_path, scheme), Files(spark)
    publish(files, *_arguments(directories, scheme, "old"))
    rename = Files.rename
    calls: list[str] = []

    def failing(self: Files, source: str, target: str) -> bool:
        calls.append(source)
        if len(calls) == 3:
            raise OSError("the disk is gone")
        return rename(self, source, target)

    monkeypatch.setattr(Files, "rename", failing)
    with pytest.raises(OSError, match="the disk is gone"):
        publish(files, *_arguments(directories, scheme, "mine"))
    assert directories.published() == ["part-old"]


def test_another_windows_output_that_came_in_between_is_put_back(
    spark: SparkSession, tmp_path: Path, scheme: str
) -> None:
    directories, files = Directories(tmp_path, scheme), Files(spark)
    publish(files, *_arguments(directories, scheme, "other"))

    def refuse(place: str) -> None:
        assert place.endswith(".staging-mine-old-0"), "as a whole, where no reader and no other job sees it"
        raise OtherWindowError("another window's")

    with pytest.raises(OtherWindowError):
        publish(files, *_arguments(directories, scheme, "mine"), refuse)
    assert directories.published() == ["part-other"]


def test_the_window_is_named_in_its_directory_and_readers_do_not_see_it(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    window = make_window(ranges)
    window.write_parquet(values(window), str(tmp_path))
    note = json.loads((tmp_path / f"window_id={window.id}" / LABEL_FILE).read_text())
    assert (note["window_id"], note["seq"], note["digest"]) == (window.id, 12, window.digest)
    assert found(spark, tmp_path) == [*range(10)]


def test_a_part_that_a_copy_left_and_output_of_older_versions_say_nothing_and_are_replaced(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, tmp_path: Path
) -> None:
    window = make_window(ranges)
    label = tmp_path / f"window_id={window.id}" / LABEL_FILE
    for text in ("", '{"window'):
        label.parent.mkdir(exist_ok=True)
        label.write_text(text)
        label.with_name(f".{LABEL_FILE}.crc").unlink(missing_ok=True)
        again = make_window(ranges)
        again.write_parquet(values(again), str(tmp_path))
        assert found(spark, tmp_path) == [*range(10)]
        label.unlink()


def published(spark: SparkSession, folder: Path) -> tuple[str, Directories, Files]:
    """Publish an old output, and return the arguments to publish the next one."""
    scheme = f"file:{folder}"
    directories, files = Directories(folder, scheme), Files(spark)
    publish(files, *_arguments(directories, scheme, "old"))
    return scheme, directories, files


def test_an_old_one_that_can_not_be_put_back_is_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, directories, files = published(spark, tmp_path)
    rename = Files.rename

    def failing(self: Files, source: str, target: str) -> bool:
        if source.endswith("-old-0") or not (tmp_path / "window").exists():
            raise OSError("the disk is gone")
        return rename(self, source, target)

    monkeypatch.setattr(Files, "rename", failing)
    with pytest.raises(PublishError, match=r"the disk is gone.*is complete in \S+/\.staging-mine-old-0 ") as refused:
        publish(files, *_arguments(directories, scheme, "mine"))
    assert isinstance(refused.value.__cause__, OSError)
    assert names(tmp_path / ".staging-mine-old-0") == ["part-old"]


def test_where_a_rename_is_a_copy_that_stops_half_way_the_old_one_is_kept_and_the_next_run_replaces_the_part(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, directories, files = published(spark, tmp_path)
    rename = Files.rename

    def copying(self: Files, source: str, target: str) -> bool:
        if source.endswith("/new") and not (tmp_path / "window").exists():
            (tmp_path / "window").mkdir()
            (tmp_path / "window" / "part-of-mine").touch()
            raise OSError("the connection is gone")
        return rename(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "rename", copying)
        with pytest.raises(PublishError, match=r"the connection is gone.*is complete in \S+/\.staging-mine-old-0 "):
            publish(files, *_arguments(directories, scheme, "mine"))
    assert names(tmp_path / ".staging-mine-old-0") == ["part-old"]
    publish(files, *_arguments(directories, scheme, "again"))
    assert directories.published() == ["part-again"]


def test_a_twin_that_is_faster_for_ever_is_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories, files = Directories(tmp_path, f"file:{tmp_path}"), Files(spark)
    monkeypatch.setattr(Files, "rename", lambda self, source, target: False)
    with pytest.raises(PublishError, match=f"faster {_ROUNDS} times"):
        publish(files, *_arguments(directories, f"file:{tmp_path}", "mine"))


def test_an_error_that_is_no_race_is_raised_at_once(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    directories, files = Directories(tmp_path, scheme), Files(spark)
    staged, _ = directories.stage(scheme, "mine")
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match=r"(?i)not ?a? ?directory"):
        files.rename(staged, f"{scheme}/file/window")


def test_whenever_twins_publish_at_once_one_copy_is_left(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    directories, files = Directories(tmp_path, scheme), Files(spark)
    with ThreadPoolExecutor(4) as pool:
        for number in range(10):
            staged = [_arguments(directories, scheme, f"{number}-{twin}") for twin in range(4)]
            done = [pool.submit(publish, files, *arguments) for arguments in staged]
            assert [job.result() for job in done] == [None] * 4
            assert len(directories.published()) == 1


def _arguments(directories: Directories, scheme: str, name: str) -> tuple[str, str, str]:
    staged, aside = directories.stage(scheme, name)
    return staged, directories.target, aside


def test_classes_of_the_jvm_are_asked_for_by_their_whole_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_whole_names_only(monkeypatch)
    files = Files(spark)
    assert files.read(f"{tmp_path}/missing") is None
    files.write(f"{tmp_path}/there", "text")
    assert files.read(f"{tmp_path}/there") == "text"
    assert files.rename(f"{tmp_path}/there", f"{tmp_path}/moved")
    files.discard(f"{tmp_path}/moved")
    assert files.read(f"{tmp_path}/moved") is None


def test_a_label_that_goes_away_after_the_look_is_not_there(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Files, "_exists", lambda self, path: True)
    assert Files(spark).read(f"{tmp_path}/gone") is None
