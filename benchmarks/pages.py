"""How long the pages take: to be written, and to draw a step in a browser.

    python -m benchmarks.pages
    python -m benchmarks.pages --num_clients=200

Seconds are those of a process that has only imported the package: from an algorithm to
the explorer's file, with the one program that draws the plan compiled; no round is. The
browser, if chromium and its driver are there, then shows all moments of a round with
five hundred clients while a gradient is followed; its milliseconds are the median and
the largest of what the page measures itself, from the first line drawn to the last.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import jax

import afga_jax
from afga_jax import data

STEPS, SHARE, MANY = 24, 0.05, 500


def written(num_clients: int, path: Path) -> tuple[float, float, int]:
    """Seconds on the clock and of the processor, and bytes of an explorer's file."""
    task = data.quadratic(2, 1).task
    active = max(1, round(SHARE * num_clients))
    algorithm = afga_jax.build(
        "afga", task, num_clients=num_clients, active=active, local_steps=STEPS
    )
    jax.clear_caches()
    started, computed = time.perf_counter(), time.process_time()
    afga_jax.explore(algorithm).save(path)
    spent = time.perf_counter() - started, time.process_time() - computed
    return *spent, path.stat().st_size


def drawn(path: Path) -> list[float]:
    """Milliseconds of each moment of the round, in a browser."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome")
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(word)
    driver = webdriver.Chrome(
        options=options, service=Service(shutil.which("chromedriver"))
    )
    try:
        driver.get(path.as_uri())
        return driver.execute_script("""
          explorer.keep({cycle: 0, step: 0, at: 0});
          return explorer.moments.map((_, moment) => {
            explorer.show(moment);
            return explorer.milliseconds;
          });
        """)
    finally:
        driver.quit()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num_clients", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for number in (asked.num_clients, MANY):
            path = Path(folder, f"{number}.html")
            seconds, processor, size = written(number, path)
            print(
                f"{number} clients: written in {seconds:.2f} s ({processor:.2f} s of "
                f"the processor), {size / 1e3:.0f} kB"
            )
        if not shutil.which("chromedriver"):
            print("chromedriver is missing: nothing is drawn")
            return
        times = drawn(Path(folder, f"{MANY}.html"))
    middle = statistics.median(times)
    print(f"{MANY} clients: a step in {middle:.1f} ms, at most {max(times):.1f} ms")


if __name__ == "__main__":
    main()
