from viz.accuracy import Dots as Dots
from viz.accuracy import accuracy_figure as accuracy_figure
from viz.animation.animation import animate as animate
from viz.curves import Curve as Curve
from viz.curves import SweepLine as SweepLine
from viz.curves import scaling_figure as scaling_figure
from viz.curves import sweep_figure as sweep_figure
from viz.file_types import check_file as check_file
from viz.fronts import MeshDots as MeshDots
from viz.fronts import Priced as Priced
from viz.fronts import meshes_figure as meshes_figure
from viz.fronts import money_figure as money_figure
from viz.path_strip import path_figure as path_figure
from viz.perfetto import write_perfetto as write_perfetto
from viz.pictures import draw as draw
from viz.player.page import write_player as write_player
from viz.player.runs import PlayedRun as PlayedRun
from viz.report import write_report as write_report
from viz.space_time import space_time_figure as space_time_figure
from viz.style import write_figure as write_figure
from viz.topology import topology_figure as topology_figure
from viz.waterfall import Bar as Bar
from viz.waterfall import waterfall_figure as waterfall_figure

__all__: list[str]
