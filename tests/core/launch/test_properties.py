"""Java's properties files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.launch.properties import parse_properties, properties_file

# The forms that the documentation of Properties.load shows, and those of Spark's own template.
FORMS = [
    ("spark.master                     spark://master:7077", {"spark.master": "spark://master:7077"}),
    ("Truth = Beauty", {"Truth": "Beauty"}),
    (" Truth:Beauty", {"Truth": "Beauty"}),
    ("Truth\t\t\t:Beauty ", {"Truth": "Beauty "}),
    ("fruits apple, banana, \\\n\t  pear", {"fruits": "apple, banana, pear"}),
    ("cheeses", {"cheeses": ""}),
    ("a\\:b\\ c=d\\=e", {"a:b c": "d=e"}),
    ('options -Dkey=value -Dnumbers="one two"', {"options": '-Dkey=value -Dnumbers="one two"'}),
    ("path C\\:\\\\temp\\\\", {"path": "C:\\temp\\"}),
    ("name zo\\u00eb\\n", {"name": "zoë\n"}),
    ("# comment \\\na=1\r\n! another\r\n\r\n  \r\na=2", {"a": "2"}),
    ("a=1\\", {"a": "1"}),
    ("", {}),
]


@pytest.mark.parametrize(("text", "values"), FORMS)
def test_each_form_of_a_line_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z.]*", fullmatch=True), st.text(st.characters(exclude_categories=["Cs"])))
)
def test_what_we_write_for_java_we_read_again(values: dict[str, str]) -> None:
    assert parse_properties(properties_file(values)) == values
