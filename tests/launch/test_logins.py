"""Each way to log in to Kafka: a window is planned, and read by a job, with the secret in no place where others could see it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.core.launch.login import reader_options
from airflow_kafka_offsets.core.launch.properties import properties_file
from airflow_kafka_offsets.launch.job_files import with_java_key
from tests.lab.child import Child
from tests.lab.jars import GOOGLE_LOGIN, MSK_LOGIN, fetch
from tests.lab.logins import AnyLoginBroker, with_wrong_secrets
from tests.lab.processes import LOOPBACK
from tests.lab.spark_connect import SparkConnect
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.lab.spark_standalone import SparkStandalone
    from tests.lab.yarn import Yarn

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("spark_connector")]

LOGINS = {
    "plain": "PLAIN",
    "scram": "SCRAM",
    "tls": "client certificate: PEM files",
    "tls_pem": "client certificate: PEM in the connection",
    "tls_password": "client certificate: key with a password",
    "tls_keystore": "client certificate: PKCS#12",
    "oidc": "OAuth with OIDC",
    "kerberos": "Kerberos, key tab",
}
"""The logins of the broker, with their rows in the table of the docs."""
RECORDS = 10
PROVIDER = {
    "kafka.config.providers": "file",
    "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}
JOB_BY_KERBEROS = {"kafka.sasl.mechanism": "GSSAPI"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyLoginBroker]:
    """Run a broker that takes each login, with ten records in a topic."""
    with AnyLoginBroker(tmp_path_factory.mktemp("logins")) as broker:
        create_topic(broker, "orders")
        produce(broker, "orders", RECORDS)
        yield broker


def run(
    broker: AnyLoginBroker,
    folder: Path,
    logins: Mapping[str, Mapping[str, str]],
    options: Mapping[str, Mapping[str, str]],
    conf: Mapping[str, str] | None = None,
    conn_id: str | None = None,
    **environment: str,
) -> str:
    """Run a task with each login, one after the other, and return their output.

    Args:
        broker: where they log in.
        folder: for what they leave.
        logins: the Kafka connections.
        options: the ``spark_options`` of some.
        conf: Spark's settings.
        conn_id: the connection to Spark Connect, if that runs the jobs.
        **environment: variables of the process.
    """
    extras = {f"AIRFLOW_CONN_{name.upper()}": {"conn_type": "kafka", "extra": extra} for name, extra in logins.items()}
    given: dict[str, Any] = {"logins": list(logins), "topic": "orders", "folder": str(folder), "options": options}
    given |= {"conf": conf or {}, "conn_id": conn_id}
    variables = {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={broker.kdc.settings}",
        **environment,
        **{name: json.dumps(extra) for name, extra in extras.items()},
    }
    (folder / "airflow").mkdir()
    child = Child("tests.launch.login_task:run", given, folder / "task.log", {**os.environ, **variables})
    assert child.wait() == 0, child.log
    return child.log


@pytest.fixture(scope="module")
def folder(broker: AnyLoginBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a process that ran a task with each login."""
    folder = tmp_path_factory.mktemp("right")
    run(broker, folder, broker.logins(), {"kerberos": JOB_BY_KERBEROS})
    return folder


def part(log: str, login: str) -> str:
    """Return what the task of a login said."""
    return log.partition(f"LOGIN {login}\n")[2].partition("LOGIN ")[0]


@pytest.mark.parametrize("login", LOGINS)
def test_a_window_is_planned_read_and_committed(folder: Path, login: str) -> None:
    said = part((folder / "task.log").read_text(), login)
    assert f"RETURNED {RECORDS}\n" in said, said
    assert f"Window {login}-000001: committed" in said, said


def test_no_secret_is_in_an_argument_a_log_xcom_the_ledger_the_ui_or_an_event_log(
    broker: AnyLoginBroker, folder: Path
) -> None:
    events = list((folder / "events").iterdir())
    pages = list((folder / "seen").glob("*.pages"))
    assert len(events) == len(pages) == len(LOGINS)
    assert all("dag-load" in page.read_text() for page in pages), "the job is not on the pages"
    # The log has XCom, too.
    for path in (folder, folder / "seen", folder / "events", folder / "airflow"):
        for file in path.iterdir():
            if file.is_file():
                held = [secret for secret in broker.secrets() if secret.encode() in file.read_bytes()]
                assert not held, file
    assert not list(Path(folder).rglob("login.properties")), "the file with secrets is gone"


@pytest.fixture(scope="module")
def refused(broker: AnyLoginBroker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of tasks whose logins have a wrong secret."""
    wrong = {name: with_wrong_secrets(broker.logins()[name], broker.tls) for name in LOGINS if name != "kerberos"}
    return run(broker, tmp_path_factory.mktemp("wrong"), wrong, {})


@pytest.mark.parametrize("login", [login for login in LOGINS if login != "kerberos"])
def test_a_wrong_secret_is_refused_before_anything_is_planned(refused: str, login: str) -> None:
    said = part(refused, login)
    assert re.search(rf"FAILED {login} .*Kafka", said), said
    assert "hunter2" not in said
    assert "planned" not in said


def test_a_job_with_a_key_tab_of_another_principal_fails_and_commits_nothing(
    broker: AnyLoginBroker, tmp_path: Path
) -> None:
    connection = {**broker.logins()["kerberos"], "sasl.kerberos.principal": "stranger@LAB"}
    said = run(broker, tmp_path, {"kerberos": connection}, {"kerberos": JOB_BY_KERBEROS})
    assert "FAILED kerberos" in said
    assert "LoginException" in said
    assert "Window kerberos-000001: not committed" in said


def test_a_job_logs_in_with_the_ticket_of_its_user(broker: AnyLoginBroker, tmp_path: Path) -> None:
    cache = broker.kdc.ticket("lake", broker.kdc.folder / "lake.keytab")
    scram = broker.logins()["scram"]
    said = run(broker, tmp_path, {"kerberos": scram}, {"kerberos": JOB_BY_KERBEROS}, KRB5CCNAME=f"FILE:{cache}")
    assert f"RETURNED {RECORDS}\n" in said


def test_a_jvm_that_forbids_config_providers_is_told_which_to_allow(broker: AnyLoginBroker, tmp_path: Path) -> None:
    forbidding = "-Dorg.apache.kafka.automatic.config.providers=none"
    said = run(broker, tmp_path, {"scram": broker.logins()["scram"]}, {}, JAVA_TOOL_OPTIONS=forbidding)
    provider = "org.apache.kafka.common.config.provider.FileConfigProvider"
    assert f"org.apache.kafka.automatic.config.providers forbids Kafka's client {provider}" in said
    assert f"-Dorg.apache.kafka.automatic.config.providers={provider}" in said
    assert "ConfigException" not in said


def on_a_cluster(broker: AnyLoginBroker, folder: Path) -> dict[str, dict[str, str]]:
    """Return the options of each login where jobs run on other machines: a reference for each secret, to files that are there."""
    options = {}
    for name, connection in broker.logins().items():
        own = JOB_BY_KERBEROS if name == "kerberos" else {}
        secrets = reader_options(with_java_key(connection), own).secrets
        file = folder / f"{name}.properties"
        file.write_text(properties_file(secrets))
        references = {option: f"${{file:{file}:{option}}}" for option in secrets}
        options[name] = {**own, **(PROVIDER if secrets else {}), **references}
    return options


def check_cluster(broker: AnyLoginBroker, folder: Path, **where: Any) -> None:
    """Check that each login reads its window on a cluster."""
    said = run(broker, folder, broker.logins(), on_a_cluster(broker, folder), **where)
    for login in LOGINS:
        assert f"RETURNED {RECORDS}\n" in part(said, login), part(said, login)


def test_on_a_standalone_cluster(
    broker: AnyLoginBroker, spark_standalone: SparkStandalone, realm_of_executors: dict[str, str], tmp_path: Path
) -> None:
    conf = {"spark.master": spark_standalone.url, "spark.cores.max": "1", **realm_of_executors}
    check_cluster(broker, tmp_path, conf=conf)


def test_on_yarn(broker: AnyLoginBroker, yarn: Yarn, realm_of_executors: dict[str, str], tmp_path: Path) -> None:
    conf = {**yarn.conf, "spark.master": "yarn", **realm_of_executors}
    check_cluster(broker, tmp_path, conf=conf, **yarn.environment)


def test_on_spark_connect(broker: AnyLoginBroker, tmp_path: Path) -> None:
    realm = {"java.security.krb5.conf": str(broker.kdc.settings)}
    with SparkConnect(tmp_path / "server", conf=realm) as server:
        address = {"conn_type": "spark_connect", "host": f"sc://{LOOPBACK}", "port": server.port}
        check_cluster(broker, tmp_path, conn_id="connect", AIRFLOW_CONN_CONNECT=json.dumps(address))


@pytest.fixture
def realm_of_executors(broker: AnyLoginBroker) -> dict[str, str]:
    """Return the settings by which executors know the realm, which other machines know by ``/etc/krb5.conf``."""
    return {"spark.executor.extraJavaOptions": f"-Djava.security.krb5.conf={broker.kdc.settings}"}


CLOUDS = {
    "amazon": (
        {"bootstrap.servers": "b-1.lake.abc.c2.kafka.eu-central-1.amazonaws.com:9098"},
        MSK_LOGIN,
        "Client SASL mechanism 'AWS_MSK_IAM' not enabled",
    ),
    "google": (
        {"bootstrap.servers": "bootstrap.lake.europe-west3.managedkafka.lake.cloud.goog:9092"},
        GOOGLE_LOGIN,
        "Your default credentials were not found",
    ),
}
"""A connection, the jars of its login, and how far that comes at a broker of Apache's: Amazon's logs in, Google's looks for credentials."""


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_module_of_a_cloud_is_loaded_and_asked(broker: AnyLoginBroker, tmp_path: Path, cloud: str) -> None:
    servers, jars, says = CLOUDS[cloud]
    of_cloud = {**servers, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    login = {name: value for name, value in reader_options(of_cloud, {}).options.items() if ".sasl." in name}
    conf = {"spark.jars": ",".join(map(str, fetch(jars)))}
    credentials = {"AWS_ACCESS_KEY_ID": "lake", "AWS_SECRET_ACCESS_KEY": "hunter2", "GCE_METADATA_HOST": "localhost:1"}
    said = run(broker, tmp_path, {cloud: broker.logins()["scram"]}, {cloud: login}, conf, **credentials)
    assert f"FAILED {cloud}" in said
    assert says in said
    assert "hunter2" not in said
