// node componentize.mjs PACKAGE '{"witPath": …, "jsPath": …, "moduleRoot": …, "world": …}' SOURCE OUTPUT
//
// The command line of componentize-qjs takes the source from the file that imports are resolved from; here it
// is another file, so that the module's own folder is only read.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const [, , tool, options, source, output] = process.argv;
const { componentize } = createRequire(import.meta.url)(tool);
try {
  const jsSource = readFileSync(source, "utf8");
  const { component } = await componentize({ ...JSON.parse(options), jsSource });
  writeFileSync(output, component);
} catch (error) {
  console.error(`Error: ${error.message}`);
  process.exit(1);
}
