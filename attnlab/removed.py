"""Keys, verbs and options that 0.9 removed, with what to write instead. The table goes with 1.0."""

# The name as a person types it (a key without its section, a verb, an option with its dashes) and the end of the
# sentence "removed in 0.9: ...".
REMOVED: dict[str, str] = {
    "dtype": "the task tokens reads .npy files, which state their type; np.save writes one",
    "median": "use `mean` or `solve_rate`",
    "superiority": "use `mean` or `solve_rate`",
    "gpu-check": "run `python -m benchmarks.gpu_check` in a checkout",
    "--quick": "attnlab profile --tasks mqar,parity trains two diagnostics",
    "--torch-defaults": "attnlab bench measures every case with the same process settings",
    "--trust": "--imports FILE names the Python files with the classes of the model",
}
