// Compiles an archive of modules for Pyodide's Python, so that the page does not: node compile.mjs IN.zip OUT.zip

import fs from "node:fs";
import { loadPyodide } from "pyodide";

const [from, to] = process.argv.slice(2);
const python = await loadPyodide();
python.FS.writeFile("/in.zip", new Uint8Array(fs.readFileSync(from)));
python.runPython(`
import importlib._bootstrap_external as written, zipfile

with zipfile.ZipFile("/in.zip") as modules, zipfile.ZipFile("/out.zip", "w") as compiled:
    for one in modules.infolist():
        text = modules.read(one)
        code = compile(text, one.filename, "exec", dont_inherit=True, optimize=2)
        kept = zipfile.ZipInfo(one.filename + "c", one.date_time)
        kept.compress_type = zipfile.ZIP_DEFLATED
        compiled.writestr(kept, written._code_to_hash_pyc(code, bytes(8), False))
`);
fs.writeFileSync(to, python.FS.readFile("/out.zip"));
