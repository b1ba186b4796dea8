"""What `make demo` says at its end."""

from __future__ import annotations

from tests.lab.demo import where_to_look


def test_the_demo_ends_with_the_address_of_its_group_s_page() -> None:
    page = "http://127.0.0.1:8080/plugin/kafka-windows/kafka-offsets/groups/demo.orders"
    assert where_to_look("http://127.0.0.1:8080", is_kept=True) == f"Who read what: {page}"
    assert where_to_look("http://127.0.0.1:8080", is_kept=False) == f"Who read what: {page} (KEEP=1 leaves it up)"
