"""An auth manager with one viewer who may read some DAGs only, and one who may not see plugins: SimpleAuthManager has neither."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

LIMITED = "limited"
UNPLUGGED = "unplugged"
MAY_READ = {"orders"}


class SomeDags(SimpleAuthManager):
    """`limited` may read the DAG `orders`, and no other one. `unplugged` may not see plugins, as the roles Viewer and User of FAB."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        """Whether a user may do something with a DAG. Without one, as of FAB: whether they may see the list of those that they may read."""
        is_of_list = method == "GET" and (details is None or not details.id)
        if user.username == LIMITED and not is_of_list and (details is None or details.id not in MAY_READ):
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)

    def is_authorized_view(self, *, access_view: AccessView, user: Any) -> bool:
        """Whether a user may see a page of Airflow."""
        is_refused = user.username == UNPLUGGED and access_view is AccessView.PLUGINS
        return not is_refused and super().is_authorized_view(access_view=access_view, user=user)
