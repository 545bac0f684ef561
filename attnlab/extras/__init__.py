"""Features beside the main job: papers, profiles, sharing, layer benchmarks, adapters of other libraries, Slurm, GPU checks.

Nothing outside this package imports them. They are found by name: verbs in `VERBS` (`attnlab.cli.main`), adapters in `ADAPTERS`
(`attnlab.registry`).
"""
