"""Windows in files on a real HDFS: what depends on its rename. The rest of the contract is that of files anywhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.spark.errors import OtherWindowError
from airflow_kafka_offsets.spark.sinks.files import Files, publish
from tests.lab.processes import LOOPBACK
from tests.spark.sinks.contract import Jobs, rows_of, window_id
from tests.spark.sinks.test_files import Directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lab.hdfs import Hdfs
    from tests.spark.sinks.contract import Run


class TestHdfs(Directory, Jobs):
    file_format = "parquet"
    code = "window.write_parquet(df, target)"

    @pytest.fixture
    def folder(self, topic: str) -> str:
        """Return a path of the test's own."""
        return f"/lakes/{topic}"

    @pytest.fixture
    def target(self, hdfs: Hdfs, folder: str) -> str:
        return f"hdfs://{LOOPBACK}:{hdfs.rpc_port}{folder}"

    def test_a_rerun_replaces_what_its_own_window_wrote_and_nothing_else(
        self, spark: SparkSession, hdfs: Hdfs, run: Run, target: str, folder: str
    ) -> None:
        run(1, "value < 7")
        run(2, "value > 4")
        self.assert_rows(spark, target, *rows_of(1, *range(7)), *rows_of(2, *range(5, 10)))
        run(1, "value > 7")
        with pytest.raises(OtherWindowError, match=f"another window {window_id(2)}"):
            run(2, ledger={"planned_until": "2026-03-01T00:00:00+00:00"})
        self.assert_rows(spark, target, *rows_of(1, 8, 9), *rows_of(2, *range(5, 10)))
        assert sorted(hdfs.client().list(folder)) == [f"window_id={window_id(seq)}" for seq in (1, 2)]

    def test_whenever_twins_publish_at_once_one_copy_is_left(
        self, spark: SparkSession, hdfs: Hdfs, target: str, folder: str
    ) -> None:
        files, client = Files(spark), hdfs.client()

        def publish_copy(name: str) -> None:
            publish(files, f"{target}/.staging-{name}/new", f"{target}/window", f"{target}/.staging-{name}-old")

        with ThreadPoolExecutor(4) as pool:
            for number in range(5):
                names = [f"{number}-{twin}" for twin in range(4)]
                for name in names:
                    client.write(f"{folder}/.staging-{name}/new/{name}", b"")
                list(pool.map(publish_copy, names))
                left = client.list(f"{folder}/window")
                assert len(left) == 1, left
                assert left[0] in names
        assert not [name for name in client.list(folder) if "-old" in name]
