from simcomm.compiled.engine import by_segments as by_segments
from simcomm.compiled.engine import by_shortcut as by_shortcut
from simcomm.compiled.engine import one_by_one as one_by_one
from simcomm.compiled.planning.engine_input import busiest_link_seconds as busiest_link_seconds
from simcomm.compiled.tcp.plan import Phases as Phases
from simcomm.compiled.traces import make_trace as make_trace
from simcomm.compiled.training import simulate_tcp_training as simulate_tcp_training
from simcomm.compiled.training import simulate_training as simulate_training
