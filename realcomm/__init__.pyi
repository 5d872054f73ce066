from collectives.errors import RunFailed as RunFailed
from realcomm import classroom as classroom
from realcomm.calibration.calibration import calibrate as calibrate
from realcomm.emulation.network import emulate as emulate
from realcomm.execution.executor import Executor as Executor
from realcomm.execution.executor import execute as execute
from realcomm.functions.tensor_collectives import all_gather as all_gather
from realcomm.functions.tensor_collectives import all_gather_into_tensor as all_gather_into_tensor
from realcomm.functions.tensor_collectives import all_reduce as all_reduce
from realcomm.functions.tensor_collectives import all_to_all as all_to_all
from realcomm.functions.tensor_collectives import all_to_all_single as all_to_all_single
from realcomm.functions.tensor_collectives import barrier as barrier
from realcomm.functions.tensor_collectives import broadcast as broadcast
from realcomm.functions.tensor_collectives import gather as gather
from realcomm.functions.tensor_collectives import reduce as reduce
from realcomm.functions.tensor_collectives import reduce_scatter as reduce_scatter
from realcomm.functions.tensor_collectives import reduce_scatter_tensor as reduce_scatter_tensor
from realcomm.functions.tensor_collectives import scatter as scatter
from realcomm.launching.failures import RankFailed as RankFailed
from realcomm.launching.failures import TimedOut as TimedOut
from realcomm.launching.launcher import launch as launch
from realcomm.launching.status import report_progress as report_progress
from realcomm.launching.status import set_status as set_status
from realcomm.measuring.collective_run import run as run
from realcomm.training.trainer import train as train

__all__: list[str]
