from rcil_export.runtime.providers import TINY_GRAPH
from rcil_export.runtime.sessions import open_session


def test_idle_threads_sleep_soon():
    entries = open_session(TINY_GRAPH, 2).get_session_options().get_session_config_entry
    assert entries("session.force_spinning_stop") == "1"
    assert 0 < int(entries("session.intra_op.spin_duration_us")) <= 200
