"""What a launch asks the machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from airflow_kafka_offsets.wiring.machine.checks import check_submit
from airflow_kafka_offsets.wiring.machine.connector import local_spark
from airflow_kafka_offsets.wiring.machine.start import start_environment


def test_the_check_the_connector_and_the_start_of_a_launch_ask_sparks_script_once(tmp_path: Path) -> None:
    for program in ("spark-submit", "spark-class", "java"):
        (tmp_path / "bin" / program).parent.mkdir(exist_ok=True)
        shutil.copy("/bin/true", tmp_path / "bin" / program)
    noted = f"open({str(tmp_path / 'asked')!r}, 'a').write('x')"
    (tmp_path / "bin" / "find_spark_home.py").write_text(f"{noted}\nprint({str(tmp_path / 'spark')!r})\n")
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "JAVA_HOME": str(tmp_path)}
    check_submit("spark-submit", environment)
    local_spark("spark-submit", environment)
    start_environment(environment, 0, program="spark-submit", given=[])
    assert (tmp_path / "asked").read_text() == "x"
