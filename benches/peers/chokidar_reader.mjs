// chokidar: prints a stamp (CLOCK_MONOTONIC, ns) and the name of each file that lands.
import { createRequire } from "node:module";
import { writeSync } from "node:fs";
import { basename } from "node:path";
import { pathToFileURL } from "node:url";

// It is installed elsewhere: beside the other peers.
const require = createRequire(process.env.ENSEMBLE_BENCH_PEERS + "/");
const { watch } = await import(pathToFileURL(require.resolve("chokidar")));

watch(process.argv[2], { ignoreInitial: true, depth: 0 })
  .on("add", (path) => {
    const stamp = process.hrtime.bigint();
    writeSync(1, `${stamp} ${basename(path)}\n`);
  })
  .on("ready", () => writeSync(1, "0 ready\n"));

// The parent process ends this script by closing its input.
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
