"""Training from the name of an environment to a result: `train`, and `run`, which evaluates as well.

What these do, in order: resolve the configuration and choose a trainer (`job`), build it, make the run directory, loop
(`session`), write the result. A run that is gone on with (`resume`) takes its configuration from its directory.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from puffer_core import plugins
from puffer_core.config import options as option_grammar
from puffer_core.console import Reporter, Snapshot
from puffer_core.errors import OptionError, RunError
from puffer_core.isolation import describe
from puffer_core.place import place
from puffer_core.runs import RunDirectory
from puffer_core.training.distributed import Leading, follow
from puffer_core.training.job import EnvLike, Prepared, locate, named, prepare, prepare_saved
from puffer_core.training.observers import observer_of
from puffer_core.training.resume import find_run, load_checkpoint, resumed_config, settle
from puffer_core.training.session import Limits, Session
from puffer_core.training.signals import Interrupted, StopSignals

if TYPE_CHECKING:
    from puffer_core.config import Config
    from puffer_core.loggers import Logger
    from puffer_core.rl.ranks import Ranks
    from puffer_core.training.trainer import Trainer

_NOT_EVALUATED: Mapping[str, Any] = {"score": None, "score_stderr": None, "episodes": 0}

__all__ = ["Interrupted", "Request", "run", "train"]


@dataclass(frozen=True)
class Request:
    """What is asked of `train` and `run`, besides the environment; the fields are the keywords of `train`."""

    config: Mapping[str, Mapping[str, Any]] | None = None
    options: Mapping[str, str] | Sequence[str] = ()
    preset: str | None = None
    trainer: str | None = None
    file: str | os.PathLike[str] | None = None
    resume: str | None = None
    resume_schedule: str = "refuse"
    stop_at: int | None = None
    stop_at_score: float | None = None
    loggers: Mapping[str, Logger] = field(default_factory=dict)
    observers: Sequence[object] = ()
    policy: Any = None


def train(
    env: EnvLike,
    *,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    options: Mapping[str, str] | Sequence[str] = (),
    preset: str | None = None,
    trainer: str | None = None,
    file: str | os.PathLike[str] | None = None,
    resume: str | None = None,
    resume_schedule: str = "refuse",
    stop_at: int | None = None,
    stop_at_score: float | None = None,
    loggers: Mapping[str, Logger] | None = None,
    observers: Sequence[object] = (),
    console: Reporter | None = None,
    policy: Any = None,
) -> dict[str, Any]:
    """Train an agent; return the JSON object of `puffer train`.

    Args:
        env: Name or spec of the environment, or a class or factory at the top level of a module.
        config: Values set from Python, section -> key -> value, as `config.to_dict` gives them.
        options: Of the command line, ``{"train.gamma": "0.99"}`` or ``["--train.gamma", "0.99"]``.
        preset: Name of an overlay; None takes that of the configuration.
        trainer: Name of a trainer; None takes that of the configuration.
        file: An ini file whose values override those of the environment.
        resume: The run to go on with: a path, an id or ``latest``, or the path of one of its checkpoints. Then only the
            options of `resume.MAY_CHANGE` count, and ``train.total_timesteps`` with ``resume_schedule``.
        resume_schedule: What schedules do where ``resume`` changes the total: ``stretch`` or ``keep``.
        stop_at: End at the first whole rollout at or past this many agent steps, to be resumed later.
        stop_at_score: End when the mean score of the last 100 or more logged episodes reaches this.
        loggers: Objects with ``log(step, metrics)`` and ``close()``, by name.
        observers: Objects with one or more of the methods ``puffer_run_started(run)``, ``puffer_epoch_finished(run,
            metrics)`` and ``puffer_run_finished(run, result)``, which are called as those of plugins.
        console: Where progress is told; None keeps quiet but for warnings.
        policy: A network of your own: a `torch.nn.Module`, or a class or function that is called with an object that
            has ``single_observation_space``, ``single_action_space`` and ``num_agents``, and returns one. A run of it
            is gone on with by giving it again.

    Raises:
        Interrupted: After SIGINT or SIGTERM, once the checkpoint is saved; it carries the result so far.
        NonFiniteError: If a number that must be finite is not; the last good checkpoint stays.
    """
    request = Request(
        config=config,
        options=options,
        preset=preset,
        trainer=trainer,
        file=file,
        resume=resume,
        resume_schedule=resume_schedule,
        stop_at=stop_at,
        stop_at_score=stop_at_score,
        loggers=loggers or {},
        observers=observers,
        policy=policy,
    )
    with console or Reporter() as reporter, _Command(env, request, reporter) as command:
        command.train()
        return command.result


def run(
    env: EnvLike,
    *,
    config: Mapping[str, Mapping[str, Any]] | None = None,
    options: Mapping[str, str] | Sequence[str] = (),
    preset: str | None = None,
    trainer: str | None = None,
    file: str | os.PathLike[str] | None = None,
    resume: str | None = None,
    resume_schedule: str = "refuse",
    stop_at: int | None = None,
    stop_at_score: float | None = None,
    loggers: Mapping[str, Logger] | None = None,
    observers: Sequence[object] = (),
    console: Reporter | None = None,
    policy: Any = None,
) -> dict[str, Any]:
    """Train as `train` does, then evaluate the last checkpoint; return the JSON object of `puffer run`."""
    request = Request(
        config=config,
        options=options,
        preset=preset,
        trainer=trainer,
        file=file,
        resume=resume,
        resume_schedule=resume_schedule,
        stop_at=stop_at,
        stop_at_score=stop_at_score,
        loggers=loggers or {},
        observers=observers,
        policy=policy,
    )
    with console or Reporter() as reporter, _Command(env, request, reporter, _NOT_EVALUATED) as command:
        command.train()
        command.evaluate()
        return command.result


class _Command:
    """One call of `train` or `run`: what is opened is closed when it is left, and a failure is written down.

    Args:
        env, request, reporter: As in `train`.
        rest: What the result holds besides that of training.
    """

    def __init__(
        self, env: EnvLike, request: Request, reporter: Reporter, rest: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._env, self._request, self._reporter, self._rest = named(env), request, reporter, rest
        self._signals = StopSignals(self._tell_first, reporter.abandon)
        self._session: Session | None = None
        self._ranks: ModuleType | None = None
        self.result: dict[str, Any] = {}

    def __enter__(self) -> _Command:
        self._signals.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._session is not None:
                self._close(self._session, error)
        finally:
            self._signals.__exit__()
            if self._ranks is not None:
                self._ranks.leave(None if isinstance(error, Interrupted) and error.result else error)

    def _close(self, session: Session, error: BaseException | None) -> None:
        try:
            if error is not None and not (isinstance(error, Interrupted) and error.result):
                session.fail(error)
                self._write_result({**(self.result or self._collect()), "error": describe(error)})
        finally:
            try:
                session.close()
            finally:
                session.directory.release()

    def train(self) -> None:
        """Prepare, build and train; afterwards `result` is complete but for an evaluation."""
        locate(self._env)  # a name that does not exist is told before anything heavy is imported
        self._reporter.show(lambda: Snapshot(locate(self._env)[1]))
        if place().world_size > 1:
            from puffer_core.rl import ranks

            self._ranks = ranks
        session = self._session = self._open()
        if session is None:
            return
        with self._signals.held():
            session.train(self._signals)
            self.result = self._collect()
            session.finish(session.result())
            session.close()
            self._write_result(self.result)
        if self._signals.number is not None:
            raise Interrupted(self._signals.number, self.result)

    def evaluate(self) -> None:
        """Add score, spread and number of episodes of the last checkpoint to `result`."""
        session = self._session
        if session is None:
            return  # rank 0 does it
        try:
            found = self._evaluate(session)
        except KeyboardInterrupt as error:
            session.status = "interrupted"
            self._write_result(self.result)
            number = getattr(error, "number", self._signals.number or signal.SIGINT)
            raise Interrupted(number, self.result) from error
        self.result |= {key: found[key] for key in ("score", "score_stderr", "episodes")}
        session.status = session.outcome
        self._reporter.show(session.snapshot, force=True)
        self._write_result(self.result)

    def _evaluate(self, session: Session) -> dict[str, Any]:
        from puffer_core.evaluate import evaluate

        session.status = "evaluating"
        self._reporter.show(session.snapshot, force=True)
        if self.result["checkpoint"] is None:
            raise RunError("there is no checkpoint to evaluate")
        episodes, policy = session.prepared.job.config.base.eval_episodes, self._request.policy
        checkpoint = self.result["checkpoint"]
        return evaluate(self._env, load=checkpoint, episodes=episodes, console=self._reporter, policy=policy)

    def _collect(self) -> dict[str, Any]:
        assert self._session is not None
        return {**self._session.result(), **self._rest}

    def _open(self) -> Session | None:
        """Decide, build the trainer, and make or open the run directory; what fails before that leaves no trace.

        On ranks other than the first, train with that one, and return None.
        """
        request, directory, loaded, lasting = self._request, None, None, None
        observers = [observer_of(observer) for observer in request.observers]
        params: Mapping[str, Any] = {}
        if request.resume is not None:
            prepared, directory, lasting = self._resume(request.resume)
        elif request.resume_schedule != "refuse":
            raise OptionError(f"`--resume-schedule {request.resume_schedule}` goes with `--resume`")
        else:
            prepared = prepare(
                self._env,
                preset=request.preset,
                trainer=request.trainer,
                file=request.file,
                options=request.options,
                edits=request.config,
                policy=request.policy,
            )
        self._explain(prepared)
        trainer: Trainer = plugins.resolve(prepared.trainer.make)(prepared.job, prepared.plan)
        if prepared.plan.world_size > 1:
            group = _ranks_of(trainer, prepared.trainer.name)
            if not group.is_first:
                with self._signals.held():
                    follow(trainer, group, self._signals, self._reporter)
                return None
            trainer = cast("Trainer", Leading(trainer, group, self._signals))
        try:
            self._reporter.say(trainer.vector.backend_note)
            if directory is None:
                directory = RunDirectory.create(prepared.job.config, prepared.job.env_name)
                directory.acquire()
            else:
                directory.acquire()  # after the workers are there, which would keep it
                loaded, params = self._load(trainer, directory, lasting)
            return Session(
                prepared,
                directory,
                trainer,
                self._reporter,
                limits=Limits(request.stop_at, request.stop_at_score),
                loggers=request.loggers,
                observers=observers,
                loaded=loaded,
                params=params,
            )
        except BaseException:
            if directory is not None:
                directory.release()
                if request.resume is None:
                    directory.discard()
            trainer.close()
            raise

    def _resume(self, ref: str) -> tuple[Prepared, RunDirectory, Config | None]:
        """Return the job, the directory, and the configuration that the run is to have for good, if it changes."""
        request = self._request
        options = request.options
        options = dict(options) if isinstance(options, Mapping) else option_grammar.parse(options)
        if request.config or request.file or request.preset or request.trainer:
            msg = "a resumed run has its own configuration: no edits, --config, --preset or --trainer"
            raise OptionError(msg, hint="leave them out, or start a new run")
        directory = find_run(ref, self._env, options.get("runs_dir"))
        resumed = resumed_config(self._env, directory.config, options, request.resume_schedule)
        for text in resumed.warnings:
            self._reporter.warn(text)
        return prepare_saved(self._env, resumed.config, request.policy), directory, resumed.lasting

    def _load(self, trainer: Trainer, directory: RunDirectory, lasting: Config | None) -> tuple[Path, dict[str, Any]]:
        """Make ``trainer`` go on from a checkpoint of a run; the rows after it will be written again."""
        checkpoint, params = load_checkpoint(trainer, directory, self._reporter)
        limit = self._request.stop_at
        if limit is not None and limit <= trainer.global_step:
            msg = f"--train.stop-at {limit} is behind the run, which is at step {trainer.global_step}"
            raise OptionError(msg, hint="give a later step, or leave it out")
        if lasting is not None:
            directory.write_config(lasting)
        settle(trainer, directory, checkpoint, self._reporter)
        return checkpoint, params

    def _explain(self, prepared: Prepared) -> None:
        """Say what was chosen, and why."""
        job, name = prepared.job, prepared.trainer.name
        self._reporter.say(f"{job.env_name}: trainer {name} on {job.device}; {prepared.plan.summary}")
        for note in prepared.notes:
            self._reporter.say(note)

    def _tell_first(self, name: str) -> None:
        if place().rank:
            return
        self._reporter.warn_at_once(f"{name}: the run is saved after this rollout; once more ends it at once")

    def _write_result(self, result: Mapping[str, Any]) -> None:
        assert self._session is not None
        try:
            self._session.directory.write_result({**result, "status": self._session.status})
        except RunError as error:
            self._reporter.warn(str(error))


def _ranks_of(trainer: Trainer, name: str) -> Ranks:
    """Return the processes that ``trainer`` learns with."""
    ranks: Ranks | None = getattr(trainer, "ranks", None)
    if ranks is None or ranks.world_size == 1:
        trainer.close()
        raise OptionError(f"trainer `{name}` trains in one process only", hint="use --trainer torch")
    return ranks
