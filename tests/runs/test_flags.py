"""Flags come from the configuration; what is wrong with a command is one line."""

import pytest

from afga_jax.runs import flags
from afga_jax.runs.config import GROUPS, fields
from afga_jax.runs.settings import resolve


@pytest.fixture
def values():
    return flags.define()


def words(field):
    """How a value of the field is written on a command line, and what it becomes."""
    if field.kind is bool:
        return "true", True
    if field.kind is tuple:
        return "12,7", (12, 7)
    if field.choices:
        first = next(iter(field.choices))
        return first, first
    return {int: ("12", 12), float: ("0.25", 0.25), str: ("here", "here")}[field.kind]


def test_every_field_is_a_flag(values):
    line, expected = ["main"], {}
    for field in fields():
        text, expected[field.name] = words(field)
        line.append(f"--{field.name}={text}")
    flags.parse(line, values)
    given = flags.given(values)
    assert given == expected
    for field in fields():
        assert type(given[field.name]) is field.kind, field


def test_what_cannot_be_read_is_one_line(values):
    for field in fields():
        if field.kind is not str:
            message = rf"^{field.name} = 'x1', but it must be"
            with pytest.raises(ValueError, match=message) as no:
                flags.parse(["main", f"--{field.name}=x1"], values)
            assert "\n" not in str(no.value)


def test_nothing_is_given_until_it_is(values):
    assert flags.parse(["main"], values) == []
    assert flags.given(values) == {}


def test_given_values_pass_through_the_settings(values):
    line = ["main", "--algo=cafga", "--noresample", "--hidden=8,4", "--model=mlp"]
    flags.parse(line, values)
    config = resolve(flags.given(values), dataset="digits").config
    assert (config.algo, config.resample, config.hidden) == ("cafga", False, (8, 4))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--lokal_lr=1", r"^--lokal_lr is not a flag; did you mean --local_lr\?$"),
        ("--lr=1", r"^--lr is not a flag; did you mean --local_lr or --server_lr\?$"),
        ("--learning_rate=1", r"did you mean --local_lr or --server_lr\?$"),
        ("--clients=3", r"^--clients is not a flag; did you mean --num_clients\?$"),
        ("--size=3", r"did you mean --(\w+, --)+\w+ or --\w+\?$"),
        ("--zzzzzz", r"^--zzzzzz is not a flag; see --help.$"),
        ("--rounds", r"^Missing value for flag --rounds; see --help.$"),
        ("train", r"^'train' is not a flag"),
        ("--flagfile=/no/such", r"Unable to open flagfile.*see --help.$"),
    ],
    ids=[
        "near",
        "rates",
        "synonym",
        "part",
        "parts",
        "far",
        "missing",
        "word",
        "flagfile",
    ],
)
def test_mistakes(argument, message, values):
    with pytest.raises(ValueError, match=message) as mistake:
        flags.parse(["main", argument], values)
    assert "\n" not in str(mistake.value)


def test_words_where_they_are_wanted(values):
    found = flags.parse(
        ["compare", "runs/a", "--algo=afga", "runs/b"], values, words=True
    )
    assert found == ["runs/a", "runs/b"]


def test_a_file_of_flags(values, tmp_path):
    preset = tmp_path / "mine.flags"
    preset.write_text("--algo=fedavg\n--rounds=3\n")
    flags.parse(["main", f"--flagfile={preset}", "--rounds=4"], values)
    assert flags.given(values) == {"algo": "fedavg", "rounds": 4}


def test_help_ends_the_program(values, capsys):
    with pytest.raises(SystemExit) as end:
        flags.parse(["main", "--rounds=nonsense", "--help"], values, usage="How to.")
    assert end.value.code == 0
    page = capsys.readouterr().out
    assert page.startswith("How to.\n")
    assert page.rstrip() == flags.help_page("How to.").rstrip()


@pytest.mark.parametrize("width", [60, 80])
def test_the_help_page_has_it_all_and_fits(width):
    page = flags.help_page("python -m experiments.cifar --algo=NAME", width)
    lines = page.splitlines()
    assert max(map(len, lines)) <= width
    titles = [
        line for line in lines if line and line == line.upper() and " " not in line
    ]
    assert titles == [group.upper() for group in GROUPS]
    for field in fields():
        shown = f"--[no]{field.name}" if field.kind is bool else f"--{field.name}="
        (at,) = [i for i, x in enumerate(lines) if x.strip().startswith(shown)]
        ends = (
            i for i in range(at + 1, len(lines)) if not lines[i].startswith("      ")
        )
        text = " ".join(x.strip() for x in lines[at + 1 : next(ends, len(lines))])
        assert text.startswith(field.help)
        assert field.limits() in text


def test_the_help_page_shows_defaults():
    page = " ".join(flags.help_page("", 80).split())
    assert "Accuracy to reach. (> 0 and <= 1) Default: by setting." in page
    assert "--[no]resume Go on with a stopped run. Default: false." in page
    decay = "--b3=NUMBER dadam: β₃, decay of the maximum. (>= 0 and < 1) Default: 0.0."
    assert decay in page
    assert "β₁. (>= 0 and < 1) Default: by algorithm." in page


def page(capsys, *arguments, dataset="digits"):
    with pytest.raises(SystemExit) as end:
        flags.parse(["main", *arguments], flags.define(), usage="U.", dataset=dataset)
    assert end.value.code == 0
    return capsys.readouterr().out


def entry(text, name):
    """What a page says of a flag, in one line."""
    _, _, after = text.partition(f"  --{name}=")
    return " ".join(after.split("\n  --")[0].split("\n\n")[0].split())


def test_help_has_the_defaults_of_what_is_chosen(capsys):
    plain, chosen = page(capsys, "--help"), page(capsys, "--algo=fedprox", "--help")
    rates = [resolve({"algo": a}, dataset="digits").config for a in ("afga", "fedprox")]
    for text, config in zip((plain, chosen), rates, strict=True):
        assert f"--algo={config.algo} --dataset=digits" in " ".join(text.split())
        assert entry(text, "local_lr").endswith(f"Default: {config.local_lr}.")
        assert entry(text, "eval_every").endswith("Default: 2.")
        assert "by setting" not in text
    assert rates[0].local_lr != rates[1].local_lr
    assert "Has no effect with algo = 'afga'; it needs fedprox." in entry(plain, "mu")
    assert entry(chosen, "mu").endswith(f"Default: {rates[1].mu}.")
    other = page(capsys, "--help", "--dataset=shakespeare")
    assert entry(other, "model").endswith("Default: lstm.")


def test_help_of_a_mistaken_line_has_the_usual_defaults(capsys):
    for mistake in ("--rounds=many", "--algo=agfa", "--local_lr=-1", "--nonsense"):
        assert page(capsys, mistake, "--help") == page(capsys, "--help")


@pytest.mark.parametrize("group", GROUPS)
def test_help_of_one_group(group, capsys):
    text = page(capsys, f"--help={group}")
    names = [line.split("=")[0] for line in text.splitlines() if line[:4] == "  --"]
    assert [name.strip().removeprefix("--").removeprefix("[no]") for name in names] == [
        field.name for field in fields(group)
    ]
    assert "U." not in text


def test_help_of_no_group(values):
    with pytest.raises(ValueError, match="did you mean 'data'"):
        flags.parse(["main", "--help=dat"], values, dataset="digits")
