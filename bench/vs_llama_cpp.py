#!/usr/bin/env python3
"""Runs MarkBase and llama.cpp in turns on the same GGUF file and thread count, and compares them.

The peer is built natively, in a throw-away folder, from the source package of llama-cpp-python with
clang >= 16 (g++ 12 breaks its AMX code), release, for this processor, repacking on. Needs clang,
cmake, ninja and, for OpenMP, clang's libomp (Debian: clang-16 libomp-16-dev cmake ninja-build).

  bench/vs_llama_cpp.py MODEL.gguf --markbase build/release/markbase --threads 2
  bench/vs_llama_cpp.py MODEL.gguf --busy            # one other process keeps a core busy meanwhile
  bench/vs_llama_cpp.py MODEL.gguf --peer-dir DIR    # DIR is made and kept, or reused if it is there

A pair is one run of each side, the side that starts changes from pair to pair. A run measures prefill
of --prompt tokens and decode of --gen tokens at each of --depths. The peer runs with flash attention
off and on; each test takes the setting whose median is better. Printed for each test: both medians,
the median of the ratios ours / peer pair by pair, their range and middle half. With --json F
everything is written to F, every single run included. Run it with nothing else going on.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

PEER_PACKAGE = "llama-cpp-python"
PEER_VERSION = "0.3.36"


def say(text):
    print(text, file=sys.stderr, flush=True)


def call(command, **options):
    """Runs a command and returns its standard output; shows everything it said if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        say(done.stdout[-4000:] + done.stderr[-4000:])
        raise SystemExit(f"failed with {done.returncode}: {' '.join(map(str, command))}")
    return done.stdout


def find_clang():
    """(clang, clang++) of the newest version >= 16 on the path."""
    for version in range(30, 15, -1):
        pair = shutil.which(f"clang-{version}"), shutil.which(f"clang++-{version}")
        if all(pair):
            return pair
    raise SystemExit("no clang >= 16 found: apt-get install clang-16 libomp-16-dev")


def build_peer(folder, jobs):
    """Path of llama-bench in folder, built there unless it is there already."""
    binary = folder / "build" / "bin" / "llama-bench"
    if binary.exists():
        return binary
    folder.mkdir(parents=True, exist_ok=True)
    clang, clangxx = find_clang()
    say(f"fetching the source of {PEER_PACKAGE} {PEER_VERSION}")
    call([sys.executable, "-m", "venv", folder / "venv"])
    call([folder / "venv/bin/python", "-m", "pip", "download", "--no-deps", "--no-binary", PEER_PACKAGE,
          "-d", folder, f"{PEER_PACKAGE}=={PEER_VERSION}"])  # fmt: skip
    call(["tar", "xf", next(folder.glob("llama_cpp_python-*.tar.gz")), "-C", folder])
    source = next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
    say(f"building llama-bench with {clangxx}")
    off = ["BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER",
           "LLAMA_BUILD_APP", "LLAMA_OPENSSL"]  # fmt: skip
    call(["cmake", "-S", source, "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Release",
          f"-DCMAKE_C_COMPILER={clang}", f"-DCMAKE_CXX_COMPILER={clangxx}", "-DGGML_NATIVE=ON"]
         + [f"-D{name}=OFF" for name in off])  # fmt: skip
    if "NOTFOUND" in peer_facts(binary).get("OpenMP_CXX_FLAGS", ""):
        say("no OpenMP for this clang (libomp-dev of its version): the peer uses its own threads")
    call(["cmake", "--build", folder / "build", "--target", "llama-bench", "-j", str(jobs)])
    return binary


def peer_facts(binary):
    """What the peer's build says of itself, as far as its cache is beside it."""
    cache = binary.parent.parent / "CMakeCache.txt"
    wanted = ("CMAKE_CXX_COMPILER:", "CMAKE_BUILD_TYPE:", "GGML_NATIVE:", "GGML_OPENMP_ENABLED:",
              "OpenMP_CXX_FLAGS:", "GGML_CPU_REPACK:")  # fmt: skip
    facts = {}
    if cache.exists():
        for line in cache.read_text().splitlines():
            if line.startswith(wanted):
                name, _, value = line.partition("=")
                facts[name.split(":")[0]] = value
    return facts


@contextlib.contextmanager
def busy_process(wanted):
    """One process that keeps a core busy while the block runs."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run_ours(args):
    """{test: tokens per second} of one run, and the share of the read probe at each test."""
    depths = ",".join(map(str, args.depths))
    out = json.loads(
        call([args.markbase, "bench", args.model, "-p", args.prompt, "-n", args.gen, "-d", depths, "-b",
              "1", "-r", "1", "--json", "--threads", args.threads] + args.ours_options)
    )  # fmt: skip
    speeds, shares = {}, {}
    for test in out["tests"]:
        kind, depth = test["kind"], test.get("depth") or 0
        if kind == "prefill" and test["tokens"] == args.prompt and depth == 0:
            name = f"prefill {args.prompt}"
        elif kind == "decode" and depth in args.depths and test.get("batch", 1) == 1:
            name = f"decode at {depth}"
        else:
            continue
        speeds[name] = test["tokens_per_s"]["median"]
        shares[name] = test.get("share_of_bandwidth")
    return speeds, shares


def run_peer(args, binary):
    """{flash attention: {test: tokens per second}} of one run."""
    common = [binary, "-m", args.model, "-t", args.threads, "-r", "1", "-o", "json"]
    speeds = {}
    for flash in ("0", "1"):
        rows = []
        for depth in args.depths:
            prompt = args.prompt if depth == 0 else 0
            options = ["-p", prompt, "-n", args.gen, "-d", depth, "-fa", flash]
            rows += json.loads(call(common + options))
        if 0 not in args.depths:
            rows += json.loads(call(common + ["-p", args.prompt, "-n", 0, "-fa", flash]))
        speeds[flash] = {}
        for row in rows:
            depth = row.get("n_depth", 0)
            name = f"prefill {row['n_prompt']}" if row["n_prompt"] else f"decode at {depth}"
            speeds[flash][name] = row["avg_ts"]
    return speeds


def measure(args, binary):
    """One record a pair: both sides' speeds."""
    pairs = []
    for number in range(args.pairs):
        record = {"first": "ours" if number % 2 == 0 else "peer"}
        for side in ("ours", "peer") if number % 2 == 0 else ("peer", "ours"):
            if side == "ours":
                record["ours"], record["share_of_bandwidth"] = run_ours(args)
            else:
                record["peer"] = run_peer(args, binary)
        pairs.append(record)
        say(f"pair {number + 1}/{args.pairs}: {json.dumps(record)}")
    return pairs


def summary(pairs):
    """Per test: medians of both sides, ratios pair by pair, the peer's better setting."""
    result = {}
    for name in pairs[0]["ours"]:
        peers = {fa: [p["peer"][fa][name] for p in pairs] for fa in pairs[0]["peer"]}
        flash = max(peers, key=lambda fa: statistics.median(peers[fa]))
        ours = [p["ours"][name] for p in pairs]
        ratios = sorted(a / b for a, b in zip(ours, peers[flash]))
        shares = [p["share_of_bandwidth"][name] for p in pairs]
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        result[name] = {
            "ours": statistics.median(ours),
            "ours_range": [min(ours), max(ours)],
            "peer": statistics.median(peers[flash]),
            "peer_range": [min(peers[flash]), max(peers[flash])],
            "peer_flash_attention": flash,
            "ratio": statistics.median(ratios),
            "ratio_range": [ratios[0], ratios[-1]],
            "ratio_middle_half": [quartiles[0], quartiles[2]],
            "share_of_bandwidth": statistics.median(shares) if None not in shares else None,
        }
    return result


def processor():
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def show(result, args):
    print(f"{processor()}, {args.threads} threads, {args.pairs} pairs, busy process: {args.busy}")
    head = f"{'test':16}{'ours t/s':>10}{'peer t/s':>10}  fa {'ratio':>6}{'range':>15}"
    print(f"{head}{'middle half':>15}{'of read probe':>15}")
    for name, row in result.items():
        ranges = ["{:.2f}-{:.2f}".format(*row[key]) for key in ("ratio_range", "ratio_middle_half")]
        share = row["share_of_bandwidth"]
        print(
            f"{name:16}{row['ours']:10.1f}{row['peer']:10.1f}{row['peer_flash_attention']:>4}"
            f" {row['ratio']:6.2f}{ranges[0]:>15}{ranges[1]:>15}"
            f"{'-' if share is None else format(share, '.0%'):>15}"
        )


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--markbase", type=pathlib.Path, default=shutil.which("markbase") or "markbase")
    parser.add_argument("--ours-options", nargs=argparse.REMAINDER, default=[], help="the rest of the line")
    parser.add_argument("--peer-dir", type=pathlib.Path, help="where the peer is built, kept afterwards")
    parser.add_argument("--peer-bench", type=pathlib.Path, help="a llama-bench that is there already")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=128)
    parser.add_argument("--depths", default="0,1024", type=lambda s: [int(x) for x in s.split(",")])
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    args = parse()
    if not args.model.is_file():
        raise SystemExit(f"{args.model}: no such file")
    with contextlib.ExitStack() as stack:
        folder = args.peer_dir
        if folder is None and args.peer_bench is None:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peer-")))
        binary = args.peer_bench or build_peer(folder.resolve(), args.jobs)
        stack.enter_context(busy_process(args.busy))
        pairs = measure(args, binary)
    result = summary(pairs)
    show(result, args)
    if args.json:
        record = {"processor": processor(), "threads": args.threads, "busy": args.busy,
                  "model": args.model.name, "peer": f"{PEER_PACKAGE} {PEER_VERSION}",
                  "peer_build": peer_facts(binary), "summary": result, "pairs": pairs}  # fmt: skip
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
