"""An auth manager that lets one viewer read some DAGs only: SimpleAuthManager lets each viewer read all of them."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

LIMITED = "limited"
MAY_READ = {"orders"}


class SomeDags(SimpleAuthManager):
    """`limited` may read the DAG `orders`, and no other one."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        """Whether a user may do something with a DAG. Without one, as of FAB: whether they may see the list of those that they may read."""
        is_of_list = method == "GET" and (details is None or not details.id)
        if user.username == LIMITED and not is_of_list and (details is None or details.id not in MAY_READ):
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
