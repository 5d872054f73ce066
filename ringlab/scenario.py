"""A scenario in Python: ``load`` one, then predict, run, compare, trace or draw it, as the command line does."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scenarios
from collectives.records.trace import Trace
from collectives.units import parse_size
from ringlab.answers import prediction
from ringlab.answers.calibration import CalibrationAnswer
from ringlab.answers.prediction import Prediction
from ringlab.session import Session, Source
from ringlab.shared.progress import NoProgress, Progress
from ringlab.shared.workload import leave_nccl_out
from simcomm.time_models.options import check_engine

if TYPE_CHECKING:  # predictions do without what compares and draws
    from realcomm.watching.watch import Watch
    from ringlab.answers.comparison import Comparison
    from ringlab.answers.explanation import Explanation
    from ringlab.answers.pictures import Picture
    from ringlab.answers.real_run import RunAnswer
    from ringlab.answers.winner_maps import WinnersAnswer


class Scenario(scenarios.Scenario):
    """A scenario that can be predicted, run, compared and drawn.

    ``calibration`` is a ``Calibration`` or the file of one; unless given, it is the cached one of this machine.
    """

    def predict(
        self, calibration: Source = None, engine: str | None = None, progress: Progress | None = None
    ) -> Prediction:
        """Simulate the scenario and its what-ifs; ``engine`` is as in ``simcomm.run``.

        An interrupt ends it, and what is done by then is the answer: see ``interrupted``. Raises InputError, also where
        a calibration is needed and missing.

        >>> ring = load("star8", "collective.sizes=1 MiB").predict().collectives[1]
        >>> ring.algorithm, round(1e3 * ring.time_s, 3), "ms"
        ('ring', 1.608, 'ms')
        """
        check_engine(engine)
        return prediction.predict(self, Session(calibration=calibration).find_calibration(self), engine, progress)

    def run(
        self,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        timeout: float = 600.0,
        emulate: bool = False,
        resume: str | Path | None = None,
        watch: "Watch | None" = None,
        progress: Progress | None = None,
    ) -> "RunAnswer":
        """Run the scenario on real processes of this machine; each run ends after ``timeout`` seconds.

        A training ends after so long without a step. The calibration is for algorithms named ``auto`` only, and made
        where it is missing. ``backend`` is "gloo" or "nccl". With ``emulate`` they run on the scenario's network, built
        on this machine. With ``resume`` a training goes on from that checkpoint, or with "auto" each from its newest
        whole one. ``watch`` says what is kept of trainings while they run. Raises InputError and RunFailed.

        >>> run = load("here.toml").run(timeout=60)  # doctest: +SKIP
        >>> run.collectives[0].algorithm, run.collectives[0].time_s > 0  # doctest: +SKIP
        ('ring', True)
        """
        from realcomm.launching.launcher import check_launch  # predictions do without what launches ranks
        from realcomm.launching.torchrun import has_stale_store, spans_nodes
        from ringlab.answers import real_run

        progress = NoProgress() if progress is None else progress
        runnable = self if backend == "nccl" else leave_nccl_out(self)
        check_launch(self.cluster.world_size, backend, timeout)
        if emulate:
            return self._run_emulated(calibration, backend, timeout, resume, watch, progress)
        if spans_nodes(timeout):
            progress.note(f"warning: the nodes that the ranks were started on are taken for {self.cluster.title}")
            if has_stale_store():
                progress.note(
                    "warning: after a restart ranks may look for others where they were before it; set "
                    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where torchrun is started"
                )
        elif warning := self.cluster.warn_of_run(backend):
            progress.note(warning)
        if runnable != self:
            progress.note('warning: "nccl" is what NCCL itself does, which is left out, as gloo cannot run it')
        session = Session(calibration=calibration, backend=backend, timeout_s=timeout, progress=progress)
        found = session.calibration_to_choose(runnable)
        return real_run.run(
            runnable, found, backend=backend, timeout=timeout, progress=progress, resume=resume, watch=watch
        )

    def _run_emulated(
        self,
        calibration: Source,
        backend: str,
        timeout: float,
        resume: str | Path | None,
        watch: "Watch | None",
        progress: Progress,
    ) -> "RunAnswer":
        from ringlab.answers import real_run
        from ringlab.answers.emulation import emulated, on_emulated

        runnable = on_emulated(leave_nccl_out(self))
        options: dict[str, Any] = {"backend": backend, "timeout": timeout, "progress": progress}
        session = Session(calibration=calibration, backend=backend, timeout_s=timeout, progress=progress)
        found = session.calibration_to_choose(runnable)
        with emulated(runnable.cluster, progress) as network:
            return real_run.run(runnable, found, network=network, resume=resume, watch=watch, **options)

    def run_beside_prediction(
        self,
        show: Callable[[Prediction], None],
        *,
        calibration: Source = None,
        backend: str = "gloo",
        timeout: float = 600.0,
        resume: str | Path | None = None,
        watch: "Watch | None" = None,
        progress: Progress | None = None,
    ) -> "Comparison":
        """Predict the scenario, ``show`` that, then run it as ``run`` does; return both side by side.

        Unlike ``compare`` it calibrates before the run, if at all, so that there is something to show. Raises
        InputError, also for a cluster that is not this machine unless ranks were started on several nodes; RunFailed.

        >>> both = load("here.toml").run_beside_prediction(print, timeout=60)  # doctest: +SKIP
        <Prediction of 'two ranks here': 1 collective>
        """
        from realcomm.launching.launcher import check_launch  # predictions do without what launches ranks
        from realcomm.launching.torchrun import spans_nodes
        from ringlab.answers import real_run
        from ringlab.answers.comparison import check_comparable, make_comparison

        progress = NoProgress() if progress is None else progress
        check_launch(self.cluster.world_size, backend, timeout)
        if not spans_nodes(timeout):
            check_comparable(self, backend)
        options: dict[str, Any] = {"backend": backend, "timeout": timeout, "progress": progress}
        session = Session(calibration=calibration, backend=backend, timeout_s=timeout, progress=progress)
        found = session.find_or_calibrate(self)
        predicted = prediction.predict(self, found, progress=progress)
        if predicted.interrupted:
            raise KeyboardInterrupt
        show(predicted)
        measured = real_run.run(self, found, **options, resume=resume, watch=watch)
        return make_comparison(self, predicted, measured, found)

    def compare(
        self,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        timeout: float = 600.0,
        emulate: bool = False,
        progress: Progress | None = None,
    ) -> "Comparison":
        """Run the scenario in turns with calibrating, in one launch, and predict it from the calibration alone.

        With a ``calibration`` of before, the scenario is predicted from that and run by itself. With ``emulate`` its
        network is built on this machine, and the calibration is of two hosts of such a network. ``backend`` is "gloo"
        or "nccl"; a launch ends after ``timeout`` seconds, with trainings after so long without a step. With "nccl" one
        host with this machine's GPUs will do too, and the algorithm "nccl" is measured as NCCL's own collective. Raises
        InputError, also for another cluster and for trouble; RunFailed.

        >>> both = load("here.toml").compare(timeout=60)  # doctest: +SKIP
        >>> both.collectives[0].time_s.predicted > 0  # doctest: +SKIP
        True
        """
        from realcomm.launching.launcher import check_launch  # predictions do without what launches ranks
        from ringlab.answers import real_run
        from ringlab.answers.comparison import check_comparable, make_comparison

        progress = NoProgress() if progress is None else progress
        check_launch(self.cluster.world_size, backend, timeout)
        if emulate:
            return self._compare_emulated(calibration, backend, timeout, progress)
        check_comparable(self, backend)
        options: dict[str, Any] = {"backend": backend, "timeout": timeout, "progress": progress}
        session = Session(calibration=calibration, backend=backend, timeout_s=timeout, progress=progress)
        in_turns = calibration is None and self.cluster.is_here
        if not in_turns:
            found = session.find_or_calibrate(self)
            measured = real_run.run(self, found, **options)
        else:
            choosing = session.calibration_to_choose(self)
            measured, found = real_run.run_when_free(
                partial(real_run.run_in_turns, self, choosing, **options), progress
            )
            session.keep_if_none(found)
        predicted = prediction.predict(self, found, progress=progress, in_turns=in_turns)
        if predicted.interrupted:
            raise KeyboardInterrupt
        return make_comparison(self, predicted, measured, found)

    def _compare_emulated(self, calibration: Source, backend: str, timeout: float, progress: Progress) -> "Comparison":
        from ringlab.answers import real_run
        from ringlab.answers.comparison import make_comparison
        from ringlab.answers.emulation import as_built, calibrate_for_emulation, emulated, on_emulated

        compared = on_emulated(self)
        session = Session(calibration=calibration, backend=backend)
        found = session.find_calibration(compared) if calibration is not None else None
        with emulated(compared.cluster, progress) as network:
            found = found or calibrate_for_emulation(compared, timeout=timeout, progress=progress)
            predicted = prediction.predict(as_built(compared, network), found, progress=progress)
            if predicted.interrupted:
                raise KeyboardInterrupt
            options: dict[str, Any] = {"backend": backend, "timeout": timeout, "progress": progress}
            measured = real_run.run(compared, found, network=network, **options)
        return make_comparison(compared, predicted, measured, found)

    def winners(
        self,
        collective: str | None = None,
        ranks: str | None = None,
        sizes: tuple[str, str, float] = ("256", "256M", 2.0),
        algorithms: Sequence[str] = (),
        *,
        calibration: Source = None,
        progress: Progress | None = None,
    ) -> "WinnersAnswer":
        """Return the fastest algorithm on the scenario's cluster for each number of its hosts and each size.

        ``collective`` is the scenario's, or all_reduce, unless given. ``ranks`` is a list like ``2-16,64``; without it
        numbers that double, with one between. ``sizes`` are the first, the last and the factor from one to the next.
        The choice is among ``algorithms``, else among all of the library. Raises InputError.

        >>> load("star8").winners(ranks="8", sizes=("1K", "1M", 1024.0))
        <WinnersAnswer of all_reduce on star of 8 hosts, 10 Gbit/s: 1 world sizes, 2 sizes>
        """
        from ringlab.answers.winner_maps import winners  # predictions do without the closed forms

        comparison = self.collective
        return winners(
            collective or (comparison.name if comparison else "all_reduce"),
            self.cluster,
            ranks,
            sizes,
            algorithms,
            dtype=comparison.dtype if comparison else "float32",
            calibration=Session(calibration=calibration).find_calibration(self),
            progress=progress,
        )

    def trace(
        self,
        algorithm: str | None = None,
        size: str | None = None,
        *,
        calibration: Source = None,
        engine: str | None = None,
    ) -> Trace:
        """Simulate one algorithm and return its messages: the last at the largest size, unless said.

        Raises InputError for an algorithm that is not in the scenario.

        >>> len(load("star8").trace("ring", "1 KiB").messages)
        112
        """
        from ringlab.answers.predicted_trace import predict_trace  # a table of times does without

        nbytes = None if size is None else parse_size(size)
        return predict_trace(self, Session(calibration=calibration).find_calibration(self), algorithm, nbytes, engine)

    def animate(
        self,
        path: Path | str,
        algorithm: str | None = None,
        size: str | None = None,
        *,
        calibration: Source = None,
        progress: Progress | None = None,
    ) -> "Picture":
        """Draw the messages of ``trace``: moving over the topology as ``.gif``, ranks against time as ``.png``.

        As ``.html`` it is a player of all algorithms, unless one is said. ``algorithm`` and ``size`` are as of
        ``trace``. Raises InputError, also for another suffix.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     load("star8").animate(Path(folder, "ring.png"), "ring", "1 KiB").title
        'all_reduce/ring'
        """
        from ringlab.answers.pictures import draw_scenario  # imports what draws

        return draw_scenario(
            self,
            path,
            calibration=Session(calibration=calibration).find_calibration(self),
            algorithm=algorithm,
            nbytes=None if size is None else parse_size(size),
            progress=progress,
        )

    def plot(
        self,
        kind: str,
        path: Path | str,
        algorithm: str | None = None,
        size: str | None = None,
        *,
        calibration: Source = None,
        progress: Progress | None = None,
    ) -> "Picture":
        """Draw a still picture as .png, .svg or .pdf: a training "step", "scaling", the critical "path", the "cluster".

        ``algorithm`` and ``size`` are those of the path, as of ``trace``. Raises InputError.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     load("star8").plot("path", Path(folder, "ring.png"), "ring", "1 KiB").title
        'Eight hosts on a 10 Gbit/s switch'
        """
        from ringlab.answers.plots import plot_scenario  # imports what draws

        nbytes = None if size is None else parse_size(size)
        known = Session(calibration=calibration).find_calibration(self)
        return plot_scenario(self, kind, path, known, algorithm, nbytes, progress=progress)

    def calibrate(
        self,
        ranks: int = 2,
        *,
        backend: str = "gloo",
        timeout: float = 600.0,
        progress: Progress | None = None,
        accept_noise: bool = False,
    ) -> CalibrationAnswer:
        """Measure this machine for what the scenario needs, and keep the result in the cache for a day.

        The scenario says with how many ranks; ``ranks`` counts where no number of them is needed. ``backend`` is "gloo"
        or "nccl"; each launch may take ``timeout`` seconds. Raises InputError, and RunFailed, also where the times
        contradict each other, unless ``accept_noise``.

        >>> load("here.toml").calibrate(timeout=60, accept_noise=True).calibration.ranks  # doctest: +SKIP
        2
        """
        session = Session(backend=backend, timeout_s=timeout, progress=progress or NoProgress())
        return CalibrationAnswer(*session.calibrate_for(self, ranks, accept_noise))

    def explain(self, path: Path | str | None = None, *, progress: Progress | None = None) -> "Explanation":
        """Return what NCCL would pick at each size and why, on those of its clusters that NCCL joins.

        ``path`` is where its rings and trees are drawn: .png, .svg or .pdf. Raises InputError.

        >>> load("two-p5").explain().clusters[0].sizes[0].algorithm
        'tree'
        """
        from ringlab.answers import explanation  # other commands do without it

        found = explanation.explain(self, progress)
        if path is not None:
            found.draw(path)
        return found

    def write_report(
        self,
        answer: "Comparison | Prediction",
        path: Path | str,
        *,
        calibration: Source = None,
        backend: str = "gloo",
        progress: Progress | None = None,
    ) -> None:
        """Write a prediction or a comparison as one HTML page with pictures.

        Raises InputError for another suffix than ``.html``. ``calibration`` and ``backend`` are those of the answer:
        its pictures are simulated again.

        >>> here = load("here.toml")  # doctest: +SKIP
        >>> here.write_report(here.compare(timeout=60), "report.html")  # doctest: +SKIP
        """
        from ringlab.answers.comparison_report import write_report  # imports what draws

        found = getattr(answer, "calibration", None) or Session(
            calibration=calibration, backend=backend
        ).find_calibration(self)
        write_report(answer, self, found, path, progress)


def load(reference: str | Path, *overrides: str) -> Scenario:
    """Return the scenario in a file, or the shipped one of that name, with ``section.key=value`` overrides applied.

    Raises InputError that names the file, the key, the value and what would be accepted, and for arguments of another
    type.

    >>> load("star8", "cluster.hosts=16").cluster.world_size
    16
    """
    return extend(scenarios.load(reference, overrides))


def extend(found: scenarios.Scenario) -> Scenario:
    """Return a scenario that can be predicted, run, compared and drawn, from one that is only read."""
    return Scenario(**{one.name: getattr(found, one.name) for one in fields(found)})
