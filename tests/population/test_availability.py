"""Who is there in which round, by tables and by files."""

import numpy as np
import pytest

import afga_jax
from afga_jax.population import availability, clustering

THREE = clustering.from_labels([0, 0, 1, 1, 2, 2])


def written(tmp_path, text):
    path = tmp_path / "who.csv"
    path.write_text(text)
    return path


def there(found, rounds, clusters=THREE):
    return np.stack([np.asarray(found.at(number, clusters)) for number in rounds])


def test_rounds_begin_again(tmp_path):
    path = written(tmp_path, "1,0,1\n0, 1,1\n\n")
    found = availability.read(path)
    pair = clustering.single(2)
    found.check(pair)
    expected = [[1, 0], [0, 1], [1, 1], [1, 0], [0, 1]]
    np.testing.assert_array_equal(there(found, range(5), pair), expected)


def test_hours_of_the_day_by_cluster(tmp_path):
    """Rounds of six hours begin at 0, 6, 12 and 18; cluster 1 has no line."""
    path = written(tmp_path, "cluster,from,to\n0,22,6.5\n2,6,7\n2,17,19\n")
    found = availability.read(path, hours_per_round=6)
    found.check(THREE)
    at = there(found, range(8))
    np.testing.assert_array_equal(at[:4, 0], [1, 1, 0, 0])
    np.testing.assert_array_equal(at[:, [2, 3]], True)
    np.testing.assert_array_equal(at[:4, 5], [0, 1, 0, 1])
    np.testing.assert_array_equal(at[4:], at[:4])
    np.testing.assert_array_equal(at[:, 0], at[:, 1])


def test_rounds_that_do_not_divide_the_day(tmp_path):
    path = written(tmp_path, "cluster,from,to\n0,0,12\n1,0,24\n2,12,0\n")
    found = availability.read(path, hours_per_round=7)
    hours = 7 * np.arange(100) % 24
    at = there(found, range(100))
    np.testing.assert_array_equal(at[:, 0], hours < 12)
    np.testing.assert_array_equal(at[:, 2], True)
    np.testing.assert_array_equal(at[:, 4], hours >= 12)


WRONG = {
    "": "is empty",
    "1,0\n1,2\n": r"line 2: '2', but each entry must be 0 or 1",
    "1,0\n\n1\n": r"line 3: 1 rounds, but line 1 has 2: give equally many",
    "1;0\n": r"line 1: '1;0'",
    "cluster,from,to\n": "has no line after",
    "cluster,from,to\n0,1\n": r"line 2: '0,1', but .* for example 0,22,6",
    "cluster,from,to\nnorth,1,2\n": r"line 2: 'north,1,2'",
    "cluster,from,to\n0,1,25\n": r"line 2: '25', but an hour must be >= 0 and <= 24",
    "cluster,from,to\n0,nan,5\n": r"line 2: 'nan'",
    "cluster,from,to\n0,1,1\n": r"line 2: from 1 to 1 is no time at all",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_files_are_refused_by_line(text, tmp_path):
    with pytest.raises(ValueError, match=WRONG[text]) as error:
        availability.read(written(tmp_path, text))
    assert "who.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match=r"nobody\.csv cannot be read"):
        availability.read(tmp_path / "nobody.csv")
    (tmp_path / "who.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="it is not a text"):
        availability.read(tmp_path / "who.csv")


def test_hours_that_do_not_fit(tmp_path):
    hours = written(tmp_path, "cluster,from,to\n0,8,20\n")
    with pytest.raises(ValueError, match=r"hours_per_round = 0\.0001.*whole minutes"):
        availability.read(hours, 0.0001)
    with pytest.raises(ValueError, match=r"hours_per_round = -1"):
        availability.read(hours, -1.0)
    rounds = written(tmp_path, "1,0\n")
    with pytest.raises(ValueError, match=r"hours_per_round = 2, but .* about rounds"):
        availability.read(rounds, 2.0)


def test_tables_of_other_populations(tmp_path):
    hours = availability.read(written(tmp_path, "cluster,from,to\n3,8,20\n"))
    with pytest.raises(ValueError, match=r"names cluster 3, but num_clusters = 3"):
        hours.check(THREE)
    with pytest.raises(ValueError, match=r"has 1 rows, but num_clients = 6"):
        availability.read(written(tmp_path, "1,0\n")).check(THREE)
    for table in (np.ones(3), np.full((2, 2), 0.5), np.ones((0, 2))):
        with pytest.raises(ValueError, match="zeros and ones"):
            afga_jax.Faults(availability=table)
