"""The `puffer` command: finds the command, runs it, and prints a person's mistake as ``error:`` and ``hint:``.

Exit codes: 0 done, 1 a bug, here or in an environment (with its traceback), or a failed check, 2 a person's mistake,
130 after Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from puffer_core import plugins
from puffer_core.errors import PufferError, WorkerError, did_you_mean
from puffer_core.isolation import noting_ctrl_c

COMMANDS = {
    "run": ("puffer_core.cli.run:command", "Train an agent, evaluate it and say where it is: the whole job."),
    "train": ("puffer_core.cli.train:command", "Train an agent, or go on with a run."),
    "eval": ("puffer_core.cli.eval:command", "Evaluate a trained agent without bias; show or film it."),
    "play": ("puffer_core.cli.play:command", "Play an environment with the keyboard."),
    "envs": ("puffer_core.cli.envs:command", "List environments, or describe one."),
    "plugins": ("puffer_core.cli.plugins:command", "List plugins with version, state and reason."),
    "config": ("puffer_core.cli.config:command", "Show every option of an environment with its origin."),
    "doctor": ("puffer_core.cli.doctor:command", "Say what this machine offers and what would be used."),
    "check": ("puffer_core.cli.check:command", "Check that an environment keeps its contract."),
    "new": ("puffer_core.cli.new:command", "Write a package with an environment that trains as it is."),
    "runs": ("puffer_core.cli.runs:command", "List runs, show one, or send one to a tracker."),
    "export": ("puffer_core.cli.export:command", "Write the network of a run for other programs."),
    "bench": ("puffer_core.cli.bench:command", "Measure the throughput of environments or of training."),
}
"""The core's own commands: where each is, and its line in the help. No plugin can take one of these names."""


class PufferGroup(click.Group):
    """The core's commands and those of plugins; a command's module is imported when the command is called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Choose the plugins before anything is looked up; those options may stand anywhere on the line."""
        no_plugins, block, rest = take_plugin_options(args)
        plugins.configure(no_plugins=no_plugins, block=block)
        return super().parse_args(ctx, rest)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, from metadata alone."""
        return [*COMMANDS, *sorted(plugins.manager().commands().keys() - COMMANDS.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name in COMMANDS:
            command = plugins.resolve(COMMANDS[cmd_name][0])
        elif cmd_name in plugins.manager().commands():
            command = plugins.manager().load_command(cmd_name, click.Command)
        else:
            return None
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that ``args`` begins with."""
        command = self.get_command(ctx, args[0])
        if command is None and not args[0].startswith("-"):
            hint = did_you_mean(args[0], self.list_commands(ctx)) or "`puffer --help` lists the commands"
            raise PufferError(f"unknown command `{args[0]}`", hint=hint)
        return super().resolve_command(ctx, args) if command is None else (args[0], command, args[1:])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, the plugins' ones with the distribution that brings each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])
        found = plugins.manager().commands()
        rows = [
            (name, f"from {' and '.join(str(command.distribution) for command in found[name])}")
            for name in sorted(found.keys() - COMMANDS.keys())
        ]
        if rows:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(rows)


@click.group(
    cls=PufferGroup, context_settings={"help_option_names": ["--help"]}, subcommand_metavar="COMMAND [ARGS]..."
)
@click.option("--no-plugins", is_flag=True, expose_value=False, help="Load nothing but the core.")
@click.option(
    "--block-plugin", metavar="NAME", multiple=True, expose_value=False, help="Leave a plugin out (repeatable)."
)
@click.version_option(package_name="puffer-core", prog_name="puffer", message="%(prog)s %(version)s")
def cli() -> None:
    """Reinforcement learning in seconds. `puffer run breakout` trains, evaluates and saves an agent."""


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if args is None else args) or ["--help"]
    with _stdout_kept("--json" in words), noting_ctrl_c() as pressed:
        return _run(words, pressed)


def _run(words: list[str], pressed: list[int]) -> int:
    """Run the command line ``words``; ``pressed`` is no longer empty once a person pressed Ctrl-C."""
    try:
        with cli.make_context("puffer", words) as context:
            result = cli.invoke(context)
        if sys.stdout is not None:  # it is None where the shell has closed it
            sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:
        if type(stop) is KeyboardInterrupt and not pressed:
            traceback.print_exception(stop)
            click.echo("error: KeyboardInterrupt was raised by the code above, nobody pressed Ctrl-C", err=True)
            return 1
        return int(getattr(stop, "exit_code", 130))
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        return 141
    except OSError as error:
        if not _is_of_stdout(error):
            raise
        return _report(f"stdout can't be written: {error.strerror}", "is the disk full?")
    except WorkerError as error:
        _report(str(error), error.hint)
        return 1
    except PufferError as error:
        return _report(str(error), error.hint)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "puffer"
        return _report(error.format_message(), f"`{path} --help` says how it is called")
    except click.ClickException as error:
        return _report(error.format_message(), None)
    return result if type(result) is int else 0


@contextmanager
def _stdout_kept(is_wanted: bool) -> Iterator[None]:
    """Send to stderr what anything writes to the descriptor of stdout past `sys.stdout`, as libraries in C do.

    The one object of ``--json`` then stays alone on stdout.
    """
    before = sys.__stdout__
    if not is_wanted or before is None or before is not sys.stdout or before.fileno() != 1:
        yield
        return
    own = os.dup(1)
    try:
        os.dup2(2, 1)
    except OSError:  # stderr is closed
        os.close(own)
        yield
        return
    with os.fdopen(own, "w", encoding=before.encoding, errors=before.errors) as sys.stdout:
        try:
            yield
        finally:
            before.flush()
            os.dup2(own, 1)
            sys.stdout, kept = before, sys.stdout
            kept.flush()


def take_plugin_options(args: Sequence[str]) -> tuple[bool, list[str], list[str]]:
    """Return whether ``--no-plugins`` is given, the values of ``--block-plugin``, and the other words."""
    no_plugins, block, rest = False, [], []
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif word == "--no-plugins":
            no_plugins = True
        elif name == "--block-plugin":
            value = value if equals else next(words, "")
            if not value or value.startswith("-"):
                raise click.UsageError("option `--block-plugin` needs the name of a plugin")
            block.append(value)
        else:
            rest.append(word)
    return no_plugins, block, rest


def _report(message: str, hint: str | None) -> int:
    click.echo(f"error: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    return 2


def _is_of_stdout(error: OSError) -> bool:
    """Return whether an error comes from writing to stdout, which one more byte tells; nothing more is written then."""
    if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
        return False
    try:
        os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def _reader_is_gone() -> bool:
    """Return whether stdout is a pipe that nobody reads any more; if so, send what is still to be written nowhere."""
    stdout = sys.stdout.fileno()
    poll = select.poll()
    poll.register(stdout, 0)
    is_gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    if is_gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return is_gone
