"""Which files of tests run in one process, one after the other: those that need the same heavy server, or the same
process that forks, which starts once for them.

Six Sparks and six Connect servers beside each other are more than the memory of a small machine.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

_LANES = {
    "tests/launch/test_connect.py": "Spark Connect",
    "tests/launch/test_connect_secrets.py": "Spark Connect",
    "tests/operators/test_kafka_spark_sql.py": "Spark Connect",
    "tests/spark/sinks/test_connect.py": "Spark Connect",
    "tests/spark/test_connect_read.py": "Spark Connect",
    "tests/spark/test_jdbc_connect.py": "Spark Connect",
    "tests/integration/test_lab.py": "Spark Connect",
    "tests/acceptance/test_clusters.py": "launchers",
    "tests/launchers/test_client.py": "launchers",
    "tests/launchers/test_standalone.py": "launchers",
    "tests/launchers/test_yarn.py": "launchers",
    "tests/launch/test_start.py": "launchers",
    "tests/spark/test_spark_submit.py": "spark-submit",
    "tests/spark/sinks/": "Spark with sinks",
    "tests/spark/": "Spark",
    "tests/page/": "page",
}


def lane_of(test: str) -> str:
    """Return the lane of a test: that of its file, or of its folder, or the file alone."""
    file = test.partition("::")[0]
    return next((lane for place, lane in _LANES.items() if file.startswith(place)), file)


class Lanes(LoadScopeScheduling):
    """Gives each lane to a process that has nothing to do."""

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid)
