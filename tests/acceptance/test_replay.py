"""Replays by a person: past windows run again under their own ids, in one task or mapped, and resumed where they stopped."""

from __future__ import annotations

from datetime import timedelta

from airflow_kafka_offsets import replay_params
from airflow_kafka_offsets.core.window import State
from tests.acceptance.conftest import Lab, expect_once, expect_tiling


def windows_of(lab: Lab, dag_id: str) -> list:
    return [row.window for row in lab.windows(dag_id)]


def attempts_of(lab: Lab, dag_id: str, run: str) -> dict[int, int]:
    """Count the attempts of a run at each window."""
    rows = {row.window.seq: lab.attempts(row) for row in lab.windows(dag_id)}
    return {seq: n for seq, found in rows.items() if (n := sum(a.claim.run_id == run for a in found))}


def test_windows_are_replayed_by_name_and_by_time_and_a_half_done_replay_resumes(lab: Lab) -> None:
    lab.topic("replayed")
    runs = [lab.api.run_to("replayed") for _ in range(2)]
    before = windows_of(lab, "replayed")
    assert [w.span for w in before] == [200, 200]
    lab.produce("replayed", 10)

    with lab.hold("replayed") as hold:
        replay = lab.api.trigger("replayed", {"windows": "1-2"})
        hold.wait()  # in the first window
        live = lab.api.trigger("replayed")  # beside the live flow
        hold.release()
    lab.api.wait_for_run("replayed", live, "success")
    lab.api.wait_for_run("replayed", replay, "success")
    result = lab.api.xcom("replayed", replay, "load", "window")
    assert [(w["window_id"], w["is_rerun"], w["records"]) for w in result["windows"]] == [
        ("replayed-000001", True, 200),
        ("replayed-000002", True, 200),
    ]
    assert lab.api.xcom("replayed", live, "load", "window")["window_id"] == "replayed-000003"

    # By spark-submit; it fails in its second window: the retry does not run the first one again.
    (lab.folder / "hold" / "replayed.fail-replayed-000002").touch()
    span = {
        "from": (before[0].planned_until - timedelta(seconds=1)).isoformat(),
        "to": before[1].planned_until.isoformat(),
    }
    lab.api.unpause("replayed_submitted")
    half = lab.api.run_to("replayed_submitted", span)
    assert attempts_of(lab, "replayed", half) == {1: 1, 2: 2}
    result = lab.api.xcom("replayed_submitted", half, "load")
    assert [(w["window_id"], w["records"]) for w in result["windows"]] == [(w.id, 200) for w in before]

    windows = windows_of(lab, "replayed")
    assert windows[:2] == before
    assert [w.state for w in windows] == [State.COMMITTED] * 3
    expect_tiling(windows)
    expect_once(lab, "replayed", windows)

    # Each committed window is told to who waits for the asset; an empty one is not.
    empty = lab.api.run_to("replayed")
    assert lab.api.xcom("replayed", empty, "load", "window")["span"] == 0
    events = {e["source_run_id"]: e["extra"] for e in lab.api.asset_events("replayed")}
    assert {run: [(w["seq"], w["is_rerun"]) for w in extra["windows"]] for run, extra in events.items()} == {
        runs[0]: [(1, False)],
        runs[1]: [(2, False)],
        live: [(3, False)],
        replay: [(1, True), (2, True)],
        half: [(1, True), (2, True)],
    }
    told = events[live]["windows"][0]
    assert told["ranges"] == {"replayed": {str(p): [100, 110] for p in range(4)}}


EMPTY = dict.fromkeys(replay_params())
"""As the form of `replay_params()` is sent when no one filled in anything."""
OF_GROUPS = {
    "two_groups": {**EMPTY, "group": "two_groups", "windows": "1"},
    "two_groups_too": {"kafka_offsets": {"group": "two_groups_too", "windows": "1"}},
}


def test_of_two_groups_of_a_dag_a_replay_runs_the_one_that_it_names(lab: Lab) -> None:
    lab.topic("two_groups", 10)
    first = lab.api.run_to("two_groups", {**EMPTY, "group": "two_groups_too"})
    replays = {group: lab.api.trigger("two_groups", conf) for group, conf in OF_GROUPS.items()}
    unnamed = lab.api.trigger("two_groups", {**EMPTY, "windows": "1"})
    for group, run in replays.items():
        lab.api.wait_for_run("two_groups", run, "success")
        [other] = OF_GROUPS.keys() - {group}
        states = {task["task_id"]: task["state"] for task in lab.api.tasks("two_groups", run)}
        assert states == {group: "success", other: "skipped"}
        said = f"This run replays another group, and nothing of {other}"
        assert said in lab.api.log("two_groups", run, other)
        assert (attempts_of(lab, group, run), attempts_of(lab, other, run)) == ({1: 1}, {})
    lab.api.wait_for_run("two_groups", unnamed, "failed")
    for group in OF_GROUPS:
        assert "The replay names none of the groups two_groups, two_groups_too. Add" in lab.api.log(
            "two_groups", unnamed, group
        )
        assert attempts_of(lab, group, first) == {1: 1}, "the run reads what is new, of both groups"
        assert len(windows_of(lab, group)) == 1
        expect_once(lab, group, windows_of(lab, group))


def test_a_backlog_is_drained_by_mapped_tasks_and_one_that_fails_holds_only_the_watermark(lab: Lab) -> None:
    lab.topic("drained")
    (lab.folder / "hold" / "drained.fail-drained-000002").touch()
    run = lab.api.run_to("drained", state="failed")
    windows = windows_of(lab, "drained")
    expect_tiling(windows)
    assert [w.state.value for w in windows] == ["committed", "planned", "committed"]
    watermark = lab.ledger.load("drained").open[0].window.ranges.starts
    assert watermark == windows[0].ranges.ends
    expect_once(lab, "drained", [w for w in windows if w.state is State.COMMITTED])

    lab.api.clear("drained", run, [("load", 1)])
    lab.api.wait_for_run("drained", run, "success")
    windows = windows_of(lab, "drained")
    assert {w.state for w in windows} == {State.COMMITTED}
    assert attempts_of(lab, "drained", run) == {1: 1, 2: 2, 3: 1}
    expect_once(lab, "drained", windows)


def test_a_replay_and_a_backlog_go_around_a_foreign_launcher(lab: Lab) -> None:
    lab.topic("drained_around")
    first = lab.api.run_to("drained_around")
    windows = windows_of(lab, "drained_around")
    assert [w.span for w in windows] == [100] * 4
    assert {w.state for w in windows} == {State.COMMITTED}
    replay = lab.api.run_to("drained_around", {"windows": "2,4"})
    assert [w["window_id"] for w in lab.api.xcom("drained_around", replay, "plan")] == [windows[1].id, windows[3].id]
    assert lab.api.xcom("drained_around", replay, "one.commit", map_index=1) == {
        "window_id": windows[3].id,
        "is_rerun": True,
        "records": None,
        "bad": None,
    }
    # The first run again, as a whole: the same four windows.
    lab.api.clear_run("drained_around", first)
    lab.api.wait_for_run("drained_around", first, "success")
    assert [w["window_id"] for w in lab.api.xcom("drained_around", first, "plan")] == [w.id for w in windows]
    assert windows_of(lab, "drained_around") == windows
    expect_once(lab, "drained_around", windows)


def test_a_replay_that_can_not_be_is_refused_with_the_numbers(lab: Lab) -> None:
    lab.topic("drained_refused")
    lab.api.run_to("drained_refused")
    lab.produce("drained_refused", 5)
    refused = {
        '{"windows": "1-7"}': ({"windows": "1-7"}, "no window drained_refused-000005, drained_refused-000006"),
        "watermark": (
            {
                "starting_offsets": {"drained_refused": {"0": 90}},
                "ending_offsets": {"drained_refused": {"0": 105}},
            },
            "drained_refused-0: offsets [100, 105) (watermark 100)",
        ),
        "nothing": (
            {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"},
            "no window was cut after 2026-01-01T00:00:00+00:00",
        ),
        "half": ({"from": "2026-01-01T00:00:00Z"}, "'to' is missing"),
    }
    before = lab.windows("drained_refused")
    runs = {name: lab.api.trigger("drained_refused", conf) for name, (conf, _) in refused.items()}
    for name, (_, message) in refused.items():
        lab.api.wait_for_run("drained_refused", runs[name], "failed")
        assert message in lab.api.log("drained_refused", runs[name], "plan"), name
    assert lab.windows("drained_refused") == before
