// What node itself has, without chokidar: prints a stamp (CLOCK_MONOTONIC, ns) and a file's name.
import { watch, writeSync } from "node:fs";

watch(process.argv[2], (event, name) => {
  const stamp = process.hrtime.bigint();
  writeSync(1, `${stamp} ${name}\n`);
});
writeSync(1, "0 ready\n");

// The parent process ends this script by closing its input.
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
