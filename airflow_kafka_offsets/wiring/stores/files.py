"""The offset stores of files: a local folder, S3 with a connection of type ``aws``, HDFS with one of type ``webhdfs``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.store_address import StoreAddress
from airflow_kafka_offsets.wiring.connections import bad_connection, connection_of_type, is_true

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kafka_offsets.adapters.stores.files import FilesStore, Folders
    from airflow_kafka_offsets.adapters.stores.hdfs import HdfsLogin

# Settings that only the Amazon provider's hook supports. A connection with one of them requires that provider.
_ROLES = ("role_arn", "assume_role_method", "session_factory")


def open_files(address: StoreAddress) -> FilesStore:
    """Open a local folder."""
    from airflow_kafka_offsets.adapters.stores.local import LocalFolders

    return _open(address, LocalFolders(address.path))


def open_s3(address: StoreAddress) -> FilesStore:
    """Open a prefix of a bucket."""
    from airflow_kafka_offsets.adapters.stores.s3 import S3Folders

    bucket, _, prefix = address.path.strip("/").partition("/")
    return _open(address, S3Folders(_s3_client(address), bucket, prefix.strip("/")))


def open_hdfs(address: StoreAddress) -> FilesStore:
    """Open a folder on HDFS."""
    from airflow_kafka_offsets.adapters.stores.hdfs import HdfsFolders, open_client

    connection = connection_of_type(address.conn_id, "webhdfs", host_of="the name nodes of HDFS")
    client = open_client(name_nodes(connection), address.timeout, hdfs_login(connection))
    return _open(address, HdfsFolders(client, address.path))


def _open(address: StoreAddress, folders: Folders) -> FilesStore:
    from airflow_kafka_offsets.adapters.stores.files import FilesStore

    return FilesStore(str(address), folders, keep=address.keep)


def _s3_client(address: StoreAddress) -> Callable[[], Any]:
    """Return a function that makes the client, as the Amazon provider's hook does. A role is assumed only at the first use."""
    import boto3

    connection = connection_of_type(address.conn_id, "aws")
    extra = connection.extra_dejson
    config = _s3_config(extra.get("config_kwargs"), address.timeout)
    if find_spec("airflow.providers.amazon") is not None:
        from airflow.providers.amazon.aws.hooks.s3 import S3Hook

        return lambda: S3Hook(aws_conn_id=address.conn_id, config=config).get_conn()
    if roles := [name for name in _ROLES if extra.get(name)]:
        raise bad_connection(connection, f"{roles[0]} requires:\n    pip install apache-airflow-providers-amazon")
    keys, endpoint = aws_keys(connection), s3_endpoint(extra)
    return lambda: boto3.session.Session(**keys).client("s3", config=config, **endpoint)


def _s3_config(of_connection: Mapping[str, Any] | None, timeout: float) -> Any:
    from botocore.config import Config

    # Callers retry. With boto3's own retries, a silent service would take five times the time-out.
    ours = Config(connect_timeout=timeout, read_timeout=timeout, retries={"total_max_attempts": 1})
    return Config(**(of_connection or {})).merge(ours)


def aws_keys(connection: Connection) -> dict[str, str]:
    """Return the arguments of a boto3 session from a connection, as the Amazon provider's AwsConnectionWrapper reads it."""
    extra = connection.extra_dejson
    keys = {name: extra.get(name) for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")}
    if connection.login and connection.password:
        keys |= {"aws_access_key_id": connection.login, "aws_secret_access_key": connection.password}
    keys |= {name: extra.get(name) for name in ("region_name", "profile_name")}
    return {name: str(value) for name, value in keys.items() if value}


def s3_endpoint(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a boto3 client: an endpoint other than Amazon's, for all services or for S3, and its TLS."""
    of_service = extra.get("service_config", {}).get("s3", {})
    endpoint = of_service.get("endpoint_url", extra.get("endpoint_url"))
    return {"endpoint_url": endpoint or None, "verify": extra.get("verify")}


def name_nodes(connection: Connection) -> list[str]:
    """Return the URLs of the name nodes. The host may name several, and the schema a path before ``/webhdfs``."""
    hosts = [host.strip() for host in (connection.host or "").split(",") if host.strip()]
    scheme = "https" if is_true(connection.extra_dejson.get("use_ssl")) else "http"
    port = f":{connection.port}" if connection.port else ""
    path = f"/{connection.schema}" if connection.schema else ""
    return [f"{scheme}://{host}{port}{path}" for host in hosts]


def hdfs_login(connection: Connection) -> HdfsLogin:
    """Return the login from a connection, as WebHDFSHook reads it. Unlike there, certificates are checked by default."""
    from airflow_kafka_offsets.adapters.stores.hdfs import HdfsLogin
    from airflow_kafka_offsets.airflow_versions import conf, mask_secret

    extra = connection.extra_dejson
    headers, cookies = extra.get("headers") or {}, extra.get("cookies") or {}
    mask_secret([*headers.values(), *cookies.values()])  # a gateway's tokens, which may have any name
    verify, cert, key = extra.get("verify", True), extra.get("cert"), extra.get("key")
    return HdfsLogin(
        user=connection.login or "",
        password=connection.password,
        verify=is_true(verify) if str(verify).lower() in ("true", "false") else str(verify),
        cert=(cert, key) if cert and key else cert,
        headers=headers,
        cookies=cookies,
        has_kerberos=conf.get("core", "security", fallback="") == "kerberos",
    )
