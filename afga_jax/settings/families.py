"""Algorithms that step alike, and so share defaults where they have none."""

#: Without an adaptive step anywhere, and so without ε.
AVERAGING = ("fedavg", "fedprox", "scaffold", "feddyn", "fedcluster", "sgd")
SERVERLESS = ("dsgd", "pga")
LOCALLY_ADAPTIVE = ("dadam", "damsgrad")
#: ε is added to the root of v.
ADAM = ("fedadam", "fedyogi", "fedadagrad")
AFGA = ("afga", "cafga", "afga_adapted", "cafga_adapted")
HAFED = ("hafed", "hafed_partial", "hafed_active")
#: ε stands inside the root.
AMSGRAD = ("fedamsgrad", "fedams", *AFGA, *HAFED)
