"""Add compiled modules to the archives of Python code that Spark gives to its workers.

Spark puts `pyspark.zip` in front of each worker's path (`PythonUtils.sparkPythonPath` of Spark's core). It holds sources alone,
and Python keeps nothing that it compiles from an archive: each daemon and each planner compiles them again, for half a second.
Used by the image and by `make setup`, with this file alone: no other module is imported.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import os
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path


def compile_archive(archive: Path) -> int:
    """Add a compiled module for each source that has none, and return how many; the file is replaced as a whole or not at all.

    A module that this Python cannot compile is left as it is: it may be meant for another version.
    """
    with zipfile.ZipFile(archive) as held, tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        names = set(held.namelist())
        wanted = [name for name in sorted(names) if name.endswith(".py") and f"{name}c" not in names]
        if not wanted:
            return 0
        made = Path(scratch) / archive.name
        count = 0
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
            for entry in held.infolist():
                target.writestr(copy.copy(entry), held.read(entry))  # it notes in the entry where it stands
            for name in wanted:
                code = _compiled(held.read(name), f"{archive}/{name}", Path(scratch))
                if code is not None:
                    target.writestr(f"{name}c", code)
                    count += 1
        made.chmod(archive.stat().st_mode & 0o777)
        os.replace(made, archive)
    return count


def _compiled(source: bytes, shown_as: str, scratch: Path) -> bytes | None:
    file, compiled = scratch / "module.py", scratch / "module.pyc"
    file.write_bytes(source)
    try:
        # Nothing compares it with the source: in an archive both are replaced together.
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(file), str(compiled), shown_as, doraise=True, invalidation_mode=mode)
    except py_compile.PyCompileError:
        return None
    return compiled.read_bytes()


def archives() -> list[Path]:
    """Return the archives that the installed PySpark brings."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return []
    return sorted((Path(found.origin).parent / "python" / "lib").glob("*.zip"))


def main() -> int:
    """Compile what the command line names, or what the installed PySpark brings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", nargs="*", type=Path, help="a zip file of Python code; by default PySpark's own")
    for archive in parser.parse_args().archive or archives():
        sys.stdout.write(f"{archive}: {compile_archive(archive)} modules compiled\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
