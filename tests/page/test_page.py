"""The page in Airflow's API server: who sees what."""

from __future__ import annotations

import gc
import inspect
import json
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import requests

from airflow_kafka_offsets.cli import main
from tests.lab.waiting import ANSWER
from tests.page.auth import UNPLUGGED
from tests.page.conftest import HOSTILE_RUN, HOSTILE_TASK, HOSTILE_WHY
from tests.page.server import PageServer

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker

PAGES = [
    "groups",
    "groups/lake.orders",
    "groups/lake.orders?axis=time",
    "groups/lake.orders?before=3",
    "groups/lake.orders?axis=time&from=2026-11-01T00:30&to=2026-11-02",
    "groups/lake.pruned",
    "groups/lake.orders/now",
    "groups/lake.orders/replay?windows=1-2",
    "windows/lake.orders-000001",
    "now",
    "dag?dag_id=orders",
    "run?dag_id=orders&run_id=scheduled__2026-11-01T00",
    "task?dag_id=orders&run_id=scheduled__2026-11-01T00&task_id=load&map_index={MAP_INDEX}",
    "static/page.css",
    "static/page.js",
    "static/icon.svg",
    "static/icon-dark.svg",
]

OF_A_DAG = [
    "now?dag_id=replays",
    "dag?dag_id=replays",
    "run?dag_id=replays&run_id=manual__1",
    "task?dag_id=replays&run_id=manual__1&task_id=load&map_index={MAP_INDEX}",
]
"""Each route that takes a DAG, with one that has a window of a group of the DAG `orders`."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
    ),
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
}
"""Written out here once more: whoever loosens one has to do it twice."""

WRONG = {
    400: [
        "groups/lake.orders?axis=x",
        "groups/lake.orders?before=0",
        "groups/lake.orders/replay",
        "groups/lake.orders/replay?windows=x",
        "dag",
        "run?dag_id=orders",
        "task?dag_id=orders&run_id=scheduled__2026-11-01T00",
    ],
    404: [
        "groups/nowhere",
        "groups/nowhere/now",
        "groups/nowhere/replay?windows=1",
        "windows/nowhere-000001",
        *OF_A_DAG,
        "static/none.css",
        "none",
    ],
    410: ["windows/lake.pruned-000002", "groups/lake.pruned/replay?windows=2-3"],
}
"""By status, the requests that get it for a user who may read the DAG `orders` only."""


def test_every_route_is_tried_here_and_only_looks() -> None:
    # In a process of its own it would take seconds to import; the API server of the other tests has the same app.
    from airflow_kafka_offsets.page.app import app

    routes = [route for route in app.routes if hasattr(route, "methods")]
    assert len(routes) == len(app.routes), "a mount would escape the app's dependencies"
    assert {method for route in routes for method in route.methods} == {"GET"}
    tried = {re.sub(r"\?.*", "", page) for page in PAGES}
    assert [r.path for r in routes if not any(r.path_regex.fullmatch(f"/{page}") for page in tried)] == []  # type: ignore[attr-defined]
    takes = {r.path: inspect.signature(r.endpoint).parameters for r in routes}  # type: ignore[attr-defined]
    of_a_dag = {"/" + page.partition("?")[0] for page in OF_A_DAG}
    assert {path for path, taken in takes.items() if "dag_id" in taken} == of_a_dag


def headers_of(answer: requests.Response) -> dict[str, str | None]:
    """Return those headers of an answer that limit what the page may do in a browser."""
    return {name: answer.headers.get(name) for name in HEADERS}


@pytest.mark.parametrize("page", PAGES)
def test_without_a_login_there_is_nothing(server: PageServer, page: str) -> None:
    answer = server.get(page, user=None)
    assert (answer.status_code, headers_of(answer)) == (401, HEADERS)
    assert "lake.orders" not in answer.text.replace(page, "")


@pytest.fixture(scope="session")
def expired(server: PageServer) -> str:
    """Return a token that was good until long ago."""
    assert server.get("groups", token=server.resigned("admin")).status_code == 200
    return server.resigned("admin", exp=int(time.time()) - 3_600)


@pytest.mark.parametrize("page", PAGES)
def test_with_an_expired_login_there_is_nothing(server: PageServer, page: str, expired: str) -> None:
    answer = server.get(page, token=expired)
    assert (answer.status_code, headers_of(answer)) == (401, HEADERS)
    assert "Your session has ended. Reload Airflow." in answer.text
    assert "lake.orders" not in answer.text.replace(page, "")


def test_a_role_that_may_not_see_plugins_is_told_which_permission_it_lacks(server: PageServer) -> None:
    answer = server.get("groups", user=UNPLUGGED)
    assert (answer.status_code, headers_of(answer)) == (403, HEADERS)
    assert "Your role lacks the permission to see plugins" in answer.text
    assert "can read on Plugins" in answer.text
    assert "lake.orders" not in answer.text
    document = server.get("groups?format=json", user=UNPLUGGED)
    assert (document.status_code, "can read on Plugins" in document.json()["error"]) == (403, True)


@pytest.mark.parametrize("page", PAGES)
def test_a_viewer_may_look(server: PageServer, page: str) -> None:
    answer = server.get(page, user="viewer")
    assert answer.status_code == 200, answer.text
    assert headers_of(answer) == HEADERS


@pytest.mark.parametrize(("status", "page"), [(status, page) for status, pages in WRONG.items() for page in pages])
def test_an_error_allows_a_browser_no_more_than_a_page(server: PageServer, status: int, page: str) -> None:
    answer = server.get(page, user="limited")
    assert (answer.status_code, headers_of(answer)) == (status, HEADERS)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_but_looking_is_possible(server: PageServer, method: str) -> None:
    token = {"Authorization": f"Bearer {server.token('admin')}"}
    for page in PAGES:
        answer = requests.request(method, f"{server.url}/kafka-offsets/{page}", headers=token, timeout=ANSWER)
        assert (answer.status_code, headers_of(answer)) == (405, HEADERS), page


def test_a_group_is_there_for_who_may_read_a_dag_of_it(server: PageServer) -> None:
    assert "dwh.secret" in server.get("groups").text
    text = server.get("groups", user="limited").text
    assert "lake.orders" in text
    assert "dwh.secret" not in text
    for page in (
        "groups/dwh.secret",
        "windows/dwh.secret-000001",
        "groups/dwh.secret/now",
        "groups/dwh.secret/replay?windows=1",
    ):
        hidden = server.get(page, user="limited")
        assert hidden.status_code == 404, page
        unknown = server.get(page.replace("secret", "nowhere"), user="limited")
        assert hidden.text.replace("secret", "nowhere") == unknown.text, "an error tells that the group exists"
    text = server.get("now", user="limited").text
    assert "lake.orders" in text
    assert "dwh.secret" not in text
    assert "salaries" not in text, "an error of the Kafka that it shares with groups that are seen names its topic"
    assert server.get("dag?dag_id=payroll", user="limited").status_code == 404
    assert server.get("run?dag_id=payroll&run_id=scheduled__2026-11-01T00", user="limited").status_code == 404


@pytest.mark.parametrize("page", OF_A_DAG)
@pytest.mark.parametrize("form", ["html", "json"])
def test_a_dag_that_is_hidden_is_as_one_that_is_not_there(server: PageServer, page: str, form: str) -> None:
    page = f"{page}&format={form}"
    assert server.get(page).status_code == 200
    hidden = server.get(page, user="limited")
    unknown = server.get(page.replace("replays", "nowhere"), user="limited")
    assert (hidden.status_code, unknown.status_code) == (404, 404)
    assert hidden.text.replace("replays", "nowhere") == unknown.text, "the answer tells that the DAG exists"
    assert "lake.orders" not in hidden.text


def test_a_group_that_no_dag_has_is_there_for_who_may_read_all_dags(server: PageServer) -> None:
    for page in ("groups", "now", "groups?format=json"):
        assert "hr.imported" in server.get(page, user="viewer").text, page
        assert "hr.imported" not in server.get(page, user="limited").text, page
    assert server.get("groups/hr.imported", user="viewer").status_code == 200
    assert server.get("groups/hr.imported", user="limited").status_code == 404


def test_the_command_of_a_replay_names_the_dag_of_the_group_to_who_may_read_it(server: PageServer) -> None:
    owned = {"groups/lake.many/replay?windows=5": "paused", "groups/lake.wide/replay?windows=1": "orders"}
    for path, dag_id in owned.items():
        for user in ("viewer", "limited"):
            named = dag_id if user == "viewer" or dag_id == "orders" else "DAG"
            assert f"airflow dags trigger {named} --conf" in server.get(path, user=user).text


def test_windows_of_other_dags_are_drawn_without_names(server: PageServer) -> None:
    page, text = "groups/lake.orders", server.get("groups/lake.orders", user="limited").text
    assert "manual__1" in server.get(page).text
    assert "manual__1" not in text
    assert "replays" not in text
    assert text.count('class="backfill') == server.get(page).text.count('class="backfill')
    assert 'data-w="3"' not in text
    hidden, unknown = (server.get(f"windows/lake.orders-{seq}", user="limited") for seq in ("000003", "000999"))
    assert hidden.status_code == 404
    assert hidden.text.replace("000003", "000999") == unknown.text
    document = server.get(f"{page}?format=json", user="limited").json()
    assert [window["id"] for window in document["windows"]].count(None) == 1
    assert "replays" not in str(document)
    preview = server.get("groups/lake.orders/replay?windows=1-3&format=json", user="limited").json()
    assert [window["id"] for window in preview["again"]] == ["lake.orders-000001", "lake.orders-000002"]
    unknown = [
        {"id": id_, "why": "There is no such window that you may see"}
        for id_ in ("lake.orders-000003", "lake.orders-000999")
    ]
    path = "groups/lake.orders/replay?windows=1,3,999&format=json"
    assert server.get(path, user="limited").json()["refused"] == unknown, (
        "nothing tells a hidden one from one that is not there"
    )
    assert "000003" not in text
    assert "000003" not in str(document)


def test_what_comes_from_outside_is_escaped(server: PageServer) -> None:
    for page in (
        "groups",
        "groups/lake.hostile",
        "windows/lake.hostile-000002",
        "groups/lake.hostile/replay?windows=1",
    ):
        text = server.get(page).text
        assert HOSTILE_RUN not in text, page
        assert HOSTILE_WHY not in text, page
        assert HOSTILE_TASK not in text, page
        assert "<script>boom" not in text, page
    echoed = server.get("run", params={"dag_id": "orders", "run_id": HOSTILE_WHY}).text
    assert "<script>boom" not in echoed
    assert "<script>boom" not in server.get(f"groups/{HOSTILE_WHY}").text


@pytest.fixture
def cli(server: PageServer, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Return a command's output about the page's ledger, as JSON."""

    def run(*arguments: str) -> Any:
        with pytest.raises(SystemExit):
            main([*arguments, "--ledger", f"sqlite:///{server.ledger_file}", "-o", "json"])
        gc.enable()  # the command believes that this process is its own
        return json.loads(capsys.readouterr().out)

    return run


def test_a_page_as_json_is_what_the_command_line_gives(server: PageServer, cli: Callable[..., Any]) -> None:
    document = server.get("groups/lake.orders?format=json").json()
    windows, older = document.pop("windows"), document.pop("older_than")
    assert cli("status", "lake.orders", "--offline")["groups"] == [document]
    assert (cli("windows", "lake.orders")["windows"], older) == (windows, None)
    window = server.get("windows/lake.orders-000004?format=json").json()
    assert cli("windows", "lake.orders-000004") == window
    assert [p["watermark"] for p in document["partitions"]] == [500, 500, 500]
    assert (window["windows"][0]["attempts"], len(window["windows"][0]["history"])) == (12, 12)
    listed = server.get("groups", params={"format": "json"}).json()
    assert {group["group"] for group in listed["groups"]} >= {"lake.orders", "dwh.secret"}


def test_a_preview_as_json_is_the_plan_of_a_replay_and_what_only_the_page_knows(
    server: PageServer, cli: Callable[..., Any], kafka: KafkaBroker
) -> None:
    preview = server.get("groups/lake.orders/replay?windows=1-2&format=json").json()
    of_page = {key: preview.pop(key) for key in ("refused", "not_known", "dags", "conf")}
    plan = cli("plan", "lake.orders", "--windows", "1-2", "--bootstrap-servers", kafka.bootstrap_servers)
    assert preview == plan
    assert [window["span"] for window in plan["again"]] == [300, 300]
    assert (of_page["refused"], of_page["not_known"]) == ([], None)


MEASURED = {"lag_seconds", "headroom_seconds", "needed_seconds", "looked_at"}
"""What differs from one look to the next."""


def timeless(document: Any) -> Any:
    """Return a document with True or False in place of each measured value: whether it is known."""
    match document:
        case dict():
            return {key: (value is not None) if key in MEASURED else timeless(value) for key, value in document.items()}
        case list():
            return [timeless(each) for each in document]
        case str():
            return re.sub(r"\b(\d+ (s|min|h|d)\b ?)+", "some time ", document)
    return document


def test_the_answer_of_kafka_as_json_is_what_status_gives(
    server: PageServer, cli: Callable[..., Any], kafka: KafkaBroker
) -> None:
    status = timeless(cli("status", "lake.orders", "--bootstrap-servers", kafka.bootstrap_servers))
    assert timeless(server.get("groups/lake.orders/now?format=json").json()) == status
    of_all = timeless(server.get("now?format=json").json())
    listed = [group for group in of_all.pop("groups") if group["group"] == "lake.orders"]
    assert of_all | {"groups": listed} == status
    [entry] = status["groups"]
    assert (entry["lag"], entry["lag_seconds"], entry["kafka_error"]) == (3_300, True, None)


def test_a_tab_as_json_is_what_the_command_line_gives(server: PageServer, cli: Callable[..., Any]) -> None:
    listed = server.get("dag?dag_id=replays&format=json").json()
    assert listed == cli("status", "lake.orders", "--offline"), "one group has a window of this DAG"
    windows = {window["id"]: window for window in cli("windows", "lake.orders")["windows"]}
    run = "dag_id=replays&run_id=manual__1"
    for tab in (f"run?{run}", f"task?{run}&task_id=load&map_index={{MAP_INDEX}}"):
        [window] = server.get(f"{tab}&format=json").json()["windows"]
        assert window.pop("run") == {"dag_id": "replays", "run_id": "manual__1", "task_id": "load", "map_index": -1}
        assert window == windows["lake.orders-000003"], tab


def test_kafka_is_asked_after_the_page(server: PageServer) -> None:
    now = server.get("groups/lake.orders/now?show=page-orders-1").json()
    assert "LOST" not in now["parts"]["verdict"]
    assert now["partitions"] == {"page-orders-1": {"behind": "1,100 behind", "beginning": 0, "end": 1600, "lost": 0}}
    [entry] = server.get("groups/lake.orders/now?format=json").json()["groups"]
    assert entry["lag"] == 3 * 1_500 + 300 - 3 * 500


def test_what_kafka_says_of_all_groups_is_there_for_programs_too(server: PageServer) -> None:
    groups = {group["group"]: group for group in server.get("now?format=json", user="limited").json()["groups"]}
    assert groups["lake.orders"]["lag"] == 3 * 1_500 + 300 - 3 * 500
    assert groups["lake.wide"]["verdict"] is None
    assert "dwh.secret" not in groups
    assert "salaries" not in str(groups), "an error names the topics of all groups that read that Kafka"


def test_a_kafka_that_is_away_is_no_error_of_the_page(server: PageServer) -> None:
    assert server.get("groups/lake.wide").status_code == 200
    answer = server.get("groups/lake.wide/now")
    assert answer.status_code == 200
    assert "NOT KNOWN" in answer.json()["parts"]["verdict"]


def test_a_kafka_that_never_answers_is_given_up(server: PageServer) -> None:
    assert server.get("groups/lake.silent").status_code == 200
    assert "NOT KNOWN" in server.get("groups/lake.silent/now").json()["parts"]["verdict"]


def drawn(text: str) -> set[str]:
    """Return the kinds of the blocks in the strips of a page."""
    return set(re.findall(r'<rect class="([a-z-]+)[^>]*data-r', text))


def test_what_was_pruned_is_drawn_as_pruned(server: PageServer) -> None:
    text = server.get("groups/lake.pruned", user="limited").text
    assert "pruned before 000003" in text
    assert drawn(text) == {"committed", "backfill", "pruned"}, "no gap: windows that left had owned it"
    assert "before 000003" in text.partition("What people did")[2]
    document = server.get("groups/lake.pruned?format=json").json()
    assert document["pruned_before"] == 3
    assert [window["seq"] for window in document["windows"]] == [5, 4, 3]
    assert (
        "There is no window before 000003: pruned before lake.pruned-000003"
        in server.get("groups/lake.pruned?before=3").text
    )
    assert "pruned before" not in server.get("groups/lake.orders").text


@pytest.mark.parametrize("page", ["windows/lake.pruned-000002", "groups/lake.pruned/replay?windows=2-3"])
def test_a_window_that_was_pruned_says_so(server: PageServer, page: str) -> None:
    answer, document = server.get(page), server.get(page, params={"format": "json"})
    assert (answer.status_code, document.status_code) == (410, 410)
    message = "Window lake.pruned-000002 was pruned from the ledger: Kafka no longer held these offsets"
    assert message in answer.text
    assert document.json()["error"].startswith(message)
    assert "lake.pruned-000003" in answer.text


def test_a_span_of_time_has_its_windows_and_stays_in_the_links(server: PageServer) -> None:
    page = "groups/lake.orders?axis=time&from=2026-11-01T00:30&to=2026-11-01T01:30"
    assert [window["seq"] for window in server.get(f"{page}&format=json").json()["windows"]] == [2]
    text = server.get(page).text
    assert set(re.findall(r'data-w="(\d+)"', text)) == {"2"}, "the backfill after it read other offsets"
    assert 'href="?axis=offset&amp;from=2026-11-01T00%3A30&amp;to=2026-11-01T01%3A30"' in text
    assert 'name="from" value="2026-11-01T00:30"' in text
    empty = server.get("groups/lake.orders?from=2026-10-01&to=2026-10-02").text
    assert "There is no window with a planned-until time in this span" in empty
    assert 'name="from" value="2026-10-01T00:00"' in empty


@pytest.mark.parametrize(
    "query",
    ["from=x", "to=2026-13-01", "from=2026-11-02&to=2026-11-01", "before=x", "before=0", f"before={10**30}", "axis=x"],
)
def test_an_address_that_makes_no_sense_is_told(server: PageServer, query: str) -> None:
    answer = server.get(f"groups/lake.orders?{query}")
    assert answer.status_code == 400
    assert "<h1>That can't be shown</h1>" in answer.text.replace("&#39;", "'")
    assert "Try again" not in answer.text, "it would be the same"


def test_a_preview_says_what_can_run_and_what_can_not(server: PageServer) -> None:
    preview = server.get("groups/lake.orders/replay?windows=1,4-5,999&format=json").json()
    assert [window["id"] for window in preview["again"]] == ["lake.orders-000001", "lake.orders-000004"]
    refused = {window["id"][-3:]: window["why"] for window in preview["refused"]}
    assert refused.keys() == {"005", "999"}
    assert "An ordinary run of its DAG reads it" in refused["005"]
    assert preview["conf"] == {"kafka_offsets": {"group": "lake.orders", "windows": "1,4"}}
    assert {dag["dag_id"]: dag["may_run"] for dag in preview["dags"]} == {"orders": True, "replays": True}


def test_a_preview_refuses_what_has_expired(server: PageServer) -> None:
    preview = server.get("groups/lake.orders/replay?windows=2-3&format=json").json()
    assert [window["id"] for window in preview["again"]] == ["lake.orders-000002"]
    [refused] = preview["refused"]
    assert refused["id"] == "lake.orders-000003"
    assert "page-orders-0" in refused["why"]
    assert "are not all in the log [150, " in refused["why"]
    text = server.get("groups/lake.orders/replay?windows=3").text
    assert "Nothing of this can run" in text
    assert "data-confirm" not in text


def test_a_preview_says_of_each_dag_whether_it_would_run_at_once(server: PageServer) -> None:
    preview = server.get("groups/lake.many/replay?windows=1-5&format=json").json()
    assert {dag["dag_id"]: (dag["may_run"], dag["note"]) for dag in preview["dags"]} == {
        "orders": (True, None),
        "paused": (True, "the run waits until the DAG is unpaused"),
        "stale": (False, "Airflow has no such DAG"),
        "gone": (False, "Airflow has no such DAG"),
        "broken": (False, "its file has an import error"),
    }
    text = server.get("groups/lake.many/replay?windows=1-5").text
    assert re.search('<option value="broken" disabled>broken . its file has an import error</option>', text)


def test_a_viewer_sees_the_preview_and_can_not_run_it(server: PageServer) -> None:
    preview = server.get("groups/lake.orders/replay?windows=1&format=json", user="viewer").json()
    assert preview["again"]
    assert not any(dag["may_run"] for dag in preview["dags"])
    text = server.get("groups/lake.orders/replay?windows=1", user="viewer").text
    assert "data-confirm" not in text
    assert ">Close</button>" in text, "there is nothing to cancel"
    assert "data-confirm" in server.get("groups/lake.orders/replay?windows=1", user="user").text


def test_with_a_dead_kafka_a_preview_says_what_it_does_not_know(server: PageServer) -> None:
    preview = server.get("groups/dwh.secret/replay?windows=1&format=json").json()
    assert "Kafka did not show whether it holds these records" in preview["not_known"]


@pytest.mark.parametrize("windows", ["", "x", "1-999999", "5-1", "other-000001"])
def test_windows_that_are_none_are_refused(server: PageServer, windows: str) -> None:
    assert server.get("groups/lake.orders/replay", params={"windows": windows}).status_code == 400


def test_many_partitions_are_folded(server: PageServer) -> None:
    text = server.get("groups/lake.wide").text
    assert text.count('class="heat"') == 2
    assert text.count('class="strip"') == 20


def test_the_windows_of_a_run_and_of_a_task_instance(server: PageServer) -> None:
    assert "lake.orders-000001" in server.get("run?dag_id=orders&run_id=scheduled__2026-11-01T00").text
    mapped = "task?dag_id=orders&run_id=scheduled__2026-11-01T00&task_id=load&map_index="
    assert "lake.orders-000001" in server.get(mapped + "{MAP_INDEX}").text
    assert "lake.orders-000001" not in server.get(mapped + "3").text
