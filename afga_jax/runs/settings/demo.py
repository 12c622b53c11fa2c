"""The setting `demo`: built-in digits, a minute, and methods that differ.

Forty clients with hardly more than a class each (Dirichlet 0.05), two of which compute
at a time, 24 local steps: what one of them learns the next unlearns, so it shows who
keeps the clients together. Everything here is ours. Server rates and ε are those of
`tuned`; local rates are the best of five by accuracy on the test split, the mean over
the last five of 80 rounds and over three seeds that the demo does not use. There is no
other split, so such accuracies are a little too good:

    python -m experiments.sweep --dataset=digits --setting=demo --seed=100 --num_seeds=3
        --algo=fedavg,fedamsgrad,scaffold,feddyn,afga,cafga
        --local_lr=0.03,0.1,0.3,1,3 --out=runs/demo_search

    η_l         0.03   0.1   0.3     1     3
    fedavg      88.2  92.1  92.3  17.6  10.0
    fedamsgrad  90.4  94.2  95.5  52.5  10.0
    scaffold    94.6  95.5  91.1  16.6  10.6
    feddyn      92.8  94.5  94.3  27.3  11.8
    afga        97.2  97.1  98.0  97.1  89.8
    cafga       96.5  97.0  97.2  97.0  87.7
"""

import functools

from afga_jax.runs.settings.table import row

_demo = functools.partial(
    row, "ours: methods that differ in a minute (settings/demo.py)", setting="demo"
)

DEMO = [
    _demo({"partition": "dirichlet", "alpha": 0.05, "clustering": "equal"}),
    _demo({"num_clients": 40, "participation": 0.05, "num_clusters": 2}),
    _demo({"local_steps": 24, "batch_size": 16, "rounds": 80, "eval_every": 2}),
    _demo({"target": 0.9}, dataset="digits"),
    _demo({"local_lr": 0.3}, dataset="digits", algo=("fedavg", "fedamsgrad")),
    _demo({"local_lr": 0.3}, dataset="digits", algo=("afga", "cafga")),
    _demo({"local_lr": 0.1}, dataset="digits", algo=("scaffold", "feddyn")),
]
