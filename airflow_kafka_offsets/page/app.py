"""The app behind the page, in Airflow's API server. Each route is a GET, requires a user, and writes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import (
    KafkaAnswerError,
    KafkaOffsetsError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerError,
    LedgerUnavailableError,
    NoLedgerError,
    PrunedWindowError,
    UnknownGroupError,
    UnknownWindowError,
)
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.documents import Document, as_json
from airflow_kafka_offsets.page import PREFIX, TITLE, now, render, replays, views
from airflow_kafka_offsets.page.access import Reader
from airflow_kafka_offsets.page.strips import Axis
from airflow_kafka_offsets.page.zoom import read_zoom
from airflow_kafka_offsets.service import pictures
from airflow_kafka_offsets.service.pictures import GroupLine

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


PATIENCE = 1.8
"""Seconds until a page shows that the ledger does not answer. With the page itself these are two."""

LONGEST = 30
"""Seconds until a page gives up an answer of the ledger or of Kafka."""

_OPENING, _THREADS, _THREADS_OF_KAFKA = (anyio.CapacityLimiter(12) for _ in range(3))
"""Threads that connect to the ledger, threads that ask it, and threads that also ask Kafka: a slow Kafka holds up no page that asks only
the ledger. With Airflow's own threads, it would hold up Airflow's API."""

MOST_SEQ = 10**18 - 1
"""The largest number that a window's id can have."""

CONNECT_TIMEOUT = 2
"""Seconds until a database driver gives up: the shortest that libpq has."""

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    # Airflow marks a run as started by a person in its UI if the request has a referrer.
    "Referrer-Policy": "same-origin",
}

_UNSHOWN = "That can't be shown"
_REFUSALS = {
    401: "Your session has ended. Reload Airflow.",
    403: 'Your role lacks the permission to see plugins, as Viewer and User of FAB do. An admin can add "can read on Plugins" to it.',
}
_STATIC = Path(__file__).parent / "static"
_FILES = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}

app = FastAPI(
    title=TITLE,
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
    # On the app, so every route is guarded.
    dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
)


@app.middleware("http")
async def _with_headers(request: Request, call_next: Callable[[Request], Any]) -> Response:
    response: Response = await call_next(request)
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


@app.exception_handler(HTTPException)
async def _refused(request: Request, exc: HTTPException) -> Response:
    return _error(request, _REFUSALS.get(exc.status_code, str(exc.detail)), exc.status_code, "Not allowed")


@app.exception_handler(RequestValidationError)
async def _misread(request: Request, exc: RequestValidationError) -> Response:
    wrong = "; ".join(f"{error['loc'][-1]}: {error['msg']}" for error in exc.errors())
    return _error(request, wrong, 400, _UNSHOWN)


@app.exception_handler(KafkaOffsetsError)
async def _failed(request: Request, exc: KafkaOffsetsError) -> Response:
    match exc:
        case NoLedgerError():
            if wants_json(request):
                return _json({"offline": True, "groups": []})
            return _page(request, "groups.html", {"rows": [], "no_ledger": exc.where, "title": TITLE, "dag_id": None})
        case PrunedWindowError():
            return _error(request, str(exc), 410, "Pruned")
        case UnknownGroupError() | UnknownWindowError():
            return _error(request, str(exc), 404, "Not found")
        case LedgerUnavailableError():
            return _error(request, str(exc), 503, "The ledger does not answer")
        case LedgerError():
            return _error(request, str(exc), 500, "The ledger can't be read")
        case KafkaRefusedError():
            return _error(request, str(exc), 500, "Kafka refused")
        case KafkaAnswerError():
            return _error(request, str(exc), 503, "No answer")
    return _error(request, str(exc), 400, _UNSHOWN)


def _error(request: Request, text: str, status: int, title: str) -> Response:
    if wants_json(request):
        return _json({"error": text}, status)
    return _page(request, "error.html", {"title": title, "text": text, "status": status}, status)


def _json(document: Document, status: int = 200) -> Response:
    # With an indent, Python's slow encoder writes it: three times as long for 20,000 partitions.
    return Response(as_json(document, indent=None), status, media_type="application/json")


def _page(request: Request, template: str, context: dict[str, Any], status: int = 200) -> Response:
    root = str(request.scope.get("root_path", ""))
    base = root.removesuffix(f"/{PREFIX}")
    return Response(
        render.html(template, {"root": root, "base": base, "now": utc_now(), **context}), status, media_type="text/html"
    )


def wants_json(request: Request) -> bool:
    """Whether the answer is for a program."""
    accepted = request.headers.get("accept", "")
    return request.query_params.get("format") == "json" or accepted.startswith("application/json")


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


async def _ask(question: Callable[[Ledger], _T]) -> _T:
    """Ask the ledger, in a thread."""
    ledger = await _open()
    with anyio.move_on_after(LONGEST):
        return await anyio.to_thread.run_sync(question, ledger, abandon_on_cancel=True, limiter=_THREADS)
    raise LedgerUnavailableError(_late("The ledger", LONGEST))


async def _ask_kafka(question: Callable[[Ledger], _T]) -> _T:
    """Ask the ledger and then Kafka, in a thread."""
    ledger = await _open()
    with anyio.move_on_after(LONGEST):
        return await anyio.to_thread.run_sync(question, ledger, abandon_on_cancel=True, limiter=_THREADS_OF_KAFKA)
    raise KafkaUnavailableError(_late("The ledger or Kafka", LONGEST))


def _late(system: str, seconds: float) -> str:
    return f"{system} did not answer within {seconds:g} seconds. Reload the page."


def _open_configured() -> Ledger:
    return wiring.open_ledger_at(wiring.ledger_url(), patience=CONNECT_TIMEOUT)


async def _open() -> Ledger:
    with anyio.move_on_after(PATIENCE):
        # The thread goes on until its driver gives up.
        return await anyio.to_thread.run_sync(_open_configured, abandon_on_cancel=True, limiter=_OPENING)
    raise LedgerUnavailableError(_late("The ledger's database", ceil(PATIENCE)))


@app.get("/groups")
async def groups(request: Request, user: GetUserDep) -> Response:
    """Show all groups."""
    return await _list(request, Reader(user))


async def _list(request: Request, reader: Reader, dag_id: str | None = None) -> Response:
    def shown(ledger: Ledger) -> Response:
        lines = pictures.groups(ledger, reader.visible, dag_id)
        if wants_json(request):
            return _json({"offline": True, "groups": _documents(ledger, lines, reader)})
        readable = reader.readable(dag_id for line in lines for dag_id in line.outline.dag_ids)
        rows = [views.list_row(line, readable, utc_now()) for line in now.worst_first(lines)]
        title = TITLE if dag_id is None else f"{TITLE} of {dag_id}"
        return _page(request, "groups.html", {"rows": rows, "title": title, "dag_id": dag_id})

    return await _ask(shown)


def _documents(
    ledger: Ledger, lines: Sequence[GroupLine], reader: Reader, lags: Mapping[str, GroupLag] = MappingProxyType({})
) -> list[Document]:
    full = pictures.in_full(ledger, lines, reader.visible)
    readable = reader.readable(dag_id for group in full for dag_id in group.dag_ids)
    return [views.group_document(group, readable, lags.get(group.line.group.name)) for group in full]


@app.get("/groups/{name}")
async def group(
    request: Request,
    name: str,
    user: GetUserDep,
    axis: Axis = Axis.OFFSET,
    start: Annotated[str, Query(alias="from")] = "",
    end: Annotated[str, Query(alias="to")] = "",
    before: Annotated[int | None, Query(ge=1, le=MOST_SEQ)] = None,
) -> Response:
    """Show a group: strips, windows and acts."""
    reader, zoom = Reader(user), read_zoom(axis, start, end, before)

    def shown(ledger: Ledger) -> Response:
        picture = pictures.group(ledger, name, reader.visible, zoom.before, zoom.cut_in)
        if wants_json(request):
            [full] = pictures.in_full(ledger, [picture.line], reader.visible)
            return _json(views.picture_document(picture, full, reader.readable(picture.dag_ids | full.dag_ids)))
        readable = reader.readable(picture.dag_ids)
        view = views.group_view(picture, readable, utc_now(), zoom, now.last(name))
        return _page(request, "group.html", {"view": view, "group": picture.group})

    return await _ask(shown)


@app.get("/windows/{window_id}")
async def window(request: Request, window_id: str, user: GetUserDep) -> Response:
    """Show a window: ranges, attempts and the effect of a replay."""
    reader = Reader(user)

    def shown(ledger: Ledger) -> Response:
        picture = pictures.window(ledger, window_id, reader.visible)
        readable = reader.readable(picture.dag_ids)
        if not readable:
            raise pictures.hidden_window(window_id)
        if wants_json(request):
            return _json(views.window_document(picture, readable))
        sees_group = bool(reader.visible([picture.outline]))
        view = views.window_view(picture, readable, utc_now(), sees_group=sees_group)
        return _page(request, "window.html", {"view": view, "group": picture.group})

    return await _ask(shown)


@app.get("/dag")
async def dag(request: Request, dag_id: str, user: GetUserDep) -> Response:
    """Show the groups of a DAG: those that belong to it, and those that it has a window of."""
    reader = Reader(user)
    await anyio.to_thread.run_sync(_require, reader, dag_id, limiter=_THREADS)
    return await _list(request, reader, dag_id)


def _require(reader: Reader, dag_id: str) -> None:
    """Refuse a DAG that the user may not read, with the words for one that does not exist."""
    if not reader.may_read(dag_id):
        raise UnknownGroupError(f"There is no DAG {dag_id} that you may see")


@app.get("/run")
async def run(request: Request, dag_id: str, run_id: str, user: GetUserDep) -> Response:
    """Show the windows of a DAG run."""
    return await _windows_of(request, user, dag_id, run_id)


@app.get("/task")
async def task(
    request: Request, dag_id: str, run_id: str, task_id: str, user: GetUserDep, map_index: str = ""
) -> Response:
    """Show the windows of a task instance."""
    # Airflow's UI leaves {MAP_INDEX} as it is for a task that is not mapped.
    is_mapped = map_index.isascii() and map_index.isdecimal() and len(map_index) < 10
    index = int(map_index) if is_mapped else -1
    return await _windows_of(request, user, dag_id, run_id, task_id, index)


async def _windows_of(
    request: Request, user: Any, dag_id: str, run_id: str, task_id: str | None = None, map_index: int | None = None
) -> Response:
    reader = Reader(user)

    def shown(ledger: Ledger) -> Response:
        _require(reader, dag_id)
        lines = ledger.windows_of_run(dag_id, run_id, task_id, map_index)
        if wants_json(request):
            windows = pictures.windows_of_run(ledger, lines)
            readable = reader.readable(window.holder.dag_id for _, window in windows)
            return _json({"windows": [views.run_document(line, window, readable) for line, window in windows]})
        return _page(request, "run.html", {"rows": lines, "dag_id": dag_id, "run_id": run_id, "task_id": task_id})

    return await _ask(shown)


@app.get("/now")
async def now_of_all(request: Request, user: GetUserDep, dag_id: str | None = None) -> Response:
    """Answer with verdict, lag and headroom of all groups that the user may see, or of those of a DAG."""
    reader = Reader(user)

    def shown(ledger: Ledger) -> Response:
        if dag_id is not None:
            _require(reader, dag_id)
        lines = pictures.groups(ledger, reader.visible, dag_id)
        # The answer is kept for all users, so it has all groups.
        lags = now.look(ledger, ledger.groups(), now.ALL)
        names = [line.group.name for line in lines if line.group.name in lags]
        visible = {name: now.without_details(lags[name]) for name in names}
        if request.query_params.get("format") == "json":
            return _json({"offline": False, "groups": _documents(ledger, lines, reader, visible)})
        return JSONResponse(render.now_of_all({name: now.now_view(lag) for name, lag in visible.items()}))

    return await _ask_kafka(shown)


@app.get("/groups/{name}/now")
async def now_of_one(request: Request, name: str, user: GetUserDep, show: str = "") -> Response:
    """Answer with verdict, lag and headroom of a group, and of the partitions that the page shows."""
    reader = Reader(user)

    def shown(ledger: Ledger) -> Response:
        line = pictures.group_line(ledger, name, reader.visible)
        lag = now.look(ledger, [line.group], name)[name]
        if request.query_params.get("format") == "json":
            return _json({"offline": False, "groups": _documents(ledger, [line], reader, {name: lag})})
        facts = {
            "partitions": now.partition_facts(lag.partitions, show),
            "heat": now.heat_facts(lag),
            "folded": now.folded_facts(lag, show),
        }
        return JSONResponse(render.now_of_one(now.now_view(lag)) | facts)

    return await _ask_kafka(shown)


@app.get("/groups/{name}/replay")
async def preview(request: Request, name: str, user: GetUserDep, windows: str) -> Response:
    """Show the windows that a replay would run and refuse. The user's browser asks Airflow for the run."""
    reader = Reader(user)

    def shown(ledger: Ledger) -> Response:
        line = pictures.group_line(ledger, name, reader.visible)
        view = replays.preview(ledger, line, windows, reader)
        return _json(replays.document(view)) if wants_json(request) else _page(request, "replay.html", {"view": view})

    return await _ask_kafka(shown)


@app.get("/static/{name}")
def static(name: str) -> Response:
    """Serve one of the page's own files. A mounted folder would be open to everyone."""
    if name not in _FILES:
        raise HTTPException(404, "No such file")
    return Response((_STATIC / name).read_bytes(), media_type=_FILES[name])
