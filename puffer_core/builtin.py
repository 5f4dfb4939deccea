"""The core's own hook implementations: the core is its own first plugin, and works with no other."""

from __future__ import annotations

from puffer_core.hookspecs import hookimpl
from puffer_core.specs import BackendSpec, EnvSpec, LoggerSpec, PolicySpec, TrainerSpec

puffer_api = 1


@hookimpl
def puffer_envs() -> list[EnvSpec]:
    """Whatever is registered with Gymnasium, and the environments of PettingZoo."""
    families = "puffer_core.emulation.families"
    return [
        EnvSpec(
            f"{family}/*",
            make=f"{families}:make_{family}",
            list=f"{families}:list_{family}",
            config=f"puffer_core.config:envs/{family}/{family}.ini",
        )
        for family in ("gym", "pettingzoo")
    ]


@hookimpl
def puffer_vector_backends() -> list[BackendSpec]:
    """Environments one after the other and C environments on threads, in this process; and worker processes."""
    return [
        BackendSpec("serial", make="puffer_core.vector:Serial", supports="puffer_core.vector:serial_supports"),
        BackendSpec("ray", make="puffer_core.vector:Ray", priority=-20, supports="puffer_core.vector:ray_supports"),
        BackendSpec(
            "native", make="puffer_core.vector:Native", priority=10, supports="puffer_core.vector:native_supports"
        ),
        BackendSpec(
            "multiprocessing",
            make="puffer_core.vector:Multiprocessing",
            priority=-10,
            supports="puffer_core.vector:multiprocessing_supports",
        ),
    ]


@hookimpl
def puffer_policies() -> list[PolicySpec]:
    """Encoders: for rows of numbers, nested observations, pictures and lists of entities."""
    options = "puffer_core.policies.options"
    return [
        PolicySpec("mlp", encoder="puffer_core.policies.encoders:MLPEncoder"),
        PolicySpec("multi-input", encoder="puffer_core.policies.multi_input:make_encoder"),
        PolicySpec("cnn", encoder="puffer_core.policies.cnn:CNNEncoder", options=f"{options}:CNNOptions"),
        PolicySpec("impala", encoder="puffer_core.policies.impala:ImpalaEncoder", options=f"{options}:ImpalaOptions"),
        PolicySpec(
            "attention",
            encoder="puffer_core.policies.attention:AttentionEncoder",
            options=f"{options}:AttentionOptions",
        ),
    ]


@hookimpl
def puffer_trainers() -> list[TrainerSpec]:
    """PuffeRL in torch: any policy, any device."""
    return [
        TrainerSpec("torch", priority=0, supports="puffer_core.rl.job:supports", make="puffer_core.rl.job:make"),
    ]


@hookimpl
def puffer_loggers() -> list[LoggerSpec]:
    """The run directory's own ``metrics.jsonl``, always on, and trackers."""
    package = "puffer_core.loggers"
    trackers = {"tensorboard": "TensorBoard", "wandb": "Wandb", "neptune": "Neptune"}
    return [
        LoggerSpec("jsonl", make=f"{package}.jsonl:JsonlLogger"),
        *(
            LoggerSpec(name, make=f"{package}.{name}:{stem}Logger", options=f"{package}.options:{stem}Options")
            for name, stem in trackers.items()
        ),
    ]
