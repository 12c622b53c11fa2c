"""How rounds are run one after another: engine, memory, devices, seeds, diagnostics."""
