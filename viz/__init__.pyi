from viz.accuracy import Dots as Dots
from viz.accuracy import draw_accuracy as draw_accuracy
from viz.curves import Curve as Curve
from viz.curves import SweepLine as SweepLine
from viz.curves import draw_scaling as draw_scaling
from viz.curves import draw_sweep as draw_sweep
from viz.file_types import check_file as check_file
from viz.film.animation import animate as animate
from viz.fronts import Priced as Priced
from viz.fronts import draw_money as draw_money
from viz.path_strip import draw_path as draw_path
from viz.perfetto import write_perfetto as write_perfetto
from viz.pictures import draw as draw
from viz.player.page import write_player as write_player
from viz.player.runs import PlayedRun as PlayedRun
from viz.report import write_report as write_report
from viz.rings import Rings as Rings
from viz.rings import draw_rings as draw_rings
from viz.space_time import draw_space_time as draw_space_time
from viz.topology import draw_topology as draw_topology
from viz.waterfall import Bar as Bar
from viz.waterfall import draw_waterfall as draw_waterfall
from viz.winners import Winners as Winners
from viz.winners import draw_winners as draw_winners

__all__: list[str]
